//! Keeps the map of vehicles in every Redis, and finds out when one has lost its data.

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

/// Between looks at the heads in Redis.
const PERIOD: Duration = Duration::from_millis(500);

/// What is written of a rebuild in one round.
const REBUILD_STEPS: usize = 50;

impl Fitment {
    /// Keeps the map as SQL has it, and makes Redis anew when it has lost its data, until `stop`.
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

    /// One round: whether a rebuild is under way.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn keep_map(&self) -> Result<bool, Unavailable> {
        let mut is_lost = false;
        for (cluster, redis) in self.clusters() {
            let known = self.map_in(redis).await?;
            if known.is_none() {
                match self.store().head().await?.version {
                    // The first start: nothing is lost.
                    0 => info!(%cluster, "writing the vehicle map to Redis for the first time"),
                    _ => {
                        warn!(%cluster, "Redis has lost the vehicle map; rewriting all of fitment")
                    }
                }
                is_lost = true;
            }
        }
        if is_lost {
            // First, so that an origin that dies here begins again: the map is there only when a rebuild is noted.
            self.begin_rebuild().await?;
        }
        for (_, redis) in self.clusters() {
            self.write_map(redis).await?;
        }
        self.rebuild_some(REBUILD_STEPS).await
    }

    /// All of Redis is to be made anew: noted in SQL, done in the background.
    ///
    /// # Errors
    /// When SQL does not answer.
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

    /// Brings the map in one Redis up to date: by what is new, or by all of it if it is of another generation.
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
            let piece = MapPiece {
                before,
                vehicles: &vehicles,
            };
            before += u32::try_from(vehicles.len()).unwrap_or(room).min(room);
            // What joins meanwhile comes with the next round.
            let is_last = before >= wanted.count || vehicles.is_empty();
            let head = is_last.then_some(Head {
                count: before,
                ..wanted
            });
            let call = fit_vehicles_put::call(&keys, wanted.generation, piece, head);
            let reply = redis.run(&call).await?;
            let written = fit_vehicles_put::parse(&reply).map_err(CallError::from)?;
            if is_last || written != VehiclesPutOutcome::Done {
                return Ok(written);
            }
        }
    }
}
