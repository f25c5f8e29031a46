//! Has Redis follow the cold store, and publishes domains to gateways.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use weir_link::code::LinkId;
use weir_link::domain::Domains;
use weir_scripts::documents;

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

/// A younger change is left to the request that made it, in milliseconds.
const YOUNG_MS: u64 = 2_000;

/// Changes of one look.
const BATCH: usize = 200;

/// Has Redis follow the cold store. Cloning it is cheap.
#[derive(Clone)]
pub struct Publisher {
    pub(super) store: LinkStore,
    pub(super) records: LinkRecords,
    pub(super) domains: Arc<Domains>,
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
        if let Some(link) = link {
            self.store.mark_published(id, link.link.version).await?;
        }
        Ok(())
    }

    async fn write_to_redis(
        &self,
        id: &LinkId,
        link: Option<&StoredLink>,
    ) -> Result<(), CallError> {
        let now_ms = (self.clock)();
        let live = link.filter(|link| link.expires_at_ms.is_none_or(|end_ms| end_ms > now_ms));
        let Some(link) = live else {
            return self.records.forget(id).await;
        };
        let record = String::from_utf8(link.link.encode()).unwrap_or_default();
        let left = |end_ms: u64| end_ms.saturating_sub(now_ms);
        let record = Record {
            id,
            record: &record,
            life_ms: link.expires_at_ms.map(left),
        };
        self.records.write(record).await
    }

    /// Follows changes that were left behind; tells how many.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn catch_up(&self) -> Result<usize, Unavailable> {
        let before_ms = (self.clock)().saturating_sub(YOUNG_MS);
        let left = self.store.unpublished(before_ms, BATCH).await?;
        for (id, version) in &left {
            self.publish(id).await?;
            // Of an earlier version, or of a link that is deleted.
            self.store.mark_published(id, *version).await?;
            self.metrics.republished.inc();
        }
        Ok(left.len())
    }

    /// Publishes domains and follows changes, until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        // They were read from JSON, so they can be written as JSON.
        let domains = documents::domains::write(&self.domains).unwrap_or_default();
        let mut rounds = Rounds::every(PERIOD, "having Redis follow links", stop);
        let mut looks = 0_u64;
        while rounds.next().await {
            let is_due = rounds.is_failing() || looks.is_multiple_of(DOMAINS_PERIOD.as_secs());
            let outcome = self.round(is_due.then_some(domains.as_slice())).await;
            rounds.ended(&outcome);
            looks += 1;
        }
    }

    async fn round(&self, domains: Option<&[u8]>) -> Result<(), Unavailable> {
        if let Some(domains) = domains {
            self.records.publish_domains(domains).await?;
        }
        while self.catch_up().await? == BATCH {}
        Ok(())
    }
}
