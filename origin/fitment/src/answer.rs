//! Answers what a gateway could not: from SQL, and then Redis knows it, too.

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
    /// So many read SQL already that this one is not let in.
    #[error("too many queries wait for SQL")]
    TooMany,
    /// SQL or Redis does not answer.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl Fitment {
    /// Answers a question from SQL, as JSON. What Redis did not know is written there, and it must answer: without it every
    /// question would come here.
    ///
    /// # Errors
    /// See [`AnswerError`]. An answer is never guessed.
    pub async fn check(&self, check: &Check) -> Result<Vec<u8>, AnswerError> {
        let _permit = self.permit()?;
        let mut offsets = Vec::with_capacity(check.vehicles.len());
        for vehicle in &check.vehicles {
            let known = self
                .store()
                .vehicle(*vehicle)
                .await
                .map_err(Unavailable::from)?;
            offsets.push(known.map(|vehicle| vehicle.offset));
        }
        let skus: Vec<&Sku> = check.skus.iter().map(|wanted| &wanted.sku).collect();
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

    /// A page of what fits a vehicle, as JSON; of an unknown vehicle it has nothing.
    ///
    /// # Errors
    /// See [`AnswerError`].
    pub async fn browse(&self, browse: &Browse) -> Result<Option<Vec<u8>>, AnswerError> {
        let _permit = self.permit()?;
        // Before the page is read: one that is read before a change has the stamp from before it.
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
            // A page is cheap: it is read from SQL again.
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
