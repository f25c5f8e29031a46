//! Puts settings into Redis, where gateways read them, again and again: so they survive whatever Redis loses.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Rooms;
use weir_origin_core::background::Interval;
use weir_origin_core::tenants::NameRange;

/// Between two rounds.
const PERIOD: Duration = Duration::from_secs(2);

impl Rooms {
    pub(super) async fn run_publishing(self, stop: CancellationToken) {
        let mut interval = Interval::every(PERIOD, "publishing waiting rooms", stop);
        while interval.next().await {
            let outcome = self.publish_all().await;
            interval.ended(&outcome);
        }
    }

    /// Puts all settings into Redis that are not there.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn publish_all(&self) -> anyhow::Result<()> {
        for (room, setting) in self.store().all(&NameRange::default()).await? {
            self.publish(&room, &setting).await?;
        }
        Ok(())
    }
}
