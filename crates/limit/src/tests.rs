use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use proptest::prelude::*;

use super::*;

const NOW_MS: u64 = 1_700_000_000_000;
const YEAR_MS: u64 = 365 * 24 * 60 * 60 * 1_000;

const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::Gcra,
    Algorithm::SlidingWindow,
    Algorithm::FixedWindow,
    Algorithm::Concurrency,
];

fn quota(algorithm: Algorithm, rate: u32, per_ms: u64, burst: u32) -> Quota {
    Quota::new(algorithm, rate, per_ms, burst).unwrap()
}

fn gcra(rate: u32, per_ms: u64, burst: u32) -> Quota {
    quota(Algorithm::Gcra, rate, per_ms, burst)
}

fn key(name: &str) -> Fingerprint {
    Fingerprint::new(1, name.as_bytes())
}

/// One key, stored and read back between any two requests, as in a table.
struct Key {
    slot: Slot,
    quota: Quota,
}

impl Key {
    fn new(quota: Quota) -> Self {
        let slot = Slot::read(Vec::new(), &quota);
        Self { slot, quota }
    }

    fn state(&self, now_ms: u64) -> State {
        self.slot.state(&self.quota, key("k"), now_ms)
    }

    fn check(&self, cost: u32, now_ms: u64) -> Check {
        self.state(now_ms).check(&self.quota, cost)
    }

    /// Checks a request, and charges it if allowed.
    fn ask(&mut self, cost: u32, now_ms: u64) -> Check {
        let mut state = self.state(now_ms);
        let check = state.check(&self.quota, cost);
        if check.is_allowed() {
            state.charge(&self.quota, cost);
            self.store(&state, now_ms);
        }
        check
    }

    fn take_back(&mut self, cost: u32, mark: u64, now_ms: u64) {
        let mut state = self.state(now_ms);
        state.take_back(&self.quota, cost, mark);
        self.store(&state, now_ms);
    }

    fn store(&mut self, state: &State, now_ms: u64) {
        self.slot.put(&self.quota, key("k"), state, now_ms);
        self.slot = Slot::read(self.slot.as_bytes().to_vec(), &self.quota);
    }

    /// The number of passed requests among `count` at once.
    fn burst(&mut self, count: usize, now_ms: u64) -> usize {
        let requested = (0..count).filter(|_| self.ask(1, now_ms).is_allowed());
        requested.count()
    }
}

#[test]
fn gcra_allows_a_burst_and_then_the_rate() {
    let mut k = Key::new(gcra(5, 1_000, 3));
    assert_eq!(k.burst(10, NOW_MS), 3);
    let refused = k.check(1, NOW_MS);
    assert_eq!((refused.wait_ms, refused.remaining), (200, 0));
    assert_eq!(refused.reset_ms, 200);
    assert_eq!(k.check(1, NOW_MS + 199).wait_ms, 1);
    assert_eq!(k.burst(10, NOW_MS + 200), 1);
    assert_eq!(k.check(2, NOW_MS + 200).wait_ms, 400);
    assert_eq!(k.burst(10, NOW_MS + 800), 3);
}

#[test]
fn fixed_window_begins_at_a_multiple_of_its_period() {
    let mut k = Key::new(quota(Algorithm::FixedWindow, 3, 60_000, 9));
    let start_ms = NOW_MS - NOW_MS % 60_000;
    assert_eq!(k.burst(9, start_ms + 59_999), 3);
    assert_eq!(k.check(1, start_ms + 59_999).wait_ms, 1);
    assert_eq!(k.burst(9, start_ms + 60_000), 3);
    let refused = k.check(1, start_ms + 60_001);
    assert_eq!((refused.wait_ms, refused.reset_ms), (59_999, 59_999));
}

#[test]
fn sliding_window_forgets_a_burst_after_a_period() {
    let mut k = Key::new(quota(Algorithm::SlidingWindow, 3, 7_000, 9));
    assert_eq!(k.burst(9, NOW_MS), 3);
    assert_eq!(k.check(1, NOW_MS).wait_ms, 7_000);
    assert_eq!(k.burst(9, NOW_MS + 6_999), 0);
    assert_eq!(k.burst(9, NOW_MS + 7_000), 3);
    // Under overload, the lines lose no precision.
    let passed = (1..70_000).filter(|ms| k.ask(1, NOW_MS + 7_000 + ms).is_allowed());
    assert_eq!(passed.count(), 27);
}

#[test]
fn concurrency_counts_unfinished_requests() {
    let mut k = Key::new(quota(Algorithm::Concurrency, 2, 1_000, 9));
    let first = k.ask(1, NOW_MS);
    assert_eq!(k.burst(9, NOW_MS + 1_000), 1);
    assert_eq!(k.check(1, NOW_MS + 1_000).wait_ms, 1_000);
    k.take_back(1, first.mark, NOW_MS + 1_500);
    assert_eq!(k.burst(9, NOW_MS + 1_500), 1);
    // No event reports the end of these requests.
    assert_eq!(k.burst(9, NOW_MS + 2_999), 0);
    assert_eq!(k.burst(9, NOW_MS + 3_000), 2);
    k.take_back(1, first.mark, NOW_MS + 3_000);
    assert_eq!(k.burst(9, NOW_MS + 3_000), 0, "it had ended before");
}

#[test]
fn indivisible_rate_does_not_drift_in_a_year() {
    // Some hundred thousand requests, each at the exact time in the last refusal.
    for (rate, per_ms) in [(3, 1_000_000), (7, 1_999_993), (11, 1_000_003)] {
        let mut k = Key::new(gcra(rate, per_ms, 2));
        let (mut now_ms, mut passed) = (NOW_MS, 0);
        let expected = YEAR_MS * u64::from(rate) / per_ms;
        let mut has_waited = false;
        while now_ms < NOW_MS + YEAR_MS && passed <= expected + 3 {
            let check = k.ask(1, now_ms);
            assert!(
                check.is_allowed() || !has_waited,
                "it has waited as long as it was told"
            );
            has_waited = !check.is_allowed();
            passed += u64::from(check.is_allowed());
            now_ms += check.wait_ms;
        }
        // The burst, and the fraction of a request at the end of the year.
        assert!(
            (expected + 1..=expected + 3).contains(&passed),
            "{passed}, {expected}"
        );
    }
}

#[test]
fn quota_out_of_bounds_is_refused() {
    let refused = |algorithm, rate, per_ms, burst| Quota::new(algorithm, rate, per_ms, burst).err();
    let gcra = |rate, per_ms, burst| refused(Algorithm::Gcra, rate, per_ms, burst);
    assert_eq!(gcra(0, 1, 1), Some(QuotaError::Rate));
    assert_eq!(gcra(RATE_MAX + 1, 1, 1), Some(QuotaError::Rate));
    assert_eq!(gcra(1, 0, 1), Some(QuotaError::Per(PER_MS_MAX)));
    assert_eq!(
        gcra(1, PER_MS_MAX + 1, 1),
        Some(QuotaError::Per(PER_MS_MAX))
    );
    assert_eq!(gcra(1, 1, 0), Some(QuotaError::Burst));
    assert_eq!(gcra(1, 1, BURST_MAX + 1), Some(QuotaError::Burst));
    assert_eq!(gcra(1, PER_MS_MAX, BURST_MAX), Some(QuotaError::Ticks));
    assert_eq!(gcra(RATE_MAX, PER_MS_MAX, 100_000), None);
    // Exactly 2^52 ticks, and one period more.
    assert_eq!(gcra(1, 1 << 34, 1 << 18), None);
    assert_eq!(gcra(1, (1 << 34) + 1, 1 << 18), Some(QuotaError::Ticks));
    assert_eq!(gcra(1, 31_622_400_000, 1), None, "a leap year");
    let sliding = refused(Algorithm::SlidingWindow, 1, 2_592_000_000, 1);
    assert_eq!(sliding, None, "30 days");
    let sliding = refused(Algorithm::SlidingWindow, 1, SLIDING_PER_MS_MAX + 1, 1);
    assert_eq!(sliding, Some(QuotaError::Per(SLIDING_PER_MS_MAX)));
    assert_eq!(Quota::per_second(0, 0), Quota::per_second(1, 1));
    let most = Quota::per_second(u32::MAX, u32::MAX);
    assert_eq!((most.rate(), most.burst()), (RATE_MAX, BURST_MAX));
}

#[test]
fn small_backward_clock_step_grants_no_second_burst() {
    for algorithm in ALGORITHMS {
        let mut k = Key::new(quota(algorithm, 3, 10_000, 3));
        // A window's edge is between the two moments.
        assert_eq!(k.burst(9, NOW_MS), 3, "{algorithm:?}");
        assert_eq!(k.burst(9, NOW_MS - 1), 0, "{algorithm:?}");
        assert_eq!(k.burst(9, NOW_MS - SET_BACK_MS_MAX), 0, "{algorithm:?}");
        assert_eq!(k.burst(9, NOW_MS), 0, "{algorithm:?}");
        assert_eq!(
            k.burst(9, NOW_MS - YEAR_MS),
            3,
            "{algorithm:?}: another clock"
        );
    }
}

#[test]
fn state_is_useful_exactly_until_its_stated_time() {
    for (algorithm, idle_after_ms) in [
        (Algorithm::Gcra, 6_667),
        (Algorithm::SlidingWindow, 10_000),
        (Algorithm::FixedWindow, 8_766),
        (Algorithm::Concurrency, 18_766),
    ] {
        let quota = quota(algorithm, 3, 10_000, 3);
        let asked_ms = NOW_MS + 1_234;
        let mut state = State::new(&quota, asked_ms);
        assert!(state.idle_at_ms(&quota) <= asked_ms, "{algorithm:?}");
        state.charge(&quota, 2);
        let idle_at_ms = state.idle_at_ms(&quota);
        assert_eq!(idle_at_ms, asked_ms + idle_after_ms, "{algorithm:?}");
        let remaining = |now_ms| state.at(&quota, now_ms).check(&quota, 1).remaining;
        assert!(remaining(idle_at_ms - 1) < 3, "{algorithm:?}");
        assert_eq!(remaining(idle_at_ms), 3, "{algorithm:?}");
    }
}

#[test]
fn fully_returned_state_is_idle_immediately() {
    for algorithm in ALGORITHMS {
        let quota = quota(algorithm, 3, 10_000, 3);
        let mut state = State::new(&quota, NOW_MS);
        let check = state.check(&quota, 2);
        state.charge(&quota, 2);
        state.take_back(&quota, 2, check.mark);
        let state = state.at(&quota, NOW_MS + 1);
        assert!(state.idle_at_ms(&quota) <= NOW_MS + 1, "{algorithm:?}");
    }
}

#[test]
fn slot_has_its_documented_size_in_bytes() {
    // Including the eight bytes of a fingerprint in each place.
    let len = |algorithm| Slot::len(&quota(algorithm, 1, 1_000, 1));
    assert_eq!(
        ALGORITHMS.map(len),
        [24, 80, 16, 24].map(|state| WAYS * (8 + state))
    );
}

#[test]
fn changed_period_resets_the_count() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::Concurrency] {
        let mut k = Key::new(quota(algorithm, 3, 500, 3));
        assert_eq!(k.burst(9, NOW_MS + 500), 3, "{algorithm:?}");
        k.quota = quota(algorithm, 3, 1_000, 3);
        assert_eq!(k.burst(9, NOW_MS + 500), 3, "{algorithm:?}");
    }
}

#[test]
fn clock_set_back_lengthens_the_wait_by_the_difference() {
    let mut k = Key::new(gcra(5, 1_000, 3));
    assert_eq!(k.burst(9, NOW_MS), 3);
    let refused = k.check(1, NOW_MS - 500);
    assert_eq!((refused.wait_ms, refused.reset_ms), (700, 700));
    assert!(k.check(1, NOW_MS + 200).is_allowed());
}

#[test]
fn fraction_of_a_request_counts_whole_under_another_period() {
    let mut k = Key::new(gcra(6, 60_000, 6));
    assert_eq!(k.burst(9, NOW_MS), 6);
    // Half a request has recovered, then a whole one.
    for (later_ms, remaining) in [(5_000, 2), (10_000, 3)] {
        let mut k = Key {
            slot: k.slot.clone(),
            quota: k.quota,
        };
        let state = k.state(NOW_MS + later_ms);
        k.store(&state, NOW_MS + later_ms);
        k.quota = gcra(6, 1_000, 8);
        assert_eq!(k.check(1, NOW_MS + later_ms).remaining, remaining);
    }
}

#[test]
fn rate_change_keeps_the_state_and_bounds_the_wait() {
    let used_up = |algorithm| {
        let mut k = Key::new(quota(algorithm, 6, 60_000, 6));
        assert_eq!(k.burst(9, NOW_MS), 6);
        k
    };
    for algorithm in ALGORITHMS {
        let mut k = used_up(algorithm);
        k.quota = quota(algorithm, 8, 60_000, 8);
        assert_eq!(k.burst(9, NOW_MS), 2, "{algorithm:?}: two more");
        let mut k = used_up(algorithm);
        k.quota = quota(algorithm, 2, 60_000, 2);
        assert_eq!(k.burst(9, NOW_MS), 0, "{algorithm:?}");
        assert!(k.check(1, NOW_MS).wait_ms <= 60_000, "{algorithm:?}");
    }
    // GCRA stores its period.
    let mut k = used_up(Algorithm::Gcra);
    k.quota = gcra(6, 1_000, 8);
    assert_eq!(k.burst(9, NOW_MS), 2);
    assert_eq!(k.check(1, NOW_MS).wait_ms, 1_000_u64.div_ceil(6));
}

#[test]
fn full_slot_evicts_its_least_useful_state() {
    for algorithm in ALGORITHMS {
        let quota = quota(algorithm, 2, 60_000, 2);
        let names: Vec<_> = (0..=WAYS as u64).map(|n| key(&format!("u{n}"))).collect();
        let mut slot = Slot::read(Vec::new(), &quota);
        let mut spend = |user, now_ms| {
            let mut state = slot.state(&quota, user, now_ms);
            state.charge(&quota, 2);
            let has_lost = slot.put(&quota, user, &state, now_ms);
            (slot.clone(), has_lost)
        };
        for (n, user) in (0..).zip(&names[..WAYS]) {
            assert!(!spend(*user, NOW_MS + n * 60_000 / 16).1, "{algorithm:?}");
        }
        let now_ms = NOW_MS + 35_000;
        let (slot, has_lost) = spend(names[WAYS], now_ms);
        let is_known = |user| {
            !slot
                .state(&quota, user, now_ms)
                .check(&quota, 2)
                .is_allowed()
        };
        let existing = names.iter().filter(|user| is_known(**user)).count();
        assert!(has_lost && is_known(names[WAYS]), "{algorithm:?}");
        assert!(existing == WAYS && !is_known(names[0]), "{algorithm:?}");
    }
}

#[test]
fn states_of_another_clock_do_not_block_slots() {
    for algorithm in ALGORITHMS {
        let quota = quota(algorithm, 3, 1_000, 3);
        let mut slot = Slot::read(alloc::vec![0xff; Slot::len(&quota)], &quota);
        for n in 0..WAYS {
            let message = key(&format!("u{n}"));
            let mut state = slot.state(&quota, message, NOW_MS);
            state.charge(&quota, 3);
            assert!(!slot.put(&quota, message, &state, NOW_MS), "{algorithm:?}");
        }
        for n in 0..WAYS {
            let state = slot.state(&quota, key(&format!("u{n}")), NOW_MS);
            assert!(!state.check(&quota, 1).is_allowed(), "{algorithm:?} {n}");
        }
    }
}

#[test]
fn keys_spread_evenly_and_differently_under_another_seed() {
    let slot_of = |seed, n| Fingerprint::new(seed, format!("user-{n}").as_bytes()).slot(16);
    let mut counts = [0_u32; 16];
    let mut alike = 0;
    for n in 0..16_000 {
        counts[slot_of(1, n) as usize] += 1;
        alike += u32::from(slot_of(1, n) == slot_of(2, n));
    }
    let is_even = counts.iter().all(|count| (850..1_150).contains(count));
    assert!(is_even, "{counts:?}");
    assert!((850..1_150).contains(&alike), "{alike} of 16,000 by chance");
    assert_eq!(key("k").slot(0), 0);
}

/// A token bucket that is filled step by step: an equivalent of GCRA in exact fractions.
struct Bucket {
    /// In requests times `per_ms`.
    level: u128,
    at_ms: u64,
}

impl Bucket {
    fn take(&mut self, quota: &Quota, cost: u32, now_ms: u64) -> bool {
        let full = u128::from(quota.burst()) * u128::from(quota.per_ms());
        let filled = u128::from(now_ms - self.at_ms) * u128::from(quota.rate());
        self.level = (self.level + filled).min(full);
        self.at_ms = now_ms;
        let price = u128::from(cost) * u128::from(quota.per_ms());
        let may = self.level >= price;
        if may {
            self.level -= price;
        }
        may
    }
}

/// Pauses and costs: mostly short, some of several periods.
fn steps(per_ms: u64, cost_max: u32) -> impl Strategy<Value = Vec<(u64, u32)>> {
    let pause_ms = prop_oneof![
        6 => Just(0),
        6 => 0..=per_ms / 8 + 1,
        2 => 0..=per_ms + 1,
        1 => 0..=per_ms * 4,
    ];
    prop::collection::vec((pause_ms, 1..=cost_max), 1..120)
}

/// A quota and requests for it.
fn histories(algorithm: Algorithm) -> impl Strategy<Value = (Quota, Vec<(u64, u32)>)> {
    let numbers = (1..40_u32, 1..5_000_u64, 1..12_u32);
    let quotas =
        numbers.prop_map(move |(rate, per_ms, burst)| quota(algorithm, rate, per_ms, burst));
    quotas.prop_flat_map(|quota| {
        let costs = quota.burst().min(3);
        (Just(quota), steps(quota.per_ms(), costs))
    })
}

/// The passed requests: time and cost.
fn passed(quota: Quota, steps: &[(u64, u32)]) -> Vec<(u64, u64)> {
    let (mut k, mut now_ms) = (Key::new(quota), NOW_MS);
    let mut passed = Vec::new();
    for (pause_ms, cost) in steps {
        now_ms += pause_ms;
        if k.ask(*cost, now_ms).is_allowed() {
            passed.push((now_ms, u64::from(*cost)));
        }
    }
    passed
}

/// Whether the passed costs stay within `bound` for every time span.
fn is_within(passed: &[(u64, u64)], bound: impl Fn(u64) -> u64) -> bool {
    (0..passed.len()).all(|first| {
        let mut sum = 0;
        passed[first..].iter().all(|(at_ms, cost)| {
            sum += cost;
            sum <= bound(at_ms - passed[first].0)
        })
    })
}

proptest! {
    #[test]
    fn gcra_is_a_token_bucket((quota, steps) in histories(Algorithm::Gcra)) {
        let (mut k, mut now_ms) = (Key::new(quota), NOW_MS);
        let level = u128::from(quota.burst()) * u128::from(quota.per_ms());
        let mut bucket = Bucket { level, at_ms: NOW_MS };
        for (pause_ms, cost) in steps {
            now_ms += pause_ms;
            let remaining = k.check(cost, now_ms).remaining;
            prop_assert_eq!(k.ask(cost, now_ms).is_allowed(), bucket.take(&quota, cost, now_ms));
            prop_assert!(remaining <= quota.burst());
        }
    }

    #[test]
    fn gcra_admits_no_more_than_burst_and_rate_in_any_time((quota, steps) in histories(Algorithm::Gcra)) {
        let (rate, per_ms) = (u64::from(quota.rate()), quota.per_ms());
        let bound = |ms: u64| u64::from(quota.burst()) + ms * rate / per_ms;
        prop_assert!(is_within(&passed(quota, &steps), bound));
    }

    #[test]
    fn sliding_window_never_exceeds_the_rate_in_any_period(
        (quota, steps) in histories(Algorithm::SlidingWindow),
    ) {
        let passed = passed(quota, &steps);
        let is_in = |from: u64, at_ms: u64| (from..from + quota.per_ms()).contains(&at_ms);
        for (from, _) in &passed {
            let sum: u64 = passed.iter().filter(|(at, _)| is_in(*from, *at)).map(|(_, cost)| cost).sum();
            prop_assert!(sum <= u64::from(quota.rate()), "{} from {}", sum, from);
        }
    }

    /// Excess counts last at most a seventh of a period.
    #[test]
    fn sliding_window_allows_all_that_a_longer_exact_log_allows(
        (quota, steps) in histories(Algorithm::SlidingWindow),
    ) {
        let (mut k, mut now_ms) = (Key::new(quota), NOW_MS);
        let mut log: Vec<(u64, u64)> = Vec::new();
        let longer_ms = quota.per_ms() + quota.per_ms().div_ceil(7);
        for (pause_ms, cost) in steps {
            now_ms += pause_ms;
            let counted: u64 = log.iter().filter(|(at, _)| at + longer_ms > now_ms).map(|(_, cost)| cost).sum();
            let is_allowed = k.ask(cost, now_ms).is_allowed();
            prop_assert!(is_allowed || counted + u64::from(cost) > u64::from(quota.rate()));
            if is_allowed {
                log.push((now_ms, cost.into()));
            }
        }
    }

    #[test]
    fn fixed_window_equals_a_count_by_period((quota, steps) in histories(Algorithm::FixedWindow)) {
        let (mut k, mut now_ms) = (Key::new(quota), NOW_MS);
        let mut counts = alloc::collections::BTreeMap::<u64, u32>::new();
        for (pause_ms, cost) in steps {
            now_ms += pause_ms;
            let cost = cost.min(quota.rate());
            let count = counts.entry(now_ms / quota.per_ms()).or_default();
            let may = *count + cost <= quota.rate();
            *count += if may { cost } else { 0 };
            prop_assert_eq!(k.ask(cost, now_ms).is_allowed(), may);
        }
    }

    /// Requests begin and end in any order; none lasts longer than a period.
    #[test]
    fn concurrency_count_equals_the_requests_in_flight(
        rate in 1..8_u32, per_ms in 10..2_000_u64, steps in prop::collection::vec((0..10_u64, any::<bool>()), 1..200),
    ) {
        let mut k = Key::new(quota(Algorithm::Concurrency, rate, per_ms, 1));
        let (mut now_ms, mut under_way) = (NOW_MS, BTreeSet::new());
        for (serial, (pause, begins)) in steps.into_iter().enumerate() {
            now_ms += pause * per_ms / 100;
            // The oldest ends before it is a period old, or on request.
            while let Some((at_ms, _, mark)) = under_way.first().copied()
                && (at_ms + per_ms <= now_ms || !begins && serial % 2 == 0)
            {
                under_way.pop_first();
                k.take_back(1, mark, now_ms);
                if at_ms + per_ms > now_ms {
                    break;
                }
            }
            if begins {
                let check = k.ask(1, now_ms);
                prop_assert_eq!(check.is_allowed(), (under_way.len() as u32) < rate);
                if check.is_allowed() {
                    under_way.insert((now_ms, serial, check.mark));
                }
            }
        }
    }

    #[test]
    fn request_passes_after_stated_wait_and_quota_returns_on_time(
        (quota, steps) in prop_oneof![
            histories(Algorithm::Gcra), histories(Algorithm::SlidingWindow), histories(Algorithm::FixedWindow),
        ],
    ) {
        let (mut k, mut now_ms) = (Key::new(quota), NOW_MS);
        for (pause_ms, cost) in steps {
            now_ms += pause_ms;
            let cost = cost.min(quota.burst());
            let check = k.ask(cost, now_ms);
            if !check.is_allowed() {
                prop_assert!(!k.check(cost, now_ms + check.wait_ms - 1).is_allowed());
                prop_assert!(k.check(cost, now_ms + check.wait_ms).is_allowed());
                // More quota is available at the latest when the request may pass.
                prop_assert!((1..=check.wait_ms).contains(&check.reset_ms));
            }
            let remaining = |at_ms: u64| k.check(cost, at_ms).remaining;
            match k.check(cost, now_ms).reset_ms {
                0 => prop_assert_eq!(remaining(now_ms), quota.burst()),
                reset_ms => {
                    prop_assert_eq!(remaining(now_ms + reset_ms - 1), remaining(now_ms));
                    prop_assert!(remaining(now_ms + reset_ms) > remaining(now_ms));
                }
            }
        }
    }

    #[test]
    fn immediately_returned_charge_leaves_no_trace(
        (quota, steps) in prop_oneof![
            histories(Algorithm::Gcra), histories(Algorithm::SlidingWindow),
            histories(Algorithm::FixedWindow), histories(Algorithm::Concurrency),
        ],
    ) {
        let (mut k, mut other, mut now_ms) = (Key::new(quota), Key::new(quota), NOW_MS);
        for (pause_ms, cost) in steps {
            now_ms += pause_ms;
            prop_assert_eq!(k.ask(cost, now_ms).is_allowed(), other.check(cost, now_ms).is_allowed());
            let check = other.check(cost, now_ms);
            if check.is_allowed() {
                // Checked twice, and undone once.
                let mut state = other.state(now_ms);
                state.charge(&quota, cost);
                state.charge(&quota, cost);
                state.take_back(&quota, cost, check.mark);
                other.store(&state, now_ms);
            }
        }
    }

    #[test]
    fn arbitrary_input_never_panics_and_new_clients_pass(
        bytes in prop::collection::vec(any::<u8>(), 0..=WAYS * 88), whole: bool, which in 0..4_usize,
        rate in 1..=RATE_MAX, per_ms in 1..=SLIDING_PER_MS_MAX, cost: u32, now_ms: u64, mark: u64,
    ) {
        let quota = quota(ALGORITHMS[which], rate, per_ms, 1);
        let mut bytes = bytes;
        if whole {
            bytes.resize(Slot::len(&quota), 0x5a);
        }
        let mut slot = Slot::read(bytes, &quota);
        let mut state = slot.state(&quota, key("newcomer"), now_ms);
        prop_assert!(state.check(&quota, cost).is_allowed());
        state.charge(&quota, cost);
        slot.put(&quota, key("newcomer"), &state, now_ms);
        prop_assert_eq!(slot.state(&quota, key("newcomer"), now_ms), state);
        // Whatever bytes a place contains, no key is refused for longer than two periods and a set-back.
        for place in 0..WAYS {
            let name = slot.as_bytes()[place * Slot::len(&quota) / WAYS..].first_chunk().copied().unwrap();
            let mut found = slot.state(&quota, Fingerprint::of_bytes(name), now_ms);
            let wait_ms = found.check(&quota, 1).wait_ms;
            prop_assert!(wait_ms <= 2 * per_ms + 2 * SET_BACK_MS_MAX, "{:?}", found);
            found.take_back(&quota, cost, mark);
            found.charge(&quota, cost);
            slot.put(&quota, Fingerprint::of_bytes(name), &found, now_ms);
        }
    }
}
