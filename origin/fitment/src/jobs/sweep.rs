//! Takes away what Redis has of SKUs and SQL does not: marks of what was dropped long ago, and what is of SKUs that SQL has never
//! heard of, as when it was restored from a backup.

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

/// Between two looks at marks and routes.
const PERIOD: Duration = Duration::from_secs(1);

/// Longer than a write that was sent may be under way.
const MARK_LIFE_MS: u64 = 3_600_000;

/// Marks of one step.
const MARKS: usize = fit_drop::SKUS_MAX;

/// Buckets of routes of one step: all of them in some two hours. A bucket has some hundred routes where there are many.
const BUCKETS: u64 = 32;

impl Fitment {
    /// Looks at marks and routes, a step a second, until `stop`.
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

    /// Takes away marks of what was dropped before an instant; how many. Two hundred at most.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn forget_marks(&self, before_ms: u64) -> Result<usize, Unavailable> {
        let marks = self.store().changes().marks(before_ms, MARKS).await?;
        for mark in &marks {
            let place = &mark.left.place;
            // A cluster that the configuration has no longer is nobody's business.
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

    /// Takes away what Redis has of SKUs that SQL has never heard of, by their routes in some buckets; how many SKUs.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn forget_unknown(&self, bucket: u64, buckets: u64) -> Result<usize, Unavailable> {
        let routes = self.routes_in(bucket, buckets).await?;
        let skus: Vec<&Sku> = routes.keys().collect();
        // SQL is read after Redis: no origin writes a route before its SKU is there.
        let known: HashSet<Sku> = self.store().known(&skus).await?.into_iter().collect();
        let unknown: Vec<_> = routes
            .iter()
            .filter(|(sku, _)| !known.contains(*sku))
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
                // What is no route is not ours.
                if let (Ok(sku), Some(route)) = (Sku::new(&sku), fit_route::read(&route)) {
                    routes.insert(sku, route);
                }
            }
        }
        Ok(routes)
    }
}
