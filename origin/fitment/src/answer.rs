//! Answers queries that Redis cannot answer: reads SQL and writes the result to Redis.

use std::collections::HashMap;

use tokio::sync::TryAcquireError;
use tracing::debug;
use weir_fitment::check::{Browse, Check};
use weir_fitment::redis::fit_browse::Page;
use weir_fitment::redis::fit_browse_fill;
use weir_fitment::redis::fit_put::NewerEntryPolicy;
use weir_fitment::{Answer, Cluster, Offset, Sku};

use super::Fitment;
use super::store::SkuRow;
use weir_origin_core::unavailable::Unavailable;

/// Why a fitment query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// Too many queries are reading SQL already.
    #[error("too many queries wait for SQL")]
    TooMany,
    /// SQL or Redis is unavailable.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl Fitment {
    /// Answers a query from SQL, as JSON. It also writes the missing fitment to Redis, and fails if Redis is
    /// unavailable. Otherwise every query would reach SQL.
    ///
    /// # Errors
    /// See [`AnswerError`]. The answer is never guessed.
    pub async fn check(&self, check: &Check) -> Result<Vec<u8>, AnswerError> {
        let _permit = self.permit()?;
        let mut offsets = Vec::with_capacity(check.vehicles.len());
        for vehicle in &check.vehicles {
            let existing = self
                .store()
                .vehicle(*vehicle)
                .await
                .map_err(Unavailable::from)?;
            offsets.push(existing.map(|vehicle| vehicle.offset));
        }
        let skus: Vec<&Sku> = check.skus.iter().map(|requested| &requested.sku).collect();
        let rows = self.store().skus(&skus).await.map_err(Unavailable::from)?;
        self.0.metrics.fallbacks.inc_by(skus.len() as u64);
        let rows: HashMap<Sku, SkuRow> =
            rows.into_iter().map(|row| (row.sku.clone(), row)).collect();
        let found: Vec<&SkuRow> = rows.values().collect();
        self.put(&found, NewerEntryPolicy::Stays).await?;
        self.route(&found, NewerEntryPolicy::Stays).await?;
        let mut json = Vec::with_capacity(64 + 64 * skus.len());
        let of = |sku: usize, vehicle: usize| {
            let row = skus.get(sku).and_then(|sku| rows.get(*sku));
            answer(row, offsets.get(vehicle).copied().flatten())
        };
        check.write(of, &mut json);
        Ok(json)
    }

    /// A page of the parts that fit a vehicle, as JSON; `None` for an unknown vehicle.
    ///
    /// # Errors
    /// See [`AnswerError`].
    pub async fn browse(&self, browse: &Browse) -> Result<Option<Vec<u8>>, AnswerError> {
        let _permit = self.permit()?;
        // Read the stamp before the page: a page read before a change then has the stamp from before that change.
        let head = self.store().head().await.map_err(Unavailable::from)?;
        let vehicle = self
            .store()
            .vehicle(browse.vehicle)
            .await
            .map_err(Unavailable::from)?;
        let Some(vehicle) = vehicle else {
            return Ok(None);
        };
        let page = self
            .store()
            .by_vehicle()
            .fits_vehicle(vehicle.offset, browse.after)
            .await;
        let (skus, next) = page.map_err(Unavailable::from)?;
        let mut json = Vec::new();
        browse.write(skus.iter().map(Sku::as_str), next, &mut json);
        let page = Page {
            stamp: head.stamp,
            json,
        };
        let home = self.redis(&Cluster::home());
        let call =
            fit_browse_fill::call(home.prefix(), browse, &page, self.0.settings.page_life_ms);
        if let Err(error) = home.run(&call).await {
            // A page is cheap to read from SQL again.
            debug!(%error, "cannot cache a page in Redis");
        }
        Ok(Some(page.json))
    }

    fn permit(&self) -> Result<tokio::sync::SemaphorePermit<'_>, AnswerError> {
        self.0.fallbacks.try_acquire().map_err(|error| {
            if matches!(error, TryAcquireError::NoPermits) {
                self.0.metrics.refused.inc();
            }
            AnswerError::TooMany
        })
    }
}

fn answer(row: Option<&SkuRow>, offset: Option<Offset>) -> Answer {
    let fits = row
        .filter(|row| !row.is_deleted)
        .and_then(|row| row.fits.as_ref());
    match (fits, offset) {
        (Some(fits), Some(offset)) if fits.contains(offset.get()) => Answer::Fits,
        (Some(_), Some(_)) => Answer::DoesNot,
        _ => Answer::Unknown,
    }
}
