//! Puts right what Redis knows of users' orders, where it has lost data.
//!
//! Redis needs a user's orders for one thing: the cap. An order that it has forgotten lets its user claim again, which SQL
//! refuses; one that ended and that it remembers keeps its user from buying. Whether it knows others than SQL is told by
//! sums that both keep; which, by going through them in small steps. Each user is corrected only if Redis still knows what
//! it was seen to know, so an order that is made or ends meanwhile is not lost. An order that SQL does not have at all is not a
//! mistake of Redis: SQL has lost it, and Redis keeps it until an operator decides.

use std::collections::BTreeMap;

use tracing::warn;
use weir_base::id::{SaleId, UserId};
use weir_sale::claim::ClaimId;
use weir_sale::ledger::{Deduction, OrderEntry};
use weir_sale::sale::Sale;
use weir_sale::shard::BUCKETS;

use super::ledger::Ledger;
use super::lost_orders::LostOrder;
use super::store::SaleStore;
use weir_origin_core::sql::SqlError;
use weir_origin_core::unavailable::Unavailable;

/// The orders read from SQL at a time.
const PAGE_LEN: usize = 1_000;

/// Puts users' orders right. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Verifier {
    store: SaleStore,
    ledger: Ledger,
}

type Orders = BTreeMap<UserId, Vec<OrderEntry>>;

/// The outcome of a verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifySummary {
    /// Users whose orders in Redis were corrected.
    pub corrected: u64,
    /// Users with orders in Redis that SQL does not have. Redis keeps these orders: it has the only list of them.
    pub lost: u64,
}

impl Verifier {
    /// Compares this store with this ledger.
    pub fn new(store: SaleStore, ledger: Ledger) -> Self {
        Self { store, ledger }
    }

    /// Goes through all users of a shard.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn verify(&self, sale: &SaleId, shard: u32) -> Result<VerifySummary, Unavailable> {
        let before = self.ledger.audit(sale, shard).await?;
        let mut in_sql = self.orders(sale, shard).await?;
        let sums = before.with_orders(in_sql.values().flatten());
        let mut differing = Vec::new();
        for bucket in 0..BUCKETS {
            let mut cursor = 0;
            loop {
                let page = self
                    .ledger
                    .settled_page(sale, shard, bucket, cursor)
                    .await?;
                cursor = page.0;
                for (user, seen) in page.1 {
                    // A page may tell of a user twice: then the second time looks like a difference, and is none.
                    if in_sql.remove(&user).as_ref() != Some(&seen) {
                        differing.push(user);
                    }
                }
                if cursor == 0 {
                    break;
                }
            }
        }
        differing.extend(in_sql.into_keys());
        if differing.is_empty() && sums != before {
            // Redis was made to forget a key, and the sums still count what it held.
            let done = self.ledger.write_sums(sale, shard, &sums).await?;
            warn!(%sale, shard, done, "rewrote a shard's order sums");
        }
        let verified = self.correct(sale, shard, &differing).await?;
        if verified.corrected > 0 {
            let corrected = verified.corrected;
            warn!(%sale, shard, corrected, "order counts of users differed between Redis and SQL; repaired");
        }
        Ok(verified)
    }

    /// Corrects those of `users` of whom Redis knows other orders than SQL, and who hold no claim. Orders that SQL does not have at
    /// all stay: see [`VerifySummary::lost`].
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn correct(
        &self,
        sale: &SaleId,
        shard: u32,
        users: &[UserId],
    ) -> Result<VerifySummary, Unavailable> {
        let mut verified = VerifySummary::default();
        for users in users.chunks(PAGE_LEN) {
            // Redis first: what changes after it was seen is not overwritten.
            let seen = self.ledger.settled(sale, shard, users).await?;
            for (user, seen) in users.iter().zip(seen) {
                let orders = self.store.orders_of(sale, shard, user).await?;
                if orders == seen {
                    continue;
                }
                if !self.lost_of(sale, shard, &seen, &orders).await?.is_empty() {
                    verified.lost += 1;
                    continue;
                }
                let ledger = &self.ledger;
                let done = ledger.correct(sale, shard, user, &seen, &orders).await?;
                verified.corrected += u64::from(done);
            }
        }
        Ok(verified)
    }

    /// A sale's orders that Redis knows and SQL does not have, of users who hold no claim, shard by shard.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn lost_orders(&self, sale: &Sale) -> Result<Vec<LostOrder>, Unavailable> {
        let mut lost = Vec::new();
        for shard in 0..sale.shards {
            let orders = self.lost_on(&sale.id, shard).await?.into_iter();
            lost.extend(orders.map(|(user, order)| LostOrder {
                id: ClaimId::new(&sale.id, shard, order.generation).to_string(),
                user,
                shard,
                generation: order.generation,
                units: order.units,
                deducted: order.deduction == Deduction::AtOrder,
            }));
        }
        Ok(lost)
    }

    async fn lost_on(
        &self,
        sale: &SaleId,
        shard: u32,
    ) -> Result<Vec<(UserId, OrderEntry)>, Unavailable> {
        let in_sql = self.orders(sale, shard).await?;
        // Keyed by the order: pages may have a user twice.
        let mut lost = BTreeMap::new();
        for bucket in 0..BUCKETS {
            let mut cursor = 0;
            loop {
                let page = self
                    .ledger
                    .settled_page(sale, shard, bucket, cursor)
                    .await?;
                cursor = page.0;
                for (user, seen) in page.1 {
                    let known = in_sql.get(&user).map_or(&[][..], Vec::as_slice);
                    for order in self.lost_of(sale, shard, &seen, known).await? {
                        lost.insert(order.generation, (user.clone(), order));
                    }
                }
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(lost.into_values().collect())
    }

    /// The orders of a user that Redis was `seen` to know and SQL does not have. `standing` are the user's orders that stand in SQL.
    async fn lost_of(
        &self,
        sale: &SaleId,
        shard: u32,
        seen: &[OrderEntry],
        standing: &[OrderEntry],
    ) -> Result<Vec<OrderEntry>, SqlError> {
        let stands = |order: &OrderEntry| {
            let mut standing = standing.iter();
            standing.any(|known| known.generation == order.generation)
        };
        let mut lost = Vec::new();
        for order in seen.iter().filter(|order| !stands(order)) {
            let claim = ClaimId::new(sale, shard, order.generation);
            // One that has ended is there all the same: Redis has yet to follow.
            if !self.store.pauses().has_order(&claim).await? {
                lost.push(*order);
            }
        }
        Ok(lost)
    }

    async fn orders(&self, sale: &SaleId, shard: u32) -> Result<Orders, Unavailable> {
        let (mut orders, mut after) = (Orders::new(), 0);
        loop {
            let store = &self.store;
            let page = store.orders_page(sale, shard, after, PAGE_LEN).await?;
            let Some((_, last)) = page.last() else {
                return Ok(orders);
            };
            after = last.generation;
            for (user, order) in page {
                orders.entry(user).or_default().push(order);
            }
        }
    }
}
