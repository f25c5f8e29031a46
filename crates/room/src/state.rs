//! The state of a room as Redis reports it, and as callers restore it after data loss.
//!
//! Every script call contains the caller's state ([`RoomState`]), and Redis never goes below it. Gateways, the origin
//! and visitors' tokens therefore restore a lost room.

use crate::draw::{Draw, Seed};
use crate::setting::Setting;
use crate::visitor::Visitor;

/// The fixed parameters of a room, from the configuration of gateways and origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Lifetime of an idle session, in milliseconds.
    pub session_ms: u64,
    /// Time to claim a called position, in milliseconds; then it expires.
    pub claim_ms: u64,
    /// Maximum waiting visitors; 0: unlimited.
    pub queue_max: u64,
    /// Maximum positions per address and window; 0: unlimited.
    pub address_max: u64,
    /// Length of that window, in milliseconds.
    pub address_ms: u64,
    /// How long a visitor's position is stored after the last one was assigned in its bucket, in milliseconds: at least
    /// the lifetime of tokens.
    pub life_ms: u64,
}

impl Terms {
    /// The numbers in the order of the scripts' ARGV.
    pub fn numbers(&self) -> [u64; 6] {
        [
            self.session_ms,
            self.claim_ms,
            self.queue_max,
            self.address_max,
            self.address_ms,
            self.life_ms,
        ]
    }
}

/// Pause after Redis has lost a room, in milliseconds. No positions are assigned or called until all gateways have
/// reported their state, in two polls each.
pub const SETTLE_MS: u64 = 2_000;

/// How much longer Redis keeps a session than the visitor's token, in milliseconds, because renewals arrive late.
pub const GRACE_MS: u64 = 5_000;

/// Maximum age of a call that assigns a new position, in milliseconds. After a longer stall of Redis, the visitor
/// already has another answer.
pub const LATE_MS: u64 = 2_000;

/// The credit that one entry costs. The credit grows by the entries per minute in each millisecond.
pub const ENTRY_COST: u64 = 60_000;

/// Length of a slot in which entries are counted, in milliseconds.
pub const SLOT_MS: u64 = 5_000;

/// The number of slots that Redis keeps: one minute in total.
pub const SLOTS: u64 = 12;

/// A caller's state of a room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoomState {
    /// The last assigned position.
    pub seq: u64,
    /// How far the queue has been called.
    pub head: u64,
    /// Called positions up to this one have expired.
    pub floor: u64,
    /// Active sessions.
    pub inside: u64,
    /// The opening of the last draw, in milliseconds since the Unix epoch; 0 for none.
    pub drew: u64,
    /// The draw covers the positions after this one.
    pub base: u64,
    /// The last position of the draw.
    pub drawn: u64,
    /// The opening of the seed; 0 for none.
    pub seed_of: u64,
    /// The seed.
    pub seed: Option<Seed>,
    /// Called positions that are not claimed yet.
    pub called: u64,
}

/// The state of a room in Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The shared state.
    pub observed: RoomState,
    /// Whether Redis had lost the room and waits for the gateways' state.
    pub is_settling: bool,
    /// Whether the room is in its pre-queue phase.
    pub is_lobby: bool,
    /// The settings in force.
    pub setting: Setting,
    /// The opening of the pre-queue; 0 for none.
    pub opening: u64,
    /// Positions assigned since Redis has the room.
    pub joined: u64,
    /// Entries since then.
    pub entered: u64,
    /// Called positions that have expired since then.
    pub missed: u64,
    /// The time of Redis, in milliseconds since the Unix epoch.
    pub now_ms: u64,
}

impl RoomState {
    /// The last draw, if there was one.
    pub fn draw(&self) -> Option<Draw> {
        let seed = self.seed.filter(|_| self.seed_of == self.drew)?;
        Draw::new(self.base, self.drawn, seed)
    }

    /// The effective opening if `opens_at_ms` is set; 0 for none. `None`: visitors of the last draw are still waiting.
    pub fn next_opening(&self, opens_at_ms: u64) -> Option<u64> {
        let is_over = self.floor >= self.drawn;
        is_over.then_some(match opens_at_ms {
            0 => 0,
            _ => opens_at_ms.max(self.drew),
        })
    }

    /// Applies the latest state from Redis. Its seed replaces the known one, even if it is for an earlier opening.
    pub fn apply_latest(&mut self, latest: &Self) {
        self.merge(latest);
        if latest.seed.is_some() {
            (self.seed_of, self.seed) = (latest.seed_of, latest.seed);
        }
    }

    /// Merges another caller's state. Numbers never decrease, except `inside` and `called`, which are copied.
    pub fn merge(&mut self, other: &Self) {
        self.seq = self.seq.max(other.seq);
        self.head = self.head.max(other.head);
        self.floor = self.floor.max(other.floor);
        (self.inside, self.called) = (other.inside, other.called);
        if other.drew > self.drew {
            (self.drew, self.base, self.drawn) = (other.drew, other.base, other.drawn);
        }
        if other.seed.is_some() && other.seed_of >= self.seed_of {
            (self.seed_of, self.seed) = (other.seed_of, other.seed);
        }
    }
}

/// A session to renew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// The visitor.
    pub visitor: Visitor,
    /// The position after a draw at which a gateway admitted the visitor on its own; 0 without a position. `None` if
    /// Redis has the session.
    pub entered_at: Option<u64>,
}

impl From<Visitor> for Renewal {
    fn from(visitor: Visitor) -> Self {
        Self {
            visitor,
            entered_at: None,
        }
    }
}

/// The result of a visitor's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// The visitor waits at the position.
    Waiting,
    /// The visitor has an active session.
    Inside,
    /// The visitor was called and waits for capacity. The position is kept.
    Hold,
    /// The visitor gets a position after Redis has restored the queue's state.
    Settling,
    /// Refused: the queue is full.
    Full,
    /// Refused: the address has reached its limit of positions.
    Address,
    /// Refused: the room assigns no positions.
    Closed,
}

impl Status {
    /// All statuses, in the order of their numbers in replies, from 0.
    pub const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Inside,
        Self::Hold,
        Self::Settling,
        Self::Full,
        Self::Address,
        Self::Closed,
    ];

    /// The status with this number.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

/// The number of classes of waiting times.
pub const WAITS: usize = 13;

/// The upper bounds of all classes except the last, in milliseconds.
pub const WAITS_MS: [u64; WAITS - 1] = [
    1_000, 5_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_200_000, 1_800_000,
    3_600_000, 7_200_000,
];

/// The class of a waiting time.
pub fn wait_class(wait_ms: u64) -> usize {
    WAITS_MS
        .iter()
        .take_while(|max_ms| wait_ms > **max_ms)
        .count()
}

/// The waiting time at `percent` of the entries, in milliseconds: the upper bound of its class. `None` without entries,
/// or if that class has no bound.
pub fn wait_percentile(classes: &[u64; WAITS], percent: u64) -> Option<u64> {
    let total: u64 = classes.iter().sum();
    let rank = (total * percent).div_ceil(100).max(1);
    let mut below = 0;
    let class = classes.iter().position(|count| {
        below += count;
        below >= rank
    })?;
    WAITS_MS.get(class).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_counters_never_decrease_except_visitors_inside() {
        let mut state = RoomState {
            seq: 10,
            head: 5,
            floor: 2,
            inside: 3,
            ..RoomState::default()
        };
        state.merge(&RoomState {
            seq: 4,
            head: 6,
            floor: 1,
            inside: 1,
            drew: 9,
            base: 1,
            drawn: 4,
            seed_of: 9,
            seed: Some(Seed::from_bytes([1; 32])),
            called: 1,
        });
        assert_eq!(
            (state.seq, state.head, state.floor, state.inside),
            (10, 6, 2, 1)
        );
        assert!(state.draw().is_some());
        state.merge(&RoomState::default());
        assert!(state.draw().is_some(), "nobody forgets a draw");
    }

    #[test]
    fn opening_is_movable_until_drawn_and_never_before_the_last() {
        let mut state = RoomState {
            seed_of: 9,
            seed: Some(Seed::from_bytes([1; 32])),
            ..RoomState::default()
        };
        assert_eq!(state.next_opening(5), Some(5));
        let earlier = RoomState {
            seed_of: 5,
            seed: Some(Seed::from_bytes([2; 32])),
            ..RoomState::default()
        };
        state.apply_latest(&earlier);
        assert_eq!((state.seed_of, state.seed), (5, earlier.seed));
        state.apply_latest(&RoomState::default());
        assert_eq!(state.seed_of, 5, "Redis has lost it");
        (state.drew, state.drawn) = (5, 3);
        assert_eq!(state.next_opening(7), None, "some have not passed");
        state.floor = 3;
        let next = [0, 4, 7].map(|opens_at_ms| state.next_opening(opens_at_ms));
        assert_eq!(next, [Some(0), Some(5), Some(7)]);
    }

    #[test]
    fn wait_percentiles_are_upper_bounds_of_wait_classes() {
        assert_eq!([0, 1_000, 1_001, 7_200_001].map(wait_class), [0, 0, 1, 12]);
        let mut classes = [0; WAITS];
        assert_eq!(wait_percentile(&classes, 50), None);
        (classes[1], classes[4]) = (50, 50);
        assert_eq!(wait_percentile(&classes, 50), Some(5_000));
        assert_eq!(wait_percentile(&classes, 51), Some(60_000));
        classes[12] = 1_000;
        assert_eq!(wait_percentile(&classes, 99), None);
    }
}
