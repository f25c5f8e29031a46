//! Rate limits in Redis against the model, which is [`weir_core::limit`]: the same histories on both,
//! every answer compared, and when each key expires.

mod support;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};
use support::{Redis, Server};
use weir_core::limit::{
    Algorithm, PER_MS_MAX, Quota, RATE_MAX, SET_BACK_MS_MAX, SLIDING_PER_MS_MAX, State,
};
use weir_resp::Value;
use weir_scripts::keys::LimitKey;
use weir_scripts::limit::{Answer, Ask};
use weir_scripts::limit_back::Charge;
use weir_scripts::{Call, limit, limit_back};

const NOW_MS: u64 = 1_700_000_000_000;

const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::Gcra,
    Algorithm::SlidingWindow,
    Algorithm::FixedWindow,
    Algorithm::Concurrency,
];

fn quota(algorithm: Algorithm, rate: u32, per_ms: u64, burst: u32) -> Quota {
    Quota::new(algorithm, rate, per_ms, burst).unwrap()
}

/// A key that no other test has.
fn new_key() -> LimitKey {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = u128::from(NEXT.fetch_add(1, Ordering::Relaxed));
    LimitKey::new("limits", "rule", number.to_be_bytes())
}

/// What the model keeps of a key.
#[derive(Clone, Copy)]
struct Kept {
    state: State,
    /// Under which it was charged.
    quota: Quota,
    /// When Redis may forget it.
    expires_at_ms: u64,
    /// When Redis did.
    gone_at_ms: Option<u64>,
}

/// Limits, in Redis and in the model.
struct Pair {
    redis: Redis,
    now_ms: u64,
    kept: BTreeMap<LimitKey, Kept>,
    /// The keys that the present call writes.
    written: BTreeSet<LimitKey>,
}

impl Pair {
    fn new(server: &Server) -> Self {
        Self {
            redis: server.connect(),
            now_ms: NOW_MS,
            kept: BTreeMap::new(),
            written: BTreeSet::new(),
        }
    }

    /// The model's state of a key.
    fn state(&self, key: &LimitKey, quota: &Quota) -> State {
        match self.kept.get(key) {
            // What was charged under another quota may have ended under that.
            Some(kept) if kept.gone_at_ms.is_some() && kept.quota != *quota => {
                State::new(quota, self.now_ms)
            }
            Some(kept) if kept.quota.algorithm() == quota.algorithm() => {
                kept.state.at(quota, self.now_ms)
            }
            _ => State::new(quota, self.now_ms),
        }
    }

    fn keep(&mut self, key: &LimitKey, quota: Quota, state: State) {
        let rest_ms = state.idle_at_ms(&quota).saturating_sub(self.now_ms);
        let kept = Kept {
            state,
            quota,
            expires_at_ms: self.now_ms + rest_ms + SET_BACK_MS_MAX,
            gone_at_ms: None,
        };
        self.kept.insert(key.clone(), kept);
        self.written.insert(key.clone());
    }

    fn charge(&mut self, ask: &Ask, units: u32) {
        if units > 0 {
            let mut state = self.state(&ask.key, &ask.quota);
            state.charge(&ask.quota, units);
            self.keep(&ask.key, ask.quota, state);
        }
    }

    /// What the model answers to one request.
    fn decide(&mut self, asks: &[Ask]) -> Vec<Answer> {
        let mut asked = BTreeMap::<&LimitKey, u32>::new();
        let mut dues = Vec::new();
        let mut answers = Vec::new();
        for ask in asks {
            let asked = asked.entry(&ask.key).or_default();
            let before = (*asked).min(ask.quota.burst());
            *asked = asked.saturating_add(ask.cost);
            dues.push((*asked).min(ask.quota.burst()) - before);
            let state = self.state(&ask.key, &ask.quota);
            answers.push(Answer {
                check: state.check(&ask.quota, *asked),
                taken: 0,
            });
        }
        if answers.iter().all(|answer| answer.check.is_allowed()) {
            for (ask, due) in asks.iter().zip(&dues) {
                self.charge(ask, *due);
            }
            for ((ask, due), answer) in asks.iter().zip(dues).zip(&mut answers) {
                let left = self.state(&ask.key, &ask.quota).check(&ask.quota, 0);
                let more = ask.extra.min(left.remaining);
                self.charge(ask, more);
                answer.taken = due + more;
            }
            for (ask, answer) in asks.iter().zip(&mut answers) {
                let left = self.state(&ask.key, &ask.quota).check(&ask.quota, 0);
                (answer.check.remaining, answer.check.reset_ms) = (left.remaining, left.reset_ms);
            }
        }
        answers
    }

    /// One call of many requests, on both.
    fn ask(&mut self, requests: &[Vec<Ask>]) -> Vec<Vec<Answer>> {
        let keys = requests.iter().flatten().map(|ask| ask.key.clone());
        let keys: Vec<LimitKey> = keys.collect();
        let call = limit::call_at(requests, self.now_ms);
        let expected: Vec<_> = requests.iter().map(|asks| self.decide(asks)).collect();
        let reply = self.run(&call, &keys);
        let answers = limit::parse(&reply, requests.iter().map(Vec::len))
            .unwrap_or_else(|e| panic!("{e}: {reply:?}"));
        assert_eq!(answers, expected, "{requests:#?} at {}", self.now_ms);
        answers
    }

    /// One request of one limit.
    fn ask_one(&mut self, key: &LimitKey, quota: Quota, cost: u32) -> Answer {
        self.ask(&[vec![ask(key, quota, cost)]])[0][0]
    }

    /// How many of `count` requests, one a call, may pass.
    fn burst(&mut self, key: &LimitKey, quota: Quota, count: u32) -> usize {
        let answers = (0..count).map(|_| self.ask_one(key, quota, 1));
        answers.filter(|answer| answer.taken == 1).count()
    }

    /// One call that takes back, on both.
    fn take_back(&mut self, charges: &[Charge]) -> usize {
        let keys: Vec<LimitKey> = charges.iter().map(|charge| charge.key.clone()).collect();
        let call = limit_back::call_at(charges, self.now_ms);
        let mut expected = 0;
        for Charge {
            key,
            quota,
            cost,
            mark,
        } in charges
        {
            let mut state = self.state(key, quota);
            let untouched = state;
            state.take_back(quota, *cost, *mark);
            if state != untouched {
                self.keep(key, *quota, state);
                expected += 1;
            }
        }
        let reply = self.run(&call, &keys);
        let taken_back = limit_back::parse(&reply, charges.len()).unwrap();
        assert_eq!(taken_back, expected, "{charges:#?} at {}", self.now_ms);
        taken_back
    }

    /// Runs the call, once the model has, and looks at when its keys expire: what the model has written, when
    /// it says; no other has been touched. Then none does any longer, as time in a history is not Redis'.
    fn run(&mut self, call: &Call, keys: &[LimitKey]) -> Value {
        let start = Instant::now();
        // As one, so that none expires in between.
        self.redis.command(&[b"MULTI"]);
        let mut eval = Vec::new();
        call.encode_eval(&mut eval);
        self.redis.exchange(&eval);
        for command in [b"PTTL".as_slice(), b"PERSIST"] {
            for key in keys {
                self.redis.command(&[command, key.as_bytes()]);
            }
        }
        let Value::Array(mut replies) = self.redis.command(&[b"EXEC"]) else {
            panic!("EXEC gives an array");
        };
        // The clock may move between two commands of a transaction, and both are rounded.
        let elapsed_ms = i64::try_from(start.elapsed().as_millis()).unwrap() + 1;
        for (key, ttl) in keys.iter().zip(&replies[1..]) {
            let Value::Integer(ttl_ms) = *ttl else {
                panic!("PTTL gives a number: {ttl:?}");
            };
            let expected = match self.kept.get(key).filter(|kept| kept.gone_at_ms.is_none()) {
                None => -2..=-2,
                Some(_) if !self.written.contains(key) => -1..=-1,
                Some(kept) => {
                    let ttl_ms = i64::try_from(kept.expires_at_ms - self.now_ms).unwrap();
                    ttl_ms - elapsed_ms..=ttl_ms
                }
            };
            assert!(expected.contains(&ttl_ms), "{ttl_ms} for {expected:?}");
        }
        self.written.clear();
        replies.swap_remove(0)
    }

    /// Moves the clock. Redis forgets what has expired; the model does not, as it should make no difference
    /// unless the clock goes back by more than it may.
    fn set_clock(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        for (key, kept) in &mut self.kept {
            if kept.expires_at_ms <= now_ms && kept.gone_at_ms.is_none() {
                self.redis.command(&[b"DEL", key.as_bytes()]);
                kept.gone_at_ms = Some(now_ms);
            }
        }
        self.kept.retain(|_, kept| {
            kept.gone_at_ms
                .is_none_or(|at_ms| now_ms + SET_BACK_MS_MAX >= at_ms)
        });
    }
}

fn ask(key: &LimitKey, quota: Quota, cost: u32) -> Ask {
    Ask {
        key: key.clone(),
        quota,
        cost,
        extra: 0,
    }
}

/// What one step of a history does; what is meant by its numbers depends on the quotas.
#[derive(Clone, Debug)]
enum Step {
    Requests(Vec<Vec<Want>>),
    /// Charges of earlier requests, and what is wrong with each.
    TakeBack(Vec<(Index, u8)>),
    /// Another quota for a key.
    Change(Index, Index),
    Wait(Pause),
}

#[derive(Clone, Debug)]
struct Want {
    key: Index,
    cost: Units,
    extra: Option<Units>,
    /// Not the key's own quota, as from a gateway that has not heard of a change.
    quota: Option<Index>,
}

#[derive(Clone, Debug)]
enum Units {
    Few(u32),
    /// In hundredths of the burst.
    Part(u32),
    Beyond,
    All,
}

#[derive(Clone, Debug)]
enum Pause {
    Ms(u64),
    /// As long as one request takes of the quota, so often, and some milliseconds.
    Requests(Index, u64, u64),
    /// In hundredths of the quota's period.
    Part(Index, u64),
    SetBack(u64),
    OtherClock(u64),
}

impl Units {
    fn of(&self, quota: &Quota) -> u32 {
        match self {
            Self::Few(units) => *units,
            Self::Part(part) => (u64::from(quota.burst()) * u64::from(*part) / 100) as u32,
            Self::Beyond => quota.burst() + 1,
            Self::All => u32::MAX,
        }
    }
}

fn units() -> impl Strategy<Value = Units> {
    prop_oneof![
        8 => (0..4_u32).prop_map(Units::Few),
        8 => (0..=100_u32).prop_map(Units::Part),
        1 => Just(Units::Beyond),
        1 => Just(Units::All),
    ]
}

fn wants() -> impl Strategy<Value = Want> {
    let extra = prop_oneof![5 => Just(None), 1 => units().prop_map(Some)];
    let quota = prop_oneof![12 => Just(None), 1 => any::<Index>().prop_map(Some)];
    (any::<Index>(), units(), extra, quota).prop_map(|(key, cost, extra, quota)| Want {
        key,
        cost,
        extra,
        quota,
    })
}

fn pauses() -> impl Strategy<Value = Pause> {
    prop_oneof![
        2 => (0..3_u64).prop_map(Pause::Ms),
        4 => (any::<Index>(), 1..20_u64, 0..2_u64).prop_map(|(i, n, ms)| Pause::Requests(i, n, ms)),
        4 => (any::<Index>(), 0..30_u64).prop_map(|(i, part)| Pause::Part(i, part)),
        1 => (any::<Index>(), 30..250_u64).prop_map(|(i, part)| Pause::Part(i, part)),
        2 => (0..=SET_BACK_MS_MAX).prop_map(Pause::SetBack),
        1 => (SET_BACK_MS_MAX + 1..10_000_000).prop_map(Pause::OtherClock),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let request = prop_oneof![
        4 => prop::collection::vec(wants(), 1),
        2 => prop::collection::vec(wants(), 0..5),
    ];
    let step = prop_oneof![
        10 => prop::collection::vec(request, 1..8).prop_map(Step::Requests),
        3 => prop::collection::vec((any::<Index>(), 0..8_u8), 1..6).prop_map(Step::TakeBack),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(key, quota)| Step::Change(key, quota)),
        10 => pauses().prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..60)
}

/// Small ones, large ones, and those that reach the bounds.
fn quotas() -> impl Strategy<Value = Quota> {
    let small = (0..4_usize, 1..12_u32, 1..5_000_u64, 1..12_u32);
    let large = (
        0..4_usize,
        1..=RATE_MAX,
        1..=SLIDING_PER_MS_MAX,
        1..=RATE_MAX,
    );
    let of = |(which, rate, per_ms, burst): (usize, u32, u64, u32)| {
        Quota::new(ALGORITHMS[which], rate, per_ms, burst).ok()
    };
    prop_oneof![
        6 => small.prop_filter_map("bounds", of),
        2 => large.prop_filter_map("bounds", of),
        2 => prop::sample::select(edges()),
    ]
}

/// The largest of all, such as those of 2^52 ticks.
fn edges() -> Vec<Quota> {
    let (rate, per_ms) = (1 << 19, 1 << 33);
    let year = (1 << 52) / PER_MS_MAX;
    let year_burst = u32::try_from(year).unwrap();
    vec![
        quota(Algorithm::Gcra, 1, per_ms, rate),
        quota(Algorithm::Gcra, RATE_MAX, per_ms, rate),
        quota(Algorithm::Gcra, RATE_MAX - 17, PER_MS_MAX, year_burst),
        quota(Algorithm::Gcra, 1, 4_503_599_627, RATE_MAX),
        quota(Algorithm::Gcra, 1, 1, RATE_MAX),
        quota(Algorithm::Gcra, RATE_MAX, 1, RATE_MAX),
        quota(Algorithm::Gcra, RATE_MAX, PER_MS_MAX, 1),
        quota(Algorithm::SlidingWindow, RATE_MAX, SLIDING_PER_MS_MAX, 1),
        quota(Algorithm::SlidingWindow, RATE_MAX, 1, 1),
        quota(Algorithm::FixedWindow, rate, per_ms, 1),
        quota(Algorithm::FixedWindow, year_burst, PER_MS_MAX, 1),
        quota(Algorithm::Concurrency, rate, per_ms, 1),
        quota(Algorithm::Concurrency, year_burst, PER_MS_MAX, 1),
    ]
}

/// A history under way.
struct History<'a> {
    pair: &'a mut Pair,
    quotas: &'a [Quota],
    keys: Vec<(LimitKey, Quota)>,
    charges: Vec<Charge>,
}

impl History<'_> {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Requests(requests) => self.requests(requests),
            Step::TakeBack(charges) => self.take_back(charges),
            Step::Change(key, quota) => {
                let at = key.index(self.keys.len());
                self.keys[at].1 = *quota.get(self.quotas);
            }
            Step::Wait(pause) => self.wait(pause),
        }
    }

    fn ask(&self, want: &Want) -> Ask {
        let (key, own) = want.key.get(&self.keys);
        let quota = want.quota.map_or(*own, |index| *index.get(self.quotas));
        Ask {
            key: key.clone(),
            quota,
            cost: want.cost.of(&quota),
            extra: want.extra.as_ref().map_or(0, |extra| extra.of(&quota)),
        }
    }

    fn requests(&mut self, requests: &[Vec<Want>]) {
        let asks = |wants: &Vec<Want>| wants.iter().map(|want| self.ask(want)).collect();
        let requests: Vec<Vec<Ask>> = requests.iter().map(asks).collect();
        if requests.iter().all(Vec::is_empty) {
            return;
        }
        let answers = self.pair.ask(&requests);
        for (ask, answer) in requests.iter().flatten().zip(answers.iter().flatten()) {
            if answer.taken > 0 {
                self.charges.push(Charge {
                    key: ask.key.clone(),
                    quota: ask.quota,
                    cost: answer.taken,
                    mark: answer.check.mark,
                });
            }
        }
    }

    /// Mostly each once, and as it was charged.
    fn take_back(&mut self, which: &[(Index, u8)]) {
        let mut charges = Vec::new();
        for (index, error) in which {
            if self.charges.is_empty() {
                break;
            }
            let at = index.index(self.charges.len());
            let charge = match error {
                0..3 => self.charges[at].clone(),
                _ => self.charges.swap_remove(at),
            };
            charges.push(match error {
                0 => Charge {
                    mark: charge.mark + 1,
                    ..charge
                },
                1 => Charge {
                    cost: u32::MAX,
                    quota: *index.get(self.quotas),
                    ..charge
                },
                _ => charge,
            });
        }
        if !charges.is_empty() {
            self.pair.take_back(&charges);
        }
    }

    fn wait(&mut self, pause: &Pause) {
        let now_ms = self.pair.now_ms;
        self.pair.set_clock(match pause {
            Pause::Ms(ms) => now_ms + ms,
            Pause::Requests(index, count, ms) => {
                let quota = index.get(self.quotas);
                now_ms + count * quota.per_ms() / u64::from(quota.rate()) + ms
            }
            Pause::Part(index, part) => {
                let per_ms = index.get(self.quotas).per_ms();
                now_ms + per_ms * part / 100
            }
            // 0 would be Redis' own clock.
            Pause::SetBack(ms) | Pause::OtherClock(ms) => now_ms.saturating_sub(*ms).max(1),
        });
    }
}

/// Requests at all of a gateway's limits, and all that may happen to them.
fn mixed() -> impl Strategy<Value = (Vec<Quota>, usize, Vec<Step>)> {
    (prop::collection::vec(quotas(), 1..4), Just(3), steps())
}

/// Many small requests at one limit, which may get another rate and period.
fn steady() -> impl Strategy<Value = (Vec<Quota>, usize, Vec<Step>)> {
    let numbers = prop::collection::vec((4..40_u32, 20..3_000_u64, 1..40_u32), 1..3);
    let quotas = (0..4_usize, numbers).prop_map(|(which, numbers)| {
        // Half of them with logs, which have the most to remember.
        let algorithm = ALGORITHMS[if which % 2 == 0 { 1 } else { which }];
        let of = |(rate, per_ms, burst)| quota(algorithm, rate, per_ms, burst);
        numbers.into_iter().map(of).collect()
    });
    let want = (any::<Index>(), 1..3_u32).prop_map(|(key, cost)| Want {
        key,
        cost: Units::Few(cost),
        extra: None,
        quota: None,
    });
    let pause = prop_oneof![
        2 => (0..4_u64).prop_map(Pause::Ms),
        8 => (any::<Index>(), 5..20_u64).prop_map(|(i, part)| Pause::Part(i, part)),
        1 => (0..SET_BACK_MS_MAX).prop_map(Pause::SetBack),
    ];
    let step = prop_oneof![
        20 => want.prop_map(|want| Step::Requests(vec![vec![want]])),
        3 => prop::collection::vec((any::<Index>(), 0..8_u8), 1..4).prop_map(Step::TakeBack),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(key, quota)| Step::Change(key, quota)),
        20 => pause.prop_map(Step::Wait),
    ];
    (quotas, Just(1), prop::collection::vec(step, 20..120))
}

fn histories_go_as_in_the_model(
    histories: impl Strategy<Value = (Vec<Quota>, usize, Vec<Step>)>,
    cases: u32,
) {
    let server = Server::start();
    let pair = RefCell::new(Pair::new(&server));
    let starts = prop::sample::select(vec![NOW_MS, NOW_MS, NOW_MS, 1, 1 << 47]);
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    });
    let run = |(start_ms, (quotas, keys, steps)): (u64, (Vec<Quota>, usize, Vec<Step>))| {
        let mut pair = pair.borrow_mut();
        pair.now_ms = start_ms;
        pair.kept.clear();
        pair.written.clear();
        let keys = (0..keys).map(|n| (new_key(), quotas[n % quotas.len()]));
        let mut history = History {
            keys: keys.collect(),
            pair: &mut pair,
            quotas: &quotas,
            charges: Vec::new(),
        };
        for step in &steps {
            history.step(step);
        }
        Ok(())
    };
    runner.run(&(starts, histories), run).unwrap();
}

#[test]
fn whatever_is_asked_goes_as_in_the_model() {
    histories_go_as_in_the_model(mixed(), 384);
}

#[test]
fn what_is_asked_steadily_goes_as_in_the_model() {
    histories_go_as_in_the_model(steady(), 192);
}

/// The backlog of a low limit with many requests, under one with a long period and a high rate: the product of
/// requests and period is beyond what a double holds exactly, and one tick more is a millisecond more.
#[test]
fn a_backlog_of_another_period_is_exact() {
    let server = Server::start();
    let mut pair = Pair::new(&server);
    let slow = quota(Algorithm::Gcra, 1, 4_503_599_627, RATE_MAX);
    let (rate, elapsed_ms) = (149_999, 33_000_000_000);
    let fast = quota(Algorithm::Gcra, rate, u64::from(rate) * 210_001, 142_969);
    for requests in (300_001..300_041).step_by(2) {
        let key = new_key();
        pair.set_clock(NOW_MS);
        assert_eq!(pair.ask_one(&key, slow, requests).taken, requests);
        pair.set_clock(NOW_MS + elapsed_ms);
        let ticks = u64::from(requests) * fast.per_ms();
        assert!(ticks > 1 << 53 && ticks % 2 == 1, "it is no double");
        let reset_ms = pair.ask_one(&key, fast, 0).check.reset_ms;
        assert_eq!(reset_ms, ticks / u64::from(rate) - elapsed_ms);
    }
}

/// A log that has more lines than it may, as its period was made longer; some had been taken back.
#[test]
fn lines_that_must_be_shared_are_as_in_the_model() {
    let server = Server::start();
    let mut pair = Pair::new(&server);
    let short = quota(Algorithm::SlidingWindow, 20, 700, 1);
    let long = quota(Algorithm::SlidingWindow, 20, 7_000, 1);
    for taken_back in 1..9 {
        let key = new_key();
        pair.set_clock(NOW_MS);
        // The second request of the first line keeps it until there are eight.
        for (line, at_ms) in [0, 99, 100, 200, 300, 400, 500, 600, 700]
            .into_iter()
            .enumerate()
        {
            pair.set_clock(NOW_MS + at_ms);
            assert_eq!(pair.ask_one(&key, short, 1).taken, 1);
            if line == taken_back {
                let charge = Charge {
                    key: key.clone(),
                    quota: short,
                    cost: 1,
                    mark: 0,
                };
                assert_eq!(pair.take_back(&[charge]), 1);
            }
        }
        for step in 1..60 {
            pair.set_clock(NOW_MS + 700 + step * 200);
            pair.ask_one(&key, long, 1);
        }
    }
}

#[test]
fn a_request_is_charged_by_all_its_limits_or_by_none() {
    let server = Server::start();
    let mut pair = Pair::new(&server);
    for algorithm in ALGORITHMS {
        let (wide, narrow) = (
            quota(algorithm, 10, 60_000, 10),
            quota(algorithm, 2, 60_000, 2),
        );
        let (all, one, other) = (new_key(), new_key(), new_key());
        let request = |key| vec![ask(&all, wide, 1), ask(key, narrow, 1)];
        let requests = [&one, &one, &one, &other].map(request);
        let answers = pair.ask(&requests);
        let taken = |answer: &Answer| answer.taken;
        let taken: Vec<Vec<u32>> = answers
            .iter()
            .map(|answers| answers.iter().map(taken).collect())
            .collect();
        assert_eq!(
            taken,
            [[1, 1], [1, 1], [0, 0], [1, 1]].map(Vec::from),
            "{algorithm:?}"
        );
        assert!(answers[2][0].check.is_allowed() && !answers[2][1].check.is_allowed());
        let left = pair.ask_one(&all, wide, 0).check.remaining;
        assert_eq!(left, 7, "{algorithm:?}");
    }
}

/// Else two rules' asks of one key, each of which may pass by itself, would be charged beyond the limit.
#[test]
fn asks_of_one_key_in_one_request_count_together() {
    let server = Server::start();
    let mut pair = Pair::new(&server);
    for algorithm in ALGORITHMS {
        let (key, three) = (new_key(), quota(algorithm, 3, 60_000, 3));
        let twice = |cost| vec![ask(&key, three, cost), ask(&key, three, cost)];
        let answers = pair.ask(&[twice(2), twice(1), twice(1)]);
        let allowed = |answers: &Vec<Answer>| {
            let both: Vec<bool> = answers
                .iter()
                .map(|answer| answer.check.is_allowed())
                .collect();
            (both[0], both[1])
        };
        let seen: Vec<_> = answers.iter().map(allowed).collect();
        // Four never fit, so they count as three.
        assert_eq!(seen, [(true, true), (false, false), (false, false)]);
        assert_eq!((answers[0][0].taken, answers[0][1].taken), (2, 1));
        assert_eq!(pair.ask_one(&key, three, 0).check.remaining, 0);
    }
}

#[test]
fn a_lease_is_what_is_left_when_all_costs_are_paid() {
    let server = Server::start();
    let mut pair = Pair::new(&server);
    for algorithm in ALGORITHMS {
        let (key, ten) = (new_key(), quota(algorithm, 10, 60_000, 10));
        let lease = |cost, extra| Ask {
            extra,
            ..ask(&key, ten, cost)
        };
        let mut take = |asks: &[Ask]| {
            let answers = pair.ask(&[asks.to_vec()]);
            answers[0]
                .iter()
                .map(|answer| answer.taken)
                .collect::<Vec<_>>()
        };
        assert_eq!(take(&[lease(1, 4)]), [5], "{algorithm:?}");
        assert_eq!(take(&[lease(0, 1)]), [1], "{algorithm:?}");
        assert_eq!(take(&[lease(1, 9), lease(2, 9)]), [2, 2], "{algorithm:?}");
        assert_eq!(take(&[lease(1, 9)]), [0], "{algorithm:?}");
    }
}

#[test]
fn what_others_wrote_is_a_key_that_nothing_is_known_of() {
    let server = Server::start();
    let mut pair = Pair::new(&server);
    let now = NOW_MS.to_string();
    for algorithm in ALGORITHMS {
        let three = quota(algorithm, 3, 60_000, 3);
        let letters = ["g", "s", "f", "c", "x", ""];
        let numbers = [
            "",
            " ",
            " 1",
            " -1 -1 -1",
            " 1e3 5 5 5",
            " nan inf 0x10",
            &format!(" {now} 180000 60000 1 2"),
            &format!(" {now} {}", "9".repeat(400)),
            &format!(" {now} 9007199254740992 9007199254740992"),
            &format!(" {now}{}", " 1".repeat(18)),
            "\0\u{ff}",
        ];
        for value in letters
            .iter()
            .flat_map(|letter| numbers.iter().map(move |n| format!("{letter}{n}")))
        {
            let key = new_key();
            pair.redis
                .command(&[b"SET", key.as_bytes(), value.as_bytes()]);
            pair.ask_one(&key, three, 1);
            assert_eq!(pair.burst(&key, three, 9), 2, "{algorithm:?} {value:?}");
        }
        let key = new_key();
        pair.redis.command(&[b"RPUSH", key.as_bytes(), b"a"]);
        pair.ask_one(&key, three, 1);
        assert_eq!(pair.burst(&key, three, 9), 2, "{algorithm:?}, a list");
        for other in ALGORITHMS.into_iter().filter(|other| *other != algorithm) {
            let key = new_key();
            assert_eq!(pair.burst(&key, quota(other, 2, 60_000, 2), 9), 2);
            assert_eq!(
                pair.burst(&key, three, 9),
                3,
                "{algorithm:?} after {other:?}"
            );
        }
    }
}

#[test]
fn a_clock_that_goes_back_a_little_gives_nobody_a_second_burst() {
    let server = Server::start();
    let mut pair = Pair::new(&server);
    for algorithm in ALGORITHMS {
        let (key, three) = (new_key(), quota(algorithm, 3, 10_000, 3));
        // A window's edge lies between this moment and the next.
        pair.set_clock(NOW_MS);
        assert_eq!(pair.burst(&key, three, 9), 3, "{algorithm:?}");
        for back_ms in [1, SET_BACK_MS_MAX, 0] {
            pair.set_clock(NOW_MS - back_ms);
            assert_eq!(pair.burst(&key, three, 9), 0, "{algorithm:?}");
        }
        pair.set_clock(NOW_MS - SET_BACK_MS_MAX - 10_000);
        assert_eq!(
            pair.burst(&key, three, 9),
            3,
            "{algorithm:?}: another clock"
        );
    }
}

#[test]
fn requests_in_flight_that_have_ended_make_place_for_others() {
    let server = Server::start();
    let mut pair = Pair::new(&server);
    let (key, two) = (new_key(), quota(Algorithm::Concurrency, 2, 10_000, 2));
    let answers = pair.ask(&[1, 1, 1].map(|cost| vec![ask(&key, two, cost)]));
    assert!(!answers[2][0].check.is_allowed());
    let ended = |answer: &Answer| Charge {
        key: key.clone(),
        quota: two,
        cost: 1,
        mark: answer.check.mark,
    };
    // The first of them in the next period.
    pair.set_clock(NOW_MS + 10_000);
    assert_eq!(pair.burst(&key, two, 9), 0);
    let both = [ended(&answers[0][0]), ended(&answers[1][0])];
    assert_eq!(pair.take_back(&both), 2);
    assert_eq!(pair.burst(&key, two, 9), 2);
    assert_eq!(pair.take_back(&both), 0, "of those before, none is left");
    let unknown = Charge {
        key: new_key(),
        ..both[0].clone()
    };
    assert_eq!(pair.take_back(&[unknown]), 0);
}

/// On Redis' own clock.
#[test]
fn a_refusals_wait_is_long_enough_and_then_redis_forgets() {
    let server = Server::start();
    let mut redis = server.connect();
    let waiting = [
        Algorithm::Gcra,
        Algorithm::SlidingWindow,
        Algorithm::FixedWindow,
    ];
    let limits = waiting.map(|algorithm| (new_key(), quota(algorithm, 3, 900, 3)));
    let mut run = |key: &LimitKey, quota: Quota| {
        let reply = redis.run(&limit::call(&[[ask(key, quota, 1)]]));
        limit::parse(&reply, [1]).unwrap()[0][0]
    };
    for (key, quota) in &limits {
        let mut answers = (0..1_000).map(|_| run(key, *quota));
        let refused = answers.find(|answer| !answer.check.is_allowed());
        let wait_ms = refused.expect("faster than the rate").check.wait_ms;
        assert!((1..=900).contains(&wait_ms), "{wait_ms}");
        std::thread::sleep(Duration::from_millis(wait_ms));
        let answer = run(key, *quota);
        assert_eq!((answer.check.wait_ms, answer.taken), (0, 1), "{quota:?}");
    }
    let concurrency = quota(Algorithm::Concurrency, 1, 900, 1);
    assert_eq!(run(&new_key(), concurrency).taken, 1);
    let deadline = Instant::now() + Duration::from_secs(60);
    while redis.command(&[b"DBSIZE"]) != Value::Integer(0) {
        assert!(Instant::now() < deadline, "keys stay");
        std::thread::sleep(Duration::from_millis(20));
    }
}
