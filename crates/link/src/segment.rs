//! Allocates the numbers of generated codes.
//!
//! All origins share one counter per length. An origin that needs numbers increments it by the length of a [`Segment`];
//! the counter's previous value determines the numbers ([`Plan::segment_at`]). After the last number, the counter
//! continues and the numbers start again: a new *round*. In a new round, a segment is reused only if all its links are
//! gone: see [`SegmentUse`].

use core::ops::Range;

use super::code::Length;

/// How the numbers of one length are split into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    length: Length,
    range: u64,
    segment_len: u64,
}

/// A range of numbers that one origin has reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Segment {
    /// The length of their codes.
    pub length: Length,
    /// The number of completed rounds before it.
    pub round: u64,
    /// The first number.
    pub start: u64,
    /// The number of numbers: at least one.
    pub len: u64,
}

/// Maximum result of [`Plan::days_left`]: ten years.
pub const DAYS_LEFT_MAX: u64 = 3_650;

const DAY_MS: u128 = 24 * 60 * 60 * 1000;

/// How fast the numbers of one length are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberUse {
    /// Lifetime of a link, in milliseconds; `None`: permanent.
    pub life_ms: Option<u64>,
    /// How many numbers the counter has passed within that lifetime. Each of them may have a link.
    pub in_life: u64,
    /// How many numbers it has passed within the last day.
    pub in_day: u64,
}

/// How long numbers stay unavailable to other origins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// How long an origin may use the numbers of a segment after reserving it, in milliseconds. Unused numbers are then
    /// skipped.
    pub hold_ms: u64,
    /// How long a code stays unused after its link has ended, in milliseconds. Longer than gateways cache a link, and
    /// longer than the clock skew between origins.
    pub quarantine_ms: u64,
}

/// The state of a segment that was reserved in an earlier round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentUse {
    /// When it was last reserved, in milliseconds since the Unix epoch.
    pub reserved_at_ms: u64,
    /// Whether the cold store has a link of it, ended ones included. Cleanup deletes these after the quarantine.
    pub is_in_store: bool,
    /// Whether Redis has a link of it.
    pub is_in_redis: bool,
}

/// Why a segment is not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// An origin that reserved it in an earlier round may still use it.
    InUse,
    /// It has links.
    HasLinks,
}

impl SkipReason {
    /// All reasons.
    pub const ALL: [Self; 2] = [Self::InUse, Self::HasLinks];

    /// The metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::InUse => "in_use",
            Self::HasLinks => "has_links",
        }
    }
}

impl Default for Times {
    /// One day, and one hour.
    fn default() -> Self {
        Self {
            hold_ms: 24 * 60 * 60 * 1000,
            quarantine_ms: 60 * 60 * 1000,
        }
    }
}

impl Plan {
    /// All codes of `length`: segments of 1,000 numbers for the shortest length, of 10,000 for the others.
    pub const fn standard(length: Length) -> Self {
        let is_shortest = length.digits() == Length::MIN.digits();
        Self {
            length,
            range: length.capacity(),
            segment_len: if is_shortest { 1_000 } else { 10_000 },
        }
    }

    /// The first `range` codes of `length`, in segments of `segment_len`. `None` if `range` exceeds the capacity, or if
    /// a number is 0.
    pub fn new(length: Length, range: u64, segment_len: u64) -> Option<Self> {
        let is_sound = (1..=length.capacity()).contains(&range) && segment_len > 0;
        let plan = Self {
            length,
            range,
            segment_len,
        };
        is_sound.then_some(plan)
    }

    /// The length of the codes.
    pub const fn length(&self) -> Length {
        self.length
    }

    /// The number of codes in a round.
    pub const fn range(&self) -> u64 {
        self.range
    }

    /// The counter's increment per segment. The last segment of a round may have fewer numbers.
    pub const fn segment_len(&self) -> u64 {
        self.segment_len
    }

    /// The counter's increment per round.
    fn span(&self) -> u64 {
        let segments = self.range.div_ceil(self.segment_len);
        segments.saturating_mul(self.segment_len).max(1)
    }

    /// The segment that starts at the counter's previous value `position`. If the counter was set by hand to within a
    /// segment, this is the next one, so that increments always give whole segments.
    pub fn segment_at(&self, position: u64) -> Segment {
        let span = self.span();
        let aligned = position
            .div_ceil(self.segment_len)
            .saturating_mul(self.segment_len);
        let (round, start) = (aligned / span, aligned % span);
        // Saturated: real counters never reach this value. The result stays within the range.
        let start = start.min(self.range - 1);
        Segment {
            length: self.length,
            round,
            start,
            len: self.segment_len.min(self.range - start),
        }
    }

    /// How many numbers the counter passes from the beginning of `first` to the end of `last`.
    pub fn numbers_between(&self, first: &Segment, last: &Segment) -> u64 {
        let before = self.position_after(first).saturating_sub(self.segment_len);
        self.position_after(last).saturating_sub(before)
    }

    /// How many numbers are certainly free, if each link lives for `usage.life_ms`.
    pub fn numbers_left(&self, usage: &NumberUse) -> u64 {
        self.range.saturating_sub(usage.in_life)
    }

    /// The days until no number is left at the rate of the last day, at most [`DAYS_LEFT_MAX`].
    pub fn days_left(&self, usage: &NumberUse) -> u64 {
        let (in_day, in_life) = (u128::from(usage.in_day), u128::from(usage.in_life));
        // The numbers freed per day, and the numbers in use in the long run, at the last day's rate.
        let (freed, in_use) = match usage.life_ms.map(|ms| u128::from(ms.max(1))) {
            Some(life_ms) => (in_life * DAY_MS / life_ms, in_day * life_ms / DAY_MS),
            None => (0, u128::MAX),
        };
        let remaining = self.numbers_left(usage);
        if remaining > 0 && (in_day == 0 || in_use <= u128::from(self.range)) {
            return DAYS_LEFT_MAX;
        }
        let net = in_day.saturating_sub(freed).max(1);
        u64::try_from(u128::from(remaining) / net)
            .map_or(DAYS_LEFT_MAX, |days| days.min(DAYS_LEFT_MAX))
    }

    /// The counter's value if this is the last reserved segment.
    pub fn position_after(&self, segment: &Segment) -> u64 {
        let start = segment.start - segment.start % self.segment_len;
        let before = segment.round.saturating_mul(self.span());
        before
            .saturating_add(start)
            .saturating_add(self.segment_len)
    }
}

impl Segment {
    /// Its numbers.
    pub fn indexes(&self) -> Range<u64> {
        self.start..self.start.saturating_add(self.len)
    }
}

impl SegmentUse {
    /// Whether the segment may be handed out again.
    ///
    /// # Errors
    /// If the segment cannot be reused, with the reason.
    pub fn may_be_reused(&self, times: &Times, now_ms: u64) -> Result<(), SkipReason> {
        let free_from_ms = self
            .reserved_at_ms
            .saturating_add(times.hold_ms)
            .saturating_add(times.quarantine_ms);
        if now_ms < free_from_ms {
            return Err(SkipReason::InUse);
        }
        let has_links = self.is_in_store || self.is_in_redis;
        if has_links {
            Err(SkipReason::HasLinks)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn plan(range: u64, segment_len: u64) -> Plan {
        Plan::new(Length::MIN, range, segment_len).unwrap()
    }

    #[test]
    fn segment_lengths_match_the_design() {
        let lens = Length::ALL.map(|length| Plan::standard(length).segment_len());
        assert_eq!(lens, [1_000, 10_000, 10_000, 10_000]);
        assert_eq!(Plan::new(Length::MIN, 0, 1), None);
        assert_eq!(Plan::new(Length::MIN, 1, 0), None);
        assert_eq!(Plan::new(Length::MIN, Length::MIN.capacity() + 1, 1), None);
    }

    #[test]
    fn last_segment_of_round_is_cut_and_next_starts_new_round() {
        let plan = Plan::standard(Length::MIN);
        let last = plan.segment_at(916_132_000);
        assert_eq!((last.round, last.start, last.len), (0, 916_132_000, 832));
        let next = plan.segment_at(plan.position_after(&last));
        assert_eq!((next.round, next.start, next.len), (1, 0, 1_000));
    }

    #[test]
    fn maximum_counter_gives_a_number_within_the_range() {
        let plan = plan(1, 7);
        let last = plan.segment_at(u64::MAX);
        assert_eq!((last.start, last.len), (0, 1));
    }

    #[test]
    fn segment_that_starts_inside_another_ends_with_it() {
        let plan = plan(10, 4);
        assert_eq!((plan.range(), plan.length()), (10, Length::MIN));
        let cut = Segment {
            length: Length::MIN,
            round: 0,
            start: 5,
            len: 1,
        };
        assert_eq!(plan.position_after(&cut), 8);
    }

    #[test]
    fn estimated_number_exhaustion_follows_the_usage() {
        let plan = Plan::standard(Length::MIN);
        let days_left = |life_days: u64, in_life: u64, in_day: u64| {
            let life_ms = (life_days > 0).then_some(life_days * 86_400_000);
            let usage = NumberUse {
                life_ms,
                in_life,
                in_day,
            };
            (plan.numbers_left(&usage), plan.days_left(&usage))
        };
        // 90 million a day for 10 days are 900 million, of 916 million.
        assert_eq!(days_left(10, 900_000_000, 90_000_000), (16_132_832, 3_650));
        // 30 days are too long: the rate exceeds the freed numbers by 3 million a day.
        assert_eq!(days_left(30, 810_000_000, 30_000_000), (106_132_832, 3_650));
        assert_eq!(days_left(30, 810_000_000, 31_000_000), (106_132_832, 26));
        assert_eq!(days_left(0, 816_132_832, 10_000_000), (100_000_000, 10));
        assert_eq!(days_left(0, 816_132_832, 0), (100_000_000, 3_650));
        for in_day in [0, 1, 90_000_000] {
            assert_eq!(days_left(10, 916_132_832, in_day), (0, 0));
            assert_eq!(days_left(0, u64::MAX, in_day), (0, 0));
        }
    }

    #[test]
    fn numbers_between_segments_are_counted_across_rounds() {
        let plan = plan(10, 4);
        let segment = |position| plan.segment_at(position);
        assert_eq!(plan.numbers_between(&segment(0), &segment(0)), 4);
        // A round ends at 12: its last segment has two numbers.
        assert_eq!(plan.numbers_between(&segment(4), &segment(16)), 16);
        assert_eq!(plan.numbers_between(&segment(8), &segment(0)), 0);
    }

    #[test]
    fn skip_reasons_have_distinct_labels() {
        let words = SkipReason::ALL.map(SkipReason::label);
        assert_eq!(words, ["in_use", "has_links"]);
    }

    proptest! {
        /// Rounds follow each other without gaps, duplicates or numbers out of range.
        #[test]
        fn round_contains_every_number_once(range in 1..500_u64, segment_len in 1..60_u64, first in 0..4_u64) {
            let plan = plan(range, segment_len);
            let (mut position, mut numbers) = (0, BTreeSet::new());
            loop {
                let segment = plan.segment_at(position);
                prop_assert!(segment.len >= 1);
                if segment.round > first {
                    break;
                }
                if segment.round == first {
                    for index in segment.indexes() {
                        prop_assert!(numbers.insert(index), "{} twice", index);
                    }
                }
                prop_assert_eq!(plan.position_after(&segment), position + segment_len);
                position = plan.position_after(&segment);
            }
            prop_assert!(numbers.into_iter().eq(0..range));
        }

        /// A counter with an arbitrary value still gives numbers within the range.
        #[test]
        fn any_position_gives_a_segment_within_the_range(
            range in 1..500_u64, segment_len in 1..60_u64, position in any::<u64>()
        ) {
            let segment = plan(range, segment_len).segment_at(position);
            prop_assert!(segment.len >= 1 && segment.indexes().end <= range, "{:?}", segment);
        }

        /// A counter set by hand to within a segment gives whole segments: no duplicates.
        #[test]
        fn segments_start_at_segment_boundaries(range in 1..500_u64, len in 1..60_u64, by_hand in 0..9_999_u64) {
            let plan = plan(range, len);
            let (one, next) = (plan.segment_at(by_hand), plan.segment_at(by_hand + len));
            prop_assert_eq!(one.start % len, 0);
            prop_assert_eq!(plan.segment_at(plan.position_after(&one)), next);
        }
    }

    #[test]
    fn segment_is_reused_only_when_its_numbers_are_unused() {
        let times = Times {
            hold_ms: 100,
            quarantine_ms: 10,
        };
        let held = SegmentUse {
            reserved_at_ms: 1_000,
            is_in_store: false,
            is_in_redis: false,
        };
        assert_eq!(held.may_be_reused(&times, 1_109), Err(SkipReason::InUse));
        assert_eq!(held.may_be_reused(&times, 1_110), Ok(()));
        for (is_in_store, is_in_redis) in [(true, false), (false, true), (true, true)] {
            let held = SegmentUse {
                is_in_store,
                is_in_redis,
                ..held
            };
            assert_eq!(held.may_be_reused(&times, 9_999), Err(SkipReason::HasLinks));
        }
    }
}
