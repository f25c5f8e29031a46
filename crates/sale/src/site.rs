//! Sites: one sale sold from several Redis, without a shared one.
//!
//! SQL is shared, and decides. Each site has its own gateways, origins and Redis, and calls no other site's Redis.
//!
//! A site sells under a *fence*, a number that SQL gives out once. The fence determines the numbers of the site's
//! shards: fence `f` has the shards from `f · 64` on. A claim's ticket names its shard, and the gateway signs the
//! ticket, so each claim carries the fence under which it was granted. When SQL closes a fence, no claim of its shards
//! can become an order. A site that returns gets a new fence, and with it shards that have never existed.
//!
//! Each fence has an *allotment*: the units that its shards must have as stock, in transfers, in claims and in orders.
//! The allotments of all fences together are the sale's total. The reconciler of a site compares its own Redis with
//! its own allotment. A unit changes its site only with a transaction that changes both allotments:
//!
//! 1. *Intent:* SQL records a withdrawal from the source's shards.
//! 2. *Effect:* an origin of the source applies it to its Redis.
//! 3. *Outcome:* one transaction ends the withdrawal, moves the units between the allotments, and records an addition
//!    to the target's shards, which an origin of the target applies.
//!
//! Closing a fence also closes its open changes. So the outcome of a withdrawal that arrives later counts nothing, and
//! all units of the closed fence that are not in orders move to another fence.

use crate::ledger::Audit;
use crate::sale::SHARDS_MAX;

/// The fence of a deployment without sites, and of the first site.
pub const FIRST_FENCE: u32 = 0;

/// A site with fewer free units than this part of its fair share asks for more.
const LOW_PART: u64 = 4;

/// How long a site keeps its last units if nobody claims them, as a part of the time since the last claim. So the last
/// unit of a busy sale moves each second, and that of a quiet sale rarely.
const REST_PART: u64 = 8;
const REST_MS_MIN: u64 = 1_000;
const REST_MS_MAX: u64 = 60_000;

/// The fence of a shard.
pub const fn fence_of(shard: u32) -> u32 {
    shard / SHARDS_MAX
}

/// The first shard of a fence.
pub const fn first_shard(fence: u32) -> u32 {
    fence.saturating_mul(SHARDS_MAX)
}

/// A shard's position among the shards of its fence.
pub const fn index_of(shard: u32) -> u32 {
    shard % SHARDS_MAX
}

/// The state of a fence in SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceState {
    /// It sells.
    Live,
    /// It sells until its free units have moved; its claims become orders.
    Draining,
    /// No claim of it becomes an order any more.
    Closed,
}

impl FenceState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Live, Self::Draining, Self::Closed];

    /// The label in SQL.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Draining => "draining",
            Self::Closed => "closed",
        }
    }
}

/// A fence and its part of one sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceStock {
    /// The fence.
    pub fence: u32,
    /// Its state.
    pub state: FenceState,
    /// Its allotment.
    pub units: i64,
    /// Units in its orders that have left the stock.
    pub ordered: i64,
    /// The number of units that it asks for.
    pub wanted: u64,
}

impl FenceStock {
    /// Units of its allotment that are not in orders. Negative: orders were paid with units of other fences.
    pub const fn unsold(&self) -> i64 {
        self.units - self.ordered
    }
}

/// What a fence's shards contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalStock {
    /// The sum of the shards' stock. Negative if orders were paid with units of other fences.
    pub stock: i64,
    /// Milliseconds since the last claim on one of its shards.
    pub since_claim_ms: u64,
    /// Milliseconds since units last arrived at one of its shards.
    pub since_arrival_ms: u64,
}

impl LocalStock {
    /// What all shards of a fence contain at `now_ms` of their Redis' clock; `None` while one of them is cold.
    pub fn new(shards: &[Audit], now_ms: u64) -> Option<Self> {
        let last_us = |time: fn(&Audit) -> u64| shards.iter().map(time).max().unwrap_or(0);
        let since = |at_us: u64| now_ms.saturating_sub(at_us / 1_000);
        // Both numbers are at least the time at which they were given out.
        let arrival = |shard: &Audit| u64::try_from(shard.epoch).unwrap_or(0);
        Some(Self {
            stock: shards
                .iter()
                .map(|shard| shard.stock)
                .sum::<Option<i64>>()?,
            since_claim_ms: since(last_us(|shard| shard.sequence)),
            since_arrival_ms: since(last_us(arrival)),
        })
    }
}

/// The number of units that the fence `here` asks other sites for: see [`given`].
pub fn wanted(here: u32, fences: &[FenceStock], local: LocalStock) -> u64 {
    let is_live = |fence: &&FenceStock| fence.state == FenceState::Live;
    let own = fences.iter().find(|fence| fence.fence == here);
    match own.map(|own| own.state) {
        Some(FenceState::Live | FenceState::Draining) if local.stock < 0 => {
            return local.stock.unsigned_abs();
        }
        Some(FenceState::Live) => {}
        _ => return 0,
    }
    let others = || fences.iter().filter(|fence| fence.fence != here);
    let elsewhere = others().filter(|fence| fence.state != FenceState::Closed);
    let elsewhere: i64 = elsewhere.map(|fence| fence.unsold().max(0)).sum();
    let count = fences.iter().filter(is_live).count() as u64;
    let stock = local.stock.unsigned_abs();
    let fair = stock.saturating_add(elsewhere.unsigned_abs()) / count.max(1);
    match stock {
        0 if elsewhere > 0 => fair.max(1),
        _ if stock < fair / LOW_PART => fair - stock,
        _ => 0,
    }
}

/// The transfer of free units that the fence `here` begins: its target and the number of units.
///
/// A draining fence gives all to the fence with the fewest units. A live one gives what another asks for, as long as it
/// keeps its fair share. Units below that it gives only after they have rested, so that two sites without buyers do not
/// pass the last unit to and fro. Before both, the [`heir`] pays for orders of closed fences.
pub fn given(here: u32, fences: &[FenceStock], local: LocalStock) -> Option<(u32, u64)> {
    let free = u64::try_from(local.stock).ok().filter(|&units| units > 0)?;
    let own = fences.iter().find(|fence| fence.fence == here)?;
    let mut closed = fences
        .iter()
        .filter(|fence| fence.state == FenceState::Closed);
    if let Some(debtor) = closed.find(|fence| fence.unsold() < 0)
        && heir(fences) == Some(here)
    {
        return Some((debtor.fence, free.min(debtor.unsold().unsigned_abs())));
    }
    let others = || fences.iter().filter(|fence| fence.fence != here);
    let live = || others().filter(|fence| fence.state == FenceState::Live);
    match own.state {
        FenceState::Closed => None,
        FenceState::Draining => {
            let poorest = live().min_by_key(|fence| (fence.unsold(), fence.fence))?;
            Some((poorest.fence, free))
        }
        FenceState::Live => {
            // A draining fence asks only for units that its orders need.
            let open = others().filter(|fence| fence.state != FenceState::Closed);
            let target = open.max_by_key(|fence| fence.wanted)?;
            let count = live().count() as u64 + 1;
            let rest_ms = (local.since_claim_ms / REST_PART).clamp(REST_MS_MIN, REST_MS_MAX);
            let is_rested = local.since_claim_ms.min(local.since_arrival_ms) >= rest_ms;
            let may_give = match free / count * (count - 1) {
                _ if target.state == FenceState::Draining => free,
                0 if is_rested => free,
                units => units,
            };
            let units = target.wanted.min(may_give);
            (units > 0).then_some((target.fence, units))
        }
    }
}

/// The units that a closed fence no longer needs, and the fence that gets them.
pub fn inherited(closed: &FenceStock, fences: &[FenceStock]) -> Option<(u32, u64)> {
    let unsold = u64::try_from(closed.unsold())
        .ok()
        .filter(|&units| units > 0)?;
    let is_closed = closed.state == FenceState::Closed;
    heir(fences)
        .filter(|_| is_closed)
        .map(|heir| (heir, unsold))
}

/// The fence that gets the units of closed fences, and the changes of operators: the oldest live one, or else the oldest
/// one that drains.
pub fn heir(fences: &[FenceStock]) -> Option<u32> {
    let of = |state| {
        let fences = fences.iter().filter(move |fence| fence.state == state);
        fences.map(|fence| fence.fence).min()
    };
    of(FenceState::Live).or_else(|| of(FenceState::Draining))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fence(fence: u32, state: FenceState, units: i64, wanted: u64) -> FenceStock {
        FenceStock {
            fence,
            state,
            units,
            ordered: 0,
            wanted,
        }
    }

    fn busy(stock: i64) -> LocalStock {
        LocalStock {
            stock,
            ..LocalStock::default()
        }
    }

    fn rested(stock: i64) -> LocalStock {
        LocalStock {
            stock,
            since_claim_ms: 5_000,
            since_arrival_ms: 5_000,
        }
    }

    #[test]
    fn shards_of_fences_never_overlap() {
        assert_eq!((first_shard(FIRST_FENCE), first_shard(3)), (0, 192));
        for shard in [0, 1, 63, 64, 130] {
            assert_eq!(first_shard(fence_of(shard)) + index_of(shard), shard);
        }
        assert_eq!(fence_of(63), 0);
        assert_eq!(fence_of(64), 1);
    }

    #[test]
    fn site_below_a_quarter_of_its_share_asks_for_the_rest() {
        let fences = |here, there| {
            [
                fence(0, FenceState::Live, here, 0),
                fence(1, FenceState::Live, there, 0),
            ]
        };
        assert_eq!(wanted(1, &fences(80, 20), busy(20)), 0);
        assert_eq!(wanted(1, &fences(90, 10), busy(10)), 40);
        assert_eq!(wanted(1, &fences(1, 0), busy(0)), 1);
        assert_eq!(wanted(1, &fences(0, 0), busy(0)), 0);
        assert_eq!(wanted(1, &fences(9, 0), busy(-2)), 2, "a debt");
        let mut drained = fences(90, 10);
        drained[1].state = FenceState::Draining;
        assert_eq!(wanted(1, &drained, busy(0)), 0);
        assert_eq!(wanted(1, &drained, busy(-3)), 3);
        assert_eq!(given(0, &drained, busy(9)), None, "not asked yet");
        drained[1].wanted = 3;
        assert_eq!(given(0, &drained, busy(9)), Some((1, 3)));
    }

    #[test]
    fn live_site_keeps_its_share_and_draining_site_nothing() {
        let mut fences = [
            fence(0, FenceState::Live, 10, 0),
            fence(1, FenceState::Live, 0, 8),
        ];
        assert_eq!(given(0, &fences, busy(10)), Some((1, 5)));
        assert_eq!(given(0, &fences, busy(1)), None);
        assert_eq!(given(0, &fences, rested(1)), Some((1, 1)));
        assert_eq!(given(0, &fences, busy(-1)), None);
        fences[1].wanted = 0;
        assert_eq!(given(0, &fences, rested(10)), None);
        fences[0].state = FenceState::Draining;
        assert_eq!(given(0, &fences, busy(10)), Some((1, 10)));
        fences[1].state = FenceState::Closed;
        assert_eq!(given(0, &fences, busy(10)), None, "no site is left");
    }

    #[test]
    fn last_unit_of_a_quiet_sale_rests_longer() {
        let fences = [
            fence(0, FenceState::Live, 1, 0),
            fence(1, FenceState::Live, 0, 1),
        ];
        let local = |since_arrival_ms| LocalStock {
            stock: 1,
            since_claim_ms: 80_000,
            since_arrival_ms,
        };
        assert_eq!(given(0, &fences, local(9_999)), None);
        assert_eq!(given(0, &fences, local(10_000)), Some((1, 1)));
    }

    #[test]
    fn units_of_closed_fence_go_to_the_oldest_live_one() {
        let fences = [
            fence(0, FenceState::Closed, 7, 0),
            fence(1, FenceState::Live, 3, 0),
            fence(2, FenceState::Live, 3, 0),
        ];
        assert_eq!(inherited(&fences[0], &fences), Some((1, 7)));
        assert_eq!(inherited(&fences[1], &fences), None);
        let paid = FenceStock {
            ordered: 9,
            ..fences[0]
        };
        assert_eq!(inherited(&paid, &fences), None);
        let fences = [paid, fences[1], fences[2]];
        assert_eq!(given(1, &fences, busy(3)), Some((0, 2)), "it pays");
        assert_eq!(given(2, &fences, busy(3)), None);
        assert_eq!(heir(&fences[..1]), None);
    }

    proptest! {
        #[test]
        fn no_site_gives_more_than_its_free_units(
            stock in -5..50_i64, wanted in 0..60_u64, since_claim_ms in 0..90_000_u64, is_draining: bool,
        ) {
            let state = if is_draining { FenceState::Draining } else { FenceState::Live };
            let fences = [fence(0, state, 50, 0), fence(1, FenceState::Live, 0, wanted)];
            let local = LocalStock { stock, since_claim_ms, since_arrival_ms: since_claim_ms };
            if let Some((target, units)) = given(0, &fences, local) {
                prop_assert_eq!(target, 1);
                prop_assert!((1..=stock.unsigned_abs()).contains(&units));
                prop_assert!(stock > 0 && (is_draining || units <= wanted));
            }
        }
    }
}
