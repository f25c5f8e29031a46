//! The reconciler cleans up after lost replies, dead gateways, dead origins and lost data.
//!
//! Every second, for every warmed sale that has not ended long ago:
//!
//! 1. Claims past their deadline: SQL decides whether one was ordered or is released for good, and
//!    Redis follows.
//! 2. Abandoned transfers between shards: deposit, then settle.
//! 3. Shards that lost their stock entry: rebuilt from SQL, with no units.
//! 4. Books that do not add up while the sale is at rest: missing units are put back, surplus ones taken, by compare
//!    and set on the shards as they were read.
//!
//! Every step is safe to repeat, also by several origins at once.

use std::collections::HashMap;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{error, info};
use weir_base::id::SaleId;
use weir_sale::claim::Ticket;
use weir_sale::ledger::{DepositReply, LendReply, OpenTransfer, ShardProbe, Transfer};
use weir_sale::repair::repairs;
use weir_sale::sale::Sale;

use super::books::Books;
use super::catalogue::{PublishError, Publisher};
use super::ledger::Ledger;
use super::metrics::{CLAIM_AGES, SaleMetrics};
use super::orders::Orders;
use super::rebuild::Rebuilder;
use super::store::SaleStore;
use crate::background::Rounds;
use crate::clock::now_ms;
use crate::redis::CallError;
use crate::sql::SqlError;
use crate::unavailable::Unavailable;

/// The pause between two rounds.
const PERIOD: Duration = Duration::from_secs(1);

/// How long after its deadline a claim is left alone, in milliseconds: it may just be becoming an order. Clocks that
/// differ do not endanger what is sold.
pub const GRACE_MS: u64 = 1_000;

/// How long a transfer may be open before it counts as left behind, in milliseconds. A gateway needs
/// a few for it.
const TRANSFER_LIMIT_MS: u64 = 1_000;

/// The most overdue claims of one shard in one round; the next round takes the rest.
const OVERDUE_MAX: u32 = 500;

/// After so many rounds a sale's books are read even if nothing happened.
const ROUNDS_UNREAD_MAX: u32 = 60;

/// Cleans up what was left behind.
#[derive(Debug)]
pub struct Reconciler {
    store: SaleStore,
    ledger: Ledger,
    orders: Orders,
    publisher: Publisher,
    rebuilder: Rebuilder,
    metrics: SaleMetrics,
    grace_ms: u64,
    /// What was found of each sale in the last round.
    last: HashMap<SaleId, Last>,
}

/// What was found of a sale.
#[derive(Debug)]
struct Last {
    shards: Vec<ShardProbe>,
    drift: Option<i64>,
    rounds_unread: u32,
}

/// Why a round broke off. The next one begins anew.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// SQL did not answer.
    #[error(transparent)]
    Store(#[from] SqlError),
    /// Redis did not answer.
    #[error(transparent)]
    Ledger(#[from] CallError),
    /// The sales are not known.
    #[error(transparent)]
    Sales(#[from] PublishError),
    /// The books could not be read, or a shard could not be rebuilt.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl Reconciler {
    pub(super) fn new(
        store: SaleStore,
        ledger: Ledger,
        orders: Orders,
        publisher: Publisher,
        rebuilder: Rebuilder,
        metrics: SaleMetrics,
    ) -> Self {
        Self {
            rebuilder,
            store,
            ledger,
            orders,
            publisher,
            metrics,
            grace_ms: GRACE_MS,
            last: HashMap::new(),
        }
    }

    /// Works until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut rounds = Rounds::every(PERIOD, "reconciling", stop);
        while rounds.next().await {
            let outcome = self.round().await;
            rounds.ended(&outcome);
        }
    }

    /// One round over all sales. One that fails does not keep others from theirs.
    ///
    /// # Errors
    /// The last failure of any sale.
    pub async fn round(&mut self) -> Result<(), ReconcileError> {
        let sales = self.publisher.current().await?.sales;
        self.last
            .retain(|id, _| sales.iter().any(|sale| sale.id == *id));
        let mut outcome = Ok(());
        for sale in &sales {
            if let Err(error) = self.reconcile(sale).await {
                outcome = Err(error);
            }
        }
        outcome
    }

    async fn reconcile(&mut self, sale: &Sale) -> Result<(), ReconcileError> {
        let shards = self.ledger.probe(&sale.id, sale.shards).await?;
        let cold = shards.iter().filter(|seen| seen.stock.is_none()).count();
        let open_claims = shards.iter().map(|seen| seen.open_claims).sum();
        self.metrics
            .sale(sale.id.as_str(), open_claims, cold as u64);
        let by_age = self.open_claims_by_age(sale, &shards).await?;
        self.metrics.open_claims_by_age(sale.id.as_str(), by_age);
        for (shard, seen) in (0..).zip(&shards) {
            if seen.stock.is_none() {
                let rebuilt = self.rebuilder.rebuild(sale, shard).await?;
                self.metrics.rewarmed.inc_by(u64::from(rebuilt));
            }
            if seen.open_claims > 0 {
                self.end_overdue(&sale.id, shard).await?;
            }
            if seen.moving > 0 {
                self.end_transfers(&sale.id, shard).await?;
            }
        }
        self.pay_debts(sale, &shards).await?;
        self.watch_drift(sale, shards).await
    }

    /// How many open claims are how far past their deadline: see [`CLAIM_AGES`].
    async fn open_claims_by_age(
        &self,
        sale: &Sale,
        shards: &[ShardProbe],
    ) -> Result<[u64; CLAIM_AGES.len()], ReconcileError> {
        let now_ms = now_ms();
        let mut by_age = [0; CLAIM_AGES.len()];
        for (shard, seen) in (0..).zip(shards).filter(|(_, seen)| seen.open_claims > 0) {
            // Those of an age are those that are no older, less those that are younger.
            let mut left = seen.open_claims;
            for (age, place) in CLAIM_AGES.iter().zip(&mut by_age) {
                let older = match age.past_ms_max {
                    Some(past_ms) => {
                        let due_ms = now_ms.saturating_sub(past_ms);
                        let ledger = &self.ledger;
                        ledger.overdue_count(&sale.id, shard, due_ms).await?
                    }
                    None => 0,
                };
                *place += left.saturating_sub(older);
                left = left.min(older);
            }
        }
        Ok(by_age)
    }

    async fn end_overdue(&self, id: &SaleId, shard: u32) -> Result<(), ReconcileError> {
        let due_ms = now_ms().saturating_sub(self.grace_ms);
        for claim in self.ledger.overdue(id, shard, due_ms, OVERDUE_MAX).await? {
            let ticket = Ticket {
                sale: id.clone(),
                shard,
                generation: claim.held.generation,
                quantity: claim.held.quantity,
                deadline_ms: claim.held.deadline_ms,
                user: claim.user,
            };
            let late_ms = due_ms.saturating_sub(ticket.deadline_ms);
            self.metrics
                .overdue_seconds
                .observe(late_ms as f64 / 1_000.0);
            let outcome = self.orders.end_overdue(&ticket).await?;
            info!(claim = %ticket.claim_id(), ?outcome, "a claim past its deadline is ended");
        }
        Ok(())
    }

    async fn end_transfers(&self, id: &SaleId, shard: u32) -> Result<(), ReconcileError> {
        let audit = self.ledger.audit(id, shard).await?;
        for open in audit.transfers {
            if now_ms() >= open.at_ms.saturating_add(TRANSFER_LIMIT_MS) {
                self.end_transfer(id, shard, open).await?;
            }
        }
        Ok(())
    }

    async fn end_transfer(
        &self,
        id: &SaleId,
        from_shard: u32,
        open: OpenTransfer,
    ) -> Result<(), CallError> {
        let OpenTransfer {
            to_shard, transfer, ..
        } = open;
        self.move_units(id, from_shard, to_shard, transfer).await?;
        let units = transfer.units;
        self.metrics.units_moved.inc_by(units);
        info!(sale = %id, from_shard, to_shard, units, "a transfer is finished");
        Ok(())
    }

    /// The later half of a transfer.
    async fn move_units(
        &self,
        id: &SaleId,
        from_shard: u32,
        to_shard: u32,
        transfer: Transfer,
    ) -> Result<(), CallError> {
        let reply = self
            .ledger
            .deposit(id, from_shard, to_shard, transfer)
            .await?;
        // A cold target gets them once it is rebuilt.
        if reply != DepositReply::Cold {
            self.ledger
                .settle_transfer(id, from_shard, to_shard, transfer.id)
                .await?;
        }
        Ok(())
    }

    /// A shard whose stock is below 0, since what was sold from it at payment was elsewhere, gets
    /// units from the richest.
    async fn pay_debts(&self, sale: &Sale, shards: &[ShardProbe]) -> Result<(), CallError> {
        let stock = |seen: &ShardProbe| seen.stock.unwrap_or(0);
        for (shard, seen) in (0..).zip(shards).filter(|(_, seen)| stock(seen) < 0) {
            let richest = (0..).zip(shards).max_by_key(|(_, seen)| stock(seen));
            let Some((from_shard, _)) = richest.filter(|(_, seen)| stock(seen) > 0) else {
                return Ok(());
            };
            let wanted = stock(seen).unsigned_abs();
            let lent = self
                .ledger
                .lend(&sale.id, from_shard, shard, wanted)
                .await?;
            if let LendReply::Lent(transfer) = lent {
                self.move_units(&sale.id, from_shard, shard, transfer)
                    .await?;
            }
        }
        Ok(())
    }

    /// Looks at the books once a sale is at rest, and again if it is not; a drift that two rounds in a
    /// row have found alike is repaired.
    async fn watch_drift(
        &mut self,
        sale: &Sale,
        shards: Vec<ShardProbe>,
    ) -> Result<(), ReconcileError> {
        let is_at_rest = shards
            .iter()
            .all(|seen| seen.open_claims == 0 && seen.moving == 0 && seen.stock.is_some());
        let last = self.last.remove(&sale.id);
        if !is_at_rest {
            return Ok(());
        }
        if let Some(last) = &last
            && last.drift == Some(0)
            && last.shards == shards
            && last.rounds_unread < ROUNDS_UNREAD_MAX
        {
            let rounds_unread = last.rounds_unread + 1;
            let drift = last.drift;
            self.note(&sale.id, shards, drift, rounds_unread);
            return Ok(());
        }
        let books = Books::read(&self.store, &self.ledger, &sale.id).await?;
        // While Redis has yet to follow SQL, the sum is off without a drift.
        let is_followed = self.store.unfollowed(1).await?.is_empty();
        let drift = books.as_ref().and_then(exact_drift).filter(|_| is_followed);
        self.metrics.drift(sale.id.as_str(), drift.unwrap_or(0));
        if let (Some(books), Some(drift)) = (books, drift)
            && drift != 0
            && last.is_some_and(|last| last.drift == Some(drift))
        {
            self.repair(&sale.id, &books, drift).await?;
        }
        self.note(&sale.id, shards, drift, 0);
        Ok(())
    }

    fn note(
        &mut self,
        id: &SaleId,
        shards: Vec<ShardProbe>,
        drift: Option<i64>,
        rounds_unread: u32,
    ) {
        let last = Last {
            shards,
            drift,
            rounds_unread,
        };
        self.last.insert(id.clone(), last);
    }

    async fn repair(&self, id: &SaleId, books: &Books, drift: i64) -> Result<(), CallError> {
        error!(sale = %id, drift, "the books do not add up: Redis has lost data; repairing");
        for (shard, units) in repairs(&books.shards, drift) {
            let Some(seen) = books.shards.get(shard as usize) else {
                continue;
            };
            let done = self.ledger.restock(id, shard, units, seen).await?;
            if done {
                self.metrics.units_repaired.inc_by(units.unsigned_abs());
            }
            info!(sale = %id, shard, units, done, "stock is put right");
        }
        Ok(())
    }
}

/// The drift, if the books are of one instant and nothing is under way that SQL may have counted
/// already.
fn exact_drift(books: &Books) -> Option<i64> {
    let terms = books.terms.filter(|terms| terms.held == 0)?;
    books.is_exact.then_some(terms.drift())
}
