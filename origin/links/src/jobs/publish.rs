//! Has Redis follow the cold store, and publishes domains to gateways.

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

/// How often to look for changes that Redis has not followed.
const PERIOD: Duration = Duration::from_secs(1);

/// How often the domains are written even without a change: then a Redis that lost its data has them again.
const DOMAINS_PERIOD: Duration = Duration::from_secs(5);

/// A younger change is left to the request that made it, in milliseconds. Redis may lose what is as young: with
/// `appendfsync everysec` it loses a second, and two at worst.
const YOUNG_MS: u64 = 2_000;

/// For so long it is remembered when a link was written, in milliseconds: longer than its note stays, if all is well.
const WRITTEN_MS: u64 = 60_000;

/// Marks that two origins write are no further apart, in milliseconds. A mark that is further back is one of before.
const MARK_SLACK_MS: u64 = 1_500;

/// An edit is in SQL this long after the time that it has, clocks of origins included, in milliseconds.
const EDIT_SLACK_MS: u64 = 60_000;

/// Changes of one look.
const BATCH: usize = 200;

/// Has Redis follow the cold store. Cloning it is cheap.
#[derive(Clone)]
pub struct Publisher {
    pub(crate) store: LinkStore,
    pub(crate) records: LinkRecords,
    pub(crate) domains: SharedDomains,
    pub(crate) metrics: LinkMetrics,
    pub(crate) clock: Clock,
    /// The mark that was written last; 0: none yet.
    pub(crate) mark_ms: Arc<AtomicU64>,
    /// What this origin wrote to Redis last, and told gateways of.
    pub(crate) written: Arc<Mutex<BTreeMap<LinkId, PublishedLink>>>,
}

/// A link as it was written to Redis.
#[derive(Clone, Debug)]
pub(crate) struct PublishedLink {
    /// The latest of all for a link that is no more.
    version: u32,
    at_ms: u64,
    /// By which gateways were told.
    change: ChangeId,
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").finish_non_exhaustive()
    }
}

impl Publisher {
    /// Writes a link to Redis as the cold store has it, and tells gateways that it changed.
    ///
    /// Two edits of one link may reach Redis in the wrong order. So each publisher reads the link again afterwards,
    /// and writes it again if it changed.
    ///
    /// The note of the edit stays until [`Publisher::catch_up`] finds that Redis has kept it: one that restarts may be without
    /// what it acknowledged in its last second or two, the edit included.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
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
        // Of a disabled link, too: it will be enabled.
        let used = match link.link.max_clicks {
            0 => None,
            _ => Some(self.store.clicks().clicks_used(id).await?),
        };
        let record = text(link);
        let left = |end_ms: u64| end_ms.saturating_sub(now_ms);
        let record = Record {
            id,
            record: &record,
            life_ms: link.expires_at_ms.map(left),
        };
        Ok(self.records.write(record, used).await?)
    }

    /// Looks after changes that are old enough, and tells how many. Of those that this origin wrote as long ago, and that Redis
    /// has kept, the notes go. The others are written, once more or for the first time, and looked after again.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn catch_up(&self) -> Result<usize, Unavailable> {
        let before_ms = (self.clock)().saturating_sub(YOUNG_MS);
        let left = self.store.edits().unpublished(before_ms, BATCH).await?;
        for (id, version) in &left {
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
        Ok(left.len())
    }

    /// Whether this version, or a later one, was written before, and Redis still has it as the cold store has it, and what
    /// tells gateways.
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
        let wanted = live(link.as_ref(), (self.clock)()).map(text);
        let found = self.records.record(id).await?;
        Ok(
            found == wanted.map(String::into_bytes)
                && self.records.is_told(&written.change).await?,
        )
    }

    /// Finds out whether Redis came back from an old file, as one without an append-only file does when it restarts. Then links
    /// there are as they were before they were edited, and each edit since is to be written again. A link that is missing is
    /// asked for by gateways, so a Redis that has lost all needs nothing.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
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

    /// Redis has all edits up to this time. Another origin may have said more, and the mark does not go back: that alone is how
    /// a rewind is told.
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
    /// When Redis does not answer.
    pub async fn publish_domains(&self) -> Result<(), CallError> {
        // They were read from JSON, so they can be written as JSON.
        let document = domains::write(&self.domains.get().domains);
        self.records
            .publish_domains(&document.unwrap_or_default())
            .await
    }

    /// Publishes domains and follows changes, until `stop`.
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
        // Without SQL Redis still gets those that are known, if it has lost them.
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
