//! Rebuilds shards that lost their data from SQL.
//!
//! A rebuild first writes what restricts buyers: blocked users, reservations, and users' orders for the limit per user.
//! Then it opens the shard with 0 units and a new epoch. The reconciler finds the missing units and adds them once
//! their number is certain. No step creates units, so none is sold twice. While SQL has units left, gateways do not
//! report sold out.
//!
//! Only one origin rebuilds a cold shard at a time: it holds a lease, and Redis refuses its writes once another origin
//! has taken over.

use std::collections::BTreeMap;

use ring::rand::{SecureRandom, SystemRandom};
use tracing::info;
use weir_base::id::UserId;
use weir_sale::ledger::{OrderEntry, WipeReply};
use weir_sale::sale::Sale;

use crate::ledger::{Ledger, UserList};
use crate::store::SaleStore;
use weir_origin_core::sql::SqlError;
use weir_origin_core::unavailable::Unavailable;

/// Number of orders read from SQL per page.
const PAGE_LEN: usize = 1_000;

/// Number of users read from SQL per page. A sale has many sets, and each page contains some users of each.
const USERS_PAGE_LEN: usize = 20_000;

/// Number of users written to Redis per script: a long script blocks all others.
const BATCH_LEN: usize = 100;

/// Lease duration after each step, in milliseconds. After a crash, another origin continues after this time.
const LEASE_MS: u64 = 3_000;

/// Rebuilds shards. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Rebuilder {
    store: SaleStore,
    ledger: Ledger,
}

/// A rebuild of some shards of a sale.
struct Rebuild<'a> {
    sale: &'a Sale,
    token: String,
    shards: Vec<u32>,
}

impl Rebuilder {
    pub(crate) fn new(store: SaleStore, ledger: Ledger) -> Self {
        Self { store, ledger }
    }

    /// Rebuilds the cold shards among `shards` of a warmed sale. Skips shards that another origin is rebuilding.
    /// Returns the rebuilt shards.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn rebuild(&self, sale: &Sale, shards: &[u32]) -> Result<Vec<u32>, Unavailable> {
        let mut rebuild = Rebuild {
            sale,
            token: token(),
            shards: vec![],
        };
        for &shard in shards {
            let started = self
                .ledger
                .wipe(&sale.id, shard, &rebuild.token, LEASE_MS)
                .await?;
            if started == WipeReply::Begun {
                info!(sale = %sale.id, shard, "rebuilding a shard from SQL");
                rebuild.shards.push(shard);
            }
        }
        // Write the lists once for all shards: a sale may have a million users and 64 shards.
        self.add_lists(sale, &mut UserSelection::Rebuild(&mut rebuild))
            .await?;
        // Count before reading the orders: Redis may learn of later changes only once the shard is open.
        let counts = self.store.counters().counts(&sale.id).await?;
        let mut rebuilt = vec![];
        for shard in rebuild.shards.clone() {
            let users = self.restore_orders(&mut rebuild, shard).await?;
            self.add_attempts(sale, shard).await?;
            if rebuild.shards.contains(&shard)
                && self
                    .ledger
                    .warm(&sale.id, shard, 0, Some(&rebuild.token))
                    .await?
            {
                let in_sql = counts.iter().find(|counts| counts.shard == shard);
                let mark = in_sql.map_or(0, |counts| counts.orders.changes());
                let audit = self.ledger.audit(&sale.id, shard).await?;
                self.ledger
                    .raise_mark(&sale.id, shard, mark, &audit)
                    .await?;
                info!(sale = %sale.id, shard, users, "shard rebuilt from SQL");
                rebuilt.push(shard);
            }
        }
        if !rebuilt.is_empty() {
            // Write the lists again, now that the shards are open. Redis may have lost the first write, which cannot be
            // detected.
            self.add_lists(sale, &mut UserSelection::Shards(&rebuilt))
                .await?;
        }
        Ok(rebuilt)
    }

    /// Renews the leases of the shards, and drops shards that another origin has taken over.
    async fn renew(&self, rebuild: &mut Rebuild<'_>) -> Result<(), Unavailable> {
        let Rebuild { sale, token, .. } = &*rebuild;
        let mut retained = vec![];
        for &shard in &rebuild.shards {
            if self.ledger.restore(&sale.id, shard, token, &[]).await? {
                retained.push(shard);
            }
        }
        rebuild.shards = retained;
        Ok(())
    }

    /// Restores the orders of a shard. Returns the number of users.
    async fn restore_orders(
        &self,
        rebuild: &mut Rebuild<'_>,
        shard: u32,
    ) -> Result<usize, Unavailable> {
        let users = self.orders(rebuild.sale, shard).await?;
        let users: Vec<(&UserId, &[OrderEntry])> = users
            .iter()
            .map(|(user, orders)| (user, orders.as_slice()))
            .collect();
        for batch in users.chunks(BATCH_LEN) {
            let (id, token) = (&rebuild.sale.id, &rebuild.token);
            if !self.ledger.restore(id, shard, token, batch).await? {
                rebuild.shards.retain(|&existing| existing != shard);
                break;
            }
        }
        self.renew(rebuild).await?;
        Ok(users.len())
    }

    /// Restores which idempotency keys have become which orders, so that retries find them even when the sale is sold
    /// out.
    async fn add_attempts(&self, sale: &Sale, shard: u32) -> Result<(), Unavailable> {
        let mut after = None;
        loop {
            let store = &self.store;
            let page = store
                .attempts()
                .attempts_page(&sale.id, shard, after.as_ref(), PAGE_LEN);
            let mut page = page.await?;
            self.ledger.add_attempts(&sale.id, shard, &page).await?;
            if page.len() < PAGE_LEN {
                return Ok(());
            }
            after = page.pop();
        }
    }

    /// Returns the active orders of all users whose home is this shard, oldest first.
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

    /// Writes all reservations and blocked users of the sale. Repeating it changes nothing.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn add_users(&self, sale: &Sale) -> Result<(), Unavailable> {
        self.add_lists(sale, &mut UserSelection::All).await
    }

    async fn add_lists(
        &self,
        sale: &Sale,
        selection: &mut UserSelection<'_, '_>,
    ) -> Result<(), Unavailable> {
        for list in [UserList::Blocked, UserList::Reserved] {
            self.add_list(sale, list, selection).await?;
        }
        Ok(())
    }

    async fn add_list(
        &self,
        sale: &Sale,
        list: UserList,
        selection: &mut UserSelection<'_, '_>,
    ) -> Result<(), Unavailable> {
        let mut last = None;
        loop {
            if let UserSelection::Rebuild(rebuild) = selection {
                self.renew(rebuild).await?;
                if rebuild.shards.is_empty() {
                    return Ok(());
                }
            }
            let (id, after) = (&sale.id, last.as_ref());
            let page = match list {
                UserList::Reserved => {
                    self.store
                        .reservations()
                        .reserved_page(id, after, USERS_PAGE_LEN)
                        .await?
                }
                UserList::Blocked => {
                    self.store
                        .reservations()
                        .blocked_page(id, after, USERS_PAGE_LEN)
                        .await?
                }
            };
            let shards = selection.shards();
            self.ledger.write_users(sale, list, &page, shards).await?;
            if page.len() < USERS_PAGE_LEN {
                return Ok(());
            }
            last = page.into_iter().last();
        }
    }
}

/// Which users to write.
enum UserSelection<'a, 'b> {
    /// Users of all shards.
    All,
    /// Users of the shards that are being rebuilt.
    Rebuild(&'a mut Rebuild<'b>),
    /// Users of these shards.
    Shards(&'a [u32]),
}

impl UserSelection<'_, '_> {
    fn shards(&self) -> Option<&[u32]> {
        match self {
            Self::All => None,
            Self::Rebuild(rebuild) => Some(&rebuild.shards),
            Self::Shards(shards) => Some(shards),
        }
    }
}

/// Unique name of this rebuild for its leases. Falls back to the time if there are no random numbers.
pub(super) fn token() -> String {
    let mut bytes = [0; 8];
    if SystemRandom::new().fill(&mut bytes).is_err() {
        bytes = weir_origin_core::clock::now_ms().to_be_bytes();
    }
    format!("{}-{:016x}", std::process::id(), u64::from_be_bytes(bytes))
}
