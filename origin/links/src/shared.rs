//! Reports that people read without a key.
//!
//! A random token names a report. SQL has only the token's hash, so a copy of SQL opens no report. Every read checks
//! that the report still exists. The counts of a report are computed at most once a minute, and reads are limited.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use tracing::error;
use weir_link::code::LinkId;
use weir_link::domain::Domains;

use crate::group::{GroupReport, LinkGroup};
use crate::model::stats::{DAY_MS, Span};
use crate::model::zone::Zone;
use crate::report::Range;
use crate::store::{LinkStore, TeamItem, TeamKind};
use weir_origin_core::sql::SqlError;

/// Maximum number of days of a report: hours, which days of a time zone need, are kept this long.
pub const DAYS_MAX: u32 = 90;

/// Length of a token's random part, in bytes.
const TOKEN_LEN: usize = 24;

/// Length of a written token, in characters.
pub const TOKEN_TEXT_LEN: usize = 32;

/// How long computed counts are shown, and the window of the read limits, in milliseconds.
const WINDOW_MS: u64 = 60_000;

/// Maximum number of reads of one report per window.
pub const READS_MAX: u32 = 60;

/// Maximum number of reads of all reports per window, including unknown ones.
const ALL_READS_MAX: u32 = 1_200;

/// Maximum number of reports whose counts are cached.
const CACHED_MAX: usize = 64;

/// What a shared report shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedReport {
    /// Its title.
    pub title: String,
    /// Its link; `None`: a group.
    pub link: Option<LinkId>,
    /// Its links, if it is not about one link.
    pub group: LinkGroup,
    /// Number of days up to today.
    pub days: u32,
    /// The time zone of the days.
    pub tz: String,
    /// When it ends, in milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
}

/// A new token, and the id of its report.
#[derive(Debug)]
pub struct ReportToken {
    /// The token.
    pub token: String,
    /// The hash of the token.
    pub id: String,
}

/// Outcome of a read.
#[derive(Debug)]
pub enum SharedRead {
    /// The report.
    Found(SharedReport, Arc<GroupReport>),
    /// There is no such report, or its link was deleted.
    Unknown,
    /// Too many reads in this window.
    TooMany,
}

/// Reads shared reports. Cloning is cheap.
#[derive(Clone, Debug, Default)]
pub struct SharedReports(Arc<Mutex<Window>>);

/// Reads and counts of the current window.
#[derive(Debug, Default)]
struct Window {
    began_at_ms: u64,
    reads: u32,
    reads_by_id: HashMap<String, u32>,
    cached: HashMap<String, Arc<GroupReport>>,
}

impl Window {
    /// Counts a read. Returns false if there were too many.
    fn begin(&mut self, now_ms: u64) -> bool {
        if now_ms.abs_diff(self.began_at_ms) >= WINDOW_MS {
            *self = Self {
                began_at_ms: now_ms,
                ..Self::default()
            };
        }
        self.reads = self.reads.saturating_add(1);
        self.reads <= ALL_READS_MAX
    }

    /// Counts a read of an existing report. The map has at most one entry per counted read.
    fn read(&mut self, id: &str) -> bool {
        let reads = self.reads_by_id.entry(id.to_owned()).or_default();
        *reads = reads.saturating_add(1);
        *reads <= READS_MAX
    }
}

impl ReportToken {
    /// Generates a token; `None` if the operating system provides no random numbers.
    pub fn generate() -> Option<Self> {
        let mut bytes = [0; TOKEN_LEN];
        SystemRandom::new().fill(&mut bytes).ok()?;
        let token = URL_SAFE_NO_PAD.encode(bytes);
        let id = report_id(&token);
        Some(Self { token, id })
    }
}

/// The id of the report with this token.
fn report_id(token: &str) -> String {
    hex::encode(digest(&SHA256, token.as_bytes()))
}

impl SharedReport {
    /// Parses a stored report; `None` if only a newer version can have written it.
    pub fn parse(item: &TeamItem) -> Option<Self> {
        let parsed = serde_json::from_str(&item.body);
        parsed
            .inspect_err(|error| error!(%error, id = %item.name, "cannot parse a shared report"))
            .ok()
    }

    /// Whether it has ended.
    pub fn is_over(&self, now_ms: u64) -> bool {
        self.expires_at_ms.is_some_and(|end_ms| end_ms <= now_ms)
    }

    fn range(&self, now_ms: u64) -> Option<Range> {
        let zone = Zone::by_name(&self.tz)?;
        let earlier = u64::from(self.days.clamp(1, DAYS_MAX)) - 1;
        let from_ms = match &zone {
            Some(zone) => zone.days_before(now_ms, earlier),
            None => now_ms.saturating_sub(earlier * DAY_MS),
        };
        Range::new(Span::Day, Some(from_ms), None, now_ms, zone).ok()
    }

    async fn counts(
        &self,
        store: &LinkStore,
        domains: &Domains,
        now_ms: u64,
    ) -> Result<Option<GroupReport>, SqlError> {
        let Some(range) = self.range(now_ms) else {
            return Ok(None);
        };
        let Some(id) = &self.link else {
            let report = GroupReport::read(store, domains, &self.group, range);
            return report.await.map(Some);
        };
        match store.link(id).await? {
            None => Ok(None),
            Some(link) => {
                let link = (id, link.created_at_ms);
                let report = GroupReport::of_link(store, domains, link, range);
                report.await.map(Some)
            }
        }
    }
}

impl SharedReports {
    /// Reads the report with this token.
    ///
    /// # Errors
    /// If a SQL call fails.
    pub async fn read(
        &self,
        store: &LinkStore,
        domains: &Domains,
        token: &str,
        now_ms: u64,
    ) -> Result<SharedRead, SqlError> {
        if token.len() != TOKEN_TEXT_LEN {
            return Ok(SharedRead::Unknown);
        }
        if !self.with(|window| window.begin(now_ms)) {
            return Ok(SharedRead::TooMany);
        }
        let id = report_id(token);
        let item = store.team().get(TeamKind::Report, &id).await?;
        let report = item.as_ref().and_then(SharedReport::parse);
        let Some(report) = report.filter(|report| !report.is_over(now_ms)) else {
            return Ok(SharedRead::Unknown);
        };
        if !self.with(|window| window.read(&id)) {
            return Ok(SharedRead::TooMany);
        }
        if let Some(counts) = self.with(|window| window.cached.get(&id).cloned()) {
            return Ok(SharedRead::Found(report, counts));
        }
        let Some(counts) = report.counts(store, domains, now_ms).await? else {
            return Ok(SharedRead::Unknown);
        };
        let counts = Arc::new(counts);
        self.with(|window| {
            if window.cached.len() < CACHED_MAX {
                window.cached.insert(id, counts.clone());
            }
        });
        Ok(SharedRead::Found(report, counts))
    }

    /// Each change is one step, so a panic elsewhere leaves the window consistent.
    fn with<T>(&self, act: impl FnOnce(&mut Window) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_random_and_its_id_a_hash() {
        let [one, two] = [(); 2].map(|()| ReportToken::generate().unwrap());
        assert_ne!(one.token, two.token);
        assert_eq!(one.token.len(), TOKEN_TEXT_LEN);
        assert_eq!(one.id, report_id(&one.token));
        assert!(!one.id.contains(&one.token));
    }

    #[test]
    fn reads_are_limited_per_report_and_in_total() {
        let mut window = Window::default();
        for n in 0..ALL_READS_MAX {
            assert!(window.begin(100_000), "{n}");
        }
        assert!(!window.begin(100_000));
        assert!(!window.begin(159_999));
        assert!(window.begin(160_000));
        for n in 0..READS_MAX {
            assert!(window.read("a"), "{n}");
        }
        assert!(!window.read("a"));
        assert!(window.read("b"));
        assert!(window.begin(220_000));
        assert!(window.read("a"));
    }
}
