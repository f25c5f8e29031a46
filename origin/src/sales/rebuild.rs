//! Rebuilds a shard that lost its data, from SQL.
//!
//! Users' orders come back, so that caps hold; the stock comes back as 0 units, with a fresh epoch. The reconciler
//! then finds that units are missing, and puts them back once it is sure how many. No step makes a unit, so none is
//! sold twice.

use std::collections::BTreeMap;

use tracing::{error, info};
use weir_base::id::UserId;
use weir_sale::ledger::OrderEntry;
use weir_sale::sale::Sale;

use super::ledger::{Ledger, UserList};
use super::store::SaleStore;
use crate::clock::now_ms;
use crate::sql::SqlError;
use crate::unavailable::Unavailable;

/// The orders read from SQL at a time.
const PAGE_LEN: usize = 1_000;

/// The users read from SQL at a time: a sale's sets are many, and each gets some of a page.
const USERS_PAGE_LEN: usize = 20_000;

/// The users written to Redis at a time: a script that runs long holds up all others.
const BATCH_LEN: usize = 200;

/// Rebuilds shards.
#[derive(Clone, Debug)]
pub struct Rebuilder {
    store: SaleStore,
    ledger: Ledger,
}

impl Rebuilder {
    pub(crate) fn new(store: SaleStore, ledger: Ledger) -> Self {
        Self { store, ledger }
    }

    /// Rebuilds a cold shard of a warmed sale; one that is not cold is left alone. Returns whether
    /// it did.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn rebuild(&self, sale: &Sale, shard: u32) -> Result<bool, Unavailable> {
        let id = &sale.id;
        if !self.ledger.wipe(id, shard).await? {
            return Ok(false);
        }
        error!(sale = %id, shard, "Redis has lost a shard; rebuilding it from SQL");
        let users: Vec<_> = self.orders(sale, shard).await?.into_iter().collect();
        for batch in users.chunks(BATCH_LEN) {
            let batch: Vec<(&UserId, &[OrderEntry])> = batch
                .iter()
                .map(|(user, orders)| (user, orders.as_slice()))
                .collect();
            if !self.ledger.restore(id, shard, &batch).await? {
                // Another origin was quicker.
                return Ok(false);
            }
        }
        self.add_users(sale).await?;
        self.add_attempts(sale, shard).await?;
        let rebuilt = self.ledger.warm(id, shard, 0, now_ms()).await?;
        info!(sale = %id, shard, users = users.len(), rebuilt, "a shard is rebuilt");
        Ok(rebuilt)
    }

    /// Which attempts with a key have become which orders, so that trying again finds them though nothing is left.
    async fn add_attempts(&self, sale: &Sale, shard: u32) -> Result<(), Unavailable> {
        let mut after = 0;
        loop {
            let page = self.store.attempts_page(&sale.id, shard, after, PAGE_LEN);
            let page = page.await?;
            self.ledger.add_attempts(&sale.id, shard, &page).await?;
            match page.last() {
                Some((_, _, generation)) if page.len() == PAGE_LEN => after = *generation,
                _ => return Ok(()),
            }
        }
    }

    /// The orders that stand, of all users at home on the shard, oldest first.
    async fn orders(
        &self,
        sale: &Sale,
        shard: u32,
    ) -> Result<BTreeMap<UserId, Vec<OrderEntry>>, SqlError> {
        let mut users = BTreeMap::<_, Vec<OrderEntry>>::new();
        let mut after = 0;
        loop {
            let page = self
                .store
                .orders_page(&sale.id, shard, after, PAGE_LEN)
                .await?;
            let Some((_, last)) = page.last() else { break };
            after = last.generation;
            for (user, order) in page {
                users.entry(user).or_default().push(order);
            }
        }
        Ok(users)
    }

    /// Writes who has reserved and who is blocked, of the whole sale. Doing it again changes nothing.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn add_users(&self, sale: &Sale) -> Result<u64, Unavailable> {
        let blocked = self.add_list(sale, UserList::Blocked).await?;
        Ok(blocked + self.add_list(sale, UserList::Reserved).await?)
    }

    async fn add_list(&self, sale: &Sale, list: UserList) -> Result<u64, Unavailable> {
        let (mut count, mut last) = (0, None);
        loop {
            let (id, after) = (&sale.id, last.as_ref());
            let page = match list {
                UserList::Reserved => self.store.reserved_page(id, after, USERS_PAGE_LEN).await?,
                UserList::Blocked => self.store.blocked_page(id, after, USERS_PAGE_LEN).await?,
            };
            self.ledger.add_users(sale, list, &page).await?;
            count += page.len() as u64;
            if page.len() < USERS_PAGE_LEN {
                return Ok(count);
            }
            last = page.into_iter().last();
        }
    }
}
