//! The reconciler repairs the effects of lost replies, crashed gateways, crashed origins and lost data.
//!
//! Every second, for each warmed sale that has not ended long ago, it checks the following. Sales are processed
//! independently, so that none waits for another.
//!
//! 1. Shards without a stock entry: rebuilds them from SQL, with no units.
//! 2. Claims past their deadline: SQL decides whether a claim was ordered or is permanently released, and Redis
//!    follows.
//! 3. Abandoned transfers between shards: completes the deposit, then settles the transfer.
//! 4. Orders that SQL has lost: pauses the sale, and repairs nothing until an operator has decided.
//! 5. Stock balance: adds missing units and removes surplus ones, by compare-and-set on the shards as they were read.
//!    Corrects users' orders in Redis that differ from SQL.
//!
//! All steps can be repeated, also by several origins concurrently.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, Semaphore};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};
use weir_base::id::SaleId;
use weir_sale::ledger::{Audit, DepositReply, LendReply, OpenTransfer, Transfer};
use weir_sale::repair::repairs;
use weir_sale::sale::Sale;
use weir_sale::site::index_of;

use super::catalogue::{PublishError, Publisher};
use super::rebuild::Rebuilder;
use crate::by_sale::SaleNumbers;
use crate::ledger::Ledger;
use crate::lost_orders::LostOrders;
use crate::metrics::{CLAIM_AGES, SaleMetrics};
use crate::orders::Orders;
use crate::stock_balance::StockBalance;
use crate::store::{SaleStore, StoredSale};
use crate::verify::Verifier;
use weir_origin_core::background::{Heartbeat, Interval};
use weir_origin_core::clock::now_ms;
use weir_origin_core::redis::CallError;
use weir_origin_core::sql::SqlError;
use weir_origin_core::unavailable::Unavailable;

/// Interval between two rounds.
const PERIOD: Duration = Duration::from_secs(1);

/// Grace period after a claim's deadline, in milliseconds: the claim may just be becoming an order. Clock differences
/// cannot cause overselling.
pub const GRACE_MS: u64 = 1_000;

/// Age from which an open transfer counts as abandoned, in milliseconds. A gateway needs a few milliseconds.
const TRANSFER_LIMIT_MS: u64 = 1_000;

/// Maximum number of overdue claims per shard and round; the next round takes the rest.
const OVERDUE_MAX: u32 = 500;

/// After this many rounds, the balance of a sale is read even without changes.
const ROUNDS_UNREAD_MAX: u32 = 60;

/// Timeout for the work on a sale. Rebuilding a shard with a million orders takes one minute.
const TURN_MAX: Duration = Duration::from_secs(300);

/// Maximum number of sales processed concurrently.
const SALES_AT_ONCE: usize = 16;

/// Repairs the sales that gateways know.
#[derive(Debug)]
pub struct Reconciler {
    worker: Arc<Worker>,
    turns: HashMap<SaleId, ReconcileRound>,
    heartbeat: Heartbeat,
}

/// The current or last round of a sale.
#[derive(Debug)]
struct ReconcileRound {
    /// The findings of the last round. Locked while the sale is processed.
    last: Arc<Mutex<Option<ReconcileFindings>>>,
    started: Instant,
}

/// Processes single sales.
#[derive(Debug)]
struct Worker {
    store: SaleStore,
    ledger: Ledger,
    orders: Orders,
    publisher: Publisher,
    rebuilder: Rebuilder,
    verifier: Verifier,
    lost_orders: LostOrders,
    metrics: SaleMetrics,
    grace_ms: u64,
    slots: Semaphore,
}

/// Findings of a sale.
#[derive(Debug)]
struct ReconcileFindings {
    shards: Vec<Audit>,
    in_sql: InSql,
    drift: Option<i64>,
    /// Shards on which Redis has other orders than SQL.
    other_orders: Vec<u32>,
    rounds_unread: u32,
}

/// Remaining units in SQL, and the versions of the sale's orders.
type InSql = (u64, [u64; 2]);

impl ReconcileFindings {
    /// Whether everything was correct in the last round and has not changed since.
    fn still_right(&self, shards: &[Audit], in_sql: InSql) -> bool {
        self.drift == Some(0)
            && self.other_orders.is_empty()
            && self.shards == shards
            && self.in_sql == in_sql
            && self.rounds_unread < ROUNDS_UNREAD_MAX
    }
}

/// The sales in progress.
type Tasks = JoinSet<Result<(), ReconcileError>>;

/// Why a round failed. The next one starts again.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// SQL did not answer.
    #[error(transparent)]
    Store(#[from] SqlError),
    /// Redis did not answer.
    #[error(transparent)]
    Ledger(#[from] CallError),
    /// The catalogue was not published.
    #[error(transparent)]
    Catalogue(#[from] PublishError),
    /// The balance could not be read, or a shard could not be rebuilt.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// A task for a sale ended early.
    #[error("a task failed: {0}")]
    Task(#[from] JoinError),
    /// The work on a sale exceeds the timeout.
    #[error("sale {0}: not reconciled within {TURN_MAX:?}")]
    Stuck(SaleId),
}

impl Reconciler {
    pub(crate) fn new(
        store: SaleStore,
        ledger: Ledger,
        orders: Orders,
        publisher: Publisher,
        rebuilder: Rebuilder,
        metrics: SaleMetrics,
        heartbeat: Heartbeat,
    ) -> Self {
        let worker = Worker {
            verifier: Verifier::new(store.clone(), ledger.clone()),
            lost_orders: LostOrders::new(
                store.clone(),
                ledger.clone(),
                publisher.clone(),
                rebuilder.clone(),
            ),
            rebuilder,
            store,
            ledger,
            orders,
            publisher,
            metrics,
            grace_ms: GRACE_MS,
            slots: Semaphore::new(SALES_AT_ONCE),
        };
        Self {
            worker: Arc::new(worker),
            turns: HashMap::new(),
            heartbeat,
        }
    }

    /// Runs until `stop`. A slow sale does not delay the others.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut interval = Interval::every(PERIOD, "reconciling", stop);
        let mut tasks = Tasks::new();
        while interval.next().await {
            let mut outcome = self.begin(&mut tasks).await;
            // Collect the results of finished sales; the others continue.
            while let Ok(Some(ended)) = tokio::time::timeout(PERIOD, tasks.join_next()).await {
                outcome = outcome.and(flat(ended));
            }
            if !matches!(outcome, Err(ReconcileError::Stuck(_))) {
                self.heartbeat.beat();
            }
            interval.ended(&outcome);
        }
    }

    /// Runs one round over all sales. A failed sale does not affect the others.
    ///
    /// # Errors
    /// The failure of one of the sales.
    pub async fn round(&mut self) -> Result<(), ReconcileError> {
        let mut tasks = Tasks::new();
        let mut outcome = self.begin(&mut tasks).await;
        while let Some(ended) = tasks.join_next().await {
            outcome = outcome.and(flat(ended));
        }
        outcome
    }

    /// Starts processing each sale that is not in progress.
    async fn begin(&mut self, tasks: &mut Tasks) -> Result<(), ReconcileError> {
        let sales = self.worker.publisher.sales().await?;
        self.turns
            .retain(|id, _| sales.iter().any(|(stored, _)| stored.sale.id == *id));
        self.worker
            .metrics
            .by_sale
            .keep(|id| self.turns.contains_key(id));
        let mut stuck = Ok(());
        for (stored, versions) in sales {
            let id = &stored.sale.id;
            let turn = self
                .turns
                .entry(id.clone())
                .or_insert_with(|| ReconcileRound {
                    last: Arc::default(),
                    started: Instant::now(),
                });
            if let Ok(mut last) = Arc::clone(&turn.last).try_lock_owned() {
                turn.started = Instant::now();
                let worker = Arc::clone(&self.worker);
                tasks.spawn(async move {
                    let _slot = worker.slots.acquire().await;
                    worker.reconcile(&stored, versions, &mut last).await
                });
            } else if turn.started.elapsed() > TURN_MAX {
                stuck = Err(ReconcileError::Stuck(id.clone()));
            }
        }
        stuck
    }
}

fn flat(ended: Result<Result<(), ReconcileError>, JoinError>) -> Result<(), ReconcileError> {
    ended?
}

impl Worker {
    async fn reconcile(
        &self,
        stored: &StoredSale,
        versions: [u64; 2],
        last: &mut Option<ReconcileFindings>,
    ) -> Result<(), ReconcileError> {
        let sale = &stored.sale;
        let mut shards = self.ledger.audits(sale).await?;
        self.measure(sale, &shards).await?;
        // Redis has the only list of the orders that SQL has lost.
        let is_paused = stored.paused_at_ms.is_some();
        if !is_paused && let Some(rebuilt) = self.rebuild(sale, &shards).await? {
            shards = rebuilt;
        }
        for (shard, observed) in sale.shard_numbers().zip(&shards) {
            if observed.open > 0 || observed.deadlines > 0 {
                self.end_overdue(&sale.id, shard).await?;
            }
            if !observed.transfers.is_empty() {
                self.end_transfers(&sale.id, shard, observed).await?;
            }
            if observed.stock.is_some() && !observed.is_sound() {
                let done = self.ledger.recount(&sale.id, shard, observed).await?;
                error!(sale = %sale.id, shard, done, "deleted a stale shard key in Redis");
            }
        }
        if is_paused {
            return Ok(());
        }
        self.pay_debts(sale, &shards).await?;
        let in_sql = (stored.remaining, versions);
        self.check_books(stored, shards, in_sql, last).await
    }

    async fn measure(&self, sale: &Sale, shards: &[Audit]) -> Result<(), ReconcileError> {
        let open_claims_by_age = self.open_claims_by_age(sale, shards).await?;
        let sum = |term: fn(&Audit) -> u64| shards.iter().map(term).sum();
        let now_ms = now_ms();
        let numbers = SaleNumbers {
            is_open: sale.starts_at_ms <= now_ms && now_ms < sale.ends_at_ms,
            stock: sum(|observed| u64::try_from(observed.stock.unwrap_or(0)).unwrap_or(0)),
            held: sum(|observed| observed.held),
            ordered: sum(|observed| observed.bought + observed.deferred),
            open_claims: sum(|observed| observed.open),
            open_claims_by_age,
            cold_shards: sum(|observed| observed.stock.is_none().into()),
        };
        self.metrics.by_sale.set(&sale.id, numbers);
        Ok(())
    }

    /// Rebuilds cold shards. Returns the new state of all shards; `None` if no shard was cold.
    async fn rebuild(
        &self,
        sale: &Sale,
        shards: &[Audit],
    ) -> Result<Option<Vec<Audit>>, ReconcileError> {
        let cold = sale
            .shard_numbers()
            .zip(shards)
            .filter(|(_, observed)| observed.stock.is_none());
        let cold: Vec<u32> = cold.map(|(shard, _)| shard).collect();
        if cold.is_empty() {
            return Ok(None);
        }
        error!(sale = %sale.id, shards = ?cold, "Redis has lost shards; rebuilding them from SQL");
        // Publish the operator's switches first: Redis may have lost them, and a closed sale must not sell.
        self.publisher.publish().await?;
        let rebuilt = self.rebuilder.rebuild(sale, &cold).await?;
        self.metrics.rebuilt.inc_by(rebuilt.len() as u64);
        Ok(Some(self.ledger.audits(sale).await?))
    }

    /// Number of open claims by the time since their deadline; see [`CLAIM_AGES`].
    async fn open_claims_by_age(
        &self,
        sale: &Sale,
        shards: &[Audit],
    ) -> Result<[u64; CLAIM_AGES.len()], ReconcileError> {
        let now_ms = now_ms();
        let mut by_age = [0; CLAIM_AGES.len()];
        let numbered = sale.shard_numbers().zip(shards);
        for (shard, observed) in numbered.filter(|(_, observed)| observed.open > 0) {
            // The claims of an age are those that are not older, minus the younger ones.
            let mut remaining = observed.open;
            for (age, place) in CLAIM_AGES.iter().zip(&mut by_age) {
                let older = match age.past_ms_max {
                    Some(past_ms) => {
                        let due_ms = now_ms.saturating_sub(past_ms);
                        let ledger = &self.ledger;
                        ledger.overdue_count(&sale.id, shard, due_ms).await?
                    }
                    None => 0,
                };
                *place += remaining.saturating_sub(older);
                remaining = remaining.min(older);
            }
        }
        Ok(by_age)
    }

    async fn end_overdue(&self, id: &SaleId, shard: u32) -> Result<(), ReconcileError> {
        let overdue = self
            .ledger
            .overdue(id, shard, self.grace_ms, OVERDUE_MAX)
            .await?;
        for claim in overdue {
            let ticket = claim.into_ticket(id, shard);
            let late_ms = now_ms().saturating_sub(ticket.deadline_ms + self.grace_ms);
            self.metrics
                .overdue_seconds
                .observe(late_ms as f64 / 1_000.0);
            let outcome = self.orders.end_overdue(&ticket).await?;
            info!(claim = %ticket.claim_id(), ?outcome, "ended an overdue claim");
        }
        Ok(())
    }

    async fn end_transfers(
        &self,
        id: &SaleId,
        shard: u32,
        audit: &Audit,
    ) -> Result<(), ReconcileError> {
        // Transfers use Redis' clock.
        let now_ms = self.ledger.now_ms().await?;
        for &open in &audit.transfers {
            if now_ms >= open.at_ms.saturating_add(TRANSFER_LIMIT_MS) {
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
        info!(sale = %id, from_shard, to_shard, units, "finished a stock transfer");
        Ok(())
    }

    /// Runs the second half of a transfer: deposit and settlement.
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
        // A cold target gets the units after its rebuild.
        if reply != DepositReply::Cold {
            self.ledger
                .settle_transfer(id, from_shard, to_shard, transfer.id)
                .await?;
        }
        Ok(())
    }

    /// Transfers units to shards with negative stock from the shard with the most. Stock becomes negative when an order
    /// is paid whose units are on other shards.
    async fn pay_debts(&self, sale: &Sale, shards: &[Audit]) -> Result<(), CallError> {
        let stock = |audit: &Audit| audit.stock.unwrap_or(0);
        let numbered = || sale.shard_numbers().zip(shards);
        for (shard, audit) in numbered().filter(|(_, audit)| stock(audit) < 0) {
            let richest = numbered().max_by_key(|(_, audit)| stock(audit));
            let Some((from_shard, _)) = richest.filter(|(_, audit)| stock(audit) > 0) else {
                return Ok(());
            };
            let requested = stock(audit).unsigned_abs();
            let transferred = self
                .ledger
                .lend(&sale.id, from_shard, shard, requested)
                .await?;
            if let LendReply::Lent(transfer) = transferred {
                self.move_units(&sale.id, from_shard, shard, transfer)
                    .await?;
            }
        }
        Ok(())
    }

    /// Reads the balance, unless it was correct and neither Redis nor SQL has changed since. Repairs a drift that two
    /// consecutive rounds have found.
    async fn check_books(
        &self,
        stored: &StoredSale,
        shards: Vec<Audit>,
        in_sql: InSql,
        last: &mut Option<ReconcileFindings>,
    ) -> Result<(), ReconcileError> {
        if let Some(last) = last.as_mut()
            && last.still_right(&shards, in_sql)
        {
            last.rounds_unread += 1;
            return Ok(());
        }
        let (sale, before) = (&stored.sale, last.take());
        let Some(balance) = StockBalance::read(&self.store, &self.ledger, &sale.id).await? else {
            return Ok(());
        };
        if balance.changes_lost > 0 {
            self.lost_orders.pause(stored, balance.changes_lost).await?;
            return Ok(());
        }
        let drift = balance.drift();
        self.metrics.by_sale.set_drift(&sale.id, drift.unwrap_or(0));
        let other_orders = balance.shards_with_other_orders();
        if let (Some(before), Some(drift)) = (&before, drift)
            && drift != 0
            && before.drift == Some(drift)
        {
            self.repair(&sale.id, &balance, drift).await?;
        }
        for &shard in &other_orders {
            // Wait for a second round, because an order may be on its way from SQL to Redis.
            let is_known = |last: &ReconcileFindings| last.other_orders.contains(&shard);
            if before.as_ref().is_some_and(is_known) {
                let lost = self.verifier.verify(&sale.id, shard).await?.lost;
                if lost > 0 {
                    self.lost_orders.pause(stored, lost).await?;
                    return Ok(());
                }
            }
        }
        if drift == Some(0) && other_orders.is_empty() {
            for (shard, mark) in balance.marks_behind() {
                let Some(observed) = balance.shards.get(index_of(shard) as usize) else {
                    continue;
                };
                self.ledger
                    .raise_mark(&sale.id, shard, mark, observed)
                    .await?;
            }
        }
        *last = Some(ReconcileFindings {
            shards: balance.shards,
            // The state before the balance was read: later changes cause another reading.
            in_sql,
            drift,
            other_orders,
            rounds_unread: 0,
        });
        Ok(())
    }

    async fn repair(
        &self,
        id: &SaleId,
        balance: &StockBalance,
        drift: i64,
    ) -> Result<(), CallError> {
        error!(sale = %id, drift, "stock drift: Redis has lost data; repairing");
        for (index, units) in repairs(&balance.shards, drift) {
            let shard = balance.first_shard + index;
            let Some(observed) = balance.shards.get(index_of(shard) as usize) else {
                continue;
            };
            let done = self.ledger.restock(id, shard, units, observed).await?;
            if done {
                self.metrics.units_repaired.inc_by(units.unsigned_abs());
            }
            info!(sale = %id, shard, units, done, "stock repaired");
        }
        Ok(())
    }
}
