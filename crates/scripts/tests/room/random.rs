//! Random histories on the model and on a real Redis, with losses and clock changes.

use std::cell::RefCell;

use super::{GATEWAYS, NOW_MS, Pair};
use crate::support::Server;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use weir_room::redis::room_look;
use weir_room::{Mode, RoomState, Setting};

#[derive(Clone, Debug)]
enum Step {
    /// Advances the time, in milliseconds.
    Wait(u64),
    /// A gateway's tick, with these visitors' sessions renewed.
    Tick(usize, Vec<u8>),
    /// The same after a gateway has admitted these on its own, by their tokens.
    EnteredAlone(usize, Vec<u8>),
    /// Sets the delay of Redis' replies, in milliseconds.
    Late(u64),
    /// Visitors send requests to a gateway with their tokens (`true`: without).
    Ask(usize, Vec<(u8, bool)>),
    /// An operator's setting.
    Set(Setting),
    /// Redis loses some data.
    Lose(u8),
    /// A gateway crashes, and another one without state starts.
    Restart(usize),
    /// The clock of Redis is set back.
    SetBack(u64),
}

impl Pair<'_> {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Wait(ms) => self.wait(*ms),
            Step::Tick(gateway, renewed) => {
                self.tick(*gateway, renewed);
            }
            Step::EnteredAlone(gateway, visitor) => {
                self.entered_alone(*gateway, visitor);
            }
            Step::Late(ms) => self.late_ms = *ms,
            Step::Ask(gateway, visitor) => {
                self.ask(*gateway, visitor);
            }
            Step::Set(setting) => self.set(*setting),
            Step::Lose(subject) => self.lose(*subject),
            Step::SetBack(ms) => {
                self.now_ms -= ms;
                self.wait(0);
            }
            Step::Restart(gateway) => self.observed[*gateway] = RoomState::default(),
        }
    }
}

fn any_setting() -> impl Strategy<Value = Setting> {
    let mode = prop_oneof![
        6 => Just(Mode::Open),
        1 => prop::sample::select(&Mode::ALL[..]),
    ];
    let per_minute = prop::sample::select(vec![0_u64, 1, 60, 600, 6_000]);
    let active_max = prop::sample::select(vec![0_u64, 1, 3, 10]);
    let opens_at_ms = prop_oneof![3 => Just(0), 1 => 0..30_000_u64];
    (1..9_u64, mode, per_minute, active_max, opens_at_ms).prop_map(
        |(version, mode, per_minute, active_max, opens_in_ms)| Setting {
            version,
            mode,
            per_minute,
            active_max,
            opens_at_ms: if opens_in_ms == 0 {
                0
            } else {
                NOW_MS + opens_in_ms
            },
        },
    )
}

fn any_step() -> impl Strategy<Value = Step> {
    let gateway = 0..GATEWAYS;
    let visitors = prop::collection::vec((0..30_u8, prop::bool::weighted(0.1)), 1..8);
    let renewed = prop::collection::vec(0..30_u8, 0..4);
    prop_oneof![
        5 => prop_oneof![0..1_500_u64, 0..12_000_u64].prop_map(Step::Wait),
        5 => (gateway.clone(), renewed.clone()).prop_map(|(gateway, renewed)| Step::Tick(gateway, renewed)),
        1 => (gateway.clone(), renewed).prop_map(|(gateway, visitors)| Step::EnteredAlone(gateway, visitors)),
        1 => (0..4_000_u64).prop_map(Step::Late),
        10 => (gateway.clone(), visitors).prop_map(|(gateway, visitors)| Step::Ask(gateway, visitors)),
        1 => any_setting().prop_map(Step::Set),
        1 => (0..5_u8).prop_map(Step::Lose),
        1 => gateway.prop_map(Step::Restart),
        1 => (0..100_000_u64).prop_map(Step::SetBack),
    ]
}

#[test]
fn random_room_histories_match_the_model() {
    let server = Server::start();
    let redis = RefCell::new(server.connect());
    let mut runner = TestRunner::new(Config {
        cases: 300,
        failure_persistence: None,
        ..Config::default()
    });
    let steps = prop::collection::vec(any_step(), 1..60);
    let run = runner.run(&(any_setting(), steps), |(setting, steps)| {
        let mut redis = redis.borrow_mut();
        let mut pair = Pair::new(&mut redis, setting);
        for step in &steps {
            pair.step(step);
        }
        let response = pair.tick(0, &[]);
        let reply = pair.redis.run(&room_look::call(&pair.keys));
        let look = room_look::parse(&reply).unwrap().unwrap();
        prop_assert_eq!(
            (look.seq, look.head),
            (response.observed.seq, response.observed.head)
        );
        prop_assert_eq!(
            (look.inside, look.called),
            (response.observed.inside, response.observed.called)
        );
        prop_assert_eq!(
            (look.joined, look.entered, look.missed),
            (response.joined, response.entered, response.missed)
        );
        prop_assert_eq!(look.seed, response.observed.seed);
        // The model keeps waiting times after a loss.
        let is = |of: fn(&Step) -> bool| steps.iter().any(of);
        if !is(|step| matches!(step, Step::Lose(0))) {
            prop_assert_eq!(look.waits, pair.model.waits);
        }
        if !is(|step| matches!(step, Step::Lose(0) | Step::SetBack(_))) {
            let entered = pair.model.entered_last_minute(pair.now_ms);
            prop_assert_eq!(look.entered_last_minute, entered);
        }
        Ok(())
    });
    run.unwrap();
}
