//! Writes fitment from SQL to Redis: changed SKUs, or all SKUs in a rebuild.
//!
//! A moved SKU is written to its new place, then its route is changed, then its old entry is dropped. Concurrent
//! queries therefore always find it. Versions make every step idempotent, even if two origins run it at once.

use std::collections::HashMap;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use weir_fitment::redis::fit_add::{Change, ChangeOutcome};
use weir_fitment::redis::fit_put::NewerEntryPolicy;
use weir_fitment::redis::fit_route_put::NewRoute;
use weir_fitment::redis::keys::{FitmentKeys, fitment_pages};
use weir_fitment::redis::{fit_add, fit_drop, fit_put, fit_route_put};
use weir_fitment::{Cluster, Offset, Placement, Shape, Sku};
use weir_scripts::Call;

use crate::Fitment;
use crate::store::{Dirty, SkuRow, offsets};
use weir_origin_core::background::Interval;
use weir_origin_core::redis::CallError;
use weir_origin_core::unavailable::Unavailable;

/// Number of SKUs in one round.
const SKUS: usize = 500;

/// Maximum bytes of one pipeline to Redis, so that it completes within the call timeout.
const FLIGHT_LEN: usize = 2 << 20;

/// Interval between checks for changed SKUs.
const PERIOD: Duration = Duration::from_millis(200);

/// Calls to send, by cluster.
type Flights = HashMap<Cluster, Vec<Call>>;

impl Fitment {
    /// Writes changed SKUs until `stop`.
    pub(crate) async fn run_publishing(self, stop: CancellationToken) {
        let mut interval = Interval::every(PERIOD, "writing fitment to Redis", stop);
        while interval.next().await {
            let outcome = self.publish_dirty().await;
            interval.ended(&outcome);
            if matches!(outcome, Ok(count) if count >= SKUS) {
                interval.next_at_once();
            }
        }
    }

    /// Writes all pending changes and returns the number of SKUs.
    ///
    /// # Errors
    /// If SQL or Redis is unavailable. Unwritten changes stay pending.
    pub async fn publish_dirty(&self) -> Result<usize, Unavailable> {
        let (mut after, mut count) = (0, 0);
        loop {
            let dirty = self.store().changes().dirty(after, SKUS).await?;
            let Some(last) = dirty.last() else {
                break;
            };
            after = last.row.number;
            self.publish_some(&dirty).await?;
            count += dirty.len();
        }
        let (waiting, since_ms) = self.store().changes().waiting().await?;
        let waited_ms = since_ms.map_or(0, |since_ms| self.now_ms().saturating_sub(since_ms));
        self.0
            .metrics
            .waiting
            .set(i64::try_from(waiting).unwrap_or(i64::MAX));
        let waited = Duration::from_millis(waited_ms);
        self.0.metrics.waiting_seconds.set(waited.as_secs_f64());
        Ok(count)
    }

    async fn publish_some(&self, dirty: &[Dirty]) -> Result<(), Unavailable> {
        let whole = self.add_deltas(dirty).await?;
        let rows: Vec<&SkuRow> = whole.iter().map(|dirty| &dirty.row).collect();
        self.put(&rows, NewerEntryPolicy::Stays).await?;
        let rows: Vec<&SkuRow> = dirty.iter().map(|dirty| &dirty.row).collect();
        self.route(&rows, NewerEntryPolicy::Stays).await?;
        self.drop_left(dirty).await?;
        let done: Vec<_> = dirty
            .iter()
            .map(|dirty| (dirty.row.number, dirty.recorded))
            .collect();
        self.store().changes().clean(&done).await?;
        self.0.metrics.published.inc_by(dirty.len() as u64);
        Ok(())
    }

    /// Sends changes that consist of a few offsets. Returns those that must be written whole.
    async fn add_deltas<'d>(&self, dirty: &'d [Dirty]) -> Result<Vec<&'d Dirty>, Unavailable> {
        let (mut whole, mut flights, mut sent) =
            (Vec::new(), Flights::new(), HashMap::<_, Vec<_>>::new());
        for one in dirty {
            match self.delta(one) {
                None => whole.push(one),
                Some((cluster, call)) => {
                    flights.entry(cluster.clone()).or_default().push(call);
                    sent.entry(cluster).or_default().push(one);
                }
            }
        }
        for (cluster, calls) in flights {
            let replies = self.redis(&cluster).run_all(&calls).await?;
            let of = sent.remove(&cluster).unwrap_or_default();
            for (one, reply) in of.into_iter().zip(&replies) {
                if fit_add::parse(reply).map_err(CallError::from)? == ChangeOutcome::NeedsWhole {
                    whole.push(one);
                }
            }
            self.forget_pages(dirty).await?;
        }
        Ok(whole)
    }

    fn delta(&self, dirty: &Dirty) -> Option<(Cluster, Call)> {
        let delta = dirty
            .delta
            .as_ref()
            .filter(|_| dirty.row.version == dirty.recorded)?;
        let offsets = |numbers: &[u32]| {
            numbers
                .iter()
                .copied()
                .filter_map(Offset::new)
                .collect::<Vec<_>>()
        };
        let (mut added, removed) = (offsets(&delta.added), offsets(&delta.removed));
        added.sort_unstable_by(|a, b| b.cmp(a));
        let change = Change {
            from_version: delta.from_version,
            to_version: dirty.row.version,
            added: &added,
            removed: &removed,
        };
        let place = self.place(&dirty.row.product);
        let keys = FitmentKeys::new(self.redis(&place.cluster).prefix(), &place.spu);
        Some((place.cluster, fit_add::call(&keys, &dirty.row.sku, &change)))
    }

    /// Drops the cached pages of vehicles in single changes, so that they are read again.
    async fn forget_pages(&self, dirty: &[Dirty]) -> Result<(), Unavailable> {
        let home = self.redis(&Cluster::home());
        let mut forget = Vec::new();
        for offset in changed_offsets(dirty) {
            if let Some(vehicle) = self.store().vehicle_at(offset).await? {
                let key = fitment_pages(home.prefix(), vehicle.vehicle);
                forget.push(::redis::cmd("UNLINK").arg(key).to_owned());
            }
        }
        if !forget.is_empty() {
            home.send_all(forget).await?;
        }
        Ok(())
    }

    /// Writes SKUs whole, each to its place. Skips SKUs with unknown fitment, and drops deleted ones.
    pub(crate) async fn put(
        &self,
        rows: &[&SkuRow],
        newer: NewerEntryPolicy,
    ) -> Result<(), Unavailable> {
        let segments = self.segments().await?;
        for flights in self.flights(rows, newer, segments) {
            self.fly(flights).await?;
        }
        Ok(())
    }

    fn flights(&self, rows: &[&SkuRow], newer: NewerEntryPolicy, segments: u32) -> Vec<Flights> {
        let (mut all, mut flights, mut length) = (Vec::new(), Flights::new(), 0);
        for row in rows {
            let Some((cluster, call)) = self.whole(row, newer, segments) else {
                continue;
            };
            length += call.words().map(<[u8]>::len).sum::<usize>();
            flights.entry(cluster).or_default().push(call);
            if length >= FLIGHT_LEN {
                all.push(std::mem::take(&mut flights));
                length = 0;
            }
        }
        all.push(flights);
        all
    }

    fn whole(
        &self,
        row: &SkuRow,
        newer: NewerEntryPolicy,
        segments: u32,
    ) -> Option<(Cluster, Call)> {
        let place = self.place(&row.product);
        let keys = FitmentKeys::new(self.redis(&place.cluster).prefix(), &place.spu);
        if row.is_deleted {
            let call = fit_drop::call(&keys, segments, [(&row.sku, row.version)]);
            return Some((place.cluster, call));
        }
        let shape =
            Shape::from_offsets(self.0.settings.plan, &offsets(row.fits.as_ref()?), segments);
        let call = fit_put::call(&keys, &row.sku, row.version, newer, &shape);
        Some((place.cluster, call))
    }

    /// Number of map segments for the plan `Bitmaps`, which writes all of them; 0 for the other plan.
    pub(crate) async fn segments(&self) -> Result<u32, Unavailable> {
        match self.0.settings.plan {
            weir_fitment::Plan::Directory => Ok(0),
            weir_fitment::Plan::Bitmaps => {
                let count = self.store().vehicle_count().await?;
                Ok(count.div_ceil(weir_fitment::SEGMENT_LEN).max(1))
            }
        }
    }

    async fn put_and_route(&self, rows: &[SkuRow]) -> Result<(), Unavailable> {
        let rows: Vec<&SkuRow> = rows.iter().collect();
        self.put(&rows, NewerEntryPolicy::Stays).await?;
        self.route(&rows, NewerEntryPolicy::Stays).await
    }

    async fn fly(&self, flights: Flights) -> Result<(), Unavailable> {
        for (cluster, calls) in flights {
            // Redis keeps a newer version: its writer saw later data.
            self.redis(&cluster).run_all(&calls).await?;
        }
        Ok(())
    }

    /// Updates the routes of SKUs to their current places.
    pub(crate) async fn route(
        &self,
        rows: &[&SkuRow],
        newer: NewerEntryPolicy,
    ) -> Result<(), Unavailable> {
        let home = self.redis(&Cluster::home());
        let calls = self.route_calls(rows, newer);
        if !calls.is_empty() {
            home.run_all(&calls).await?;
        }
        Ok(())
    }

    fn route_calls(&self, rows: &[&SkuRow], newer: NewerEntryPolicy) -> Vec<Call> {
        let routes: Vec<(&Sku, u64, Option<Placement>)> = rows
            .iter()
            .filter(|row| row.is_deleted || row.fits.is_some())
            .map(|row| {
                let place = (!row.is_deleted).then(|| self.place(&row.product));
                (&row.sku, row.version, place)
            })
            .collect();
        let routes = routes.iter().map(|(sku, version, place)| NewRoute {
            sku,
            version: *version,
            place: place.as_ref(),
        });
        fit_route_put::calls(self.redis(&Cluster::home()).prefix(), newer, routes)
    }

    /// Drops SKUs from their former places, now that no route leads there.
    async fn drop_left(&self, dirty: &[Dirty]) -> Result<(), Unavailable> {
        let (Some(first), Some(last)) = (dirty.first(), dirty.last()) else {
            return Ok(());
        };
        let remaining = self
            .store()
            .changes()
            .former_placements(first.row.number, last.row.number)
            .await?;
        if remaining.is_empty() {
            return Ok(());
        }
        let segments = self.segments().await?;
        for remaining in remaining {
            let Some(one) = dirty.iter().find(|one| one.row.number == remaining.number) else {
                continue;
            };
            self.drop_one(&one.row, &remaining.place, segments).await?;
            self.store()
                .changes()
                .dropped(&[remaining], one.row.version)
                .await?;
        }
        Ok(())
    }

    async fn drop_one(
        &self,
        row: &SkuRow,
        place: &Placement,
        segments: u32,
    ) -> Result<(), Unavailable> {
        let is_there = !row.is_deleted && *place == self.place(&row.product);
        // Skip clusters that are no longer configured.
        let Some(redis) = self.known_redis(&place.cluster).filter(|_| !is_there) else {
            return Ok(());
        };
        let keys = FitmentKeys::new(redis.prefix(), &place.spu);
        redis
            .run(&fit_drop::call(&keys, segments, [(&row.sku, row.version)]))
            .await?;
        Ok(())
    }

    /// Continues a running rebuild by up to `steps` times 500 SKUs. Returns whether it is still running.
    ///
    /// # Errors
    /// If SQL or Redis is unavailable. SQL stores the position, so any origin can resume the rebuild.
    pub async fn rebuild_some(&self, steps: usize) -> Result<bool, Unavailable> {
        for _ in 0..steps {
            let Some(at) = self.store().head().await?.rebuilt_up_to else {
                return Ok(false);
            };
            let rows = self.store().skus_behind(None, at, SKUS).await?;
            self.put_and_route(&rows).await?;
            let next = rows.last().map(|row| row.number);
            self.store().changes().advance_rebuild(at, next).await?;
            self.0.metrics.published.inc_by(rows.len() as u64);
        }
        Ok(true)
    }

    /// Rewrites all SKUs of one product and returns their number.
    ///
    /// # Errors
    /// If SQL or Redis is unavailable.
    pub async fn rebuild_spu(&self, spu: &weir_fitment::Spu) -> Result<usize, Unavailable> {
        let (mut after, mut count) = (0, 0);
        loop {
            let rows = self.store().skus_behind(Some(spu), after, SKUS).await?;
            let Some(last) = rows.last() else {
                return Ok(count);
            };
            after = last.number;
            count += rows.len();
            self.put_and_route(&rows).await?;
        }
    }
}

fn changed_offsets(dirty: &[Dirty]) -> Vec<Offset> {
    let deltas = dirty.iter().filter_map(|dirty| dirty.delta.as_ref());
    let numbers = deltas.flat_map(|delta| delta.added.iter().chain(&delta.removed));
    numbers.copied().filter_map(Offset::new).collect()
}
