//! Removes stale entries from Redis: markers of SKUs dropped long ago, and SKUs that SQL does not contain, for example
//! after a restore from a backup.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::warn;
use weir_fitment::redis::fit_route::{self, Route};
use weir_fitment::redis::keys::{FitmentKeys, ROUTE_BUCKETS, ROUTE_TAGS, RouteBucket};
use weir_fitment::redis::{fit_drop, fit_route_put};
use weir_fitment::{Cluster, Placement, Sku};

use crate::Fitment;
use weir_origin_core::background::Interval;
use weir_origin_core::redis::CallError;
use weir_origin_core::unavailable::Unavailable;

/// Interval between two steps.
const PERIOD: Duration = Duration::from_secs(1);

/// Age at which markers are removed, in milliseconds: longer than any write can be in flight.
const MARK_LIFE_MS: u64 = 3_600_000;

/// Maximum number of markers in one step.
const MARKS: usize = fit_drop::SKUS_MAX;

/// Number of route buckets in one step. A full pass takes about two hours. In large catalogues a bucket has some
/// hundred routes.
const BUCKETS: u64 = 32;

impl Fitment {
    /// Checks markers and routes, one step per second, until `stop`.
    pub(crate) async fn run_sweeping(self, stop: CancellationToken) {
        let mut interval = Interval::every(PERIOD, "removing stale fitment from Redis", stop);
        let mut bucket = 0;
        while interval.next().await {
            let outcome = self.sweep(bucket).await;
            interval.ended(&outcome);
            if outcome.is_ok() {
                bucket = (bucket + BUCKETS) % (ROUTE_TAGS * ROUTE_BUCKETS);
            }
        }
    }

    async fn sweep(&self, bucket: u64) -> Result<(), Unavailable> {
        self.forget_marks(self.now_ms().saturating_sub(MARK_LIFE_MS))
            .await?;
        if self.0.settings.verify_per_s > 0 {
            self.forget_unknown(bucket, BUCKETS).await?;
        }
        Ok(())
    }

    /// Removes markers of SKUs dropped before this time, at most 200. Returns their number.
    ///
    /// # Errors
    /// If SQL or Redis is unavailable.
    pub async fn forget_marks(&self, before_ms: u64) -> Result<usize, Unavailable> {
        let marks = self.store().changes().marks(before_ms, MARKS).await?;
        for mark in &marks {
            let place = &mark.remaining.place;
            // Skip clusters that are no longer configured.
            if let Some(redis) = self.known_redis(&place.cluster) {
                let keys = FitmentKeys::new(redis.prefix(), &place.spu);
                redis
                    .run(&fit_drop::forget(&keys, [(&mark.sku, mark.version)]))
                    .await?;
            }
        }
        if !marks.is_empty() {
            self.store().changes().forget_marks(&marks).await?;
        }
        Ok(marks.len())
    }

    /// Removes SKUs from Redis that SQL does not contain, found by their routes in some buckets. Returns the number of
    /// SKUs.
    ///
    /// # Errors
    /// If SQL or Redis is unavailable.
    pub async fn forget_unknown(&self, bucket: u64, buckets: u64) -> Result<usize, Unavailable> {
        let routes = self.routes_in(bucket, buckets).await?;
        let skus: Vec<&Sku> = routes.keys().collect();
        // Read SQL after Redis: every origin stores a SKU before it writes the route.
        let existing: HashSet<Sku> = self.store().existing(&skus).await?.into_iter().collect();
        let unknown: Vec<_> = routes
            .iter()
            .filter(|(sku, _)| !existing.contains(*sku))
            .collect();
        if unknown.is_empty() {
            return Ok(0);
        }
        let segments = self.segments().await?;
        for (sku, route) in &unknown {
            warn!(%sku, "removed a SKU from Redis that SQL does not have");
            if let Some(place) = &route.place {
                self.take_away(sku, route.version, place, segments).await?;
            }
        }
        let home = self.redis(&Cluster::home());
        let versions = unknown.iter().map(|(sku, route)| (*sku, route.version));
        home.run_all(&fit_route_put::forget(home.prefix(), versions))
            .await?;
        Ok(unknown.len())
    }

    async fn take_away(
        &self,
        sku: &Sku,
        version: u64,
        place: &Placement,
        segments: u32,
    ) -> Result<(), Unavailable> {
        let Some(redis) = self.known_redis(&place.cluster) else {
            return Ok(());
        };
        let keys = FitmentKeys::new(redis.prefix(), &place.spu);
        let calls = [
            fit_drop::call(&keys, segments, [(sku, version)]),
            fit_drop::forget(&keys, [(sku, version)]),
        ];
        for call in &calls {
            redis.run(call).await?;
        }
        Ok(())
    }

    async fn routes_in(
        &self,
        bucket: u64,
        buckets: u64,
    ) -> Result<HashMap<Sku, Route>, Unavailable> {
        let home = self.redis(&Cluster::home());
        let reads = (bucket..bucket + buckets).map(|number| {
            let key = RouteBucket::nth(number).key(home.prefix());
            ::redis::cmd("HGETALL").arg(key).to_owned()
        });
        let mut routes = HashMap::new();
        for reply in home.send_all(reads.collect()).await? {
            let fields: Vec<(Vec<u8>, Vec<u8>)> = ::redis::from_redis_value(reply)
                .map_err(|error| CallError::unexpected("routes of SKUs", error.to_string()))?;
            for (sku, route) in fields {
                // Ignore fields that are not routes.
                if let (Ok(sku), Some(route)) = (Sku::new(&sku), fit_route::read(&route)) {
                    routes.insert(sku, route);
                }
            }
        }
        Ok(routes)
    }
}
