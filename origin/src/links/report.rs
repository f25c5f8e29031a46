//! Reports a link's clicks: sums, over time, and by device, referrer and so on.

use std::collections::{BTreeMap, HashMap};

use serde::ser::{Serialize, SerializeMap, Serializer};
use weir_link::code::LinkId;

use super::stats::{DAY_MS, Part, PartCount, Point, Span, Uniques};
use super::store::LinkStore;
use crate::sql::SqlError;

/// The most hours in one answer: a month.
pub const HOURS_MAX: u64 = 31 * 24;

/// The most days in one answer: as many as are kept.
pub const DAYS_MAX: u64 = 400;

/// So many days, or hours, are told of unless it is said which.
const DEFAULT_DAYS: u64 = 30;
const DEFAULT_HOURS: u64 = 24;

/// What is asked for: whole hours or days of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    span: Span,
    from_ms: u64,
    until_ms: u64,
}

/// Why a range is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// It ends before it begins, or where it begins.
    #[error("to_ms: must be later than from_ms")]
    Empty,
    /// It has too many hours or days.
    #[error("from_ms, to_ms: at most {HOURS_MAX} hours or {DAYS_MAX} days at once")]
    TooLong,
}

impl Range {
    /// From the hour or day that holds `from_ms` to the end of the one that holds the millisecond before
    /// `to_ms`; unless told, to the end of the one that runs, and back from there.
    ///
    /// # Errors
    /// See [`RangeError`].
    pub fn new(
        span: Span,
        from_ms: Option<u64>,
        to_ms: Option<u64>,
        now_ms: u64,
    ) -> Result<Self, RangeError> {
        let len_ms = span.len_ms();
        let (default, most) = match span {
            Span::Hour => (DEFAULT_HOURS, HOURS_MAX),
            Span::Day => (DEFAULT_DAYS, DAYS_MAX),
        };
        if to_ms.is_some_and(|to_ms| to_ms <= from_ms.unwrap_or(0)) {
            return Err(RangeError::Empty);
        }
        let last_ms = to_ms.map_or(now_ms, |to_ms| to_ms.saturating_sub(1));
        let until_ms = span.start_ms(last_ms).saturating_add(len_ms);
        let earliest_ms = until_ms.saturating_sub(default * len_ms);
        let from_ms = span.start_ms(from_ms.unwrap_or(earliest_ms));
        if from_ms >= until_ms {
            return Err(RangeError::Empty);
        }
        if (until_ms - from_ms) / len_ms > most {
            return Err(RangeError::TooLong);
        }
        Ok(Self {
            span,
            from_ms,
            until_ms,
        })
    }

    /// The days that it touches.
    fn days(&self) -> (u64, u64) {
        let last_ms = Span::Day.start_ms(self.until_ms - 1);
        (Span::Day.start_ms(self.from_ms), last_ms + DAY_MS)
    }
}

/// The clicks of one link within a [`Range`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What was asked for.
    pub range: Range,
    /// Those of people, and of programs that they sent.
    pub clicks: u64,
    /// Those of programs that come by themselves: crawlers, previews.
    pub bots: u64,
    /// Different visitors and addresses. Those of several days add up: nobody is known from one day to
    /// the next. Of hours it is the sum, but no more than their day had.
    pub uniques: Uniques,
    /// Every hour or day, those without clicks included.
    pub series: Vec<Point>,
    /// How the clicks divide, the largest first. It is kept by day, so it is that of all days that the
    /// range touches.
    pub parts: BTreeMap<Part, Vec<PartCount>>,
}

impl Report {
    /// Reads it. Clicks from before `created_at_ms` are of another link that had this code.
    ///
    /// # Errors
    /// When SQL does not answer.
    pub async fn read(
        store: &LinkStore,
        link: &LinkId,
        created_at_ms: u64,
        range: Range,
    ) -> Result<Self, SqlError> {
        let Range {
            span,
            from_ms,
            until_ms,
        } = range;
        let first = |span: Span, from_ms: u64| from_ms.max(span.start_ms(created_at_ms));
        let points = store.click_points(link, span, first(span, from_ms), until_ms);
        let points = points.await?;
        let (first_day_ms, end_ms) = range.days();
        let first_day_ms = first(Span::Day, first_day_ms);
        let days = store.click_points(link, Span::Day, first_day_ms, end_ms);
        let uniques = uniques(span, &points, &days.await?);
        let mut parts: BTreeMap<Part, Vec<PartCount>> = BTreeMap::new();
        for count in store.click_parts(link, first_day_ms, end_ms).await? {
            parts.entry(count.part).or_default().push(count);
        }
        Ok(Self {
            range,
            clicks: points.iter().map(|point| point.clicks).sum(),
            bots: points.iter().map(|point| point.bots).sum(),
            uniques,
            series: every(range, &points),
            parts,
        })
    }
}

/// All spans of the range, in order.
fn every(range: Range, points: &[Point]) -> Vec<Point> {
    let known: HashMap<u64, &Point> = points.iter().map(|point| (point.at_ms, point)).collect();
    let len_ms = range.span.len_ms();
    let count = (range.until_ms - range.from_ms) / len_ms;
    let starts = (0..count).map(|n| range.from_ms + n * len_ms);
    let none = |at_ms| Point {
        at_ms,
        clicks: 0,
        bots: 0,
        uniques: Uniques::default(),
    };
    starts
        .map(|at_ms| {
            known
                .get(&at_ms)
                .map_or_else(|| none(at_ms), |point| **point)
        })
        .collect()
}

fn uniques(span: Span, points: &[Point], days: &[Point]) -> Uniques {
    let mut by_day: BTreeMap<u64, Uniques> = BTreeMap::new();
    for point in points {
        let sum = by_day.entry(Span::Day.start_ms(point.at_ms)).or_default();
        sum.visitors += point.uniques.visitors;
        sum.addresses += point.uniques.addresses;
    }
    if span == Span::Hour {
        // Who came in two hours of a day is in the sum twice.
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

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("by", self.range.span.as_str())?;
        map.serialize_entry("from_ms", &self.range.from_ms)?;
        map.serialize_entry("to_ms", &self.range.until_ms)?;
        map.serialize_entry("clicks", &self.clicks)?;
        map.serialize_entry("bots", &self.bots)?;
        map.serialize_entry("visitors", &self.uniques.visitors)?;
        map.serialize_entry("addresses", &self.uniques.addresses)?;
        map.serialize_entry("series", &self.series)?;
        let (from_ms, to_ms) = self.range.days();
        map.serialize_entry("parts_from_ms", &from_ms)?;
        map.serialize_entry("parts_to_ms", &to_ms)?;
        for part in Part::ALL {
            let values = self.parts.get(&part).map(Vec::as_slice).unwrap_or_default();
            map.serialize_entry(part.plural(), &Values(values))?;
        }
        map.serialize_entry("too_many_by", &self.errors())?;
        map.end()
    }
}

impl Report {
    /// By how much the clicks of any value of a part may be too many, for the parts where they may.
    fn errors(&self) -> BTreeMap<&'static str, u64> {
        let parts = self.parts.iter();
        let most = parts.map(|(part, values)| {
            let errors = values.iter().map(|value| value.over_max);
            (part.plural(), errors.max().unwrap_or(0))
        });
        most.filter(|(_, error)| *error > 0).collect()
    }
}

/// Values and their clicks, as the members of an object.
struct Values<'a>(&'a [PartCount]);

impl Serialize for Values<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|count| (&count.value, count.clicks)))
    }
}

impl Serialize for Point {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(5))?;
        map.serialize_entry("at_ms", &self.at_ms)?;
        map.serialize_entry("clicks", &self.clicks)?;
        map.serialize_entry("bots", &self.bots)?;
        map.serialize_entry("visitors", &self.uniques.visitors)?;
        map.serialize_entry("addresses", &self.uniques.addresses)?;
        map.end()
    }
}

impl Report {
    /// The same as a table for other programs: one line an hour or day, then one line a value.
    pub fn csv(&self) -> String {
        let mut csv = crate::http::csv::Csv::new(&[
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
                &crate::clock::utc(point.at_ms),
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
    use super::super::stats::HOUR_MS;
    use super::*;

    const NOON: u64 = 20_000 * DAY_MS + 12 * HOUR_MS + 1;

    fn range(span: Span, from_ms: Option<u64>, to_ms: Option<u64>) -> Result<Range, RangeError> {
        Range::new(span, from_ms, to_ms, NOON)
    }

    #[test]
    fn a_range_has_whole_hours_or_days() {
        let hours = range(Span::Hour, Some(NOON - HOUR_MS), Some(NOON)).unwrap();
        assert_eq!(hours.from_ms, NOON - HOUR_MS - 1);
        assert_eq!(hours.until_ms, NOON + HOUR_MS - 1);
        // Where the end is a border, nothing behind it is meant.
        let day = range(Span::Day, Some(DAY_MS), Some(2 * DAY_MS)).unwrap();
        assert_eq!((day.from_ms, day.until_ms), (DAY_MS, 2 * DAY_MS));
        let day = range(Span::Day, None, None).unwrap();
        assert_eq!(day.until_ms - day.from_ms, 30 * DAY_MS);
        assert_eq!(day.until_ms, 20_001 * DAY_MS);
        assert_eq!(hours.days(), (20_000 * DAY_MS, 20_001 * DAY_MS));
    }

    #[test]
    fn a_range_that_makes_no_sense_is_refused() {
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
    fn visitors_of_hours_are_no_more_than_their_days() {
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
