//! The reconciler: see `origin/sales/src/jobs/reconcile.rs`, which has the same constants.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use weir_sale::claim::Ticket;
use weir_sale::ledger::{Audit, DepositReply, LendReply, OpenTransfer, Transfer};
use weir_sale::mark::{changes_lost, is_behind};
use weir_sale::repair::{Terms, repairs, total_in_redis};
use weir_sale::sale::Sale;
use weir_sale::site::fence_of;

use super::io::{Io, RedisError, SqlError};
use super::ledger::Ledger;
use super::lost_orders::LostOrders;
use super::orders::Orders;
use super::publish::Publisher;
use super::rebuild::Rebuilder;
use super::verify::Verifier;
use crate::mutation::Mutation;
use crate::sql::Sql;

pub(super) const PERIOD_MS: u64 = 1_000;
pub(crate) const GRACE_MS: u64 = 1_000;
const TRANSFER_LIMIT_MS: u64 = 1_000;
const ROUNDS_UNREAD_MAX: u32 = 60;
const READINGS_MAX: u32 = 3;

/// A round failed. The next one starts again.
#[derive(Debug)]
pub(super) struct BrokeOff;

impl From<RedisError> for BrokeOff {
    fn from(_: RedisError) -> Self {
        Self
    }
}

impl From<SqlError> for BrokeOff {
    fn from(_: SqlError) -> Self {
        Self
    }
}

/// Finishes abandoned work.
#[derive(Debug)]
pub(super) struct Reconciler {
    pub(super) io: Io,
    pub(super) ledger: Ledger,
    pub(super) orders: Orders,
    pub(super) rebuilder: Rebuilder,
    pub(super) verifier: Verifier,
    pub(super) publisher: Publisher,
    pub(super) lost_orders: LostOrders,
    pub(super) last: Option<LastRound>,
}

/// The results of the last round.
#[derive(Debug)]
pub(super) struct LastRound {
    shards: Vec<Audit>,
    versions: [u64; 2],
    drift: Option<i64>,
    other_orders: Vec<u32>,
    rounds_unread: u32,
}

/// The balance of SQL and Redis.
struct StockBalance {
    shards: Vec<Audit>,
    terms: Option<Terms>,
    is_exact: bool,
    is_followed: bool,
    /// The sums of each shard in SQL.
    sums: Vec<(u64, u64, u64)>,
    /// The number of order changes of each shard in SQL.
    changes: Vec<u64>,
    changes_lost: u64,
}

impl LastRound {
    fn still_right(&self, shards: &[Audit], versions: Option<[u64; 2]>) -> bool {
        self.drift == Some(0)
            && self.other_orders.is_empty()
            && self.shards == shards
            && versions.is_none_or(|versions| self.versions == versions)
            && self.rounds_unread < ROUNDS_UNREAD_MAX
    }
}

impl StockBalance {
    fn drift(&self) -> Option<i64> {
        let terms = self.terms.filter(|_| self.is_exact && self.is_followed)?;
        Some(terms.drift())
    }

    fn shards_with_other_orders(&self, first: u32) -> Vec<u32> {
        if !self.is_exact || !self.is_followed {
            return vec![];
        }
        let shards = (first..).zip(self.shards.iter().zip(&self.sums));
        let differs = |(observed, sums): &(&Audit, &(u64, u64, u64))| {
            observed.open == 0 && (observed.bought, observed.deferred, observed.checksum) != **sums
        };
        let shards = shards.filter(|(_, both)| differs(both));
        shards.map(|(shard, _)| shard).collect()
    }
}

impl Reconciler {
    pub(super) async fn round(&mut self) -> Result<(), BrokeOff> {
        let site = self.io.site;
        let existing = self
            .io
            .sql(move |sql| {
                let paused = (sql.is_paused, sql.pauses);
                let versions = [sql.version, sql.order_changes()];
                let warmed_at_ms = sql.warmed_at_ms.filter(|_| sql.is_open_at(site));
                (warmed_at_ms, sql.sale_at(site), versions, paused)
            })
            .await?;
        let (Some(_), sale, versions, (is_paused, pauses)) = existing else {
            return Ok(());
        };
        let first = sale.first_shard;
        let mut shards = self.ledger.audits(&sale).await?;
        let cold = (first..)
            .zip(&shards)
            .filter(|(_, observed)| observed.stock.is_none());
        let cold: Vec<u32> = cold.map(|(shard, _)| shard).collect();
        if !cold.is_empty() && !is_paused {
            self.publisher.publish().await?;
            self.rebuilder.rebuild(&sale, &cold).await?;
            shards = self.ledger.audits(&sale).await?;
        }
        for (shard, observed) in (first..).zip(&shards) {
            if observed.open > 0 || observed.deadlines > 0 {
                self.end_overdue(&sale, shard).await?;
            }
            if !observed.transfers.is_empty() {
                self.end_transfers(shard, observed).await?;
            }
            let is_whole = observed.stock.is_none() || observed.is_sound();
            if !is_whole && !self.io.makes(Mutation::EvictionNotHealed) {
                self.ledger.recount(shard, observed).await?;
            }
        }
        if is_paused {
            return Ok(());
        }
        self.pay_debts(first, &shards).await?;
        self.check_books(&sale, shards, (versions, pauses)).await
    }

    async fn end_overdue(&self, sale: &Sale, shard: u32) -> Result<(), BrokeOff> {
        for claim in self.ledger.overdue(shard, GRACE_MS).await? {
            let ticket = claim.into_ticket(&sale.id, shard);
            self.orders.end_overdue(&ticket).await?;
        }
        Ok(())
    }

    async fn end_transfers(&self, from: u32, audit: &Audit) -> Result<(), RedisError> {
        if self.io.makes(Mutation::TransfersForgotten) {
            return Ok(());
        }
        let now_ms = self.ledger.now_ms().await?;
        for &OpenTransfer {
            to_shard,
            transfer,
            at_ms,
        } in &audit.transfers
        {
            if now_ms >= at_ms.saturating_add(TRANSFER_LIMIT_MS) {
                self.move_units(from, to_shard, transfer).await?;
            }
        }
        Ok(())
    }

    async fn move_units(&self, from: u32, to: u32, transfer: Transfer) -> Result<(), RedisError> {
        let reply = self.ledger.deposit(from, to, transfer).await?;
        if reply != DepositReply::Cold {
            self.ledger.settle_transfer(from, to, transfer.id).await?;
        }
        Ok(())
    }

    async fn pay_debts(&self, first: u32, shards: &[Audit]) -> Result<(), RedisError> {
        let stock = |audit: &Audit| audit.stock.unwrap_or(0);
        for (shard, audit) in (first..).zip(shards).filter(|(_, audit)| stock(audit) < 0) {
            let richest = (first..).zip(shards).max_by_key(|(_, audit)| stock(audit));
            let Some((from, _)) = richest.filter(|(_, audit)| stock(audit) > 0) else {
                return Ok(());
            };
            let expected = stock(audit).unsigned_abs();
            if let LendReply::Lent(transfer) = self.ledger.lend(from, shard, expected).await? {
                self.move_units(from, shard, transfer).await?;
            }
        }
        Ok(())
    }

    async fn check_books(
        &mut self,
        sale: &Sale,
        shards: Vec<Audit>,
        (versions, pauses): ([u64; 2], u64),
    ) -> Result<(), BrokeOff> {
        let looks_at_sql = !self.io.makes(Mutation::SqlChangeIgnored);
        if let Some(last) = &mut self.last
            && last.still_right(&shards, looks_at_sql.then_some(versions))
        {
            last.rounds_unread += 1;
            return Ok(());
        }
        let before = self.last.take();
        let stock_balance = self.stock_balance(sale).await?;
        let is_noticed = !self.io.makes(Mutation::LossNotNoticed);
        if stock_balance.changes_lost > 0 && is_noticed {
            return self.lost_orders.pause(pauses).await;
        }
        let drift = stock_balance.drift();
        let mut other_orders = stock_balance.shards_with_other_orders(sale.first_shard);
        if self.io.makes(Mutation::OrdersNotVerified) {
            other_orders.clear();
        }
        if let (Some(before), Some(drift)) = (&before, drift)
            && drift != 0
            && before.drift == Some(drift)
        {
            self.repair(sale, &stock_balance, drift).await?;
        }
        for &shard in &other_orders {
            let is_known = |last: &LastRound| last.other_orders.contains(&shard);
            if before.as_ref().is_some_and(is_known) && self.verifier.verify(shard).await? {
                return self.lost_orders.pause(pauses).await;
            }
        }
        self.raise_marks(sale, &stock_balance, drift, &other_orders)
            .await?;
        self.last = Some(LastRound {
            shards: stock_balance.shards,
            versions,
            drift,
            other_orders,
            rounds_unread: 0,
        });
        Ok(())
    }

    async fn raise_marks(
        &self,
        sale: &Sale,
        stock_balance: &StockBalance,
        drift: Option<i64>,
        other_orders: &[u32],
    ) -> Result<(), RedisError> {
        let is_early = self.io.makes(Mutation::MarkRaisedUnderClaims);
        if !is_early && (drift != Some(0) || !other_orders.is_empty()) {
            return Ok(());
        }
        for (shard, (observed, &mark)) in
            (sale.first_shard..).zip(stock_balance.shards.iter().zip(&stock_balance.changes))
        {
            if is_early || is_behind(observed, mark) {
                self.ledger.raise_mark(shard, mark, observed).await?;
            }
        }
        Ok(())
    }

    /// See `origin/sales/src/stock_balance.rs`.
    async fn stock_balance(&self, sale: &Sale) -> Result<StockBalance, BrokeOff> {
        let mut before = self.ledger.audits(sale).await?;
        let mut reading = 1;
        loop {
            let open = self.open_claims(sale, &before).await?;
            let knows_claims = open.is_some();
            let open = open.unwrap_or_default();
            let (numbers, site) = (sale.shard_numbers(), self.io.site);
            let fence = fence_of(sale.first_shard);
            let minds_other_sales = self.io.makes(Mutation::OtherSaleWaitedFor);
            let balance = move |sql: &mut Sql| {
                let of_shard = |shard| (sql.sums_of(shard), sql.order_changes_of(shard));
                let (sums, changes) = numbers.map(of_shard).unzip();
                let elsewhere = sql.unfollowed_elsewhere().filter(|_| minds_other_sales);
                let is_followed = sql.unfollowed_at(site).is_empty() && elsewhere.is_none();
                let change = sql.open_change_at(fence).map(|open| open.counted());
                let units = (sql.allotment_begun(fence), sql.ordered_at(fence));
                let totals = (units, change);
                (totals, sql.held_units(&open), is_followed, (sums, changes))
            };
            let (totals, held, is_followed, sums) = self.io.sql(balance).await?;
            let ((total, ordered), change) = totals;
            let (sums, changes): (Vec<_>, Vec<u64>) = sums;
            let changes_lost = changes_lost(&before, changes.iter().sum());
            let shards = self.ledger.audits(sale).await?;
            let is_exact = shards == before && knows_claims;
            if is_exact || reading == READINGS_MAX {
                let ordered = u64::try_from(ordered).unwrap_or(0);
                let total = total_in_redis(total, change, &shards);
                let mut terms = Terms::new(&shards, ordered, total);
                if let Some(terms) = terms.as_mut().filter(|_| knows_claims) {
                    terms.held = held;
                }
                return Ok(StockBalance {
                    terms,
                    is_exact,
                    is_followed,
                    sums,
                    changes,
                    changes_lost,
                    shards,
                });
            }
            before = shards;
            reading += 1;
        }
    }

    async fn open_claims(
        &self,
        sale: &Sale,
        shards: &[Audit],
    ) -> Result<Option<Vec<Ticket>>, RedisError> {
        let mut open = Vec::new();
        let numbered = sale.shard_numbers().zip(shards);
        for (shard, _) in numbered.filter(|(_, observed)| observed.open > 0) {
            for claim in self.ledger.open_claims(shard).await? {
                open.push(claim.into_ticket(&sale.id, shard));
            }
        }
        let count: u64 = shards.iter().map(|observed| observed.open).sum();
        Ok((open.len() as u64 == count).then_some(open))
    }

    async fn repair(
        &self,
        sale: &Sale,
        stock_balance: &StockBalance,
        drift: i64,
    ) -> Result<(), RedisError> {
        for (index, units) in repairs(&stock_balance.shards, drift) {
            let observed = &stock_balance.shards[index as usize];
            let shard = sale.first_shard + index;
            if self.ledger.restock(shard, units, observed).await? {
                self.io.bus.borrow_mut().units_repaired += units.unsigned_abs();
            }
        }
        Ok(())
    }
}
