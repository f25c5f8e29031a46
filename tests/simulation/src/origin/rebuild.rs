//! Rebuilds lost shards from SQL, and warms sales: see `origin/sales/src/{rebuild,warm}.rs`.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use weir_base::id::UserId;
use weir_sale::ledger::{OrderEntry, WipeReply};
use weir_sale::sale::Sale;
use weir_sale::shard::spread_stock;
use weir_sale::site::{fence_of, index_of};

use super::io::Io;
use super::ledger::{Ledger, UserList};
use super::publish::Publisher;
use super::reconcile::BrokeOff;
use crate::mutation::Mutation;
use crate::sql::{Sql, Totals};

/// How far a gateway's clock may be ahead of the origin's.
const CLOCK_SKEW_MS: u64 = 60_000;

/// How long each step of a rebuild keeps its lock.
const LEASE_MS: u64 = 3_000;

/// Rebuilds shards.
#[derive(Clone, Debug)]
pub(super) struct Rebuilder {
    pub(super) io: Io,
    pub(super) ledger: Ledger,
}

impl Rebuilder {
    /// Rebuilds the cold `shards` of a warmed sale.
    pub(super) async fn rebuild(&self, sale: &Sale, shards: &[u32]) -> Result<(), BrokeOff> {
        let token = self.io.token();
        let mut started = vec![];
        for &shard in shards {
            if self.ledger.wipe(shard, &token, LEASE_MS).await? == WipeReply::Begun {
                started.push(shard);
            }
        }
        self.renew(&token, &mut started).await?;
        if started.is_empty() {
            return Ok(());
        }
        if !self.io.makes(Mutation::ListsAfterStock) {
            self.add_users(sale, Some(&started)).await?;
        }
        // Counted before the orders are read: Redis may receive later changes once the shard is in use.
        let count = sale.shard_numbers();
        let marks = move |sql: &mut Sql| count.map(|shard| sql.order_changes_of(shard)).collect();
        let marks: Vec<u64> = self.io.sql(marks).await?;
        let mut rebuilt = vec![];
        for shard in started {
            let mut orders = self.io.sql(move |sql| sql.orders_of(shard)).await?;
            if self.io.makes(Mutation::RebuiltWithoutOrders) {
                orders.clear();
            }
            let users: Vec<(&UserId, &[OrderEntry])> = orders
                .iter()
                .map(|(user, orders)| (user, orders.as_slice()))
                .collect();
            let is_on = self.ledger.restore(shard, &token, &users).await?;
            let attempts = self.io.sql(move |sql| sql.attempts_of(shard)).await?;
            self.ledger.add_attempts(shard, attempts).await?;
            if is_on && self.ledger.warm(shard, 0, Some(&token)).await? {
                let audit = self.ledger.audit(shard).await?;
                self.ledger
                    .raise_mark(shard, marks[index_of(shard) as usize], &audit)
                    .await?;
                rebuilt.push(shard);
            }
        }
        if !rebuilt.is_empty() {
            self.add_users(sale, Some(&rebuilt)).await?;
        }
        Ok(())
    }

    async fn renew(&self, token: &str, shards: &mut Vec<u32>) -> Result<(), BrokeOff> {
        let mut retained = vec![];
        for &shard in &*shards {
            if self.ledger.restore(shard, token, &[]).await? {
                retained.push(shard);
            }
        }
        *shards = retained;
        Ok(())
    }

    async fn add_users(&self, sale: &Sale, shards: Option<&[u32]>) -> Result<(), BrokeOff> {
        if shards.is_some() && self.io.makes(Mutation::RebuiltWithoutLists) {
            return Ok(());
        }
        let lists = |sql: &mut Sql| (sql.blocked.clone(), sql.reserved.clone());
        let (blocked, reserved) = self.io.sql(lists).await?;
        for (list, users) in [(UserList::Blocked, blocked), (UserList::Reserved, reserved)] {
            let is_wanted = |user: &UserId| {
                let home = sale.home_shard(user);
                shards.is_none_or(|shards| shards.contains(&home))
            };
            let users = users.into_iter().filter(is_wanted).collect();
            self.ledger.add_users(sale, list, users).await?;
        }
        Ok(())
    }
}

/// Writes stock to Redis once.
#[derive(Clone, Debug)]
pub(super) struct Warmer {
    pub(super) io: Io,
    pub(super) ledger: Ledger,
    pub(super) rebuilder: Rebuilder,
    pub(super) publisher: Publisher,
}

impl Warmer {
    /// Distributes the sale's remaining units over its shards and publishes them to gateways, unless that was done
    /// before.
    pub(super) async fn warm(&self) -> Result<(), BrokeOff> {
        let site = self.io.site;
        let existing = move |sql: &mut Sql| {
            let sale = sql.sale_at(site);
            let fills = sql.begin_warm(fence_of(sale.first_shard));
            (sql.totals(), sale, fills)
        };
        let (totals, sale, fills) = self.io.sql(existing).await?;
        let fence = fence_of(sale.first_shard);
        // The other sites get units from the one that fills its shards.
        if !fills {
            return Ok(());
        }
        let lists_late = self.rebuilder.io.makes(Mutation::ListsAfterStock);
        if !lists_late {
            self.rebuilder.add_users(&sale, None).await?;
        }
        if !totals.has_outcomes {
            self.fill(&totals, &sale).await?;
        }
        self.rebuilder.add_users(&sale, None).await?;
        let now_ms = self.io.now_ms();
        let mark = move |sql: &mut Sql| sql.mark_warm(fence, now_ms);
        if !self.io.sql(mark).await? {
            return Err(BrokeOff);
        }
        self.publisher.publish().await
    }

    async fn fill(&self, totals: &Totals, sale: &Sale) -> Result<(), BrokeOff> {
        let started = self.io.now_ms() + CLOCK_SKEW_MS >= sale.starts_at_ms;
        if totals.warmed_at_ms.is_some() && started {
            return Err(BrokeOff);
        }
        for (shard, units) in sale
            .shard_numbers()
            .zip(spread_stock(totals.remaining, sale.shards))
        {
            self.ledger.warm(shard, units, None).await?;
            let audit = self.ledger.audit(shard).await?;
            let is_untouched = audit.stock == i64::try_from(units).ok();
            if !is_untouched || audit.held > 0 || audit.bought > 0 {
                return Err(BrokeOff);
            }
        }
        Ok(())
    }
}
