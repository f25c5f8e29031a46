//! Compares Redis with SQL in bounded steps, and repairs differences.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use utoipa::ToSchema;
use weir_fitment::redis::fit_put::NewerEntryPolicy;
use weir_fitment::redis::fit_route;
use weir_fitment::redis::fit_verify::{self, StoredSku};
use weir_fitment::redis::keys::FitmentKeys;
use weir_fitment::{Cluster, Placement};
use weir_scripts::Call;

use super::Fitment;
use super::store::{SkuRow, offsets};
use weir_origin_core::background::Interval;
use weir_origin_core::redis::CallError;
use weir_origin_core::unavailable::Unavailable;

/// Interval between two background steps.
const PERIOD: Duration = Duration::from_secs(1);

/// Maximum number of SKUs in one step.
pub const STEP_MAX: usize = 200;

/// Result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = FitmentVerifySummary)]
pub struct VerifySummary {
    /// SKUs compared.
    pub checked: usize,
    /// SKUs that differed and were rewritten.
    pub repaired: usize,
    /// `after` of the next step; absent: all SKUs are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub next: Option<u64>,
}

/// Result of comparing a SKU in Redis with SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SkuComparison {
    Same,
    /// Redis lacks it, or has an older or damaged entry.
    Differs,
    /// Redis has a higher version than SQL: SQL was restored to an earlier state.
    IsAhead,
}

impl Fitment {
    /// Compares all SKUs repeatedly, one step per second, until `stop`.
    pub(super) async fn run_verifying(self, stop: CancellationToken) {
        let limit = (self.0.settings.verify_per_s as usize).min(STEP_MAX);
        if limit == 0 {
            return;
        }
        let mut interval = Interval::every(PERIOD, "comparing fitment with Redis", stop);
        let mut after = 0;
        while interval.next().await {
            let outcome = self.verify(None, after, limit).await;
            interval.ended(&outcome);
            if let Ok(verified) = outcome {
                after = verified.next.unwrap_or(0);
            }
        }
    }

    /// Compares up to `limit` SKUs after a number, of one product or of all.
    ///
    /// # Errors
    /// If SQL or Redis is unavailable.
    pub async fn verify(
        &self,
        spu: Option<&weir_fitment::Spu>,
        after: u64,
        limit: usize,
    ) -> Result<VerifySummary, Unavailable> {
        let rows = self
            .store()
            .skus_behind(spu, after, limit.min(STEP_MAX))
            .await?;
        let mut findings = self.compare(&rows).await?;
        self.compare_routes(&rows, &mut findings).await?;
        let repaired = self.mend(&rows, &findings).await?;
        let metrics = &self.0.metrics;
        metrics.verified.inc_by(rows.len() as u64);
        metrics.repaired.inc_by(repaired as u64);
        Ok(VerifySummary {
            checked: rows.len(),
            repaired,
            next: rows
                .last()
                .map(|row| row.number)
                .filter(|_| rows.len() >= limit.min(STEP_MAX)),
        })
    }

    async fn compare(&self, rows: &[SkuRow]) -> Result<Vec<SkuComparison>, Unavailable> {
        let mut by_place = HashMap::<Placement, Vec<usize>>::new();
        for (index, row) in rows.iter().enumerate() {
            by_place
                .entry(self.place(&row.product))
                .or_default()
                .push(index);
        }
        let mut findings = vec![SkuComparison::Same; rows.len()];
        for (place, indices) in by_place {
            let redis = self.redis(&place.cluster);
            let keys = FitmentKeys::new(redis.prefix(), &place.spu);
            for some in indices.chunks(fit_verify::SKUS_MAX) {
                let of: Vec<&SkuRow> = some.iter().filter_map(|index| rows.get(*index)).collect();
                let call = fit_verify::call(&keys, of.iter().map(|row| &row.sku));
                let reply = fit_verify::parse(&redis.run(&call).await?, of.len())
                    .map_err(CallError::from)?;
                for ((index, row), reply) in some.iter().zip(of).zip(reply) {
                    if let Some(finding) = findings.get_mut(*index) {
                        *finding = compared(row, &reply);
                    }
                }
            }
        }
        Ok(findings)
    }

    async fn compare_routes(
        &self,
        rows: &[SkuRow],
        findings: &mut [SkuComparison],
    ) -> Result<(), Unavailable> {
        let home = self.redis(&Cluster::home());
        let (calls, indices): (Vec<Call>, Vec<Vec<usize>>) =
            fit_route::calls(home.prefix(), rows.iter().map(|row| &row.sku))
                .into_iter()
                .unzip();
        if calls.is_empty() {
            return Ok(());
        }
        let replies = home.run_all(&calls).await?;
        for (indices, reply) in indices.into_iter().zip(&replies) {
            let routes = fit_route::parse(reply, indices.len()).map_err(CallError::from)?;
            for (index, route) in indices.into_iter().zip(routes) {
                let (Some(row), Some(finding)) = (rows.get(index), findings.get_mut(index)) else {
                    continue;
                };
                if row.fits.is_none() && !row.is_deleted {
                    continue;
                }
                let place = (!row.is_deleted).then(|| self.place(&row.product));
                let is_same = route.as_ref().is_some_and(|route| route.place == place);
                if route.is_some_and(|route| route.version > row.version) {
                    *finding = SkuComparison::IsAhead;
                } else if !is_same && *finding == SkuComparison::Same {
                    *finding = SkuComparison::Differs;
                }
            }
        }
        Ok(())
    }

    /// Rewrites SKUs that differ. This reads SQL again after Redis. If Redis still has a higher version, SQL never
    /// issued it, and the version from SQL replaces it.
    async fn mend(
        &self,
        rows: &[SkuRow],
        findings: &[SkuComparison],
    ) -> Result<usize, Unavailable> {
        let mut repaired = 0;
        for (row, finding) in rows.iter().zip(findings) {
            let newer = match finding {
                SkuComparison::Same => continue,
                SkuComparison::Differs => NewerEntryPolicy::Stays,
                SkuComparison::IsAhead => NewerEntryPolicy::IsReplaced,
            };
            let Some(now) = self.store().sku(&row.sku).await? else {
                continue;
            };
            if now.version != row.version {
                // It changed meanwhile; that change updates Redis.
                continue;
            }
            warn!(sku = %row.sku, ?finding, "Redis differs from SQL; rewriting the SKU");
            self.put(&[&now], newer).await?;
            self.route(&[&now], newer).await?;
            repaired += 1;
        }
        Ok(repaired)
    }
}

fn compared(row: &SkuRow, sku: &StoredSku) -> SkuComparison {
    match sku {
        StoredSku::Nothing | StoredSku::Dropped { .. } if row.is_deleted || row.fits.is_none() => {
            SkuComparison::Same
        }
        StoredSku::Dropped { version } | StoredSku::Relations { version, .. }
            if *version > row.version =>
        {
            SkuComparison::IsAhead
        }
        StoredSku::Relations { version, parts } if *version == row.version && !row.is_deleted => {
            match row
                .fits
                .as_ref()
                .is_some_and(|fits| parts.are(&offsets(fits)))
            {
                true => SkuComparison::Same,
                false => SkuComparison::Differs,
            }
        }
        _ => SkuComparison::Differs,
    }
}
