//! What is counted of clicks, and how it is asked for.
//!
//! SQL holds, per link, one row an hour and a day with clicks, visitors and addresses, and per day how
//! the clicks divide by device, system, browser, referrer, region, operator and language. Visitors
//! and addresses come from Redis' HyperLogLogs, see [`clicks`](crate::jobs::clicks). Days are those of UTC.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;
use weir_link::code::LinkId;

/// An hour, in milliseconds.
pub const HOUR_MS: u64 = 3_600_000;

/// A day, in milliseconds.
pub const DAY_MS: u64 = 24 * HOUR_MS;

/// For how long hours are kept: the finer half of the numbers, and most of the rows.
pub const HOURS_KEPT_MS: u64 = 90 * DAY_MS;

/// For how long days are kept.
pub const DAYS_KEPT_MS: u64 = 400 * DAY_MS;

/// For how long cells are kept, by which clicks are filtered by more than one thing.
pub const CELLS_KEPT_MS: u64 = 31 * DAY_MS;

/// The most cells of one link and hour, the [heaviest](super::heavy).
pub const CELLS_MAX: usize = 64;

/// For how long it is known which batches were counted. Redis gives a batch again within minutes.
pub const BATCHES_KEPT_MS: u64 = 2 * DAY_MS;

/// The most bytes of a value, such as a referrer's host.
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
    /// As SQL and the API call it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    /// How long one is, in milliseconds.
    pub const fn len_ms(self) -> u64 {
        match self {
            Self::Hour => HOUR_MS,
            Self::Day => DAY_MS,
        }
    }

    /// When the one begins that holds this instant.
    pub const fn start_ms(self, at_ms: u64) -> u64 {
        at_ms - at_ms % self.len_ms()
    }
}

/// What clicks are divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Breakdown {
    /// Desktop, mobile, tablet, script.
    Device,
    /// The operating system.
    System,
    /// The browser.
    Browser,
    /// The host of the page that linked here; `direct` without one.
    Referrer,
    /// ISO 3166-2, like `DE-BE`, or just the country; `unknown` without a database.
    Region,
    /// Who runs the network; `unknown` without a database.
    Operator,
    /// The language that is preferred; `unknown` if none is said.
    Language,
}

impl Breakdown {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Device,
        Self::System,
        Self::Browser,
        Self::Referrer,
        Self::Region,
        Self::Operator,
        Self::Language,
    ];

    /// As SQL calls it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::System => "system",
            Self::Browser => "browser",
            Self::Referrer => "referrer",
            Self::Region => "region",
            Self::Operator => "operator",
            Self::Language => "language",
        }
    }

    /// As the API calls all of its values.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Device => "devices",
            Self::System => "systems",
            Self::Browser => "browsers",
            Self::Referrer => "referrers",
            Self::Region => "regions",
            Self::Operator => "operators",
            Self::Language => "languages",
        }
    }

    /// The one of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.as_str() == name)
    }

    /// The most different values that are kept of one link and day, the [heaviest](super::heavy): clients choose what
    /// they send, and SQL shall not grow with it.
    pub const fn values_max(self) -> usize {
        match self {
            Self::Referrer | Self::Region | Self::Operator => 100,
            Self::Language => 50,
            Self::Device | Self::System | Self::Browser => 10,
        }
    }

    /// What an empty value means.
    pub const fn empty_label(self) -> &'static str {
        match self {
            Self::Referrer => "direct",
            _ => "unknown",
        }
    }

    /// A value as it is kept: at most [`VALUE_LEN_MAX`] bytes, no control characters, no blanks at its
    /// ends (of which MySQL takes no notice), and never empty.
    pub fn value(self, text: &str) -> String {
        let mut kept = String::with_capacity(text.len().min(VALUE_LEN_MAX));
        for char in text.trim().chars().filter(|char| !char.is_control()) {
            if kept.len() + char.len_utf8() > VALUE_LEN_MAX {
                break;
            }
            kept.push(char);
        }
        match kept.trim() {
            "" => self.empty_label().to_owned(),
            trimmed => trimmed.to_owned(),
        }
    }
}

/// What clicks are alike in, of what they can be filtered by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// ISO 3166-1; `unknown` without a database.
    pub country: String,
    /// Desktop, mobile, tablet, script.
    pub device: String,
    /// The host of the page that linked here; `direct` without one, `qr` if a code was scanned.
    pub referrer: String,
}

impl Cell {
    /// As SQL has it. Only the last of the three may have a blank.
    pub fn to_text(&self) -> String {
        format!("{} {} {}", self.country, self.device, self.referrer)
    }

    /// Reads what [`Cell::to_text`] has written.
    pub fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ' ').map(str::to_owned);
        Some(Self {
            country: parts.next()?,
            device: parts.next()?,
            referrer: parts.next()?,
        })
    }
}

/// How many clicks a cell has in one hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellCount {
    /// When the hour begins.
    pub hour_ms: u64,
    /// The cell.
    pub cell: Cell,
    /// Clicks.
    pub clicks: u64,
    /// By how much these may be too many.
    pub over_max: u64,
}

/// Equal clicks: of one link, in one minute, alike in every part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clicks {
    /// The link.
    pub link: LinkId,
    /// The minute, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// How many.
    pub count: u32,
    /// Whether a program that comes by itself has clicked.
    pub is_bot: bool,
    /// Their value in each part, in the order of [`Breakdown::ALL`].
    pub values: [String; Breakdown::ALL.len()],
}

impl Clicks {
    /// Their value in one part.
    pub fn value(&self, part: Breakdown) -> &str {
        let of_part = Breakdown::ALL.into_iter().zip(&self.values);
        let mut of_part = of_part.filter(|(one, _)| *one == part);
        of_part
            .next()
            .map_or(part.empty_label(), |(_, value)| value)
    }

    /// What they can be filtered by.
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

/// What a gateway sent at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its name: what arrives twice under one name is counted once.
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
    /// The larger of each: a count only grows while its HyperLogLog lives.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            visitors: self.visitors.max(other.visitors),
            addresses: self.addresses.max(other.addresses),
        }
    }
}

/// One span of one link.
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
    /// The one that holds this instant.
    pub fn at(link: &LinkId, span: Span, at_ms: u64) -> Self {
        Self {
            link: link.clone(),
            span,
            start_ms: span.start_ms(at_ms),
        }
    }
}

/// What is known of unique visitors.
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

/// How many clicks have one value of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartCount {
    /// Of what.
    pub part: Breakdown,
    /// The value.
    pub value: String,
    /// Clicks.
    pub clicks: u64,
    /// By how much these may be too many.
    pub over_max: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_short_clean_and_never_empty() {
        assert_eq!(Breakdown::Referrer.value(""), "direct");
        assert_eq!(Breakdown::Operator.value(" \t\n"), "unknown");
        assert_eq!(Breakdown::Operator.value(" Köln\u{0} Net \r"), "Köln Net");
        let long = Breakdown::Operator.value(&"ö".repeat(40));
        assert_eq!(long, "ö".repeat(32));
        let blank = Breakdown::Operator.value(&format!("{} x", "a".repeat(63)));
        assert_eq!(blank, "a".repeat(63));
    }

    #[test]
    fn spans_begin_where_utc_has_them() {
        let at_ms = 1_795_263_805_216; // 2026-11-21T12:23:25Z
        assert_eq!(Span::Hour.start_ms(at_ms) % HOUR_MS, 0);
        assert_eq!(
            at_ms - Span::Hour.start_ms(at_ms),
            (23 * 60 + 25) * 1_000 + 216
        );
        assert_eq!(Span::Day.start_ms(at_ms), 1_795_219_200_000);
    }
}
