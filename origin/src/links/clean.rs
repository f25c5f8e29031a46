//! Clean-up: links that have ended leave the cold store, and their numbers may be handed out again.
//!
//! It goes through the ends in their order, a slice of time after the other, so that each step looks at rows
//! that it has not seen and touches few. A link that Redis still has is alive, whatever the cold store says:
//! gateways renew there, and clicks are told later.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Links;
use super::publish::PublishError;
use super::redis::Life;
use super::store::Ended;

/// How often it goes through.
const PERIOD: Duration = Duration::from_secs(60);

/// Links of one step: those who make links wait no longer than for one.
const BATCH: usize = 500;

/// The pause between two steps.
const PAUSE: Duration = Duration::from_millis(20);

/// What one go has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Links that were taken away.
    pub removed: u64,
    /// Links that Redis still has, and that got a later end.
    pub alive: u64,
}

impl Links {
    /// Takes away what ended before the quarantine.
    ///
    /// # Errors
    /// When the cold store or Redis does not answer: then nothing more is taken away.
    pub async fn clean(&self) -> Result<Cleaned, PublishError> {
        let before_ms = self.now_ms().saturating_sub(self.times().quarantine_ms);
        let (mut from_ms, mut cleaned) = (0, Cleaned::default());
        loop {
            let ended = self.store().ended(from_ms, before_ms, BATCH).await?;
            let Some(last) = ended.last() else {
                return Ok(cleaned);
            };
            from_ms = last.expires_at_ms;
            let count = ended.len();
            self.clean_batch(ended, &mut cleaned).await?;
            if count < BATCH {
                return Ok(cleaned);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn clean_batch(
        &self,
        ended: Vec<Ended>,
        cleaned: &mut Cleaned,
    ) -> Result<(), PublishError> {
        let ids: Vec<_> = ended.iter().map(|ended| &ended.id).collect();
        let lives = self.redis().lives(&ids).await?;
        let (mut gone, mut alive) = (Vec::new(), Vec::new());
        for (ended, life) in ended.into_iter().zip(lives) {
            match life {
                Life::Gone => gone.push(ended),
                // Redis had not followed the deletion; gateways may have it until the quarantine is over.
                _ if ended.is_deleted => self.redis().forget(&ended.id).await?,
                Life::Ms(ms) => {
                    let until_ms = self.now_ms().saturating_add(ms);
                    alive.push((ended, until_ms));
                }
                Life::Ever => {
                    // It was written for ever, and has an end now: Redis follows an edit.
                    self.publish(&ended.id).await?;
                }
            }
        }
        self.free_numbers(&gone).await?;
        self.store().prolong(&alive).await?;
        let removed = self.store().remove(&gone).await?;
        self.metrics().cleaned(removed, alive.len() as u64);
        cleaned.removed += removed;
        cleaned.alive += alive.len() as u64;
        Ok(())
    }

    /// Numbers of chosen codes are no longer left out. Before the links go: a crash in between is mended by
    /// the next go, and as long as a link is there its segment is not handed out again.
    async fn free_numbers(&self, gone: &[Ended]) -> Result<(), PublishError> {
        for ended in gone {
            if let Some((length, index)) = self.index(&ended.id.code) {
                let store = self.store();
                store.remove_custom(length, index, &ended.id.domain).await?;
            }
        }
        Ok(())
    }
}

/// Cleans up now and then, until `stop`.
pub async fn run(links: Links, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
        match links.clean().await {
            Ok(Cleaned { removed: 0, .. }) => {}
            Ok(cleaned) => info!(cleaned.removed, cleaned.alive, "links that ended are gone"),
            Err(error) => warn!(%error, "clean-up of links broke off"),
        }
    }
}
