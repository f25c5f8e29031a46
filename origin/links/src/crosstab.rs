//! A link's clicks by country, device and referrer combined. [`Report`](super::report::Report) counts each dimension
//! alone; here the others filter it.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;
use weir_link::code::LinkId;

use super::report::Range;
use crate::model::stats::{CELLS_KEPT_MS, Cell, CellCount, Span};
use crate::store::LinkStore;
use weir_origin_core::sql::SqlError;

/// Filters for clicks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = LinkCrosstabFilter)]
pub struct Filter {
    /// The country.
    #[schema(required)]
    pub country: Option<String>,
    /// Device type.
    #[schema(required)]
    pub device: Option<String>,
    /// The referrer.
    #[schema(required)]
    pub referrer: Option<String>,
}

/// A dimension of the filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CrosstabDimension {
    Country,
    Device,
    Referrer,
}

/// The clicks of an hour or a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = LinkCrosstabPoint)]
pub struct CrosstabPoint {
    /// Start time.
    pub at_ms: u64,
    /// Clicks that match all filters.
    pub clicks: u64,
}

/// Filtered clicks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = LinkCrosstab)]
pub struct Crosstab {
    /// Resolution of the series.
    pub by: Span,
    /// Time zone of the days.
    pub tz: String,
    /// Start of the range.
    pub from_ms: u64,
    /// End of the range.
    pub to_ms: u64,
    /// The filters.
    pub filter: Filter,
    /// Clicks that match all filters.
    pub clicks: u64,
    /// The same for every hour or day.
    pub series: Vec<CrosstabPoint>,
    /// Clicks by country that match the device and referrer filters.
    pub countries: BTreeMap<String, u64>,
    /// Clicks by device type that match the country and referrer filters.
    pub devices: BTreeMap<String, u64>,
    /// Clicks by referrer that match the country and device filters.
    pub referrers: BTreeMap<String, u64>,
    /// Maximum error of these counts: only the top 64 combinations of each hour are stored.
    pub off_by_max: u64,
}

impl CrosstabDimension {
    const ALL: [Self; 3] = [Self::Country, Self::Device, Self::Referrer];

    fn value(self, cell: &Cell) -> &str {
        match self {
            Self::Country => &cell.country,
            Self::Device => &cell.device,
            Self::Referrer => &cell.referrer,
        }
    }
}

impl Filter {
    fn passes(&self, cell: &Cell, by: CrosstabDimension) -> bool {
        let requested = match by {
            CrosstabDimension::Country => &self.country,
            CrosstabDimension::Device => &self.device,
            CrosstabDimension::Referrer => &self.referrer,
        };
        let is = |requested: &String| requested.eq_ignore_ascii_case(by.value(cell));
        requested.as_ref().is_none_or(is)
    }
}

impl Crosstab {
    /// Reads the cross-tab. Clicks before `created_at_ms` belong to an earlier link with this code.
    ///
    /// # Errors
    /// If a SQL call fails.
    pub async fn read(
        store: &LinkStore,
        link: &LinkId,
        created_at_ms: u64,
        range: &Range,
        filter: Filter,
    ) -> Result<Self, SqlError> {
        let from_ms = range.from_ms().max(Span::Hour.start_ms(created_at_ms));
        let cells = store
            .clicks()
            .click_cells(link, from_ms, range.until_ms())
            .await?;
        Ok(Self::from_cells(&cells, range, filter))
    }

    /// Whether the hours of this range are no longer stored.
    pub fn is_too_old(range: &Range, now_ms: u64) -> bool {
        range
            .from_ms()
            .saturating_add(CELLS_KEPT_MS + 24 * 3_600_000)
            < now_ms
    }

    fn from_cells(cells: &[CellCount], range: &Range, filter: Filter) -> Self {
        let none = |at_ms: &u64| CrosstabPoint {
            at_ms: *at_ms,
            clicks: 0,
        };
        let mut series: Vec<CrosstabPoint> = range.starts().iter().map(none).collect();
        let mut sums = CrosstabDimension::ALL.map(|_| BTreeMap::new());
        let (mut clicks, mut off_by_max) = (0, 0);
        for count in cells {
            let passes = CrosstabDimension::ALL.map(|by| filter.passes(&count.cell, by));
            off_by_max += count.over_max;
            if passes.iter().all(|passes| *passes) {
                clicks += count.clicks;
                let position = range.position(count.hour_ms);
                if let Some(point) = position.and_then(|position| series.get_mut(position)) {
                    point.clicks += count.clicks;
                }
            }
            for ((n, by), sum) in CrosstabDimension::ALL
                .into_iter()
                .enumerate()
                .zip(&mut sums)
            {
                let mut others = passes.iter().enumerate().filter(|(m, _)| *m != n);
                if others.all(|(_, passes)| *passes) {
                    let value = by.value(&count.cell).to_owned();
                    *sum.entry(value).or_default() += count.clicks;
                }
            }
        }
        let [countries, devices, referrers] = sums;
        Self {
            by: range.span(),
            tz: range.zone().to_owned(),
            from_ms: range.from_ms(),
            to_ms: range.until_ms(),
            filter,
            clicks,
            series,
            countries,
            devices,
            referrers,
            off_by_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stats::{DAY_MS, HOUR_MS};

    fn count(hour: u64, cell: [&str; 3], clicks: u64, over_max: u64) -> CellCount {
        let [country, device, referrer] = cell.map(str::to_owned);
        CellCount {
            hour_ms: DAY_MS + hour * HOUR_MS,
            cell: Cell {
                country,
                device,
                referrer,
            },
            clicks,
            over_max,
        }
    }

    #[test]
    fn each_crosstab_list_applies_the_other_filters() {
        let cells = [
            count(0, ["DE", "mobile", "qr"], 1, 0),
            count(1, ["DE", "desktop", "direct"], 2, 0),
            count(1, ["FR", "mobile", "qr"], 4, 3),
            count(2, ["FR", "desktop", "a.example"], 8, 0),
        ];
        let range = Range::new(
            Span::Hour,
            Some(DAY_MS),
            Some(DAY_MS + 3 * HOUR_MS),
            0,
            None,
        );
        let range = range.unwrap();
        let filter = Filter {
            device: Some("Mobile".to_owned()),
            country: Some("fr".to_owned()),
            referrer: None,
        };
        let crosstab = Crosstab::from_cells(&cells, &range, filter);
        let numbers = |sum: &BTreeMap<String, u64>| -> Vec<(String, u64)> {
            sum.clone().into_iter().collect()
        };
        let pair = |name: &str, clicks| (name.to_owned(), clicks);
        assert_eq!(crosstab.clicks, 4);
        let series: Vec<u64> = crosstab.series.iter().map(|point| point.clicks).collect();
        assert_eq!(series, [0, 4, 0]);
        assert_eq!(numbers(&crosstab.countries), [pair("DE", 1), pair("FR", 4)]);
        assert_eq!(
            numbers(&crosstab.devices),
            [pair("desktop", 8), pair("mobile", 4)]
        );
        assert_eq!(numbers(&crosstab.referrers), [pair("qr", 4)]);
        assert_eq!(crosstab.off_by_max, 3);
        let all = Crosstab::from_cells(&cells, &range, Filter::default());
        assert_eq!(all.clicks, 15);
    }

    #[test]
    fn cell_text_round_trips() {
        for cell in [["DE", "mobile", "qr"], ["unknown", "script", "a b"]] {
            let cell = count(0, cell, 0, 0).cell;
            assert_eq!(Cell::read(&cell.to_text()), Some(cell));
        }
        assert_eq!(Cell::read("DE mobile"), None);
    }
}
