//! Draws: units go to a random choice of the reservations, and anyone can verify the result.
//!
//! The seed is created with the sale and published as a hash. When reservations end, the list is closed and published
//! as a hash. The winners are computed from seed and list and stored; then the seed is published. SQL records each
//! step. All steps are deterministic and can be repeated: another origin can continue after a crash, and two origins
//! that draw concurrently get the same result.

pub mod check;

use std::collections::HashMap;

use tracing::{error, info, warn};
use weir_base::id::{SaleId, UserId};

use super::store::{SaleStore, StoredDraw};
use crate::jobs::rebuild::Rebuilder;
use crate::model::draw_order;
use weir_origin_core::clock::now_ms;
use weir_origin_core::sql::SqlError;
use weir_origin_core::unavailable::Unavailable;

/// Completes due draws.
#[derive(Clone, Debug)]
pub struct Drawer {
    store: SaleStore,
    rebuilder: Rebuilder,
}

impl Drawer {
    pub(super) fn new(store: SaleStore, rebuilder: Rebuilder) -> Self {
        Self { store, rebuilder }
    }

    /// Completes every draw whose reservations have ended.
    ///
    /// # Errors
    /// When SQL does not list the draws. Failures of single sales are logged and retried in the next round.
    pub async fn draw_all(&self) -> Result<(), SqlError> {
        for sale in self.store.draws().draws_due(now_ms()).await? {
            if let Err(error) = self.draw(&sale).await {
                warn!(%sale, %error, "draw not completed yet");
            }
        }
        Ok(())
    }

    /// Runs the remaining steps of a draw: closes the list, draws, and publishes the winners to gateways.
    ///
    /// # Errors
    /// When SQL or Redis does not answer. Call it again to continue.
    pub async fn draw(&self, sale: &SaleId) -> Result<(), Unavailable> {
        self.store.draws().close_draw(sale, now_ms()).await?;
        let Some(draw) = self.store.draws().draw(sale).await? else {
            return Ok(());
        };
        if draw.drawn_at_ms.is_none() && !self.decide(&draw).await? {
            return Ok(());
        }
        let Some(stored) = self.store.sale(sale).await? else {
            return Ok(());
        };
        self.rebuilder.add_users(&stored.sale).await?;
        self.store.draws().set_admitted(sale, now_ms()).await?;
        Ok(())
    }

    /// Computes and stores the winners. Returns false if the list does not match the published hash.
    async fn decide(&self, draw: &StoredDraw) -> Result<bool, SqlError> {
        let sale = &draw.sale;
        let entries = self.store.draws().draw_entries(sale).await?;
        let users: HashMap<&str, &UserId> = entries
            .iter()
            .map(|entry| (entry.ticket.as_str(), &entry.user))
            .collect();
        let mut tickets: Vec<&str> = users.keys().copied().collect();
        tickets.sort_unstable();
        let hash = draw_order::list_hash(tickets.iter().copied());
        let count = tickets.len() as u64;
        let recorded = self.store.draws().set_draw_list(sale, count, &hash).await?;
        let recorded = recorded.and_then(|draw| draw.list);
        if recorded.as_ref() != Some(&(count, hash.clone())) {
            error!(%sale, ?recorded, count, hash, "draw stopped: its list does not match the published hash");
            return Ok(false);
        }
        let places = draw_order::places(draw.seed.bytes(), &hash, &tickets);
        let most = usize::try_from(draw.winners).unwrap_or(usize::MAX);
        let winners = places.into_iter().take(most);
        let winners: Vec<UserId> = winners
            .filter_map(|ticket| users.get(ticket).copied().cloned())
            .collect();
        self.store
            .draws()
            .set_winners(sale, &winners, now_ms())
            .await?;
        info!(%sale, entries = count, winners = winners.len(), "drawn");
        Ok(true)
    }
}
