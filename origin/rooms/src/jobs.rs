//! Publishes settings to Redis periodically, so that gateways get them even after Redis loses data.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::warn;
use weir_room::RoomName;

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

    /// Removes a deleted setting from Redis once more: another origin may have read it from SQL before, and published it
    /// after the deletion.
    pub(super) async fn unpublish_later(self, room: RoomName) {
        tokio::time::sleep(2 * PERIOD).await;
        let outcome = match self.store().setting(&room).await {
            Ok(None) => self.unpublish(&room).await.map_err(anyhow::Error::from),
            Ok(Some(_)) => Ok(()),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = outcome {
            warn!(%error, room = room.as_str(), "cannot check that a room setting is gone from Redis");
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
