//! Maintains the vehicle map in each Redis, and detects a Redis that lost its data.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use weir_fitment::SEGMENT_LEN;
use weir_fitment::redis::fit_vehicles::{self, Head, VehicleMapVersion};
use weir_fitment::redis::fit_vehicles_put::{self, MapPiece, VehiclesPutOutcome};
use weir_fitment::redis::keys::VehicleMapKeys;

use crate::Fitment;
use weir_origin_core::background::Interval;
use weir_origin_core::redis::{CallError, Redis};
use weir_origin_core::unavailable::Unavailable;

/// Interval between checks of the heads in Redis.
const PERIOD: Duration = Duration::from_millis(500);

/// Number of rebuild steps in one round.
const REBUILD_STEPS: usize = 50;

impl Fitment {
    /// Maintains the map, and rebuilds a Redis that lost its data, until `stop`.
    pub(crate) async fn run_mapping(self, stop: CancellationToken) {
        let mut interval = Interval::every(PERIOD, "updating the vehicle map", stop);
        while interval.next().await {
            let outcome = self.keep_map().await;
            interval.ended(&outcome);
            if matches!(outcome, Ok(true)) {
                interval.next_at_once();
            }
        }
    }

    /// Runs one round. Returns whether a rebuild is running.
    ///
    /// # Errors
    /// If SQL or Redis is unavailable.
    pub async fn keep_map(&self) -> Result<bool, Unavailable> {
        let mut is_lost = false;
        for (cluster, redis) in self.clusters() {
            let existing = self.map_in(redis).await?;
            if existing.is_none() {
                match self.store().head().await?.version {
                    // First start: no data was lost.
                    0 => info!(%cluster, "writing the vehicle map to Redis for the first time"),
                    _ => {
                        warn!(%cluster, "Redis has lost the vehicle map; rewriting all of fitment")
                    }
                }
                is_lost = true;
            }
        }
        if is_lost {
            // Store the rebuild first. If this origin dies, the check runs again: the map exists only after a rebuild
            // is stored.
            self.begin_rebuild().await?;
        }
        for (_, redis) in self.clusters() {
            self.write_map(redis).await?;
        }
        self.rebuild_some(REBUILD_STEPS).await
    }

    /// Starts a full rebuild of Redis: stores it in SQL; a background job runs it.
    ///
    /// # Errors
    /// If a SQL call fails.
    pub async fn begin_rebuild(&self) -> Result<(), Unavailable> {
        self.store().changes().begin_rebuild().await?;
        self.0.metrics.rebuilds.inc();
        Ok(())
    }

    async fn map_in(&self, redis: &Redis) -> Result<Option<Head>, Unavailable> {
        let keys = VehicleMapKeys::new(redis.prefix());
        let reply = redis
            .run(&fit_vehicles::call(&keys, VehicleMapVersion::default(), 0))
            .await?;
        let tail = fit_vehicles::parse(&reply).map_err(CallError::from)?;
        Ok(tail.map(|tail| tail.head))
    }

    /// Updates the map in one Redis: adds new vehicles, or rewrites all of it after a change of generation.
    async fn write_map(&self, redis: &Redis) -> Result<(), Unavailable> {
        let there = self.map_in(redis).await?;
        let head = self.store().head().await?;
        let count = self.store().vehicle_count().await?;
        let wanted = Head {
            generation: head.generation,
            count,
            stamp: head.stamp,
        };
        let from = match there {
            Some(there) if there == wanted => return Ok(()),
            Some(there) if there.generation == wanted.generation => there.count.min(count),
            _ => 0,
        };
        if let VehiclesPutOutcome::Hole = self.write_pieces(redis, wanted, from).await? {
            warn!("Redis has lost a block of the vehicle map; rewriting the whole map");
            self.write_pieces(redis, wanted, 0).await?;
        }
        Ok(())
    }

    async fn write_pieces(
        &self,
        redis: &Redis,
        wanted: Head,
        from: u32,
    ) -> Result<VehiclesPutOutcome, Unavailable> {
        let keys = VehicleMapKeys::new(redis.prefix());
        let mut before = from;
        loop {
            let room = SEGMENT_LEN - before % SEGMENT_LEN;
            let vehicles = self
                .store()
                .vehicles_behind(before, room.min(wanted.count - before))
                .await?;
            let chunk = MapPiece {
                before,
                vehicles: &vehicles,
            };
            before += u32::try_from(vehicles.len()).unwrap_or(room).min(room);
            // The next round adds vehicles created meanwhile.
            let is_last = before >= wanted.count || vehicles.is_empty();
            let head = is_last.then_some(Head {
                count: before,
                ..wanted
            });
            let call = fit_vehicles_put::call(&keys, wanted.generation, chunk, head);
            let reply = redis.run(&call).await?;
            let written = fit_vehicles_put::parse(&reply).map_err(CallError::from)?;
            if is_last || written != VehiclesPutOutcome::Done {
                return Ok(written);
            }
        }
    }
}
