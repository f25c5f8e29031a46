use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;

const SETTINGS: Settings = Settings {
    window_ms: 800,
    min_requests: 4,
    failure_percent: 50,
    open_ms: 1_000,
    probes: 2,
};

fn passed(breaker: &mut Breaker, now_ms: u64) -> Pass {
    match breaker.permit(now_ms) {
        Permit::Pass(pass) => pass,
        Permit::Refuse { .. } => panic!("refused at {now_ms}"),
    }
}

fn once(breaker: &mut Breaker, now_ms: u64, outcome: Outcome) {
    let pass = passed(breaker, now_ms);
    breaker.record(now_ms, pass, outcome);
}

fn refused(retry_after_ms: u64) -> Permit {
    Permit::Refuse { retry_after_ms }
}

/// A breaker that opened at `now_ms`.
fn opened(now_ms: u64) -> Breaker {
    let mut breaker = Breaker::new(SETTINGS);
    for _ in 0..4 {
        once(&mut breaker, now_ms, Outcome::Failure);
    }
    assert_eq!(breaker.state(), State::Open);
    breaker
}

#[test]
fn breaker_opens_at_failure_percentage_of_enough_requests() {
    let mut breaker = Breaker::new(SETTINGS);
    for outcome in [Outcome::Failure, Outcome::Failure, Outcome::Success] {
        once(&mut breaker, 10, outcome);
    }
    assert_eq!(breaker.state(), State::Closed, "three say too little");
    once(&mut breaker, 10, Outcome::Success);
    assert_eq!(breaker.state(), State::Open, "two of four are half");

    let mut breaker = Breaker::new(SETTINGS);
    for n in 0..100 {
        let is_bad = n % 5 >= 3 && n > 3;
        let outcome = [Outcome::Success, Outcome::Failure][usize::from(is_bad)];
        once(&mut breaker, 10, outcome);
    }
    assert_eq!(breaker.state(), State::Closed, "two of five are not half");
}

/// A caller that measures only wanted outcomes; returns whether this one was wanted.
fn once_if_wanted(breaker: &mut Breaker, now_ms: u64, outcome: Outcome) -> bool {
    let pass = passed(breaker, now_ms);
    let count = breaker.wants(pass);
    if count > 0 {
        breaker.record_sample(now_ms, pass, outcome, count);
    }
    count > 0
}

#[test]
fn one_outcome_in_eight_is_sampled_without_failures() {
    let mut breaker = Breaker::new(SETTINGS);
    let mut expected = |outcome, count: u32| {
        let is_wanted = |_: &u32| once_if_wanted(&mut breaker, 10, outcome);
        (0..count).filter(is_wanted).count()
    };
    assert_eq!(expected(Outcome::Success, 4), 4, "too few to judge by");
    assert_eq!(expected(Outcome::Success, 80), 10);
    assert_eq!(expected(Outcome::Failure, 8), 1, "seen late");
    assert_eq!(
        expected(Outcome::Success, 80),
        80,
        "a failure is among them"
    );
    for now_ms in [900, 1_000] {
        assert!(once_if_wanted(&mut breaker, now_ms, Outcome::Success));
    }
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn probe_outcomes_count_only_in_their_own_round() {
    let mut breaker = Breaker::new(SETTINGS);
    let early = passed(&mut breaker, 0);
    for _ in 0..4 {
        once(&mut breaker, 0, Outcome::Failure);
    }
    assert_eq!(breaker.wants(early), 0);
    let probe = passed(&mut breaker, 1_000);
    assert_eq!(breaker.wants(probe), 1);
}

#[test]
fn sampled_outcomes_preserve_the_failure_percentage() {
    let mut breaker = Breaker::new(SETTINGS);
    for _ in 0..4 + 80 {
        once_if_wanted(&mut breaker, 10, Outcome::Success);
    }
    for n in 0..7 + 83 {
        once_if_wanted(&mut breaker, 10, Outcome::Failure);
        assert_eq!(
            breaker.state(),
            State::Closed,
            "{n} after 84 that were well"
        );
    }
    once_if_wanted(&mut breaker, 10, Outcome::Failure);
    assert_eq!(breaker.state(), State::Open, "84 of 168 are half");
}

#[test]
fn old_failures_are_forgotten() {
    let mut breaker = Breaker::new(SETTINGS);
    for now_ms in [0, 100, 200, 850, 950] {
        once(&mut breaker, now_ms, Outcome::Failure);
        if now_ms == 200 {
            assert_eq!(breaker.state(), State::Closed);
        }
    }
    assert_eq!(breaker.state(), State::Closed, "of five, two were too old");
    once(&mut breaker, 960, Outcome::Failure);
    assert_eq!(breaker.state(), State::Open);
}

#[test]
fn open_breaker_returns_retry_time_and_then_permits_probes() {
    let mut breaker = opened(5_000);
    assert_eq!(breaker.permit(5_000), refused(1_000));
    assert_eq!(breaker.permit(5_999), refused(1));
    let probes = [passed(&mut breaker, 6_000), passed(&mut breaker, 6_100)];
    assert!(probes.iter().all(|pass| pass.is_probe()));
    assert_eq!(breaker.permit(6_100), refused(900));
    breaker.record(6_200, probes[0], Outcome::Success);
    assert_eq!(breaker.state(), State::HalfOpen);
    breaker.record(6_200, probes[1], Outcome::Success);
    assert_eq!(breaker.state(), State::Closed);
    assert!(!passed(&mut breaker, 6_200).is_probe());
}

#[test]
fn one_failed_probe_reopens_the_breaker() {
    let mut breaker = opened(0);
    let probes = [passed(&mut breaker, 1_000), passed(&mut breaker, 1_000)];
    breaker.record(1_010, probes[0], Outcome::Failure);
    assert_eq!(breaker.permit(1_010), refused(1_000));
    breaker.record(1_020, probes[1], Outcome::Success);
    assert_eq!(breaker.state(), State::Open);
}

#[test]
fn probes_without_outcome_are_replaced_after_the_open_time() {
    let mut breaker = opened(0);
    let lost = [passed(&mut breaker, 1_000), passed(&mut breaker, 1_000)];
    assert_eq!(breaker.permit(1_999), refused(1));
    let probe = passed(&mut breaker, 2_000);
    for late in lost {
        breaker.record(2_000, late, Outcome::Success);
    }
    assert_eq!(breaker.state(), State::HalfOpen, "theirs was another round");
    breaker.record(2_000, probe, Outcome::Success);
    once(&mut breaker, 2_000, Outcome::Success);
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn outcomes_of_requests_before_opening_are_ignored_afterwards() {
    let mut breaker = Breaker::new(SETTINGS);
    let slow: Vec<Pass> = (0..9).map(|_| passed(&mut breaker, 0)).collect();
    for _ in 0..4 {
        once(&mut breaker, 0, Outcome::Failure);
    }
    let probe = passed(&mut breaker, 1_000);
    breaker.record(1_000, slow[0], Outcome::Failure);
    breaker.record(1_000, slow[1], Outcome::Success);
    breaker.record(1_000, slow[2], Outcome::Success);
    assert_eq!(breaker.state(), State::HalfOpen);
    breaker.record(2_000, probe, Outcome::Success);
    once(&mut breaker, 2_000, Outcome::Success);
    for late in &slow[3..] {
        breaker.record(2_000, *late, Outcome::Failure);
    }
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn clock_set_back_does_not_extend_the_open_time() {
    let mut breaker = opened(u64::MAX);
    assert_eq!(breaker.permit(7_000), refused(1_000));
    assert_eq!(breaker.permit(7_400), refused(600));
    assert!(passed(&mut breaker, 8_000).is_probe());
    assert!(passed(&mut breaker, 0).is_probe());
    assert_eq!(breaker.permit(0), refused(1_000));
}

#[test]
fn invalid_breaker_settings_are_clamped_to_valid_values() {
    let mut breaker = Breaker::new(Settings {
        window_ms: 0,
        min_requests: 0,
        failure_percent: 0,
        open_ms: 0,
        probes: 0,
    });
    once(&mut breaker, 1, Outcome::Success);
    assert_eq!(breaker.state(), State::Closed);
    once(&mut breaker, 1, Outcome::Failure);
    assert_eq!(breaker.state(), State::Open);
    once(&mut breaker, 1, Outcome::Success);
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn each_breaker_state_has_a_metric_label() {
    assert_eq!(
        State::ALL.map(State::label),
        ["closed", "open", "half_open"]
    );
}

/// A model of the breaker that computes its state from the full history.
struct Model {
    settings: Settings,
    state: State,
    entered_ms: u64,
    /// The passes of this state or round, each with the time and value of its outcome.
    passes: Vec<Option<(u64, Outcome)>>,
}

impl Model {
    fn enter(&mut self, state: State, now_ms: u64) {
        (self.state, self.entered_ms) = (state, now_ms);
        self.passes.clear();
    }

    fn permits(&mut self, now_ms: u64) -> bool {
        let all_sent = self.passes.len() as u32 == self.settings.probes;
        let is_over = now_ms - self.entered_ms >= self.settings.open_ms;
        match self.state {
            State::Closed => {}
            State::Open if !is_over => return false,
            State::HalfOpen if all_sent && !is_over => return false,
            State::HalfOpen if !all_sent => {}
            State::Open | State::HalfOpen => self.enter(State::HalfOpen, now_ms),
        }
        self.passes.push(None);
        true
    }

    fn record(&mut self, index: usize, now_ms: u64, outcome: Outcome) {
        self.passes[index] = Some((now_ms, outcome));
        let part_ms = self.settings.window_ms.div_ceil(8);
        let is_young = |at_ms: u64| now_ms / part_ms - at_ms / part_ms < 8;
        let existing = self.passes.iter().flatten();
        let count = |which: fn(Outcome) -> bool, all: bool| {
            let counts = |(at_ms, o): &&(u64, Outcome)| (all || is_young(*at_ms)) && which(*o);
            existing.clone().filter(counts).count() as u32
        };
        let is_failure = |outcome| outcome == Outcome::Failure;
        match self.state {
            State::Closed => {
                let (all, bad) = (count(|_| true, false), count(is_failure, false));
                let percent = self.settings.failure_percent;
                if all >= self.settings.min_requests && bad * 100 >= all * percent {
                    self.enter(State::Open, now_ms);
                }
            }
            State::HalfOpen if count(is_failure, true) > 0 => self.enter(State::Open, now_ms),
            State::HalfOpen if count(|_| true, true) == self.settings.probes => {
                self.enter(State::Closed, now_ms);
            }
            State::Open | State::HalfOpen => {}
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Ask,
    /// The outcome of one pending request, and whether it is a failure.
    Answer(prop::sample::Index, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..400_u64).prop_map(Step::Wait),
        4 => Just(Step::Ask),
        4 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(i, f)| Step::Answer(i, f)),
    ]
}

proptest! {
    /// Sampling delays the opening by at most the seven skipped requests.
    #[test]
    fn sampling_delays_opening_by_at_most_seven_requests(before in 0..500_u32) {
        let failures_until_open = |once: fn(&mut Breaker, u64, Outcome) -> bool| {
            let mut breaker = Breaker::new(SETTINGS);
            for _ in 0..before {
                once(&mut breaker, 10, Outcome::Success);
            }
            let is_closed = |_: &u32| {
                once(&mut breaker, 10, Outcome::Failure);
                breaker.state() == State::Closed
            };
            (1..2_000).take_while(is_closed).count()
        };
        let always = failures_until_open(|breaker, now_ms, outcome| {
            once(breaker, now_ms, outcome);
            true
        });
        let expected = failures_until_open(once_if_wanted);
        prop_assert!(expected <= always + 7, "{expected}, {always}");
    }
}

proptest! {
    #[test]
    fn breaker_agrees_with_a_full_history_model(
        steps in prop::collection::vec(step(), 0..300),
        window_ms in 1..1_500_u64, min_requests in 1..8_u32, failure_percent in 1..=100_u32,
        open_ms in 0..900_u64, probes in 1..4_u32, start_ms in 0..u64::from(u32::MAX),
    ) {
        let settings = Settings { window_ms, min_requests, failure_percent, open_ms, probes };
        let mut breaker = Breaker::new(settings);
        let mut now_ms = start_ms;
        let mut model = Model { settings, state: State::Closed, entered_ms: 0, passes: Vec::new() };
        // Each with its index in the model's passes, and the model's round.
        let mut under_way: Vec<(Pass, usize)> = Vec::new();
        for step in steps {
            match step {
                Step::Wait(ms) => now_ms += ms,
                Step::Ask => match breaker.permit(now_ms) {
                    Permit::Pass(pass) => {
                        prop_assert!(model.permits(now_ms));
                        prop_assert_eq!(pass.is_probe(), model.state == State::HalfOpen);
                        under_way.push((pass, model.passes.len() - 1));
                    }
                    Permit::Refuse { retry_after_ms } => {
                        prop_assert!(!model.permits(now_ms));
                        prop_assert_eq!(retry_after_ms, model.entered_ms + open_ms - now_ms);
                    }
                },
                Step::Answer(which, is_failure) if !under_way.is_empty() => {
                    let (pass, index) = under_way.swap_remove(which.index(under_way.len()));
                    let outcome = [Outcome::Success, Outcome::Failure][usize::from(is_failure)];
                    let is_of_now = pass.round == breaker.round;
                    breaker.record(now_ms, pass, outcome);
                    if is_of_now {
                        model.record(index, now_ms, outcome);
                    }
                }
                Step::Answer(..) => {}
            }
            prop_assert_eq!(breaker.state(), model.state);
        }
    }

    #[test]
    fn arbitrary_clock_never_panics_or_keeps_the_breaker_open(
        times in prop::collection::vec((any::<u64>(), any::<bool>()), 0..200),
    ) {
        let mut breaker = Breaker::new(SETTINGS);
        for (now_ms, is_failure) in times {
            if let Permit::Pass(pass) = breaker.permit(now_ms) {
                let outcome = [Outcome::Success, Outcome::Failure][usize::from(is_failure)];
                breaker.record(now_ms, pass, outcome);
            }
        }
        // After any change of the clock, 1 s is enough for a new try.
        breaker.permit(50);
        prop_assert!(matches!(breaker.permit(1_050), Permit::Pass(_)));
    }
}
