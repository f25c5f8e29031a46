//! Puts right what Redis knows of users' orders, where it has lost data.
//!
//! Redis needs a user's orders for one thing: the cap. An order that it has forgotten lets its user claim again, which SQL
//! refuses; one that ended and that it remembers keeps its user from buying. Whether it knows others than SQL is told by
//! sums that both keep; which, by going through them in small steps. Each user is corrected only if Redis still knows what
//! it was seen to know, so an order that is made or ends meanwhile is not lost.

use std::collections::BTreeMap;

use tracing::warn;
use weir_base::id::{SaleId, UserId};
use weir_sale::ledger::OrderEntry;
use weir_sale::shard::BUCKETS;

use super::ledger::Ledger;
use super::store::SaleStore;
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

impl Verifier {
    pub(super) fn new(store: SaleStore, ledger: Ledger) -> Self {
        Self { store, ledger }
    }

    /// Goes through all users of a shard; returns how many were corrected.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn verify(&self, sale: &SaleId, shard: u32) -> Result<u64, Unavailable> {
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
            warn!(%sale, shard, done, "the sums of a shard's orders are written anew");
        }
        let corrected = self.correct(sale, shard, &differing).await?;
        if corrected > 0 {
            warn!(%sale, shard, corrected, "Redis knew other orders of users than SQL");
        }
        Ok(corrected)
    }

    /// Corrects those of `users` of whom Redis knows other orders than SQL, and who hold no claim.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn correct(
        &self,
        sale: &SaleId,
        shard: u32,
        users: &[UserId],
    ) -> Result<u64, Unavailable> {
        let mut corrected = 0;
        for users in users.chunks(PAGE_LEN) {
            // Redis first: what changes after it was seen is not overwritten.
            let seen = self.ledger.settled(sale, shard, users).await?;
            for (user, seen) in users.iter().zip(seen) {
                let orders = self.store.orders_of(sale, shard, user).await?;
                if orders != seen {
                    let ledger = &self.ledger;
                    let done = ledger.correct(sale, shard, user, &seen, &orders).await?;
                    corrected += u64::from(done);
                }
            }
        }
        Ok(corrected)
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
