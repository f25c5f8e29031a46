//! Reports a link's clicks: totals, a time series, and breakdowns by device, referrer and so on.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use utoipa::ToSchema;
use weir_link::click::SCANNED;
use weir_link::code::LinkId;

use crate::model::stats::{Breakdown, DAY_MS, HOURS_KEPT_MS, PartCount, Point, Span, Uniques};
use crate::model::zone::Zone;
use crate::store::LinkStore;
use weir_origin_core::sql::SqlError;

/// Maximum number of hours in a report: a month.
pub const HOURS_MAX: u64 = 31 * 24;

/// Maximum number of days in a report: the retention of days.
pub const DAYS_MAX: u64 = 400;

/// Default number of days in a report.
const DEFAULT_DAYS: u64 = 30;
const DEFAULT_HOURS: u64 = 24;

/// A requested range: whole hours, or whole days in UTC or another time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    span: Span,
    zone: Option<Zone>,
    /// Starts of the hours or days, and the end of the last one: at least two.
    borders: Vec<u64>,
}

/// Why a range is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// It ends before or at its start.
    #[error("to_ms: must be later than from_ms")]
    Empty,
    /// It has too many hours or days.
    #[error("from_ms, to_ms: must span at most {HOURS_MAX} hours or {DAYS_MAX} days")]
    TooLong,
    /// Days of a time zone are sums of hours, which have a shorter retention than days.
    #[error("tz, from_ms: days in a time zone are only available for the last 90 days")]
    TooOld,
}

impl Range {
    /// Creates a range from the hour or day that contains `from_ms` to the end of the one that contains the millisecond
    /// before `to_ms`. By default it ends with the current hour or day. `zone`: the time zone; `None`: UTC.
    ///
    /// # Errors
    /// See [`RangeError`].
    pub fn new(
        span: Span,
        from_ms: Option<u64>,
        to_ms: Option<u64>,
        now_ms: u64,
        zone: Option<Zone>,
    ) -> Result<Self, RangeError> {
        if to_ms.is_some_and(|to_ms| to_ms <= from_ms.unwrap_or(0)) {
            return Err(RangeError::Empty);
        }
        let last_ms = to_ms.map_or(now_ms, |to_ms| to_ms.saturating_sub(1));
        let borders = match (span, &zone) {
            (Span::Day, Some(zone)) => zoned(zone, from_ms, last_ms, now_ms)?,
            _ => even(span, from_ms, last_ms)?,
        };
        Ok(Self {
            span,
            zone,
            borders,
        })
    }

    /// Its time zone's name.
    pub fn zone(&self) -> &str {
        self.zone.as_ref().map_or("UTC", Zone::name)
    }

    /// Whether its intervals are stored directly.
    const fn is_kept(&self) -> bool {
        matches!((self.span, &self.zone), (Span::Hour, _) | (_, None))
    }

    /// Start time.
    pub fn from_ms(&self) -> u64 {
        self.borders.first().copied().unwrap_or(0)
    }

    /// End of the range.
    pub fn until_ms(&self) -> u64 {
        self.borders.last().copied().unwrap_or(0)
    }

    /// Resolution of the series.
    pub const fn span(&self) -> Span {
        self.span
    }

    /// Starts of its hours or days.
    pub fn starts(&self) -> &[u64] {
        self.borders.split_last().map_or(&[], |(_, starts)| starts)
    }

    /// Index of the hour or day that contains this time.
    pub fn position(&self, at_ms: u64) -> Option<usize> {
        let behind = self.borders.partition_point(|border| *border <= at_ms);
        let position = behind.checked_sub(1)?;
        (behind < self.borders.len()).then_some(position)
    }

    /// The resolution to read: days of a time zone are sums of hours.
    pub(crate) const fn retained(&self) -> Span {
        match self.is_kept() {
            true => self.span,
            false => Span::Hour,
        }
    }

    /// The UTC days that it touches.
    pub(crate) fn days(&self) -> (u64, u64) {
        let last_ms = Span::Day.start_ms(self.until_ms().saturating_sub(1));
        (Span::Day.start_ms(self.from_ms()), last_ms + DAY_MS)
    }
}

/// Borders of intervals with a fixed length.
fn even(span: Span, from_ms: Option<u64>, last_ms: u64) -> Result<Vec<u64>, RangeError> {
    let len_ms = span.len_ms();
    let (default, most) = match span {
        Span::Hour => (DEFAULT_HOURS, HOURS_MAX),
        Span::Day => (DEFAULT_DAYS, DAYS_MAX),
    };
    let until_ms = span.start_ms(last_ms).saturating_add(len_ms);
    let earliest_ms = until_ms.saturating_sub(default * len_ms);
    let from_ms = span.start_ms(from_ms.unwrap_or(earliest_ms));
    if from_ms >= until_ms {
        return Err(RangeError::Empty);
    }
    let count = (until_ms - from_ms) / len_ms;
    if count > most {
        return Err(RangeError::TooLong);
    }
    Ok((0..=count).map(|n| from_ms + n * len_ms).collect())
}

/// Borders of a time zone's days.
fn zoned(
    zone: &Zone,
    from_ms: Option<u64>,
    last_ms: u64,
    now_ms: u64,
) -> Result<Vec<u64>, RangeError> {
    let from_ms = from_ms.unwrap_or_else(|| zone.days_before(last_ms, DEFAULT_DAYS - 1));
    if from_ms > last_ms {
        return Err(RangeError::Empty);
    }
    if last_ms - from_ms > DAYS_MAX * DAY_MS {
        return Err(RangeError::TooLong);
    }
    if from_ms.saturating_add(HOURS_KEPT_MS) < now_ms {
        return Err(RangeError::TooOld);
    }
    let borders = zone.borders(from_ms, last_ms);
    match borders.len() {
        0 | 1 => Err(RangeError::Empty),
        _ => Ok(borders),
    }
}

/// The clicks of one link within a [`Range`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The requested range.
    pub range: Range,
    /// Clicks of people, and of scripts on their behalf.
    pub clicks: u64,
    /// Clicks of bots: crawlers and previews.
    pub bots: u64,
    /// Unique visitors and addresses. Several days add up, because visitors are not tracked across days. Hours also add
    /// up, but to no more than their day's count.
    pub uniques: Uniques,
    /// All hours or days, including those without clicks.
    pub series: Vec<Point>,
    /// Breakdowns by dimension, largest first. They are stored by day, so they cover all days that the range touches.
    pub parts: BTreeMap<Breakdown, Vec<PartCount>>,
}

impl Report {
    /// Reads a report. Clicks before `created_at_ms` belong to an earlier link with this code.
    ///
    /// # Errors
    /// If a SQL call fails.
    pub async fn read(
        store: &LinkStore,
        link: &LinkId,
        created_at_ms: u64,
        range: Range,
    ) -> Result<Self, SqlError> {
        let retained = range.retained();
        let first = |span: Span, from_ms: u64| from_ms.max(span.start_ms(created_at_ms));
        let from_ms = first(retained, range.from_ms());
        let points = store
            .clicks()
            .click_points(link, retained, from_ms, range.until_ms());
        let points = points.await?;
        let (first_day_ms, end_ms) = range.days();
        let first_day_ms = first(Span::Day, first_day_ms);
        let days = store
            .clicks()
            .click_points(link, Span::Day, first_day_ms, end_ms);
        let days = days.await?;
        let counts = store.clicks().click_parts(link, first_day_ms, end_ms);
        Ok(Self::new(range, &points, &days, counts.await?))
    }

    /// Creates a report from the intervals of the [resolution to read](Range::retained) and the days that the range
    /// touches.
    pub(crate) fn new(
        range: Range,
        points: &[Point],
        days: &[Point],
        counts: Vec<PartCount>,
    ) -> Self {
        let uniques = uniques(range.retained(), points, days);
        let mut parts: BTreeMap<Breakdown, Vec<PartCount>> = BTreeMap::new();
        for count in counts {
            parts.entry(count.part).or_default().push(count);
        }
        Self {
            clicks: points.iter().map(|point| point.clicks).sum(),
            bots: points.iter().map(|point| point.bots).sum(),
            uniques,
            series: every(&range, points),
            parts,
            range,
        }
    }

    /// Clicks by people who scanned a QR code. They are one of the referrers.
    pub fn scans(&self) -> u64 {
        let referrers = self.parts.get(&Breakdown::Referrer).into_iter().flatten();
        let scans = referrers.filter(|count| count.value == SCANNED);
        scans.map(|count| count.clicks).sum()
    }
}

/// All hours or days of the range, in order.
fn every(range: &Range, points: &[Point]) -> Vec<Point> {
    let none = |at_ms: &u64| Point {
        at_ms: *at_ms,
        clicks: 0,
        bots: 0,
        uniques: Uniques::default(),
    };
    let mut series: Vec<Point> = range.starts().iter().map(none).collect();
    for point in points {
        let position = range.position(point.at_ms);
        if let Some(sum) = position.and_then(|position| series.get_mut(position)) {
            sum.add(point);
        }
    }
    series
}

fn uniques(span: Span, points: &[Point], days: &[Point]) -> Uniques {
    let mut by_day: BTreeMap<u64, Uniques> = BTreeMap::new();
    for point in points {
        let sum = by_day.entry(Span::Day.start_ms(point.at_ms)).or_default();
        sum.visitors += point.uniques.visitors;
        sum.addresses += point.uniques.addresses;
    }
    if span == Span::Hour {
        // A visitor in two hours of a day counts twice in the sum.
        for day in days {
            if let Some(sum) = by_day.get_mut(&day.at_ms) {
                sum.visitors = sum.visitors.min(day.uniques.visitors);
                sum.addresses = sum.addresses.min(day.uniques.addresses);
            }
        }
    }
    let add = |sum: Uniques, day: &Uniques| Uniques {
        visitors: sum.visitors + day.visitors,
        addresses: sum.addresses + day.addresses,
    };
    by_day.values().fold(Uniques::default(), add)
}

/// Click statistics of a link.
#[derive(Serialize, ToSchema)]
#[schema(as = LinkStats)]
pub struct ReportView<'a> {
    /// Resolution of the series: `hour` or `day`.
    by: Span,
    /// Time zone of the days.
    tz: &'a str,
    /// Start, in milliseconds since the Unix epoch.
    from_ms: u64,
    /// End (exclusive), in milliseconds since the Unix epoch.
    to_ms: u64,
    /// Clicks of people.
    clicks: u64,
    /// Clicks of bots, not included in the others.
    bots: u64,
    #[serde(flatten)]
    uniques: Uniques,
    /// QR code scans from `parts_from_ms` to `parts_to_ms`. They are included in the clicks, with the referrer `qr`.
    scans: u64,
    /// One entry per interval.
    series: &'a [Point],
    /// Start of the breakdowns below, which are by UTC day.
    parts_from_ms: u64,
    /// End of the breakdowns, in milliseconds since the Unix epoch.
    parts_to_ms: u64,
    /// Clicks by device type: desktop, mobile, tablet, script, other.
    #[schema(value_type = BTreeMap<String, u64>)]
    devices: Values<'a>,
    /// Clicks by operating system.
    #[schema(value_type = BTreeMap<String, u64>)]
    systems: Values<'a>,
    /// Clicks by browser.
    #[schema(value_type = BTreeMap<String, u64>)]
    browsers: Values<'a>,
    /// Clicks by referrer host, or `direct`: the top 100 of each day.
    #[schema(value_type = BTreeMap<String, u64>)]
    referrers: Values<'a>,
    /// Clicks by region (ISO 3166-2), or `unknown`.
    #[schema(value_type = BTreeMap<String, u64>)]
    regions: Values<'a>,
    /// Clicks by network operator, or `unknown`.
    #[schema(value_type = BTreeMap<String, u64>)]
    operators: Values<'a>,
    /// Clicks by language, as primary subtags, or `unknown`.
    #[schema(value_type = BTreeMap<String, u64>)]
    languages: Values<'a>,
    /// Maximum overcount of breakdowns that keep only their top values.
    too_many_by: BTreeMap<&'static str, u64>,
}

impl Report {
    /// The report in the API's format.
    pub fn view(&self) -> ReportView<'_> {
        let values = |part| Values(self.parts.get(&part).map(Vec::as_slice).unwrap_or_default());
        let (parts_from_ms, parts_to_ms) = self.range.days();
        ReportView {
            by: self.range.span,
            tz: self.range.zone(),
            from_ms: self.range.from_ms(),
            to_ms: self.range.until_ms(),
            clicks: self.clicks,
            bots: self.bots,
            uniques: self.uniques,
            scans: self.scans(),
            series: &self.series,
            parts_from_ms,
            parts_to_ms,
            devices: values(Breakdown::Device),
            systems: values(Breakdown::System),
            browsers: values(Breakdown::Browser),
            referrers: values(Breakdown::Referrer),
            regions: values(Breakdown::Region),
            operators: values(Breakdown::Operator),
            languages: values(Breakdown::Language),
            too_many_by: self.errors(),
        }
    }
}

impl Report {
    /// Maximum overcount by dimension, for dimensions that have one.
    fn errors(&self) -> BTreeMap<&'static str, u64> {
        let parts = self.parts.iter();
        let most = parts.map(|(part, values)| {
            let errors = values.iter().map(|value| value.over_max);
            (part.plural(), errors.max().unwrap_or(0))
        });
        most.filter(|(_, error)| *error > 0).collect()
    }
}

/// Values and their clicks, serialized as an object.
pub(crate) struct Values<'a>(pub(crate) &'a [PartCount]);

impl Serialize for Values<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|count| (&count.value, count.clicks)))
    }
}

impl Report {
    /// The report as CSV: one line per hour or day, then one line per value.
    pub fn csv(&self) -> String {
        let mut csv = weir_origin_core::http::csv::Csv::new(&[
            "part",
            "value",
            "clicks",
            "visitors",
            "addresses",
            "bots",
            "too_many_by",
        ]);
        for point in &self.series {
            csv.line(&[
                self.range.span.as_str(),
                &weir_origin_core::clock::utc(point.at_ms),
                &point.clicks.to_string(),
                &point.uniques.visitors.to_string(),
                &point.uniques.addresses.to_string(),
                &point.bots.to_string(),
                "",
            ]);
        }
        for (part, values) in &self.parts {
            for count in values {
                let (clicks, error) = (count.clicks.to_string(), count.over_max.to_string());
                let cells = [part.as_str(), &count.value, &clicks, "", "", "", &error];
                csv.line(&cells);
            }
        }
        csv.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stats::HOUR_MS;

    const NOON: u64 = 20_000 * DAY_MS + 12 * HOUR_MS + 1;

    fn range(span: Span, from_ms: Option<u64>, to_ms: Option<u64>) -> Result<Range, RangeError> {
        Range::new(span, from_ms, to_ms, NOON, None)
    }

    #[test]
    fn range_has_whole_hours_or_days() {
        let hours = range(Span::Hour, Some(NOON - HOUR_MS), Some(NOON)).unwrap();
        assert_eq!(hours.from_ms(), NOON - HOUR_MS - 1);
        assert_eq!(hours.until_ms(), NOON + HOUR_MS - 1);
        // An end that is a border does not include the next interval.
        let day = range(Span::Day, Some(DAY_MS), Some(2 * DAY_MS)).unwrap();
        assert_eq!((day.from_ms(), day.until_ms()), (DAY_MS, 2 * DAY_MS));
        let day = range(Span::Day, None, None).unwrap();
        assert_eq!(day.until_ms() - day.from_ms(), 30 * DAY_MS);
        assert_eq!(day.until_ms(), 20_001 * DAY_MS);
        assert_eq!(hours.days(), (20_000 * DAY_MS, 20_001 * DAY_MS));
    }

    #[test]
    fn invalid_report_range_is_refused() {
        for (from_ms, to_ms) in [
            (Some(2), Some(1)),
            (Some(2 * DAY_MS), Some(DAY_MS)),
            (None, Some(0)),
            (Some(NOON + DAY_MS), None),
        ] {
            assert_eq!(range(Span::Day, from_ms, to_ms), Err(RangeError::Empty));
        }
        assert_eq!(range(Span::Day, Some(0), None), Err(RangeError::TooLong));
        let month = NOON - 31 * DAY_MS;
        assert_eq!(
            range(Span::Hour, Some(month), None),
            Err(RangeError::TooLong)
        );
        assert!(range(Span::Hour, Some(month + HOUR_MS), None).is_ok());
        assert!(range(Span::Day, Some(0), Some(u64::MAX)).is_err());
    }

    #[test]
    fn zone_days_are_sums_of_their_hours() {
        let zone = || Zone::by_name("Asia/Kathmandu").unwrap();
        let offset_ms = 5 * HOUR_MS + 45 * 60_000;
        let days = |from_ms, to_ms| Range::new(Span::Day, from_ms, to_ms, NOON, zone());
        let range = days(Some(NOON - 2 * DAY_MS), Some(NOON)).unwrap();
        assert_eq!((range.starts().len(), range.zone()), (3, "Asia/Kathmandu"));
        assert_eq!((range.from_ms() + offset_ms) % DAY_MS, 0);
        let starts = range.starts().to_vec();
        let point = |at_ms, clicks| Point {
            at_ms,
            clicks,
            bots: 1,
            uniques: Uniques::default(),
        };
        let points = [
            point(starts[0], 1),
            point(starts[1] - 1, 2),
            point(starts[1], 4),
            point(range.until_ms() - 1, 8),
            // Points before and after the range are left out.
            point(starts[0] - 1, 16),
            point(range.until_ms(), 16),
        ];
        let series = every(&range, &points);
        let clicks: Vec<_> = series
            .iter()
            .map(|point| (point.at_ms, point.clicks))
            .collect();
        assert_eq!(clicks, [(starts[0], 3), (starts[1], 4), (starts[2], 8)]);
        assert_eq!(days(None, None).unwrap().starts().len(), 30);
        let refused = days(Some(NOON - 91 * DAY_MS), None);
        assert_eq!(refused, Err(RangeError::TooOld));
        assert_eq!(days(Some(NOON), Some(NOON)), Err(RangeError::Empty));
    }

    #[test]
    fn hourly_visitors_never_exceed_the_daily_visitors() {
        let point = |at_ms, visitors, addresses| Point {
            at_ms,
            clicks: 9,
            bots: 0,
            uniques: Uniques {
                visitors,
                addresses,
            },
        };
        let hours = [point(0, 5, 2), point(HOUR_MS, 4, 2), point(DAY_MS, 3, 1)];
        let days = [point(0, 6, 9), point(DAY_MS, 7, 1)];
        let sums = uniques(Span::Hour, &hours, &days);
        assert_eq!((sums.visitors, sums.addresses), (6 + 3, 4 + 1));
        let sums = uniques(Span::Day, &days, &days);
        assert_eq!((sums.visitors, sums.addresses), (13, 10));
    }
}
