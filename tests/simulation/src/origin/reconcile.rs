//! The reconciler: see `origin/src/sales/reconcile.rs`, whose numbers these are.

use weir_sale::claim::Ticket;
use weir_sale::ledger::{Audit, DepositReply, LendReply, OpenTransfer, ShardProbe, Transfer};
use weir_sale::repair::{Terms, repairs};
use weir_sale::sale::Sale;

use super::io::{Io, RedisError, SqlError};
use super::ledger::Ledger;
use super::orders::Orders;
use super::rebuild::Rebuilder;
use crate::mutation::Mutation;

pub(super) const PERIOD_MS: u64 = 1_000;
pub(crate) const GRACE_MS: u64 = 1_000;
const TRANSFER_LIMIT_MS: u64 = 1_000;
const ROUNDS_UNREAD_MAX: u32 = 60;
const READINGS_MAX: u32 = 3;

/// Why a round broke off. The next one begins anew.
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

/// Ends what was left behind.
#[derive(Debug)]
pub(super) struct Reconciler {
    pub(super) io: Io,
    pub(super) ledger: Ledger,
    pub(super) orders: Orders,
    pub(super) rebuilder: Rebuilder,
    pub(super) last: Option<Last>,
}

/// What was found in the last round.
#[derive(Debug)]
pub(super) struct Last {
    shards: Vec<ShardProbe>,
    drift: Option<i64>,
    rounds_unread: u32,
}

/// What SQL and Redis hold.
struct Books {
    shards: Vec<Audit>,
    terms: Option<Terms>,
    is_exact: bool,
}

impl Reconciler {
    pub(super) async fn round(&mut self) -> Result<(), BrokeOff> {
        let sale = self
            .io
            .sql(|sql| (sql.warmed_at_ms, sql.sale.clone()))
            .await?;
        let (Some(_), sale) = sale else {
            return Ok(());
        };
        let shards = self.ledger.probe(sale.shards).await?;
        for (shard, seen) in (0..).zip(&shards) {
            if seen.stock.is_none() {
                self.rebuilder.rebuild(&sale, shard).await?;
            }
            if seen.open_claims > 0 {
                self.end_overdue(&sale, shard).await?;
            }
            if seen.moving > 0 {
                self.end_transfers(shard).await?;
            }
        }
        self.pay_debts(&shards).await?;
        self.watch_drift(shards).await
    }

    async fn end_overdue(&self, sale: &Sale, shard: u32) -> Result<(), BrokeOff> {
        let due_ms = match self.io.makes(Mutation::DeadlineIgnored) {
            true => u64::from(u32::MAX) << 16,
            false => self.io.now_ms().saturating_sub(GRACE_MS),
        };
        for claim in self.ledger.overdue(shard, due_ms).await? {
            let ticket = Ticket {
                sale: sale.id.clone(),
                shard,
                generation: claim.held.generation,
                quantity: claim.held.quantity,
                deadline_ms: claim.held.deadline_ms,
                user: claim.user,
            };
            self.orders.end_overdue(&ticket).await?;
        }
        Ok(())
    }

    async fn end_transfers(&self, from: u32) -> Result<(), RedisError> {
        if self.io.makes(Mutation::TransfersForgotten) {
            return Ok(());
        }
        for open in self.ledger.audit(from).await?.transfers {
            let OpenTransfer {
                to_shard,
                transfer,
                at_ms,
            } = open;
            if self.io.now_ms() >= at_ms.saturating_add(TRANSFER_LIMIT_MS) {
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

    async fn pay_debts(&self, shards: &[ShardProbe]) -> Result<(), RedisError> {
        let stock = |seen: &ShardProbe| seen.stock.unwrap_or(0);
        for (shard, seen) in (0..).zip(shards).filter(|(_, seen)| stock(seen) < 0) {
            let richest = (0..).zip(shards).max_by_key(|(_, seen)| stock(seen));
            let Some((from, _)) = richest.filter(|(_, seen)| stock(seen) > 0) else {
                return Ok(());
            };
            let wanted = stock(seen).unsigned_abs();
            if let LendReply::Lent(transfer) = self.ledger.lend(from, shard, wanted).await? {
                self.move_units(from, shard, transfer).await?;
            }
        }
        Ok(())
    }

    async fn watch_drift(&mut self, shards: Vec<ShardProbe>) -> Result<(), BrokeOff> {
        let rests =
            |seen: &ShardProbe| seen.open_claims == 0 && seen.moving == 0 && seen.stock.is_some();
        let last = self.last.take();
        if !shards.iter().all(rests) {
            return Ok(());
        }
        if let Some(last) = &last
            && last.drift == Some(0)
            && last.shards == shards
            && last.rounds_unread < ROUNDS_UNREAD_MAX
        {
            self.last = Some(Last {
                rounds_unread: last.rounds_unread + 1,
                shards,
                drift: last.drift,
            });
            return Ok(());
        }
        let books = self.books(shards.len()).await?;
        let is_followed = self.io.sql(|sql| sql.unfollowed().is_empty()).await?;
        let drift = exact_drift(&books).filter(|_| is_followed);
        if let Some(drift) = drift
            && drift != 0
            && last.is_some_and(|last| last.drift == Some(drift))
        {
            self.repair(&books, drift).await?;
        }
        self.last = Some(Last {
            shards,
            drift,
            rounds_unread: 0,
        });
        Ok(())
    }

    /// See `origin/src/sales/books.rs`.
    async fn books(&self, shards: usize) -> Result<Books, BrokeOff> {
        let mut before = self.audits(shards).await?;
        let mut reading = 1;
        loop {
            let totals = self.io.sql(|sql| sql.totals()).await?;
            let shards = self.audits(shards).await?;
            let is_exact = shards == before;
            if is_exact || reading == READINGS_MAX {
                return Ok(Books {
                    terms: Terms::new(&shards, totals.units_deducted, totals.total),
                    shards,
                    is_exact,
                });
            }
            before = shards;
            reading += 1;
        }
    }

    async fn audits(&self, shards: usize) -> Result<Vec<Audit>, RedisError> {
        let mut audits = Vec::new();
        for shard in (0..).take(shards) {
            audits.push(self.ledger.audit(shard).await?);
        }
        Ok(audits)
    }

    async fn repair(&self, books: &Books, drift: i64) -> Result<(), RedisError> {
        for (shard, units) in repairs(&books.shards, drift) {
            let seen = &books.shards[shard as usize];
            if self.ledger.restock(shard, units, seen).await? {
                self.io.bus.borrow_mut().units_repaired += units.unsigned_abs();
            }
        }
        Ok(())
    }
}

fn exact_drift(books: &Books) -> Option<i64> {
    let terms = books.terms.filter(|terms| terms.held == 0)?;
    books.is_exact.then_some(terms.drift())
}
