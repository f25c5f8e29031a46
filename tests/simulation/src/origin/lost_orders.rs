//! Orders that SQL has lost: see `origin/sales/src/lost_orders/mod.rs`.

use weir_base::id::UserId;
use weir_sale::claim::Ticket;
use weir_sale::ledger::OrderEntry;
use weir_sale::shard::BUCKETS;

use super::io::Io;
use super::ledger::Ledger;
use super::publish::Publisher;
use super::rebuild::Rebuilder;
use super::reconcile::BrokeOff;
use crate::sql::Sql;

/// Pauses a sale whose orders SQL has lost, and applies operators' decisions.
#[derive(Clone, Debug)]
pub(super) struct LostOrders {
    pub(super) io: Io,
    pub(super) ledger: Ledger,
    pub(super) publisher: Publisher,
    pub(super) rebuilder: Rebuilder,
}

impl LostOrders {
    pub(super) async fn pause(&self, pauses: u64) -> Result<(), BrokeOff> {
        self.io.sql(move |sql: &mut Sql| sql.pause(pauses)).await?;
        self.publisher.publish().await
    }

    /// The orders of a shard in Redis that SQL does not have.
    async fn of(&self, shard: u32) -> Result<Vec<(UserId, OrderEntry)>, BrokeOff> {
        let mut lost = Vec::new();
        for bucket in (0..BUCKETS).filter(|bucket| self.io.has_users_in(*bucket)) {
            for (user, observed) in self.ledger.settled_in(shard, bucket).await? {
                for order in observed {
                    let name = (shard, order.generation);
                    let has = move |sql: &mut Sql| sql.orders.contains_key(&name);
                    if !self.io.sql(has).await? {
                        lost.push((user.clone(), order));
                    }
                }
            }
        }
        Ok(lost)
    }

    pub(super) async fn decide(&self, restores: bool) -> Result<(), BrokeOff> {
        let site = self.io.site;
        let observed = move |sql: &mut Sql| (sql.is_paused, sql.pauses, sql.sale_at(site));
        let (is_paused, pauses, sale) = self.io.sql(observed).await?;
        if !is_paused {
            return Ok(());
        }
        let audits = self.ledger.audits(&sale).await?;
        if audits.iter().any(|observed| observed.open > 0) {
            return Err(BrokeOff);
        }
        let shards: Vec<u32> = sale.shard_numbers().collect();
        for &shard in shards.iter().filter(|_| restores) {
            for (user, order) in self.of(shard).await? {
                let ticket = Ticket {
                    sale: sale.id.clone(),
                    shard,
                    generation: order.generation,
                    quantity: order.units as u32,
                    deadline_ms: 0,
                    user,
                };
                let now_ms = self.io.now_ms();
                let place = move |sql: &mut Sql| drop(sql.place(&ticket, None, now_ms));
                self.io.sql(place).await?;
            }
        }
        for &shard in &shards {
            self.ledger.forget(shard).await?;
        }
        self.rebuilder.rebuild(&sale, &shards).await?;
        self.io.sql(move |sql: &mut Sql| sql.resume(pauses)).await?;
        self.publisher.publish().await
    }
}
