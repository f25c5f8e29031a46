//! The claim protocol of one shard, as a model.
//!
//! The running protocol is the Lua in `crates/scripts`; this is the same protocol in Rust, small
//! enough to read at once. Tests run the same operations against both and compare every reply.

use alloc::collections::BTreeMap;

use crate::id::UserId;

/// One shard's part of a sale.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardLedger {
    stock: Option<u64>,
    epoch: i64,
    sequence: u64,
    users: BTreeMap<UserId, Record>,
}

/// What the shard knows of one user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Record {
    /// Units in settled orders.
    bought: u64,
    /// The last claim, open or settled.
    generation: u64,
    /// Units held by the open claim; 0 if none is open.
    held: u64,
    /// The open claim's deadline.
    deadline_ms: u64,
    /// How many times the open claim was handed out and not handed back.
    handouts: u64,
}

/// What a claim asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimTerms {
    /// The time at the gateway.
    pub now_ms: u64,
    /// How long the hold lasts.
    pub ttl_ms: u64,
    /// The most units one user may have.
    pub user_cap: u32,
    /// How many units are asked for: at least 1.
    pub quantity: u32,
}

/// The shard's answer to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimReply {
    /// A new claim.
    Granted(Held),
    /// The claim that the user holds already, handed out once more.
    GrantedAgain(Held),
    /// The user has all that one user may have; the last order came of the claim of this generation.
    CapReached {
        /// The last order's generation; 0 if the user has none.
        generation: u64,
    },
    /// Not enough units left, as of this epoch.
    Empty {
        /// The shard's epoch.
        epoch: i64,
        /// How many claims are open: users who may come back for what they hold.
        open_claims: u64,
    },
    /// The shard holds no stock entry: not warmed, or lost.
    Cold,
}

/// An open claim as the shard describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The claim's generation.
    pub generation: u64,
    /// Units held.
    pub quantity: u32,
    /// When the hold may be taken back, in milliseconds since the Unix epoch.
    pub deadline_ms: u64,
}

/// Why a claim is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseKind {
    /// One handout never left the gateway. The claim ends when every handout has come back.
    Handout,
    /// SQL has recorded that this claim is released: it ends now, its units come back.
    Decided,
    /// SQL has recorded that this claim is released and has no unit to back it: it ends now and
    /// its units do not come back.
    Void,
}

/// The shard's answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseReply {
    /// There is no such open claim (any more): nothing changed.
    Nothing,
    /// The claim has ended.
    Ended,
    /// Other handouts of the claim are still out.
    StillOut,
}

/// The shard's answer to a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleReply {
    /// There is no such open claim (any more): nothing changed.
    Nothing,
    /// The claim became an order.
    Settled,
}

/// The terms of the invariant, for one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Units left; `None` if the shard is cold.
    pub stock: Option<u64>,
    /// Units in open claims.
    pub held: u64,
    /// Units in settled orders.
    pub bought: u64,
    /// The shard's epoch.
    pub epoch: i64,
}

impl ShardLedger {
    /// Puts `units` on a cold shard and starts its epochs at `now_ms`, so that epochs do not
    /// repeat after a loss of data. Returns whether the shard was cold.
    pub fn warm(&mut self, units: u64, now_ms: u64) -> bool {
        if self.stock.is_some() {
            return false;
        }
        self.stock = Some(units);
        self.epoch = i64::try_from(now_ms).unwrap_or(i64::MAX);
        true
    }

    /// One user's claim.
    pub fn claim(&mut self, user: &UserId, terms: ClaimTerms) -> ClaimReply {
        let Some(stock) = self.stock else {
            return ClaimReply::Cold;
        };
        let record = self.users.get(user).copied().unwrap_or_default();
        if record.held > 0 {
            return self.hand_out_again(user, record);
        }
        let wanted = u64::from(terms.quantity);
        if record.bought + wanted > u64::from(terms.user_cap) {
            return ClaimReply::CapReached {
                generation: record.generation,
            };
        }
        if stock < wanted {
            return ClaimReply::Empty {
                epoch: self.epoch,
                open_claims: self.open_claims(),
            };
        }
        self.stock = Some(stock - wanted);
        self.grant(user, record, terms)
    }

    fn open_claims(&self) -> u64 {
        self.users.values().filter(|record| record.held > 0).count() as u64
    }

    fn hand_out_again(&mut self, user: &UserId, record: Record) -> ClaimReply {
        let handouts = record.handouts + 1;
        self.users
            .insert(user.clone(), Record { handouts, ..record });
        ClaimReply::GrantedAgain(record.as_held())
    }

    fn grant(&mut self, user: &UserId, record: Record, terms: ClaimTerms) -> ClaimReply {
        // The time as a floor keeps generations from repeating after a loss of data.
        self.sequence = (self.sequence + 1).max(terms.now_ms);
        let granted = Record {
            bought: record.bought,
            generation: self.sequence,
            held: u64::from(terms.quantity),
            deadline_ms: terms.now_ms + terms.ttl_ms,
            handouts: 1,
        };
        self.users.insert(user.clone(), granted);
        ClaimReply::Granted(granted.as_held())
    }

    /// A claim became an order.
    pub fn settle(&mut self, user: &UserId, generation: u64) -> SettleReply {
        match self.users.get_mut(user) {
            Some(record) if record.is_open(generation) => {
                record.bought += record.held;
                record.close();
                SettleReply::Settled
            }
            _ => SettleReply::Nothing,
        }
    }

    /// A claim, or one handout of it, is given back.
    pub fn release(&mut self, user: &UserId, generation: u64, kind: ReleaseKind) -> ReleaseReply {
        let Some(record) = self.users.get_mut(user).filter(|r| r.is_open(generation)) else {
            return ReleaseReply::Nothing;
        };
        if kind == ReleaseKind::Handout && record.handouts > 1 {
            record.handouts -= 1;
            return ReleaseReply::StillOut;
        }
        let units = record.held;
        record.close();
        if record.bought == 0 {
            self.users.remove(user);
        }
        if kind != ReleaseKind::Void {
            self.stock = self.stock.map(|stock| stock + units);
            self.epoch += 1;
        }
        ReleaseReply::Ended
    }

    /// The terms of the invariant.
    pub fn audit(&self) -> Audit {
        Audit {
            stock: self.stock,
            held: self.users.values().map(|record| record.held).sum(),
            bought: self.users.values().map(|record| record.bought).sum(),
            epoch: self.epoch,
        }
    }
}

impl Record {
    fn is_open(&self, generation: u64) -> bool {
        self.held > 0 && self.generation == generation
    }

    fn close(&mut self) {
        self.held = 0;
        self.deadline_ms = 0;
        self.handouts = 0;
    }

    fn as_held(&self) -> Held {
        Held {
            generation: self.generation,
            // Only `grant` writes it, from a u32.
            quantity: self.held as u32,
            deadline_ms: self.deadline_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, vec::Vec};
    use proptest::prelude::*;

    const TERMS: ClaimTerms = ClaimTerms {
        now_ms: 1_000,
        ttl_ms: 500,
        user_cap: 1,
        quantity: 1,
    };

    fn user(n: u8) -> UserId {
        UserId::new(format!("u{n}")).unwrap()
    }

    fn granted(reply: ClaimReply) -> u64 {
        match reply {
            ClaimReply::Granted(held) | ClaimReply::GrantedAgain(held) => held.generation,
            other => panic!("not granted: {other:?}"),
        }
    }

    #[test]
    fn a_retry_is_the_same_claim_and_takes_no_second_unit() {
        let mut shard = ShardLedger::default();
        assert_eq!(shard.claim(&user(1), TERMS), ClaimReply::Cold);
        shard.warm(2, 0);
        let first = granted(shard.claim(&user(1), TERMS));
        assert_eq!(granted(shard.claim(&user(1), TERMS)), first);
        assert_eq!(shard.audit().stock, Some(1));
    }

    #[test]
    fn a_claim_ends_only_when_every_handout_has_come_back() {
        let mut shard = ShardLedger::default();
        shard.warm(1, 0);
        let generation = granted(shard.claim(&user(1), TERMS));
        shard.claim(&user(1), TERMS);
        let back =
            |shard: &mut ShardLedger| shard.release(&user(1), generation, ReleaseKind::Handout);
        assert_eq!(back(&mut shard), ReleaseReply::StillOut);
        assert_eq!(back(&mut shard), ReleaseReply::Ended);
        assert_eq!(back(&mut shard), ReleaseReply::Nothing);
        assert_eq!(
            shard.audit(),
            Audit {
                stock: Some(1),
                held: 0,
                bought: 0,
                epoch: 1
            }
        );
    }

    #[test]
    fn an_ordered_claim_is_never_given_back_and_fills_the_cap() {
        let mut shard = ShardLedger::default();
        shard.warm(3, 0);
        let generation = granted(shard.claim(&user(1), TERMS));
        assert_eq!(shard.settle(&user(1), generation), SettleReply::Settled);
        assert_eq!(shard.settle(&user(1), generation), SettleReply::Nothing);
        let late = shard.release(&user(1), generation, ReleaseKind::Decided);
        assert_eq!(late, ReleaseReply::Nothing);
        assert_eq!(
            shard.claim(&user(1), TERMS),
            ClaimReply::CapReached { generation }
        );
    }

    #[test]
    fn generations_never_repeat_even_when_the_clock_stands_still_or_jumps_back() {
        let mut shard = ShardLedger::default();
        shard.warm(10, 0);
        let clocks = [1_000, 1_000, 5, 2_000, 1_999];
        let generations: Vec<u64> = clocks
            .into_iter()
            .zip(0..)
            .map(|(now_ms, n)| granted(shard.claim(&user(n), ClaimTerms { now_ms, ..TERMS })))
            .collect();
        assert!(
            generations.windows(2).all(|pair| pair[0] < pair[1]),
            "{generations:?}"
        );
    }

    #[derive(Clone, Debug)]
    enum Op {
        Claim(u8),
        Settle(u8, u64),
        Release(u8, u64, ReleaseKind),
    }

    fn any_op() -> impl Strategy<Value = Op> {
        let kind = prop_oneof![Just(ReleaseKind::Handout), Just(ReleaseKind::Decided)];
        prop_oneof![
            3 => (0..6_u8).prop_map(Op::Claim),
            1 => (0..6_u8, 1..20_u64).prop_map(|(u, g)| Op::Settle(u, g)),
            2 => (0..6_u8, 1..20_u64, kind).prop_map(|(u, g, k)| Op::Release(u, g, k)),
        ]
    }

    proptest! {
        /// Σ stock + claims + orders = total, after every operation in any order, with right and
        /// wrong generations alike.
        #[test]
        fn no_operation_makes_or_loses_a_unit(
            total in 0..8_u64, quantity in 1..3_u32, ops in prop::collection::vec(any_op(), 0..80),
        ) {
            let mut shard = ShardLedger::default();
            shard.warm(total, 0);
            let terms = ClaimTerms { now_ms: 0, ttl_ms: 9, user_cap: 4, quantity };
            for op in ops {
                match op {
                    Op::Claim(u) => { shard.claim(&user(u), terms); }
                    Op::Settle(u, g) => { shard.settle(&user(u), g); }
                    Op::Release(u, g, kind) => { shard.release(&user(u), g, kind); }
                }
                let audit = shard.audit();
                prop_assert_eq!(audit.stock.unwrap() + audit.held + audit.bought, total);
                prop_assert!(shard.users.values().all(|r| r.bought + r.held <= 4));
            }
        }
    }
}
