//! Has Redis follow the cold store, and publishes domains to gateways.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use weir_link::code::LinkId;
use weir_scripts::documents;

use super::domains::SharedDomains;
use super::metrics::LinkMetrics;
use super::numbers::Clock;
use super::records::{LinkRecords, Record};
use super::store::{LinkStore, StoredLink};
use crate::background::Rounds;
use crate::redis::CallError;
use crate::unavailable::Unavailable;

/// How often to look for changes that Redis has not followed.
const PERIOD: Duration = Duration::from_secs(1);

/// How often the domains are written even without a change: then a Redis that lost its data has them again.
const DOMAINS_PERIOD: Duration = Duration::from_secs(5);

/// A younger change is left to the request that made it, in milliseconds. Redis may lose what is as young: with
/// `appendfsync everysec` it loses a second, and two at worst.
const YOUNG_MS: u64 = 2_000;

/// Changes of one look.
const BATCH: usize = 200;

/// Has Redis follow the cold store. Cloning it is cheap.
#[derive(Clone)]
pub struct Publisher {
    pub(super) store: LinkStore,
    pub(super) records: LinkRecords,
    pub(super) domains: SharedDomains,
    pub(super) metrics: LinkMetrics,
    pub(super) clock: Clock,
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
    /// The note of the edit stays, so that [`Publisher::catch_up`] writes it once more: a Redis that restarts may be without
    /// what it acknowledged in its last second or two, the edit included.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn publish(&self, id: &LinkId) -> Result<(), Unavailable> {
        let mut link = self.store.link(id).await?;
        loop {
            self.write_to_redis(id, link.as_ref()).await?;
            let now = self.store.link(id).await?;
            let version = |link: &Option<StoredLink>| link.as_ref().map(|link| link.link.version);
            if version(&now) == version(&link) {
                break;
            }
            link = now;
        }
        Ok(())
    }

    async fn write_to_redis(
        &self,
        id: &LinkId,
        link: Option<&StoredLink>,
    ) -> Result<(), Unavailable> {
        let now_ms = (self.clock)();
        let live = link.filter(|link| link.expires_at_ms.is_none_or(|end_ms| end_ms > now_ms));
        let Some(link) = live else {
            return Ok(self.records.forget(id).await?);
        };
        // Of a disabled link, too: it will be enabled.
        let used = match link.link.max_clicks {
            0 => None,
            _ => Some(self.store.clicks_used(id).await?),
        };
        let record = String::from_utf8(link.link.encode()).unwrap_or_default();
        let left = |end_ms: u64| end_ms.saturating_sub(now_ms);
        let record = Record {
            id,
            record: &record,
            life_ms: link.expires_at_ms.map(left),
        };
        Ok(self.records.write(record, used).await?)
    }

    /// Follows changes that are old enough, once more or for the first time; tells how many.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn catch_up(&self) -> Result<usize, Unavailable> {
        let before_ms = (self.clock)().saturating_sub(YOUNG_MS);
        let left = self.store.unpublished(before_ms, BATCH).await?;
        for (id, version) in &left {
            self.publish(id).await?;
            self.store.mark_published(id, *version).await?;
            self.metrics.republished.inc();
        }
        Ok(left.len())
    }

    /// Writes the domains to Redis, for gateways.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn publish_domains(&self) -> Result<(), CallError> {
        // They were read from JSON, so they can be written as JSON.
        let document = documents::domains::write(&self.domains.get().domains);
        self.records
            .publish_domains(&document.unwrap_or_default())
            .await
    }

    /// Publishes domains and follows changes, until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut rounds = Rounds::every(PERIOD, "having Redis follow links", stop);
        let mut looks = 0_u64;
        while rounds.next().await {
            let is_due = rounds.is_failing() || looks.is_multiple_of(DOMAINS_PERIOD.as_secs());
            let outcome = self.round(is_due).await;
            rounds.ended(&outcome);
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
        while self.catch_up().await? == BATCH {}
        Ok(())
    }
}
