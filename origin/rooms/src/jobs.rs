//! Publishes settings to Redis periodically, so that gateways get them even after Redis loses data.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Rooms;
use weir_origin_core::background::Interval;
use weir_origin_core::tenants::NameRange;

/// Interval between two rounds.
const PERIOD: Duration = Duration::from_secs(2);

impl Rooms {
    pub(super) async fn run_publishing(self, stop: CancellationToken) {
        let mut interval = Interval::every(PERIOD, "publishing waiting rooms", stop);
        while interval.next().await {
            let outcome = self.publish_all().await;
            interval.ended(&outcome);
        }
    }

    /// Publishes all settings to Redis. Redis keeps a setting that is at least as new.
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
