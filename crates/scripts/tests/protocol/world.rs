//! One sale, its parties, and faults.

use weir_base::id::UserId;
use weir_base::resp::Value;
use weir_edge::shard::ShardCommand;
use weir_edge::shard::command::Group;
use weir_sale::ledger::{Audit, Checks, ClaimReply, ClaimTerms, Deduction};
use weir_sale::rebalance::{Rebalance, RebalanceCall, RebalanceEvent};
use weir_sale::redis::claim;
use weir_sale::shard::{home_shard, spread_stock};

use super::parties::{Party, next};
use super::shards::Shards;
use super::sql::{Decision, OrderState, Sql};
use crate::support::Server;

const TTL_MS: u64 = 500;

/// The parameters of a sale.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub shards: u32,
    pub total: u64,
    pub user_cap: u32,
    pub deduction: Deduction,
}

/// The next event. Numbers select an item, modulo the number of items.
#[derive(Clone, Debug)]
pub enum Fault {
    /// A user sends a request; a repetition is a retry.
    Buy(u8),
    /// A party takes its next step.
    Step(usize),
    /// A party crashes.
    Crash(usize),
    /// A party's call runs, and its reply is lost.
    LoseReply(usize),
    /// A party's call runs twice.
    Twice(usize),
    /// A party's call is delayed, and the party has given up on it.
    Delay(usize),
    /// A delayed call arrives.
    DeliverLate(usize),
    /// A gateway looks for units for a shard.
    Rebalance(u32),
    /// The reconciler looks for overdue claims.
    Reconcile,
    /// An order is paid.
    Pay(usize),
    /// An order is cancelled, or expires.
    Cancel(usize),
    /// Advances the time, in milliseconds.
    Pass(u64),
    /// Redis loses its last writes, to one shard or to all.
    LoseWrites { shard: Option<u32>, writes: usize },
}

pub struct World {
    setting: Setting,
    shards: Shards,
    sql: Sql,
    parties: Vec<Party>,
    late: Vec<(u32, ShardCommand)>,
    has_lost: bool,
}

fn user(n: usize) -> UserId {
    UserId::new(format!("user-{n}")).unwrap()
}

impl World {
    pub fn new(setting: Setting, server: Option<&Server>) -> Self {
        let mut shards = Shards::new(setting.shards, server);
        for (shard, units) in (0..).zip(spread_stock(setting.total, setting.shards)) {
            shards.write(shard, ShardCommand::Warm { units, token: None });
        }
        Self {
            setting,
            shards,
            sql: Sql::new(setting),
            parties: vec![],
            late: vec![],
            has_lost: false,
        }
    }

    pub fn suffer(&mut self, fault: Fault) {
        match fault {
            Fault::Buy(n) => {
                let user = user(n.into());
                let shard = home_shard(&user, self.setting.shards);
                self.parties.push(Party::Claim { user, shard });
            }
            Fault::Step(n) => {
                if let Some(party) = self.take(n) {
                    let after = self.step(party);
                    self.parties.extend(after);
                }
            }
            Fault::Crash(n) => self.crash(n),
            Fault::LoseReply(n) => {
                if let Some(party) = self.take(n) {
                    self.step(party);
                }
            }
            Fault::Twice(n) => {
                if let Some(party) = self.take(n) {
                    let again = self.write_of(&party);
                    let after = self.step(party);
                    self.parties.extend(after);
                    if let Some((shard, write)) = again {
                        self.shards.write(shard, write);
                    }
                }
            }
            Fault::Delay(n) => {
                if let Some(party) = self.take(n) {
                    let write = self.write_of(&party);
                    self.late.extend(write);
                }
            }
            Fault::DeliverLate(n) => {
                if !self.late.is_empty() {
                    let (shard, write) = self.late.remove(n % self.late.len());
                    self.shards.write(shard, write);
                }
            }
            Fault::Rebalance(n) => {
                let (rebalance, ask) = Rebalance::start(n % self.setting.shards, 1);
                self.parties.push(Party::Rebalance { rebalance, ask });
            }
            Fault::Reconcile => self.find_overdue(),
            Fault::Pay(n) => self.decide_order(n, Sql::pay),
            Fault::Cancel(n) => self.decide_order(n, Sql::cancel),
            Fault::Pass(ms) => self.shards.pass(ms),
            Fault::LoseWrites { shard, writes } => {
                self.has_lost |= writes > 0;
                self.shards
                    .lose(shard.map(|n| n % self.setting.shards), writes);
            }
        }
    }

    fn take(&mut self, n: usize) -> Option<Party> {
        match self.parties.len() {
            0 => None,
            count => Some(self.parties.remove(n % count)),
        }
    }

    /// A gateway that has a granted claim and detects that its client has left returns it; all other parties stop.
    fn crash(&mut self, n: usize) {
        if let Some(Party::Order { user, shard, held }) = self.take(n) {
            self.parties.push(Party::HandBack {
                user,
                shard,
                generation: held.generation,
                delivery: held.delivery,
            });
        }
    }

    fn decide_order(&mut self, n: usize, decide: fn(&mut Sql, (u32, u64)) -> bool) {
        let names: Vec<_> = self.sql.orders.keys().copied().collect();
        if names.is_empty() {
            return;
        }
        let name = names[n % names.len()];
        decide(&mut self.sql, name);
        if self.sql.orders[&name].is_unfollowed {
            self.parties.push(Party::FollowOrder { name });
        }
    }

    fn terms(&self) -> ClaimTerms {
        ClaimTerms {
            ttl_ms: TTL_MS,
            user_cap: self.setting.user_cap,
            quantity: 1,
            checks: Checks::default(),
        }
    }

    fn write_of(&self, party: &Party) -> Option<(u32, ShardCommand)> {
        party.write(|user| self.claim_of(user), &self.sql)
    }

    fn claim_of(&self, user: &UserId) -> ShardCommand {
        ShardCommand::Claim(vec![Group {
            terms: self.terms(),
            users: vec![(user.clone(), None)],
        }])
    }

    /// Runs one step of one party. Returns its next step.
    fn step(&mut self, party: Party) -> Option<Party> {
        if let Some((shard, write)) = self.write_of(&party) {
            let reply = self.shards.write(shard, write);
            return party.after(&reply, &mut self.sql);
        }
        match party {
            Party::Order { user, shard, held } => {
                let name = (shard, held.generation);
                let decision = self.sql.place(name, &user, held.quantity.into());
                Some(Party::Follow {
                    user,
                    name,
                    decision,
                })
            }
            Party::Overdue { user, shard, held } => {
                let name = (shard, held.generation);
                let decision = self.sql.decide_overdue(name, &user);
                Some(Party::Follow {
                    user,
                    name,
                    decision,
                })
            }
            Party::Rebalance { mut rebalance, .. } => {
                let observed = self.shards.probe();
                next(&mut rebalance, &RebalanceEvent::Probe(observed))
            }
            _ => None,
        }
    }

    /// The reconciler lists its work.
    fn find_overdue(&mut self) {
        for shard in 0..self.setting.shards {
            for claim in self.shards.model(shard).overdue(0, 100) {
                self.parties.push(Party::Overdue {
                    user: claim.user,
                    shard,
                    held: claim.held,
                });
            }
            for open in self.shards.model(shard).audit().transfers {
                self.parties.push(Party::Deposit {
                    from_shard: shard,
                    to_shard: open.to_shard,
                    transfer: open.transfer,
                });
            }
        }
        for (&name, order) in &self.sql.orders {
            if order.is_unfollowed {
                self.parties.push(Party::FollowOrder { name });
            }
        }
    }

    /// Σ stock + transfers + claims, and the sold units according to Redis and SQL.
    fn sum(&mut self) -> (i64, i64) {
        let audits = self.shards.audits();
        let moving: u64 = (0..)
            .zip(&audits)
            .map(|(n, a)| a.units_moving(n, &audits))
            .sum();
        let total = |of: fn(&Audit) -> i64| audits.iter().map(of).sum::<i64>();
        let not_sold = total(|a| a.stock.unwrap()) + total(|a| a.held as i64) + moving as i64;
        let in_redis = not_sold + total(|a| a.bought as i64);
        (in_redis, not_sold + self.sql.sold() as i64)
    }

    /// Checks the invariants after each step.
    pub fn check(&mut self) {
        let sold = self.sql.sold();
        assert_eq!(self.sql.remaining + sold, self.setting.total, "oversold");
        let (in_redis, _) = self.sum();
        if !self.has_lost {
            assert_eq!(in_redis, self.setting.total as i64, "a unit made or lost");
            for n in 0..12 {
                let of_user = self.standing_orders(&user(n));
                assert!(of_user <= self.setting.user_cap as usize, "user-{n}'s cap");
            }
        }
    }

    fn standing_orders(&self, user: &UserId) -> usize {
        let orders = self.sql.orders.values();
        orders
            .filter(|order| order.user == *user && order.state != OrderState::Cancelled)
            .count()
    }

    /// Completes all processes and deadlines, and the reconciler's work.
    pub fn tidy_up(&mut self) {
        for _ in 0..3 {
            while let Some((shard, write)) = self.late.pop() {
                self.shards.write(shard, write);
            }
            self.run_all();
            self.shards.pass(TTL_MS);
            self.find_overdue();
            self.run_all();
            self.check();
        }
        self.repair();
        let (_, with_sql) = self.sum();
        assert_eq!(with_sql, self.setting.total as i64, "the books are wrong");
        let audits = self.shards.audits();
        assert!(audits.iter().all(|a| a.held == 0 && a.transfers.is_empty()));
    }

    fn run_all(&mut self) {
        while let Some(party) = self.parties.pop() {
            let after = self.step(party);
            self.parties.extend(after);
        }
    }

    /// Repairs the effects of lost data; without a loss nothing needs repair.
    fn repair(&mut self) {
        for _ in 0..self.setting.shards + 1 {
            let (_, with_sql) = self.sum();
            let missing = self.setting.total as i64 - with_sql;
            if missing == 0 {
                return;
            }
            assert!(
                self.has_lost,
                "{missing} units missing though nothing was lost"
            );
            let audits = self.shards.audits();
            let richest = (0..).zip(audits).max_by_key(|(_, audit)| audit.stock);
            let (shard, observed) = richest.unwrap();
            let units = missing.max(-observed.stock.unwrap().max(0));
            assert_eq!(
                self.shards.write(
                    shard,
                    ShardCommand::Restock {
                        units,
                        seen: observed
                    }
                ),
                Value::Integer(1)
            );
        }
    }

    /// New users buy until all is sold: then the sold units must equal the initial stock.
    pub fn sell_out(&mut self) {
        for n in 100.. {
            self.shards.pass(1);
            let user = user(n);
            let shard = home_shard(&user, self.setting.shards);
            if !self.buys(&user, shard) {
                break;
            }
            assert!(n < 200, "more buyers than units");
        }
        self.check();
        assert_eq!(self.sql.sold(), self.setting.total, "unsold");
        let (_, with_sql) = self.sum();
        assert_eq!(with_sql, self.setting.total as i64);
    }

    /// Whether a user who retries while units may be in transfer gets one.
    fn buys(&mut self, user: &UserId, shard: u32) -> bool {
        for _ in 0..4 {
            let reply = self.shards.write(shard, self.claim_of(user));
            match claim::parse(&reply, 1).unwrap()[0] {
                ClaimReply::Granted(held) => {
                    let name = (shard, held.generation);
                    let decision = self.sql.place(name, user, 1);
                    let follow = Party::Follow {
                        user: user.clone(),
                        name,
                        decision,
                    };
                    self.parties.push(follow);
                    self.run_all();
                    let ordered = matches!(decision, Decision::Settle(_));
                    if ordered {
                        self.sql.pay(name);
                        self.parties.push(Party::FollowOrder { name });
                        self.run_all();
                    }
                    return ordered;
                }
                ClaimReply::Empty { .. } => self.rebalance_to_the_end(shard),
                other => panic!("{other:?}"),
            }
        }
        false
    }

    fn rebalance_to_the_end(&mut self, shard: u32) {
        let (rebalance, ask) = Rebalance::start(shard, 1);
        assert_eq!(ask, RebalanceCall::Probe);
        self.parties.push(Party::Rebalance { rebalance, ask });
        self.run_all();
    }
}
