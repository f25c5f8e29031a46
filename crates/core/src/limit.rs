//! How often one user or one address may ask, in memory that does not grow.
//!
//! The rule is GCRA (the generic cell rate algorithm; a token bucket told by one number): for each
//! key one point in time is kept, the *theoretical arrival time*, up to which the requests so far
//! have used up what the rate allows. A request may pass while that time is less than a whole burst
//! ahead.
//!
//! The times are kept in a table of [`Slot`]s, as in a processor's cache: a key's hash names its one
//! slot, in which it has one of [`WAYS`] places. A new key takes the place whose time is the oldest.
//! A time that lies in the past allows a full burst, as an unknown key has, so to forget it loses
//! nothing.
//!
//! **What a crowded slot does:** where all places have times ahead, so that more than [`WAYS`] keys
//! of one slot have asked within the last moments, one is forgotten before its time, and its owner has
//! a full burst again. The limit errs on the side of letting pass; it never refuses anyone for what
//! another one did. Whoever wants to make use of it needs many names or addresses that fall into
//! the slot of the first, each of which is limited itself, and does not know which do, as the hash
//! has a secret seed. Take a table of at least twice as many places as there are keys that ask within
//! `burst / rate` seconds, and it is rare.

use crate::shard::seeded_hash;

/// The places in a slot. With 8 a slot has 128 bytes: two lines of a processor's cache, and one value
/// that is quick to copy.
pub const WAYS: usize = 8;

/// The bytes of a slot as it is stored.
pub const SLOT_LEN: usize = WAYS * PLACE_LEN;

/// The bytes of a place: fingerprint and time.
const PLACE_LEN: usize = 16;

/// The highest rate, in requests per second. Up to it, times fit in 64 bits until the year 2554.
pub const RATE_PER_S_MAX: u32 = 1_000_000;

/// By how much the clock may go back, in milliseconds, without a time being forgotten for it: two
/// workers read the clock one after the other and write in the other order, and a clock that is kept
/// by NTP takes small steps. Who asks meanwhile may have to wait so much longer.
pub const SET_BACK_MS_MAX: u64 = 1_000;

/// A rate and a burst.
///
/// Time is counted in *ticks*, of which there are `rate_per_s` in a millisecond. So one request
/// takes 1,000 ticks whatever the rate, every number is whole, and nothing drifts. At the end of
/// what 64 bits hold all times are alike, and everything passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gcra {
    rate_per_s: u32,
    burst: u32,
}

/// What one request takes, in ticks: a second's worth of milliseconds, as the rate is per second.
const REQUEST_TICKS: u64 = 1_000;

/// What a limit says to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It may pass.
    Allow,
    /// It may not.
    Refuse {
        /// After how many milliseconds the next one may pass: at least 1.
        retry_after_ms: u64,
    },
}

/// One step of the rule.
enum Step {
    Allow {
        /// The new theoretical arrival time.
        arrival: u64,
    },
    Refuse {
        retry_after_ms: u64,
    },
}

impl Gcra {
    /// At most `rate_per_s` requests a second in the long run, and `burst` at once. 0 of either
    /// counts as 1, a rate beyond [`RATE_PER_S_MAX`] as that.
    pub const fn new(rate_per_s: u32, burst: u32) -> Self {
        let rate_per_s = match rate_per_s {
            0 => 1,
            RATE_PER_S_MAX.. => RATE_PER_S_MAX,
            rate => rate,
        };
        let burst = if burst == 0 { 1 } else { burst };
        Self { rate_per_s, burst }
    }

    fn ticks(self, now_ms: u64) -> u64 {
        now_ms.saturating_mul(u64::from(self.rate_per_s))
    }

    fn burst_ticks(self) -> u64 {
        u64::from(self.burst).saturating_mul(REQUEST_TICKS)
    }

    /// The latest theoretical arrival time that can have come about by `now_ms`.
    fn latest(self, now_ms: u64) -> u64 {
        let now = self.ticks(now_ms.saturating_add(SET_BACK_MS_MAX));
        now.saturating_add(self.burst_ticks())
    }

    /// Decides on a request of a key with this theoretical arrival time.
    fn step(self, arrival: u64, now: u64) -> Step {
        let next = arrival.max(now).saturating_add(REQUEST_TICKS);
        let over = next.saturating_sub(now).saturating_sub(self.burst_ticks());
        if over == 0 {
            return Step::Allow { arrival: next };
        }
        let retry_after_ms = over.div_ceil(u64::from(self.rate_per_s));
        Step::Refuse { retry_after_ms }
    }
}

/// A key's hash. Keys of which it is the same share a limit: of a million keys, two with a
/// probability of one in thirty million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// The hash of `key` under `seed`. All who share a table must have one seed; those who ask
    /// should not know it.
    pub fn new(seed: u64, key: &[u8]) -> Self {
        // 0 marks a free place.
        Self(seeded_hash(seed, key).max(1))
    }

    /// In which of a table's slots the key is: below `slots`. 0 slots count as 1.
    pub fn slot(self, slots: u32) -> u32 {
        // The remainder is below `slots`, so it fits.
        (self.0 % u64::from(slots.max(1))) as u32
    }
}

/// The times of up to [`WAYS`] keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    places: [Place; WAYS],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    /// 0 if the place is free.
    fingerprint: u64,
    /// The theoretical arrival time, in ticks.
    arrival: u64,
}

impl Slot {
    /// Reads a slot as it is stored. Bytes of any other length, such as none, are an empty slot: what
    /// is kept here may be forgotten.
    pub fn decode(bytes: &[u8]) -> Self {
        let mut slot = Self::default();
        if bytes.len() != SLOT_LEN {
            return slot;
        }
        let places = bytes.as_chunks::<PLACE_LEN>().0;
        for (place, bytes) in slot.places.iter_mut().zip(places) {
            *place = Place::decode(*bytes);
        }
        slot
    }

    /// The slot as it is stored.
    pub fn encode(&self) -> [u8; SLOT_LEN] {
        let mut bytes = [0; SLOT_LEN];
        let to = bytes.as_chunks_mut::<PLACE_LEN>().0;
        for (to, place) in to.iter_mut().zip(&self.places) {
            *to = place.encode();
        }
        bytes
    }

    /// Decides on a request of the key with this fingerprint, at `now_ms`, and takes note of it. After
    /// a refusal the slot is as it was: it need not be stored.
    ///
    /// A time that no burst can have brought about counts as none: the clock was set back by more
    /// than [`SET_BACK_MS_MAX`], or the rate was another. So neither keeps a key out for long, and
    /// both cost one burst at most.
    pub fn decide(&mut self, gcra: Gcra, fingerprint: Fingerprint, now_ms: u64) -> Decision {
        let now = gcra.ticks(now_ms);
        let latest = gcra.latest(now_ms);
        let known = self.find(fingerprint).map(|place| place.arrival);
        let arrival = known.filter(|arrival| *arrival <= latest).unwrap_or(0);
        match gcra.step(arrival, now) {
            Step::Refuse { retry_after_ms } => Decision::Refuse { retry_after_ms },
            Step::Allow { arrival } => {
                // A time from another clock would hold its place until this one has caught up.
                let strays = self
                    .places
                    .iter_mut()
                    .filter(|place| place.arrival > latest);
                strays.for_each(|place| *place = Place::default());
                self.put(fingerprint, arrival);
                Decision::Allow
            }
        }
    }

    fn find(&self, fingerprint: Fingerprint) -> Option<&Place> {
        let mut places = self.places.iter();
        places.find(|place| place.fingerprint == fingerprint.0)
    }

    /// Notes the key's time: in its own place, else in the one whose time is the oldest. A free
    /// place has the time 0, so it is taken before any other.
    fn put(&mut self, fingerprint: Fingerprint, arrival: u64) {
        let rank = |place: &&mut Place| (place.fingerprint != fingerprint.0, place.arrival);
        if let Some(place) = self.places.iter_mut().min_by_key(rank) {
            *place = Place {
                fingerprint: fingerprint.0,
                arrival,
            };
        }
    }
}

impl Place {
    fn decode(bytes: [u8; PLACE_LEN]) -> Self {
        let word = u128::from_le_bytes(bytes);
        // Its lower and its upper half.
        let (fingerprint, arrival) = (word as u64, (word >> 64) as u64);
        Self {
            fingerprint,
            arrival: if fingerprint == 0 { 0 } else { arrival },
        }
    }

    fn encode(&self) -> [u8; PLACE_LEN] {
        (u128::from(self.arrival) << 64 | u128::from(self.fingerprint)).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const NOW_MS: u64 = 1_700_000_000_000;

    fn key(name: &str) -> Fingerprint {
        Fingerprint::new(1, name.as_bytes())
    }

    /// How many of `count` requests at once may pass.
    fn allowed(slot: &mut Slot, gcra: Gcra, who: Fingerprint, now_ms: u64, count: usize) -> usize {
        let asked = (0..count).map(|_| slot.decide(gcra, who, now_ms));
        asked
            .filter(|decision| *decision == Decision::Allow)
            .count()
    }

    fn refused(retry_after_ms: u64) -> Decision {
        Decision::Refuse { retry_after_ms }
    }

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let (mut slot, gcra, who) = (Slot::default(), Gcra::new(5, 3), key("u"));
        assert_eq!(allowed(&mut slot, gcra, who, NOW_MS, 10), 3);
        assert_eq!(slot.decide(gcra, who, NOW_MS), refused(200));
        assert_eq!(slot.decide(gcra, who, NOW_MS + 199), refused(1));
        assert_eq!(allowed(&mut slot, gcra, who, NOW_MS + 200, 10), 1);
        assert_eq!(allowed(&mut slot, gcra, who, NOW_MS + 800, 10), 3);
        assert_eq!(allowed(&mut slot, gcra, key("v"), NOW_MS + 800, 10), 3);
    }

    #[test]
    fn a_rate_that_divides_no_second_does_not_drift() {
        let (mut slot, gcra, who) = (Slot::default(), Gcra::new(3, 1), key("u"));
        let passed = (0..1_000_000).filter(|ms| {
            let decision = slot.decide(gcra, who, NOW_MS + ms);
            decision == Decision::Allow
        });
        // Asked each millisecond, each waits for the next whole one: 334 ms.
        assert_eq!(passed.count(), 1_000_000_usize.div_ceil(334));
        // A burst of two bridges the fractions.
        let (mut slot, gcra) = (Slot::default(), Gcra::new(3, 2));
        let passed = (0..1_000_000).filter(|ms| {
            let decision = slot.decide(gcra, who, NOW_MS + ms);
            decision == Decision::Allow
        });
        assert_eq!(passed.count(), 3_000 + 1);
    }

    #[test]
    fn a_refusal_changes_nothing_that_would_have_to_be_stored() {
        let (mut slot, gcra, who) = (Slot::default(), Gcra::new(1, 1), key("u"));
        slot.decide(gcra, who, NOW_MS);
        let before = slot.encode();
        assert_eq!(slot.decide(gcra, who, NOW_MS), refused(1_000));
        assert_eq!(slot.encode(), before);
    }

    #[test]
    fn a_clock_that_goes_back_a_little_gives_nobody_a_second_burst() {
        let (mut slot, gcra, who) = (Slot::default(), Gcra::new(5, 3), key("u"));
        assert_eq!(allowed(&mut slot, gcra, who, NOW_MS, 9), 3);
        assert_eq!(slot.decide(gcra, who, NOW_MS - 1), refused(201));
        assert_eq!(slot.decide(gcra, who, NOW_MS - 1_000), refused(1_200));
        assert_eq!(allowed(&mut slot, gcra, who, NOW_MS + 200, 9), 1);
    }

    #[test]
    fn a_clock_set_far_back_or_another_rate_keeps_nobody_out() {
        let who = key("u");
        let mut used_up = Slot::default();
        allowed(&mut used_up, Gcra::new(5, 3), who, NOW_MS, 3);
        let ask = |rate_per_s, now_ms| {
            let mut slot = used_up.clone();
            let first = allowed(&mut slot, Gcra::new(rate_per_s, 3), who, now_ms, 9);
            (
                first,
                allowed(&mut slot, Gcra::new(rate_per_s, 3), who, now_ms + 1_000, 9),
            )
        };
        assert_eq!(ask(5, NOW_MS), (0, 3), "the same clock and rate");
        assert_eq!(ask(5, NOW_MS - 86_400_000), (3, 3));
        assert_eq!(ask(1, NOW_MS), (3, 1));
        assert_eq!(ask(50, NOW_MS), (3, 3));
    }

    #[test]
    fn times_of_another_clock_do_not_hold_their_places() {
        let gcra = Gcra::new(5, 3);
        let mut slot = Slot::decode(&[0xff; SLOT_LEN]);
        for name in ["a", "b", "c"] {
            assert_eq!(allowed(&mut slot, gcra, key(name), NOW_MS, 9), 3, "{name}");
        }
        for name in ["a", "b", "c"] {
            assert_eq!(allowed(&mut slot, gcra, key(name), NOW_MS, 9), 0, "{name}");
        }
    }

    #[test]
    fn of_a_full_slot_the_one_who_has_waited_longest_is_forgotten() {
        let (mut slot, gcra) = (Slot::default(), Gcra::new(1, 2));
        let names: Vec<_> = (0..=WAYS as u64).map(|n| key(&format!("u{n}"))).collect();
        for (n, who) in (0..).zip(&names[..WAYS]) {
            assert_eq!(allowed(&mut slot, gcra, *who, NOW_MS + n, 9), 2);
        }
        let now_ms = NOW_MS + 10;
        assert_eq!(
            allowed(&mut slot, gcra, names[WAYS], now_ms, 9),
            2,
            "a newcomer always may"
        );
        for who in &names[1..] {
            assert_eq!(allowed(&mut slot, gcra, *who, now_ms, 9), 0);
        }
        assert_eq!(
            allowed(&mut slot, gcra, names[0], now_ms, 9),
            2,
            "forgotten"
        );
    }

    #[test]
    fn at_the_end_of_time_everything_passes() {
        let (mut slot, gcra) = (Slot::default(), Gcra::new(u32::MAX, 1));
        assert_eq!(allowed(&mut slot, gcra, key("u"), u64::MAX, 9), 9);
        assert_eq!(Gcra::new(0, 0), Gcra::new(1, 1));
    }

    #[test]
    fn keys_spread_evenly_and_otherwise_under_another_seed() {
        let slot_of = |seed, n| Fingerprint::new(seed, format!("user-{n}").as_bytes()).slot(16);
        let mut counts = [0_u32; 16];
        let mut alike = 0;
        for n in 0..16_000 {
            counts[slot_of(1, n) as usize] += 1;
            alike += u32::from(slot_of(1, n) == slot_of(2, n));
        }
        assert!(
            counts.iter().all(|count| (850..1_150).contains(count)),
            "{counts:?}"
        );
        assert!((850..1_150).contains(&alike), "{alike} of 16,000 by chance");
        assert_eq!(Fingerprint(u64::MAX).slot(0), 0);
    }

    /// A token bucket that is filled step by step: the same rule, told otherwise.
    struct Bucket {
        /// In thousandths of a request, per millisecond `rate_per_s` of them.
        level: u128,
        at_ms: u64,
    }

    impl Bucket {
        fn take(&mut self, rate_per_s: u32, burst: u32, now_ms: u64) -> bool {
            let full = u128::from(burst) * 1_000;
            let fresh = u128::from(now_ms - self.at_ms) * u128::from(rate_per_s);
            (self.level, self.at_ms) = ((self.level + fresh).min(full), now_ms);
            let is_enough = self.level >= 1_000;
            self.level -= if is_enough { 1_000 } else { 0 };
            is_enough
        }
    }

    proptest! {
        #[test]
        fn as_many_keys_as_fit_are_each_limited_as_by_a_bucket_of_their_own(
            rate_per_s in 1..2_000_u32, burst in 1..10_u32,
            steps in prop::collection::vec((0..WAYS, 0..300_u64), 0..300),
        ) {
            let gcra = Gcra::new(rate_per_s, burst);
            let full = || Bucket { level: u128::from(burst) * 1_000, at_ms: NOW_MS };
            let mut buckets: Vec<Bucket> = (0..WAYS).map(|_| full()).collect();
            let (mut slot, mut now_ms) = (Slot::default(), NOW_MS);
            for (who, wait_ms) in steps {
                now_ms += wait_ms / 10 * (wait_ms % 10);
                let decision = slot.decide(gcra, key(&format!("u{who}")), now_ms);
                let expected = buckets[who].take(rate_per_s, burst, now_ms);
                prop_assert_eq!(decision == Decision::Allow, expected);
                slot = Slot::decode(&slot.encode());
            }
        }

        #[test]
        fn after_the_wait_that_a_refusal_names_one_may_pass_and_not_before(
            rate_per_s in 1..2_000_u32, burst in 1..10_u32, start_ms in 0..u64::MAX / 4_000,
        ) {
            let (mut slot, gcra, who) = (Slot::default(), Gcra::new(rate_per_s, burst), key("u"));
            let passed = allowed(&mut slot, gcra, who, start_ms, burst as usize);
            prop_assert_eq!(passed, burst as usize);
            let Decision::Refuse { retry_after_ms } = slot.decide(gcra, who, start_ms) else {
                return Err(TestCaseError::fail("no burst is greater"));
            };
            prop_assert!(retry_after_ms > 0);
            let early = slot.decide(gcra, who, start_ms + retry_after_ms - 1);
            prop_assert_ne!(early, Decision::Allow);
            prop_assert_eq!(slot.decide(gcra, who, start_ms + retry_after_ms), Decision::Allow);
        }

        #[test]
        fn no_bytes_or_times_panic_a_slot_and_whoever_is_new_may_pass(
            bytes in prop::collection::vec(any::<u8>(), 0..=SLOT_LEN), whole: bool,
            rate: u32, burst: u32, now_ms: u64,
        ) {
            let mut bytes = bytes;
            if whole {
                bytes.resize(SLOT_LEN, 0x5a);
            }
            let mut slot = Slot::decode(&bytes);
            prop_assert_eq!(&Slot::decode(&slot.encode()), &slot);
            let decision = slot.decide(Gcra::new(rate, burst), key("newcomer"), now_ms);
            prop_assert_eq!(decision, Decision::Allow);
            prop_assert_eq!(&Slot::decode(&slot.encode()), &slot);
        }
    }
}
