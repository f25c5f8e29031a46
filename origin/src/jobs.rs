//! What the origin does by itself: unpaid orders expire, Redis follows, sales are warmed in time.
//!
//! Each may run in several origins at once: SQL decides every step once, and Redis' steps may be
//! repeated.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::Origin;
use crate::clock::now_ms;
use crate::store::StoreError;

/// The pause between two rounds.
const PERIOD: Duration = Duration::from_millis(500);

/// Orders of one step: SQL ends them in transactions of its own.
const ORDERS_MAX: usize = 256;

/// Works until `stop`. Logs that a round fails when it begins to, not each time.
pub async fn run(origin: Origin, stop: CancellationToken) {
    let mut is_failing = false;
    loop {
        match round(&origin).await {
            Ok(()) => is_failing = false,
            Err(error) if !is_failing => {
                is_failing = true;
                warn!(%error, "jobs wait for SQL");
            }
            Err(_) => {}
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
}

/// One round of all jobs.
///
/// # Errors
/// When SQL does not answer. That Redis does not is logged, and tried again in the next round.
pub async fn round(origin: &Origin) -> Result<(), StoreError> {
    expire(origin).await?;
    follow(origin).await?;
    warm(origin).await
}

/// SQL ends orders that were not paid in time; then Redis gives their units back.
async fn expire(origin: &Origin) -> Result<(), StoreError> {
    loop {
        let expired = origin.store.expire(now_ms(), ORDERS_MAX).await?;
        for order in &expired {
            origin.metrics.expired.inc();
            info!(order = %order.id, units = order.units, "not paid in time: expired");
            origin.orders.follow(order).await;
        }
        if expired.len() < ORDERS_MAX {
            return Ok(());
        }
    }
}

async fn follow(origin: &Origin) -> Result<(), StoreError> {
    for order in origin.store.unfollowed(ORDERS_MAX).await? {
        origin.orders.follow(&order).await;
    }
    Ok(())
}

async fn warm(origin: &Origin) -> Result<(), StoreError> {
    for id in origin.store.due_to_warm(now_ms()).await? {
        if let Err(error) = origin.warmer.warm(&id).await {
            error!(sale = %id, %error, "not warmed before its start");
        }
    }
    Ok(())
}
