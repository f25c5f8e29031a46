//! Click statistics: what is stored, and for how long.
//!
//! Per link, SQL stores one row per hour and per day with clicks, visitors and addresses. Per day it also stores clicks
//! by device, system, browser, referrer, region, operator and language. Visitors and addresses come from HyperLogLogs
//! in Redis, see [`clicks`](crate::jobs::clicks). Days are UTC days.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;
use weir_link::code::LinkId;

/// An hour, in milliseconds.
pub const HOUR_MS: u64 = 3_600_000;

/// A day, in milliseconds.
pub const DAY_MS: u64 = 24 * HOUR_MS;

/// Retention of hours, in milliseconds: the finer half of the numbers, and most of the rows.
pub const HOURS_KEPT_MS: u64 = 90 * DAY_MS;

/// Retention of days, in milliseconds.
pub const DAYS_KEPT_MS: u64 = 400 * DAY_MS;

/// Retention of cells, in milliseconds. A cross-tab reads cells to combine filters.
pub const CELLS_KEPT_MS: u64 = 31 * DAY_MS;

/// Maximum number of cells per link and hour: the [top](super::top_k) ones.
pub const CELLS_MAX: usize = 64;

/// How long ids of counted batches are stored, in milliseconds. Redis redelivers a batch within minutes.
pub const BATCHES_KEPT_MS: u64 = 2 * DAY_MS;

/// Maximum length of a value, such as a referrer host, in bytes.
pub const VALUE_LEN_MAX: usize = 64;

/// Resolution of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = LinkSpan)]
pub enum Span {
    /// Hours.
    Hour,
    /// UTC days.
    Day,
}

impl Span {
    /// Its name in SQL and the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    /// Its length, in milliseconds.
    pub const fn len_ms(self) -> u64 {
        match self {
            Self::Hour => HOUR_MS,
            Self::Day => DAY_MS,
        }
    }

    /// Start of the interval that contains this time.
    pub const fn start_ms(self, at_ms: u64) -> u64 {
        at_ms - at_ms % self.len_ms()
    }
}

/// A dimension of the statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Breakdown {
    /// Device type: desktop, mobile, tablet or script.
    Device,
    /// The operating system.
    System,
    /// The browser.
    Browser,
    /// The host of the page that linked here; `direct` without one.
    Referrer,
    /// ISO 3166-2 region, such as `DE-BE`, or only the country; `unknown` without a database.
    Region,
    /// The network operator; `unknown` without a database.
    Operator,
    /// The preferred language; `unknown` if not sent.
    Language,
    /// The code of the link; only for all links of a domain.
    Link,
}

impl Breakdown {
    /// The dimensions of a click on a link.
    pub const ALL: [Self; 7] = [
        Self::Device,
        Self::System,
        Self::Browser,
        Self::Referrer,
        Self::Region,
        Self::Operator,
        Self::Language,
    ];

    /// Its name in SQL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::System => "system",
            Self::Browser => "browser",
            Self::Referrer => "referrer",
            Self::Region => "region",
            Self::Operator => "operator",
            Self::Language => "language",
            Self::Link => "link",
        }
    }

    /// The API's name for the list of its values.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Device => "devices",
            Self::System => "systems",
            Self::Browser => "browsers",
            Self::Referrer => "referrers",
            Self::Region => "regions",
            Self::Operator => "operators",
            Self::Language => "languages",
            Self::Link => "links",
        }
    }

    /// Finds a dimension by name.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = Self::ALL.into_iter().chain([Self::Link]);
        all.into_iter().find(|part| part.as_str() == name)
    }

    /// Maximum number of stored values per link and day: the [top](super::top_k) ones. Clients choose what they send,
    /// so the limit bounds the size of SQL tables.
    pub const fn values_max(self) -> usize {
        match self {
            Self::Referrer | Self::Region | Self::Operator | Self::Link => 100,
            Self::Language => 50,
            Self::Device | Self::System | Self::Browser => 10,
        }
    }

    /// The label of an empty value.
    pub const fn empty_label(self) -> &'static str {
        match self {
            Self::Referrer => "direct",
            _ => "unknown",
        }
    }

    /// Normalizes a value for storage: at most [`VALUE_LEN_MAX`] bytes, without control characters and surrounding
    /// blanks (MySQL ignores trailing ones), and never empty.
    pub fn value(self, text: &str) -> String {
        let mut retained = String::with_capacity(text.len().min(VALUE_LEN_MAX));
        for char in text.trim().chars().filter(|char| !char.is_control()) {
            if retained.len() + char.len_utf8() > VALUE_LEN_MAX {
                break;
            }
            retained.push(char);
        }
        match retained.trim() {
            "" => self.empty_label().to_owned(),
            trimmed => trimmed.to_owned(),
        }
    }
}

/// A combination of filter values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// ISO 3166-1 country code; `unknown` without a database.
    pub country: String,
    /// Device type: desktop, mobile, tablet or script.
    pub device: String,
    /// Host of the referring page; `direct` without one, `qr` for a scanned code.
    pub referrer: String,
}

impl Cell {
    /// Encodes the cell as stored in SQL. Only the last of the three parts may contain a blank.
    pub fn to_text(&self) -> String {
        format!("{} {} {}", self.country, self.device, self.referrer)
    }

    /// Parses the output of [`Cell::to_text`].
    pub fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ' ').map(str::to_owned);
        Some(Self {
            country: parts.next()?,
            device: parts.next()?,
            referrer: parts.next()?,
        })
    }
}

/// The clicks of a cell in one hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellCount {
    /// Start of the hour, in milliseconds since the Unix epoch.
    pub hour_ms: u64,
    /// The cell.
    pub cell: Cell,
    /// Clicks.
    pub clicks: u64,
    /// Maximum overcount of these clicks.
    pub over_max: u64,
}

/// Identical clicks: on one link, in one minute, with equal values in each dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clicks {
    /// The link.
    pub link: LinkId,
    /// The minute, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Number of clicks.
    pub count: u32,
    /// Whether a bot clicked.
    pub is_bot: bool,
    /// Their value in each dimension, in the order of [`Breakdown::ALL`].
    pub values: [String; Breakdown::ALL.len()],
}

impl Clicks {
    /// Their value in one dimension.
    pub fn value(&self, part: Breakdown) -> &str {
        let of_part = Breakdown::ALL.into_iter().zip(&self.values);
        let mut of_part = of_part.filter(|(one, _)| *one == part);
        of_part
            .next()
            .map_or(part.empty_label(), |(_, value)| value)
    }

    /// Their cell in the cross-tab.
    pub fn cell(&self) -> Cell {
        let region = self.value(Breakdown::Region);
        let country = region.split('-').next().unwrap_or(region);
        Cell {
            country: country.replace(' ', "_"),
            device: self.value(Breakdown::Device).to_owned(),
            referrer: self.value(Breakdown::Referrer).to_owned(),
        }
    }
}

/// A batch of clicks from a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its id: a batch that arrives twice with the same id is counted once.
    pub id: String,
    /// The clicks.
    pub clicks: Vec<Clicks>,
}

/// Distinct visitors and addresses of a link in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Uniques {
    /// Approximate number of visitors (address and browser), distinct within a day; days add up.
    pub visitors: u64,
    /// Approximate number of addresses.
    pub addresses: u64,
}

impl Uniques {
    /// The larger value of each field: a count only grows while its HyperLogLog exists.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            visitors: self.visitors.max(other.visitors),
            addresses: self.addresses.max(other.addresses),
        }
    }
}

/// An hour or day of one link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    /// The link.
    pub link: LinkId,
    /// Hour or day.
    pub span: Span,
    /// Start time, in milliseconds since the Unix epoch.
    pub start_ms: u64,
}

impl Slot {
    /// The hour or day that contains this time.
    pub fn at(link: &LinkId, span: Span, at_ms: u64) -> Self {
        Self {
            link: link.clone(),
            span,
            start_ms: span.start_ms(at_ms),
        }
    }
}

/// Unique counts by slot.
pub type UniquesBySlot = BTreeMap<Slot, Uniques>;

/// The clicks of an hour or day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = LinkStatsPoint)]
pub struct Point {
    /// Start time, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Clicks.
    pub clicks: u64,
    /// Clicks of bots, not included in the others.
    pub bots: u64,
    /// Visitors and addresses.
    #[serde(flatten)]
    pub uniques: Uniques,
}

impl Point {
    /// Adds the clicks of another point.
    pub fn add(&mut self, other: &Self) {
        self.clicks += other.clicks;
        self.bots += other.bots;
        self.uniques.visitors += other.uniques.visitors;
        self.uniques.addresses += other.uniques.addresses;
    }
}

/// Number of clicks with one value of a dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartCount {
    /// The dimension.
    pub part: Breakdown,
    /// The value.
    pub value: String,
    /// Clicks.
    pub clicks: u64,
    /// Maximum overcount of these clicks.
    pub over_max: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_value_is_short_clean_and_never_empty() {
        assert_eq!(Breakdown::Referrer.value(""), "direct");
        assert_eq!(Breakdown::Operator.value(" \t\n"), "unknown");
        assert_eq!(Breakdown::Operator.value(" Köln\u{0} Net \r"), "Köln Net");
        let long = Breakdown::Operator.value(&"ö".repeat(40));
        assert_eq!(long, "ö".repeat(32));
        let blank = Breakdown::Operator.value(&format!("{} x", "a".repeat(63)));
        assert_eq!(blank, "a".repeat(63));
    }

    #[test]
    fn spans_start_at_utc_hours_and_days() {
        let at_ms = 1_795_263_805_216; // 2026-11-21T12:23:25Z
        assert_eq!(Span::Hour.start_ms(at_ms) % HOUR_MS, 0);
        assert_eq!(
            at_ms - Span::Hour.start_ms(at_ms),
            (23 * 60 + 25) * 1_000 + 216
        );
        assert_eq!(Span::Day.start_ms(at_ms), 1_795_219_200_000);
    }
}
