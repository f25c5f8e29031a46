//! Writes changes from the cold store to Redis, and publishes domains to gateways.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::warn;
use weir_link::code::LinkId;
use weir_link::redis::domains;

use crate::domains::SharedDomains;
use crate::metrics::LinkMetrics;
use crate::numbers::Clock;
use crate::records::{ChangeId, LinkRecords, Record};
use crate::store::{LinkStore, StoredLink};
use weir_origin_core::background::Interval;
use weir_origin_core::redis::CallError;
use weir_origin_core::unavailable::Unavailable;

/// Interval between checks for changes that Redis does not have.
const PERIOD: Duration = Duration::from_secs(1);

/// Interval between writes of unchanged domains, in case Redis lost its data.
const DOMAINS_PERIOD: Duration = Duration::from_secs(5);

/// Minimum age of a change before it is checked, in milliseconds; the request writes younger ones. Redis may lose
/// recent writes: with `appendfsync everysec` those of one second, at most two.
const YOUNG_MS: u64 = 2_000;

/// How long to remember when a link was written, in milliseconds: longer than a change normally stays pending.
const WRITTEN_MS: u64 = 60_000;

/// Maximum difference between checkpoints of two origins, in milliseconds. A larger difference means that Redis was
/// rewound.
const MARK_SLACK_MS: u64 = 1_500;

/// Maximum delay between an edit's timestamp and its commit in SQL, including clock differences, in milliseconds.
const EDIT_SLACK_MS: u64 = 60_000;

/// Number of changes per check.
const BATCH: usize = 200;

/// Writes changes from the cold store to Redis. Cloning is cheap.
#[derive(Clone)]
pub struct Publisher {
    pub(crate) store: LinkStore,
    pub(crate) records: LinkRecords,
    pub(crate) domains: SharedDomains,
    pub(crate) metrics: LinkMetrics,
    pub(crate) clock: Clock,
    /// The last checkpoint written, in milliseconds since the Unix epoch; 0: none yet.
    pub(crate) mark_ms: Arc<AtomicU64>,
    /// The links that this origin wrote to Redis last.
    pub(crate) written: Arc<Mutex<BTreeMap<LinkId, PublishedLink>>>,
}

/// A link as written to Redis.
#[derive(Clone, Debug)]
pub(crate) struct PublishedLink {
    /// The version; the maximum for a deleted link.
    version: u32,
    at_ms: u64,
    /// The change that notified gateways.
    change: ChangeId,
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").finish_non_exhaustive()
    }
}

impl Publisher {
    /// Writes the current version of a link to Redis, and notifies gateways.
    ///
    /// Two edits of one link may reach Redis in the wrong order. Each publisher therefore reads the link again
    /// afterwards, and repeats the write if the link changed.
    ///
    /// The edit stays pending until [`Publisher::catch_up`] finds that Redis still has it. A restarted Redis may lose
    /// the acknowledged writes of its last second or two.
    ///
    /// # Errors
    /// If SQL or Redis is unavailable.
    pub async fn publish(&self, id: &LinkId) -> Result<(), Unavailable> {
        let mut link = self.store.link(id).await?;
        let change = loop {
            let change = self.write_to_redis(id, link.as_ref()).await?;
            let now = self.store.link(id).await?;
            let version = |link: &Option<StoredLink>| link.as_ref().map(|link| link.link.version);
            if version(&now) == version(&link) {
                break change;
            }
            link = now;
        };
        let written = PublishedLink {
            version: link.map_or(u32::MAX, |link| link.link.version),
            at_ms: (self.clock)(),
            change,
        };
        self.written().insert(id.clone(), written);
        Ok(())
    }

    fn written(&self) -> MutexGuard<'_, BTreeMap<LinkId, PublishedLink>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn write_to_redis(
        &self,
        id: &LinkId,
        link: Option<&StoredLink>,
    ) -> Result<ChangeId, Unavailable> {
        let now_ms = (self.clock)();
        let Some(link) = live(link, now_ms) else {
            return Ok(self.records.forget(id).await?);
        };
        // Also for a disabled link, because it may be enabled later.
        let used = match link.link.max_clicks {
            0 => None,
            _ => Some(self.store.clicks().clicks_used(id).await?),
        };
        let record = text(link);
        let remaining = |end_ms: u64| end_ms.saturating_sub(now_ms);
        let record = Record {
            id,
            record: &record,
            life_ms: link.expires_at_ms.map(remaining),
        };
        Ok(self.records.write(record, used).await?)
    }

    /// Checks pending changes that are old enough, and returns their number. A change that this origin wrote long
    /// enough ago, and that Redis still has, is done. All others are written again and stay pending.
    ///
    /// # Errors
    /// If SQL or Redis is unavailable.
    pub async fn catch_up(&self) -> Result<usize, Unavailable> {
        let before_ms = (self.clock)().saturating_sub(YOUNG_MS);
        let remaining = self.store.edits().unpublished(before_ms, BATCH).await?;
        for (id, version) in &remaining {
            if self.was_kept(id, *version, before_ms).await? {
                self.store.edits().mark_published(id, *version).await?;
                self.written().remove(id);
            } else {
                self.publish(id).await?;
                let now_ms = (self.clock)();
                self.store.edits().put_off(id, *version, now_ms).await?;
                self.metrics.republished.inc();
            }
        }
        let forget_ms = before_ms.saturating_sub(WRITTEN_MS);
        self.written()
            .retain(|_, written| written.at_ms > forget_ms);
        Ok(remaining.len())
    }

    /// Whether this or a later version was written before, and Redis still has the current record and the notification
    /// to gateways.
    async fn was_kept(
        &self,
        id: &LinkId,
        version: u32,
        before_ms: u64,
    ) -> Result<bool, Unavailable> {
        let written = self.written().get(id).cloned();
        let is_it =
            |written: &PublishedLink| written.version >= version && written.at_ms < before_ms;
        let Some(written) = written.filter(is_it) else {
            return Ok(false);
        };
        let link = self.store.link(id).await?;
        let requested = live(link.as_ref(), (self.clock)()).map(text);
        let found = self.records.record(id).await?;
        Ok(found == requested.map(String::into_bytes)
            && self.records.is_told(&written.change).await?)
    }

    /// Detects whether Redis was restored from an old snapshot, such as a restarted Redis without an append-only file.
    /// Its links then lack recent edits, which are marked as pending again. Missing links need no repair, because
    /// gateways request them.
    ///
    /// # Errors
    /// If SQL or Redis is unavailable.
    pub async fn look_for_rewind(&self) -> Result<(), Unavailable> {
        let Some(mark_ms) = self.records.mark().await? else {
            return Ok(());
        };
        let written_ms = self.mark_ms.load(Ordering::Relaxed);
        if written_ms > 0 && mark_ms + MARK_SLACK_MS >= written_ms {
            return Ok(());
        }
        let since_ms = mark_ms.saturating_sub(EDIT_SLACK_MS);
        let edited = self.store.edits().note_again(since_ms).await?;
        if written_ms > 0 {
            warn!(
                edited,
                "Redis restarted from an old snapshot; rewriting later edits"
            );
        }
        Ok(())
    }

    /// Records that Redis has all edits up to this time. A later checkpoint of another origin stays: only a rewind can
    /// move it back, which detects the rewind.
    async fn set_mark(&self, at_ms: u64) -> Result<(), Unavailable> {
        let mark_ms = self.records.mark().await?;
        if mark_ms.is_none_or(|mark_ms| mark_ms < at_ms) {
            self.records.set_mark(at_ms).await?;
        }
        self.mark_ms.store(at_ms, Ordering::Relaxed);
        Ok(())
    }

    /// Writes the domains to Redis, for gateways.
    ///
    /// # Errors
    /// If Redis is unavailable.
    pub async fn publish_domains(&self) -> Result<(), CallError> {
        // The domains come from JSON, so the encoding cannot fail.
        let document = domains::write(&self.domains.get().domains);
        self.records
            .publish_domains(&document.unwrap_or_default())
            .await
    }

    /// Publishes domains and pending changes until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut interval = Interval::every(PERIOD, "writing link changes to Redis", stop);
        let mut looks = 0_u64;
        while interval.next().await {
            let is_due = interval.is_failing() || looks.is_multiple_of(DOMAINS_PERIOD.as_secs());
            let outcome = self.round(is_due).await;
            interval.ended(&outcome);
            looks += 1;
        }
    }

    async fn round(&self, is_due: bool) -> Result<(), Unavailable> {
        // If SQL fails, write the cached domains, in case Redis lost them.
        let refreshed = self.domains.refresh().await;
        if is_due || matches!(refreshed, Ok(true)) {
            self.publish_domains().await?;
        }
        refreshed?;
        self.look_for_rewind().await?;
        let followed_ms = (self.clock)().saturating_sub(YOUNG_MS);
        while self.catch_up().await? == BATCH {}
        self.set_mark(followed_ms).await
    }
}

/// The link, unless it has ended.
fn live(link: Option<&StoredLink>, now_ms: u64) -> Option<&StoredLink> {
    link.filter(|link| link.expires_at_ms.is_none_or(|end_ms| end_ms > now_ms))
}

/// A link's record in Redis.
fn text(link: &StoredLink) -> String {
    String::from_utf8(link.link.for_gateways()).unwrap_or_default()
}
