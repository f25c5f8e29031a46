//! Rebuilds shards that lost their data, from SQL.
//!
//! First comes what may keep somebody from buying: who is blocked, who has reserved, and the users' orders, so that caps
//! hold. Only then is a shard in use again, with 0 units and a fresh epoch. The reconciler then finds that units are
//! missing, and puts them back once it is sure how many. No step makes a unit, so none is sold twice; and as long as SQL
//! has units, nobody hears that they are gone.
//!
//! Of several origins that find a shard cold, one rebuilds it: it holds a lease, and whatever it writes is refused once
//! another has taken over.

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

/// The orders read from SQL at a time.
const PAGE_LEN: usize = 1_000;

/// The users read from SQL at a time: a sale's sets are many, and each gets some of a page.
const USERS_PAGE_LEN: usize = 20_000;

/// The users written to Redis at a time: a script that runs long holds up all others.
const BATCH_LEN: usize = 100;

/// For how long after each step a rebuild keeps others away: an origin that died is replaced after so long.
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

    /// Rebuilds those of `shards` that are cold, of a warmed sale; others are left alone, and so are those that another
    /// origin rebuilds. Returns which it did.
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
            let begun = self
                .ledger
                .wipe(&sale.id, shard, &rebuild.token, LEASE_MS)
                .await?;
            if begun == WipeReply::Begun {
                info!(sale = %sale.id, shard, "rebuilding a shard from SQL");
                rebuild.shards.push(shard);
            }
        }
        // The lists once for all shards: a sale may have a million users, and 64 shards.
        self.add_lists(sale, &mut UserSelection::Rebuild(&mut rebuild))
            .await?;
        // Before the orders: what ends or is made after this count, Redis may be told of once the shard is in use.
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
                let seen = self.ledger.audit(&sale.id, shard).await?;
                self.ledger.raise_mark(&sale.id, shard, mark, &seen).await?;
                info!(sale = %sale.id, shard, users, "shard rebuilt from SQL");
                rebuilt.push(shard);
            }
        }
        if !rebuilt.is_empty() {
            // Once more, now that they are in use: Redis may have lost the first writing, and nothing but their absence
            // would tell.
            self.add_lists(sale, &mut UserSelection::Shards(&rebuilt))
                .await?;
        }
        Ok(rebuilt)
    }

    /// Keeps others away from the shards that are being rebuilt; those that another has taken over are left to it.
    async fn renew(&self, rebuild: &mut Rebuild<'_>) -> Result<(), Unavailable> {
        let Rebuild { sale, token, .. } = &*rebuild;
        let mut kept = vec![];
        for &shard in &rebuild.shards {
            if self.ledger.restore(&sale.id, shard, token, &[]).await? {
                kept.push(shard);
            }
        }
        rebuild.shards = kept;
        Ok(())
    }

    /// Restores the orders of a shard; returns of how many users.
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
                rebuild.shards.retain(|&known| known != shard);
                break;
            }
        }
        self.renew(rebuild).await?;
        Ok(users.len())
    }

    /// Which attempts with a key have become which orders, so that trying again finds them though nothing is left.
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
    pub async fn add_users(&self, sale: &Sale) -> Result<(), Unavailable> {
        self.add_lists(sale, &mut UserSelection::All).await
    }

    async fn add_lists(
        &self,
        sale: &Sale,
        wanted: &mut UserSelection<'_, '_>,
    ) -> Result<(), Unavailable> {
        for list in [UserList::Blocked, UserList::Reserved] {
            self.add_list(sale, list, wanted).await?;
        }
        Ok(())
    }

    async fn add_list(
        &self,
        sale: &Sale,
        list: UserList,
        wanted: &mut UserSelection<'_, '_>,
    ) -> Result<(), Unavailable> {
        let mut last = None;
        loop {
            if let UserSelection::Rebuild(rebuild) = wanted {
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
            let shards = wanted.shards();
            self.ledger.write_users(sale, list, &page, shards).await?;
            if page.len() < USERS_PAGE_LEN {
                return Ok(());
            }
            last = page.into_iter().last();
        }
    }
}

/// Whose users are written.
enum UserSelection<'a, 'b> {
    /// Those of all shards.
    All,
    /// Those of the shards that are being rebuilt.
    Rebuild(&'a mut Rebuild<'b>),
    /// Those of these shards.
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

/// Who rebuilds: nobody else has this name. Without random numbers, which every system gives, the time must do.
fn token() -> String {
    let mut bytes = [0; 8];
    if SystemRandom::new().fill(&mut bytes).is_err() {
        bytes = weir_origin_core::clock::now_ms().to_be_bytes();
    }
    format!("{}-{:016x}", std::process::id(), u64::from_be_bytes(bytes))
}
