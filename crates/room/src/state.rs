//! What Redis tells of a room, and what others tell Redis after it lost it.
//!
//! Every script call brings what its caller has heard ([`RoomState`]), and Redis never goes below that. So when Redis has lost
//! a room, gateways, the origin and visitors' passes put it back.

use crate::draw::{Draw, Seed};
use crate::setting::Setting;
use crate::visitor::Visitor;

/// What does not change while a room is in use: it stands in the configuration of gateways and origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long a session lives that is not used, in milliseconds.
    pub session_ms: u64,
    /// How long a called place waits to be taken up, in milliseconds; then it passes on.
    pub claim_ms: u64,
    /// The most who wait at once; 0 for as many as come.
    pub queue_max: u64,
    /// The most places that one address may take in a window; 0 for as many as it likes.
    pub address_max: u64,
    /// How long that window is, in milliseconds.
    pub address_ms: u64,
    /// How long a visitor's place is remembered after the last one was given nearby, in milliseconds: not less than passes
    /// live.
    pub life_ms: u64,
}

impl Terms {
    /// The numbers in the order in which scripts take them.
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

/// After Redis had nothing of a room, for so long, in milliseconds, nobody gets a place and nobody is called: until all
/// gateways have told what they know, two polls of each.
pub const SETTLE_MS: u64 = 2_000;

/// How much longer Redis keeps a session than the visitor's pass says, in milliseconds: renewals come late.
pub const GRACE_MS: u64 = 5_000;

/// A question that Redis answers only after this many milliseconds gives no new place: Redis stood still, and the visitor has
/// had another answer meanwhile.
pub const LATE_MS: u64 = 2_000;

/// What one entry costs of the pace, which grows by entries a minute in each millisecond.
pub const ENTRY_COST: u64 = 60_000;

/// The length of a slot of time in which entries are counted, in milliseconds.
pub const SLOT_MS: u64 = 5_000;

/// How many slots Redis keeps: a minute in all.
pub const SLOTS: u64 = 12;

/// What somebody has heard of a room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoomState {
    /// The last place given.
    pub seq: u64,
    /// How far the queue has been called.
    pub head: u64,
    /// Up to where called places have passed on.
    pub floor: u64,
    /// How many are inside.
    pub inside: u64,
    /// The opening whose draw was made, in milliseconds since the Unix epoch; 0 for none.
    pub drew: u64,
    /// The draw is of the places behind this one,
    pub base: u64,
    /// up to this one.
    pub drawn: u64,
    /// The opening that the seed is for; 0 for none.
    pub seed_of: u64,
    /// The seed.
    pub seed: Option<Seed>,
    /// How many called places have not been taken up yet.
    pub called: u64,
}

/// What Redis tells of a room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// What everybody should know.
    pub seen: RoomState,
    /// Whether Redis had lost the room and waits to hear of it.
    pub is_settling: bool,
    /// Whether nobody is called before the opening.
    pub is_lobby: bool,
    /// What is in force.
    pub setting: Setting,
    /// The opening that the lobby is for; 0 for none.
    pub opening: u64,
    /// How many places were given since Redis has the room.
    pub joined: u64,
    /// How many entered since then.
    pub entered: u64,
    /// How many called places passed on since then.
    pub missed: u64,
    /// The time in Redis, in milliseconds since the Unix epoch.
    pub now_ms: u64,
}

impl RoomState {
    /// The draw that was made, if anybody was drawn.
    pub fn draw(&self) -> Option<Draw> {
        let seed = self.seed.filter(|_| self.seed_of == self.drew)?;
        Draw::new(self.base, self.drawn, seed)
    }

    /// The opening that counts if `opens_at_ms` is set; 0 for none. `None`: some of the last draw have not passed yet.
    pub fn next_opening(&self, opens_at_ms: u64) -> Option<u64> {
        let is_over = self.floor >= self.drawn;
        is_over.then_some(match opens_at_ms {
            0 => 0,
            _ => opens_at_ms.max(self.drew),
        })
    }

    /// Takes over what Redis has told last: its seed counts, even if it is for an earlier opening than the known one.
    pub fn apply_latest(&mut self, latest: &Self) {
        self.merge(latest);
        if latest.seed.is_some() {
            (self.seed_of, self.seed) = (latest.seed_of, latest.seed);
        }
    }

    /// Takes over what somebody else has heard. Numbers never fall, except `inside` and `called`, which are taken over as they
    /// are.
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

/// A visitor whose session lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// The visitor.
    pub visitor: Visitor,
    /// The place, in the order after a draw, at which a gateway has let the visitor in on its own; 0 without a place. `None` if
    /// Redis knows the session.
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

/// The answer to a visitor who asks for a place or for entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// Waits at the place.
    Waiting,
    /// Is inside.
    Inside,
    /// Was called, but there is no room at the moment: keeps the place and asks again.
    Hold,
    /// Gets a place as soon as Redis knows where the queue was.
    Settling,
    /// Turned away: too many wait.
    Full,
    /// Turned away: the address has taken enough places.
    Address,
    /// Turned away: nobody gets a place.
    Closed,
}

impl Status {
    /// Every status, in the order of their numbers in replies, from 0 on.
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

/// In how many classes waits are counted.
pub const WAITS: usize = 13;

/// The longest waits of each class but the last, in milliseconds.
pub const WAITS_MS: [u64; WAITS - 1] = [
    1_000, 5_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_200_000, 1_800_000,
    3_600_000, 7_200_000,
];

/// The class of a wait.
pub fn wait_class(wait_ms: u64) -> usize {
    WAITS_MS
        .iter()
        .take_while(|max_ms| wait_ms > **max_ms)
        .count()
}

/// How long it took those who entered, as classes tell: the longest wait, in milliseconds, of the class with the entry at
/// `percent` in it. `None` if nobody entered, or if that class has no end.
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
    fn numbers_never_fall_but_for_those_inside() {
        let mut seen = RoomState {
            seq: 10,
            head: 5,
            floor: 2,
            inside: 3,
            ..RoomState::default()
        };
        seen.merge(&RoomState {
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
            (seen.seq, seen.head, seen.floor, seen.inside),
            (10, 6, 2, 1)
        );
        assert!(seen.draw().is_some());
        seen.merge(&RoomState::default());
        assert!(seen.draw().is_some(), "nobody forgets a draw");
    }

    #[test]
    fn opening_can_move_until_drawn_and_never_before_the_last() {
        let mut seen = RoomState {
            seed_of: 9,
            seed: Some(Seed::from_bytes([1; 32])),
            ..RoomState::default()
        };
        assert_eq!(seen.next_opening(5), Some(5));
        let earlier = RoomState {
            seed_of: 5,
            seed: Some(Seed::from_bytes([2; 32])),
            ..RoomState::default()
        };
        seen.apply_latest(&earlier);
        assert_eq!((seen.seed_of, seen.seed), (5, earlier.seed));
        seen.apply_latest(&RoomState::default());
        assert_eq!(seen.seed_of, 5, "Redis has lost it");
        (seen.drew, seen.drawn) = (5, 3);
        assert_eq!(seen.next_opening(7), None, "some have not passed");
        seen.floor = 3;
        let next = [0, 4, 7].map(|opens_at_ms| seen.next_opening(opens_at_ms));
        assert_eq!(next, [Some(0), Some(5), Some(7)]);
    }

    #[test]
    fn waits_are_told_as_classes_tell() {
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
