//! The key of a claim in Redis.

use weir_base::id::{SaleId, UserId};
use weir_sale::claim::Ticket;

use crate::store::StoredOrder;

/// Identifies a claim in Redis: from a ticket, or from an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimKey {
    pub(crate) sale: SaleId,
    pub(crate) shard: u32,
    pub(crate) generation: u64,
    pub(crate) user: UserId,
}

impl From<&Ticket> for ClaimKey {
    fn from(ticket: &Ticket) -> Self {
        Self {
            sale: ticket.sale.clone(),
            shard: ticket.shard,
            generation: ticket.generation,
            user: ticket.user.clone(),
        }
    }
}

impl From<&StoredOrder> for ClaimKey {
    fn from(order: &StoredOrder) -> Self {
        Self {
            sale: order.sale.clone(),
            shard: order.shard,
            generation: order.generation,
            user: order.user.clone(),
        }
    }
}
