//! Reports to SQL which Redis this origin uses, so that `weir-origin doctor` finds origins of one site with different ones.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::rebuild::token;
use crate::ledger::Ledger;
use crate::store::SaleStore;
use weir_origin_core::background::Interval;
use weir_origin_core::clock::now_ms;
use weir_origin_core::unavailable::Unavailable;

/// Interval between two reports.
const PERIOD: Duration = Duration::from_secs(10);

/// The length of a name, in bytes. SQL has a limit.
const NAME_LEN: usize = 32;

/// Reports the Redis of this origin.
#[derive(Clone, Debug)]
pub struct RedisReporter {
    pub(crate) store: SaleStore,
    pub(crate) ledger: Ledger,
}

impl RedisReporter {
    /// Runs until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut interval = Interval::every(PERIOD, "reporting the Redis of this origin", stop);
        while interval.next().await {
            let outcome = self.round().await;
            interval.ended(&outcome);
        }
    }

    /// Reports it once.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn round(&self) -> Result<(), Unavailable> {
        let mut name = self.ledger.identity(&token()).await?;
        name.truncate(NAME_LEN);
        self.store.sites().see_redis(&name, now_ms()).await?;
        Ok(())
    }
}
