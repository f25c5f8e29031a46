//! Units go to a random choice among those who have reserved, and anybody can check it.
//!
//! The seed is made with the sale and told as a hash; when reservations end the list is closed and told as a hash; then the
//! winners are computed from both, written down, and the seed is told. Each step is noted in SQL, and comes to the same
//! whoever does it again: an origin that dies leaves what another goes on with, and two that draw at once draw the same.

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

/// Draws what is due.
#[derive(Clone, Debug)]
pub struct Drawer {
    store: SaleStore,
    rebuilder: Rebuilder,
}

impl Drawer {
    pub(super) fn new(store: SaleStore, rebuilder: Rebuilder) -> Self {
        Self { store, rebuilder }
    }

    /// Brings every draw whose reservations have ended to its end.
    ///
    /// # Errors
    /// When SQL does not say which. What fails of one sale is logged, and done again in the next round.
    pub async fn draw_all(&self) -> Result<(), SqlError> {
        for sale in self.store.draws().draws_due(now_ms()).await? {
            if let Err(error) = self.draw(&sale).await {
                warn!(%sale, %error, "draw not completed yet");
            }
        }
        Ok(())
    }

    /// Closes the list, draws and has gateways know the winners: what of that is not done.
    ///
    /// # Errors
    /// When SQL or Redis does not answer; doing it again goes on from there.
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

    /// Computes the winners and writes them down. False: the list is not the one that was told.
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
        let noted = self.store.draws().set_draw_list(sale, count, &hash).await?;
        let noted = noted.and_then(|draw| draw.list);
        if noted.as_ref() != Some(&(count, hash.clone())) {
            error!(%sale, ?noted, count, hash, "draw stopped: its list does not match the published hash");
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
