//! Repairs users' orders in Redis after it has lost data.
//!
//! Redis needs users' orders only for the limit per user. If it has lost an order, the user gets another claim, which
//! SQL refuses. If it still has an ended order, the user cannot buy. Sums on both sides show whether the orders differ;
//! a scan in small steps finds the users. A user is corrected only if Redis still has the orders that were read, so
//! concurrent changes are not lost. An order that SQL does not have is not an error of Redis: SQL has lost it, and
//! Redis retains it until an operator decides.

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

/// Number of orders read from SQL per page.
const PAGE_LEN: usize = 1_000;

/// Repairs users' orders in Redis. Cloning it is cheap.
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

    /// Verifies all users of a shard.
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
                for (user, observed) in page.1 {
                    // A page may repeat a user. The user then counts as differing, but `correct` finds no difference.
                    if in_sql.remove(&user).as_ref() != Some(&observed) {
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
            // Redis has lost a key, and the sums still include its orders.
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

    /// Corrects those of `users` whose orders in Redis differ from SQL and who have no open claim. Orders that SQL does
    /// not have stay: see [`VerifySummary::lost`].
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
            // Read Redis first, so that later changes are not overwritten.
            let entries = self.ledger.settled(sale, shard, users).await?;
            for (user, entries) in users.iter().zip(entries) {
                let orders = self.store.orders_of(sale, shard, user).await?;
                if orders == entries {
                    continue;
                }
                if !self
                    .lost_of(sale, shard, &entries, &orders)
                    .await?
                    .is_empty()
                {
                    verified.lost += 1;
                    continue;
                }
                let ledger = &self.ledger;
                let done = ledger.correct(sale, shard, user, &entries, &orders).await?;
                verified.corrected += u64::from(done);
            }
        }
        Ok(verified)
    }

    /// Returns a sale's orders that Redis has and SQL does not, of users without open claims, by shard.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn lost_orders(&self, sale: &Sale) -> Result<Vec<LostOrder>, Unavailable> {
        let mut lost = Vec::new();
        for shard in sale.shard_numbers() {
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
        // Keyed by the order, because pages may repeat a user.
        let mut lost = BTreeMap::new();
        for bucket in 0..BUCKETS {
            let mut cursor = 0;
            loop {
                let page = self
                    .ledger
                    .settled_page(sale, shard, bucket, cursor)
                    .await?;
                cursor = page.0;
                for (user, observed) in page.1 {
                    let existing = in_sql.get(&user).map_or(&[][..], Vec::as_slice);
                    for order in self.lost_of(sale, shard, &observed, existing).await? {
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

    /// Returns the orders in `entries` that SQL does not have. `current` contains the user's active orders in SQL.
    async fn lost_of(
        &self,
        sale: &SaleId,
        shard: u32,
        entries: &[OrderEntry],
        current: &[OrderEntry],
    ) -> Result<Vec<OrderEntry>, SqlError> {
        let stands = |order: &OrderEntry| {
            let mut current = current.iter();
            current.any(|existing| existing.generation == order.generation)
        };
        let mut lost = Vec::new();
        for order in entries.iter().filter(|order| !stands(order)) {
            let claim = ClaimId::new(sale, shard, order.generation);
            // An ended order is in SQL, too; Redis has not followed yet.
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
