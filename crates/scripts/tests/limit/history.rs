//! Histories of requests, returned charges, quota changes and clock changes.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};
use weir_limit::redis::keys::LimitKey;
use weir_limit::redis::limit::LimitRequest;
use weir_limit::redis::limit_back::Charge;
use weir_limit::{Algorithm, PER_MS_MAX, Quota, RATE_MAX, SET_BACK_MS_MAX, SLIDING_PER_MS_MAX};

use super::pair::{ALGORITHMS, NOW_MS, Pair, new_key, quota};
use crate::support::Server;

/// One step of a history; its numbers are relative to the quotas.
#[derive(Clone, Debug)]
pub enum Step {
    Requests(Vec<Vec<DrawnRequest>>),
    /// Charges of earlier requests to return, and the defect of each.
    TakeBack(Vec<(Index, u8)>),
    /// Changes the quota of a key.
    Change(Index, Index),
    Wait(Pause),
}

#[derive(Clone, Debug)]
pub struct DrawnRequest {
    pub key: Index,
    pub cost: Units,
    pub extra: Option<Units>,
    /// Another quota than the key's own, as from a gateway with outdated rules.
    pub quota: Option<Index>,
}

#[derive(Clone, Debug)]
pub enum Units {
    Few(u32),
    /// In hundredths of the burst.
    Part(u32),
    Beyond,
    All,
}

#[derive(Clone, Debug)]
pub enum Pause {
    Ms(u64),
    /// The time that one request takes of the quota, multiplied, plus some milliseconds.
    Requests(Index, u64, u64),
    /// In hundredths of the quota's period.
    Part(Index, u64),
    SetBack(u64),
    OtherClock(u64),
}

impl Units {
    pub fn of(&self, quota: &Quota) -> u32 {
        match self {
            Self::Few(units) => *units,
            Self::Part(part) => (u64::from(quota.burst()) * u64::from(*part) / 100) as u32,
            Self::Beyond => quota.burst() + 1,
            Self::All => u32::MAX,
        }
    }
}

pub fn units() -> impl Strategy<Value = Units> {
    prop_oneof![
        8 => (0..4_u32).prop_map(Units::Few),
        8 => (0..=100_u32).prop_map(Units::Part),
        1 => Just(Units::Beyond),
        1 => Just(Units::All),
    ]
}

pub fn wants() -> impl Strategy<Value = DrawnRequest> {
    let extra = prop_oneof![5 => Just(None), 1 => units().prop_map(Some)];
    let quota = prop_oneof![12 => Just(None), 1 => any::<Index>().prop_map(Some)];
    (any::<Index>(), units(), extra, quota).prop_map(|(key, cost, extra, quota)| DrawnRequest {
        key,
        cost,
        extra,
        quota,
    })
}

pub fn pauses() -> impl Strategy<Value = Pause> {
    prop_oneof![
        2 => (0..3_u64).prop_map(Pause::Ms),
        4 => (any::<Index>(), 1..20_u64, 0..2_u64).prop_map(|(i, n, ms)| Pause::Requests(i, n, ms)),
        4 => (any::<Index>(), 0..30_u64).prop_map(|(i, part)| Pause::Part(i, part)),
        1 => (any::<Index>(), 30..250_u64).prop_map(|(i, part)| Pause::Part(i, part)),
        2 => (0..=SET_BACK_MS_MAX).prop_map(Pause::SetBack),
        1 => (SET_BACK_MS_MAX + 1..10_000_000).prop_map(Pause::OtherClock),
    ]
}

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
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

/// Small ones, large ones, and those at the bounds.
pub fn quotas() -> impl Strategy<Value = Quota> {
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
pub fn edges() -> Vec<Quota> {
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

/// A history in progress.
pub struct History<'a> {
    pub pair: &'a mut Pair,
    pub quotas: &'a [Quota],
    pub keys: Vec<(LimitKey, Quota)>,
    pub charges: Vec<Charge>,
}

impl History<'_> {
    pub fn step(&mut self, step: &Step) {
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

    pub fn ask(&self, want: &DrawnRequest) -> LimitRequest {
        let (key, own) = want.key.get(&self.keys);
        let quota = want.quota.map_or(*own, |index| *index.get(self.quotas));
        LimitRequest {
            key: key.clone(),
            quota,
            cost: want.cost.of(&quota),
            extra: want.extra.as_ref().map_or(0, |extra| extra.of(&quota)),
        }
    }

    pub fn requests(&mut self, requests: &[Vec<DrawnRequest>]) {
        let asks = |wants: &Vec<DrawnRequest>| wants.iter().map(|want| self.ask(want)).collect();
        let requests: Vec<Vec<LimitRequest>> = requests.iter().map(asks).collect();
        if requests.iter().all(Vec::is_empty) {
            return;
        }
        let answers = self.pair.ask(&requests);
        for (ask, answer) in requests.iter().flatten().zip(answers.iter().flatten()) {
            if answer.used > 0 {
                self.charges.push(Charge {
                    key: ask.key.clone(),
                    quota: ask.quota,
                    cost: answer.used,
                    mark: answer.check.mark,
                });
            }
        }
    }

    /// Mostly each charge once, and unchanged.
    pub fn take_back(&mut self, which: &[(Index, u8)]) {
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

    pub fn wait(&mut self, pause: &Pause) {
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
            // 0 would select Redis' own clock.
            Pause::SetBack(ms) | Pause::OtherClock(ms) => now_ms.saturating_sub(*ms).max(1),
        });
    }
}

/// Requests for several limits of a gateway, with all kinds of steps.
pub fn mixed() -> impl Strategy<Value = (Vec<Quota>, usize, Vec<Step>)> {
    (prop::collection::vec(quotas(), 1..4), Just(3), steps())
}

/// Many small requests for one limit, whose rate and period may change.
pub fn steady() -> impl Strategy<Value = (Vec<Quota>, usize, Vec<Step>)> {
    let numbers = prop::collection::vec((4..40_u32, 20..3_000_u64, 1..40_u32), 1..3);
    let quotas = (0..4_usize, numbers).prop_map(|(which, numbers)| {
        // Half of them with logs, which have the most state.
        let algorithm = ALGORITHMS[if which % 2 == 0 { 1 } else { which }];
        let of = |(rate, per_ms, burst)| quota(algorithm, rate, per_ms, burst);
        numbers.into_iter().map(of).collect()
    });
    let want = (any::<Index>(), 1..3_u32).prop_map(|(key, cost)| DrawnRequest {
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

pub fn histories_go_as_in_the_model(
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
        pair.retained.clear();
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
