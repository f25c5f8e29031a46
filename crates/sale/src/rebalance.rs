//! Transfers stock to an empty shard from shards with units.
//!
//! ```text
//! probe ─▶ lend (the richest shard) ─▶ deposit (here) ─▶ settle_transfer (there)
//! ```
//!
//! Each step may be lost or repeated. An interrupted rebalance leaves an open transfer, which the next lend from that
//! shard to this one continues, or else the origin's reconciler.

use alloc::vec::Vec;

use crate::ledger::{DepositReply, LendReply, ShardProbe, Transfer};
use crate::site::{fence_of, first_shard, index_of};

/// The maximum number of attempts to get units: concurrent requests may take them first.
const LENDS_MAX: u32 = 3;

/// One shard's rebalance.
#[derive(Clone, Debug)]
pub struct Rebalance {
    to_shard: u32,
    /// The number of units that a waiting request needs at once.
    requested: u32,
    lends: u32,
}

/// The next call to Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebalanceCall {
    /// Probe all shards of the sale.
    Probe,
    /// Transfer units out of this shard.
    Lend {
        /// The source shard.
        from_shard: u32,
        /// The minimum number of units, if available.
        units: u64,
    },
    /// Transfer units in to the rebalanced shard.
    Deposit {
        /// The source shard.
        from_shard: u32,
        /// The transfer.
        transfer: Transfer,
    },
    /// Finish an arrived transfer at the source shard. No request waits for the reply.
    SettleTransfer {
        /// The source shard.
        from_shard: u32,
        /// The transfer's id.
        id: u64,
    },
}

/// A reply from Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RebalanceEvent {
    /// The probes of all shards, in order.
    Probe(Vec<ShardProbe>),
    /// The reply to a lend from this shard.
    Lend(u32, LendReply),
    /// The reply to a deposit of this shard's transfer.
    Deposit(u32, Transfer, DepositReply),
    /// No usable reply.
    Nothing,
}

/// The next step of a rebalance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebalanceStep {
    /// Make this call, and return the reply.
    Call(RebalanceCall),
    /// It has ended, possibly with a last call.
    Done(End, Option<RebalanceCall>),
}

/// The result of a rebalance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The shard has units, or had some at the last probe.
    Filled,
    /// No shard has units, and no transfer is open.
    SoldOut,
    /// All shards together have fewer units than requested, and no transfer is open.
    TooFew,
    /// Units are in transfers between other shards.
    Moving,
    /// The location of units is unknown.
    Unknown,
}

impl Rebalance {
    /// Starts a rebalance of `to_shard` for a request of `wanted` units. Returns its first call.
    pub fn start(to_shard: u32, requested: u32) -> (Self, RebalanceCall) {
        let rebalance = Self {
            to_shard,
            requested,
            lends: 0,
        };
        (rebalance, RebalanceCall::Probe)
    }

    /// The rebalanced shard.
    pub fn to_shard(&self) -> u32 {
        self.to_shard
    }

    /// The number of units that the request needs.
    pub fn requested(&self) -> u32 {
        self.requested
    }

    /// Continues after a reply from Redis.
    pub fn on_event(&mut self, event: &RebalanceEvent) -> RebalanceStep {
        match event {
            RebalanceEvent::Probe(shards) => self.look_around(shards),
            RebalanceEvent::Lend(from_shard, reply) => Self::on_lend(*from_shard, *reply),
            RebalanceEvent::Deposit(from_shard, transfer, reply) => match reply {
                DepositReply::Deposited | DepositReply::Already => RebalanceStep::Done(
                    End::Filled,
                    Some(RebalanceCall::SettleTransfer {
                        from_shard: *from_shard,
                        id: transfer.id,
                    }),
                ),
                DepositReply::Cold => RebalanceStep::Done(End::Unknown, None),
            },
            RebalanceEvent::Nothing => RebalanceStep::Done(End::Unknown, None),
        }
    }

    fn look_around(&mut self, shards: &[ShardProbe]) -> RebalanceStep {
        let stock = |shard: &ShardProbe| shard.stock.unwrap_or(0);
        let first = first_shard(fence_of(self.to_shard));
        let others = || (first..).zip(shards).filter(|(n, _)| *n != self.to_shard);
        let here = shards.get(index_of(self.to_shard) as usize);
        let here = here.map_or(0, stock).max(0);
        let requested = i64::from(self.requested.max(1));
        if here >= requested {
            return RebalanceStep::Done(End::Filled, None);
        }
        let richest = others().max_by_key(|(_, shard)| stock(shard));
        let rich = richest.filter(|(_, shard)| stock(shard) > 0);
        // A shard without stock may have an open transfer to us, from a gateway that crashed.
        let lender = rich.or_else(|| others().find(|(_, shard)| shard.moving > 0));
        let is_moving = shards.iter().any(|shard| shard.moving > 0);
        let is_cold = shards.iter().any(|shard| shard.stock.is_none());
        let all: i64 = shards.iter().map(|shard| stock(shard).max(0)).sum();
        if (1..requested).contains(&all) && !is_moving && !is_cold {
            return RebalanceStep::Done(End::TooFew, None);
        }
        match lender {
            Some((from_shard, _)) if self.lends < LENDS_MAX => {
                self.lends += 1;
                let units = requested.saturating_sub(here).unsigned_abs();
                RebalanceStep::Call(RebalanceCall::Lend { from_shard, units })
            }
            Some(_) => RebalanceStep::Done(End::Moving, None),
            None if is_moving => RebalanceStep::Done(End::Moving, None),
            None if is_cold || shards.is_empty() => RebalanceStep::Done(End::Unknown, None),
            None => RebalanceStep::Done(End::SoldOut, None),
        }
    }

    fn on_lend(from_shard: u32, reply: LendReply) -> RebalanceStep {
        match reply {
            LendReply::Lent(transfer) => RebalanceStep::Call(RebalanceCall::Deposit {
                from_shard,
                transfer,
            }),
            // Another request was faster, or the open transfer has another target.
            LendReply::Nothing => RebalanceStep::Call(RebalanceCall::Probe),
            LendReply::Cold => RebalanceStep::Done(End::Unknown, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ShardLedger;
    use alloc::vec;
    use proptest::prelude::*;

    fn shard(stock: i64, moving: u64) -> ShardProbe {
        ShardProbe {
            stock: Some(stock),
            epoch: 0,
            open_claims: 0,
            moving,
        }
    }

    fn look(to_shard: u32, shards: &[ShardProbe]) -> RebalanceStep {
        Rebalance::start(to_shard, 1)
            .0
            .on_event(&RebalanceEvent::Probe(shards.to_vec()))
    }

    #[test]
    fn rebalance_belongs_to_the_shard_that_started_it() {
        for to_shard in [0, 1, 7] {
            assert_eq!(Rebalance::start(to_shard, 1).0.to_shard(), to_shard);
        }
    }

    #[test]
    fn shard_with_the_most_stock_transfers_units() {
        let lend = |from_shard| {
            let units = 1;
            RebalanceStep::Call(RebalanceCall::Lend { from_shard, units })
        };
        assert_eq!(look(0, &[shard(0, 0), shard(2, 0), shard(5, 0)]), lend(2));
        assert_eq!(look(2, &[shard(0, 0), shard(2, 0), shard(0, 0)]), lend(1));
        assert_eq!(look(66, &[shard(0, 0), shard(2, 0), shard(0, 0)]), lend(65));
        assert_eq!(look(0, &[shard(0, 0), shard(0, 0), shard(0, 1)]), lend(2));
    }

    #[test]
    fn rebalance_without_a_lender_reports_the_reason() {
        let done = |end| RebalanceStep::Done(end, None);
        let cold = ShardProbe {
            stock: None,
            ..shard(0, 0)
        };
        assert_eq!(look(0, &[shard(0, 0), shard(0, 0)]), done(End::SoldOut));
        assert_eq!(look(0, &[shard(-2, 0), shard(-1, 0)]), done(End::SoldOut));
        assert_eq!(look(0, &[shard(0, 1), shard(0, 0)]), done(End::Moving));
        assert_eq!(look(0, &[shard(3, 0), shard(9, 0)]), done(End::Filled));
        assert_eq!(look(0, &[shard(0, 0), cold]), done(End::Unknown));
        assert_eq!(look(0, &[]), done(End::Unknown));
        let mut rebalance = Rebalance::start(0, 1).0;
        assert_eq!(
            rebalance.on_event(&RebalanceEvent::Nothing),
            done(End::Unknown)
        );
    }

    #[test]
    fn multi_unit_buyer_borrows_units_or_is_refused_as_too_few() {
        let look = |requested, shards: &[ShardProbe]| {
            let event = RebalanceEvent::Probe(shards.to_vec());
            Rebalance::start(0, requested).0.on_event(&event)
        };
        let lend =
            |from_shard, units| RebalanceStep::Call(RebalanceCall::Lend { from_shard, units });
        let few = [shard(1, 0), shard(1, 0)];
        assert_eq!(look(1, &few), RebalanceStep::Done(End::Filled, None));
        assert_eq!(look(2, &few), lend(1, 1));
        assert_eq!(look(3, &few), RebalanceStep::Done(End::TooFew, None));
        let moving = [shard(1, 0), shard(1, 1)];
        assert_eq!(look(3, &moving), lend(1, 2), "more may come");
        let none = [shard(0, 0), shard(-1, 0)];
        assert_eq!(look(3, &none), RebalanceStep::Done(End::SoldOut, None));
    }

    proptest! {
        /// With two rebalances, the maximum for one request, the wanted units come together if two shards have enough.
        #[test]
        fn units_of_two_shards_are_combined_for_one_request(here in 0..6_u64, there in 0..6_u64, requested in 1..9_u32) {
            let mut shards = [here, there].map(|units| {
                let mut shard = ShardLedger::default();
                shard.warm(units, None);
                shard
            });
            let ends: Vec<_> = (0..2).map(|_| run(&mut shards, 0, requested, 9)).collect();
            let has = shards[0].audit().stock >= Some(i64::from(requested));
            prop_assert_eq!(has, here + there >= u64::from(requested), "{:?}", ends);
            let too_few = (1..u64::from(requested)).contains(&(here + there));
            prop_assert_eq!(ends.contains(&Some(End::TooFew)), too_few);
        }
    }

    #[test]
    fn late_rebalance_tries_three_times_and_gives_up() {
        let (mut rebalance, mut ask) = Rebalance::start(0, 1);
        let mut lends = 0;
        for _ in 0..20 {
            let event = match ask {
                RebalanceCall::Probe => RebalanceEvent::Probe(vec![shard(0, 0), shard(1, 0)]),
                _ => {
                    lends += 1;
                    RebalanceEvent::Lend(1, LendReply::Nothing)
                }
            };
            match rebalance.on_event(&event) {
                RebalanceStep::Call(next) => ask = next,
                RebalanceStep::Done(end, _) => return assert_eq!((end, lends), (End::Moving, 3)),
            }
        }
        panic!("it never ends");
    }

    /// Runs a rebalance against the model; the gateway crashes at the step `dies_at`.
    fn run(
        shards: &mut [ShardLedger],
        to_shard: u32,
        requested: u32,
        dies_at: usize,
    ) -> Option<End> {
        let (mut rebalance, mut ask) = Rebalance::start(to_shard, requested);
        for _ in 0..dies_at {
            let next = rebalance.on_event(&answer(shards, to_shard, ask));
            match next {
                RebalanceStep::Call(further) => ask = further,
                RebalanceStep::Done(end, last) => {
                    if let Some(last) = last {
                        answer(shards, to_shard, last);
                    }
                    return Some(end);
                }
            }
        }
        None
    }

    fn answer(shards: &mut [ShardLedger], to_shard: u32, ask: RebalanceCall) -> RebalanceEvent {
        match ask {
            RebalanceCall::Probe => {
                RebalanceEvent::Probe(shards.iter().map(ShardLedger::probe).collect())
            }
            RebalanceCall::Lend { from_shard, units } => {
                let lender = &mut shards[from_shard as usize];
                RebalanceEvent::Lend(from_shard, lender.lend(to_shard, units))
            }
            RebalanceCall::Deposit {
                from_shard,
                transfer,
            } => {
                let reply = shards[to_shard as usize].deposit(from_shard, transfer);
                RebalanceEvent::Deposit(from_shard, transfer, reply)
            }
            RebalanceCall::SettleTransfer { from_shard, id } => {
                shards[from_shard as usize].settle_transfer(to_shard, id);
                RebalanceEvent::Nothing
            }
        }
    }

    proptest! {
        /// Gateways that crash at any step of their rebalances lose no unit, and a later rebalance finds all remaining
        /// units.
        #[test]
        fn interrupted_rebalances_lose_and_create_no_units(
            units in prop::collection::vec(0..6_u64, 2..5),
            rebalances in prop::collection::vec((0..5_u32, 1..9_u32, 0..6_usize), 0..20),
        ) {
            let count = units.len() as u32;
            let mut shards: Vec<ShardLedger> = units
                .iter()
                .map(|&units| {
                    let mut shard = ShardLedger::default();
                    shard.warm(units, None);
                    shard
                })
                .collect();
            let total: u64 = units.iter().sum();
            for (to_shard, requested, dies_at) in rebalances {
                run(&mut shards, to_shard % count, requested, dies_at);
                let audits: Vec<_> = shards.iter().map(ShardLedger::audit).collect();
                let stock: i64 = audits.iter().filter_map(|audit| audit.stock).sum();
                let moving: u64 = (0..).zip(&audits).map(|(n, a)| a.units_moving(n, &audits)).sum();
                prop_assert_eq!(stock as u64 + moving, total);
            }
        }
    }
}
