//! Redis follows the cold store, and gateways hear of domains.

use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use weir_link::code::LinkId;

use super::Links;
use super::redis::Record;
use super::store::StoredLink;
use crate::ledger::LedgerError;
use crate::store::StoreError;

/// How often changes are looked for that Redis has not followed.
const PERIOD: Duration = Duration::from_secs(1);

/// How often the domains are written without a change: a Redis that lost its data has them again after this
/// time.
const DOMAINS_PERIOD: Duration = Duration::from_secs(5);

/// A change that is younger than this is being followed by who made it, in milliseconds.
const YOUNG_MS: u64 = 2_000;

/// Changes of one look.
const BATCH: usize = 200;

/// Why Redis has not followed.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The cold store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Redis does not answer.
    #[error(transparent)]
    Redis(#[from] LedgerError),
}

impl Links {
    /// Makes Redis say of a link what the cold store says, and tells gateways that it changed.
    ///
    /// Two who do this for two edits of one link may write in the wrong order; so each looks again afterwards,
    /// and the one that finds what it has not written writes that.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish(&self, id: &LinkId) -> Result<(), PublishError> {
        let mut link = self.store().link(id).await?;
        loop {
            self.write_to_redis(id, link.as_ref()).await?;
            let now = self.store().link(id).await?;
            let version = |link: &Option<StoredLink>| link.as_ref().map(|link| link.link.version);
            if version(&now) == version(&link) {
                break;
            }
            link = now;
        }
        if let Some(link) = link {
            self.store().mark_published(id, link.link.version).await?;
        }
        Ok(())
    }

    async fn write_to_redis(
        &self,
        id: &LinkId,
        link: Option<&StoredLink>,
    ) -> Result<(), LedgerError> {
        let now_ms = self.now_ms();
        let live = link.filter(|link| link.expires_at_ms.is_none_or(|end_ms| end_ms > now_ms));
        let Some(link) = live else {
            return self.redis().forget(id).await;
        };
        let record = String::from_utf8(link.link.encode()).unwrap_or_default();
        let left = |end_ms: u64| end_ms.saturating_sub(now_ms);
        let record = Record {
            id,
            record: &record,
            life_ms: link.expires_at_ms.map(left),
        };
        self.redis().write(record).await
    }

    /// Follows changes that were left behind; how many.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn catch_up(&self) -> Result<usize, PublishError> {
        let before_ms = self.now_ms().saturating_sub(YOUNG_MS);
        let left = self.store().unpublished(before_ms, BATCH).await?;
        for (id, version) in &left {
            self.publish(id).await?;
            // Of an earlier version, or of a link that is deleted.
            self.store().mark_published(id, *version).await?;
            self.metrics().republished.inc();
        }
        Ok(left.len())
    }

    /// The domains as gateways read them.
    pub fn domains_json(&self) -> Vec<u8> {
        let mut config = self.domains().to_config();
        config.version = 0;
        let json = serde_json::to_vec(&config).unwrap_or_default();
        // Any hash will do, as long as it is the same in all origins of one version: its keys are fixed.
        let mut hash = DefaultHasher::new();
        hash.write(&json);
        // A number that every JSON reader keeps whole.
        config.version = hash.finish() >> 11;
        serde_json::to_vec(&config).unwrap_or_default()
    }
}

/// Publishes domains and follows changes, until `stop`.
pub async fn run(links: Links, stop: CancellationToken) {
    let domains = links.domains_json();
    let (mut is_failing, mut looks) = (false, 0_u64);
    loop {
        let is_due = is_failing || looks.is_multiple_of(DOMAINS_PERIOD.as_secs());
        let done = turn(&links, is_due.then_some(domains.as_slice())).await;
        match (&done, is_failing) {
            (Ok(()), true) => info!("Redis follows links again"),
            (Err(error), false) => warn!(%error, "Redis does not follow links; trying again"),
            _ => {}
        }
        is_failing = done.is_err();
        looks += 1;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
}

async fn turn(links: &Links, domains: Option<&[u8]>) -> Result<(), PublishError> {
    if let Some(domains) = domains {
        links.redis().publish_domains(domains).await?;
    }
    while links.catch_up().await? == BATCH {}
    Ok(())
}
