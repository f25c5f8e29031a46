use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use proptest::prelude::*;
use weir_scripts::Script;

use super::*;

static SCRIPT: Script = Script {
    name: "echo",
    source: "return ARGV",
};

const SETTINGS: Settings = Settings {
    deadline_ms: 100,
    batches_max: 2,
    waiting_max: 1_000,
};

/// One call for even jobs, one for odd ones.
struct ByParity;

impl Plan for ByParity {
    type Job = u32;

    fn plan(&self, requests: Vec<PendingRequest<u32>>, _now_ms: u64) -> Vec<Planned<u32>> {
        let (even, odd): (Vec<_>, Vec<_>) = requests.into_iter().partition(|t| t.job % 2 == 0);
        [even, odd]
            .into_iter()
            .filter(|requests| !requests.is_empty())
            .map(|requests| Planned {
                call: Call {
                    script: &SCRIPT,
                    keys: [b"k"].into(),
                    args: requests
                        .iter()
                        .map(|t| t.job.to_string().into_bytes())
                        .collect(),
                },
                requests,
            })
            .collect()
    }
}

/// A call's body and its timeout in milliseconds.
type Sent = (Vec<u8>, u64);

#[derive(Clone, Default)]
struct Wire {
    sent: Rc<RefCell<Vec<Sent>>>,
    wakes: Rc<Cell<usize>>,
    is_down: Rc<Cell<bool>>,
    /// Whether a stream rests, so that no turn is needed to send.
    is_ready: Rc<Cell<bool>>,
}

impl Link for Wire {
    fn send(&self, body: &[u8], timeout_ms: u64, _now_ms: u64) -> Result<u32, Definite> {
        if self.is_down.get() {
            return Err(Definite::NotSent);
        }
        self.sent.borrow_mut().push((body.to_vec(), timeout_ms));
        Ok(self.sent.borrow().len() as u32 - 1)
    }

    fn is_ready(&self) -> bool {
        self.is_ready.get()
    }

    fn send_at_once(&self, body: &[u8], timeout_ms: u64, now_ms: u64) -> Option<u32> {
        self.send(body, timeout_ms, now_ms).ok()
    }

    fn wake(&self) {
        self.wakes.set(self.wakes.get() + 1);
    }
}

fn pump(settings: Settings) -> (Pump<ByParity, Wire>, Wire) {
    let wire = Wire::default();
    (Pump::new(settings, ByParity, wire.clone()), wire)
}

fn ok(count: usize) -> Result<Vec<Value>, Failure> {
    Ok(vec![Value::Integer(7); count])
}

fn owners(completed: &[Completed<u32>]) -> Vec<Option<u32>> {
    completed
        .iter()
        .flat_map(|l| &l.requests)
        .map(|t| t.owner)
        .collect()
}

#[test]
fn what_arrives_in_one_turn_goes_in_one_call_after_one_wake_up() {
    let (mut pump, wire) = pump(SETTINGS);
    (0..10).for_each(|n| pump.enqueue(n, n, 0).unwrap());
    assert_eq!(wire.wakes.get(), 1);
    assert!(pump.turn(0).is_empty());
    assert_eq!(wire.sent.borrow().len(), 1);
    let completed = pump.on_reply(0, ok, 5).unwrap();
    assert_eq!(completed.len(), 2, "one call for each parity");
    assert_eq!(owners(&completed).len(), 10);
    assert_eq!(
        pump.take_counts(),
        Counts {
            batches: 1,
            commands: 2,
            requests: 10
        }
    );
}

#[test]
fn batches_are_bounded_in_size_and_number_and_the_rest_follows_when_one_completes() {
    let (mut pump, wire) = pump(SETTINGS);
    (0..200).for_each(|n| pump.enqueue(n, 0, 0).unwrap());
    pump.turn(0);
    assert_eq!(wire.sent.borrow().len(), 2);
    assert_eq!(pump.waiting.len(), 200 - 2 * BATCH_MAX);
    let completed = pump.on_reply(0, ok, 1).unwrap();
    assert_eq!(owners(&completed).len(), BATCH_MAX);
    assert_eq!(wire.sent.borrow().len(), 3);
    assert_eq!(pump.waiting.len(), 200 - 3 * BATCH_MAX);
}

#[test]
fn what_arrives_while_a_batch_is_under_way_goes_when_it_completes_or_is_late() {
    let (mut pump, wire) = pump(SETTINGS);
    pump.enqueue(0, 0, 0).unwrap();
    pump.turn(0);
    wire.wakes.set(0);
    (1..4).for_each(|n| pump.enqueue(n, 0, 1).unwrap());
    assert_eq!(wire.wakes.get(), 0, "the batch's completion will do");
    assert!(pump.turn(1).is_empty());
    assert_eq!(wire.sent.borrow().len(), 1);
    pump.on_reply(0, ok, 2);
    assert_eq!(wire.sent.borrow().len(), 2, "the three go together");

    pump.enqueue(4, 0, 3).unwrap();
    assert_eq!(wire.wakes.get(), 0);
    pump.enqueue(5, 0, 2 + LATE_MS).unwrap();
    assert_eq!(wire.wakes.get(), 1, "the batch is late");
    pump.turn(2 + LATE_MS);
    assert_eq!(wire.sent.borrow().len(), 3);
}

#[test]
fn a_few_make_a_second_batch_some_more_a_third_and_only_a_full_one_a_fourth() {
    let settings = Settings {
        batches_max: 5,
        ..SETTINGS
    };
    let (mut pump, wire) = pump(settings);
    let mut next = 0..;
    for (index, enough) in [1, 4, 8, 64].into_iter().enumerate() {
        let mut wait = |count: usize| {
            let owners = next.by_ref().take(count);
            owners.for_each(|owner| pump.enqueue(owner, 0, 1).unwrap());
            pump.turn(1);
            wire.sent.borrow().len()
        };
        assert_eq!(wait(enough - 1), index, "{enough} are enough");
        assert_eq!((wire.wakes.replace(0), wait(1)), (0, index + 1));
        assert_eq!(wire.wakes.replace(0), 1);
    }
}

/// A pump whose first batch has completed, so that a stream rests.
fn warm() -> (Pump<ByParity, Wire>, Wire) {
    let settings = Settings {
        batches_max: 4,
        ..SETTINGS
    };
    let (mut pump, wire) = pump(settings);
    wire.is_ready.set(true);
    pump.enqueue(1_000, 0, 0).unwrap();
    assert_eq!(wire.sent.borrow().len(), 0, "the first one takes a turn");
    pump.turn(0);
    pump.on_reply(0, ok, 0).unwrap();
    wire.sent.borrow_mut().clear();
    wire.wakes.set(0);
    (pump, wire)
}

#[test]
fn where_little_is_under_way_a_batch_takes_no_turn() {
    let (mut pump, wire) = warm();
    let sent = || wire.sent.borrow().len();
    pump.enqueue(0, 0, 1).unwrap();
    assert_eq!((sent(), wire.wakes.get()), (1, 0), "alone");
    (1..4).for_each(|n| pump.enqueue(n, 0, 1).unwrap());
    assert_eq!(sent(), 1);
    pump.enqueue(4, 0, 1).unwrap();
    assert_eq!((sent(), wire.wakes.get()), (2, 0), "four at once");
    (5..13).for_each(|n| pump.enqueue(n, 0, 1).unwrap());
    assert_eq!((sent(), wire.wakes.get()), (2, 1), "five are under way");
    pump.turn(1);
    assert_eq!(sent(), 3);
    let completed = pump.on_reply(1, ok, 1).unwrap();
    assert_eq!(owners(&completed), (1..5).map(Some).collect::<Vec<_>>());
}

#[test]
fn what_goes_without_an_owner_waits_for_a_turn() {
    let (mut pump, wire) = warm();
    pump.enqueue_unowned(0, 1);
    pump.enqueue(1, 0, 1).unwrap();
    let sent = wire.sent.borrow().len();
    assert_eq!((sent, wire.wakes.get()), (0, 1), "both, by one turn");
}

#[test]
fn what_cannot_go_at_once_waits_for_a_turn_and_is_in_order() {
    let (mut pump, wire) = warm();
    pump.enqueue(0, 0, 1).unwrap();
    wire.is_down.set(true);
    for n in 1..5 {
        pump.enqueue(n, n, n.into()).unwrap();
    }
    assert_eq!((pump.waiting(), wire.wakes.get()), (4, 1));
    let waiting = pump.waiting.iter().map(|request| request.owner);
    assert_eq!(waiting.collect::<Vec<_>>(), [1, 2, 3, 4].map(Some));
    wire.is_down.set(false);
    assert!(pump.turn(4).is_empty());
    assert_eq!(owners(&pump.on_reply(1, ok, 4).unwrap()).len(), 4);
    assert_eq!(owners(&pump.on_reply(0, ok, 4).unwrap()).len(), 1);

    wire.is_ready.set(false);
    pump.enqueue(9, 9, 6).unwrap();
    assert_eq!((pump.waiting(), wire.wakes.get()), (1, 2));
}

#[test]
fn a_full_pump_turns_away_but_never_what_must_be_given_back() {
    let (mut pump, _wire) = pump(Settings {
        waiting_max: 1,
        ..SETTINGS
    });
    assert_eq!(pump.enqueue(1, 1, 0), Ok(()));
    assert_eq!(pump.enqueue(2, 2, 0), Err(Full));
    pump.enqueue_unowned(3, 0);
    assert_eq!(pump.waiting.len(), 2);
}

#[test]
fn waiting_ends_at_the_deadline_and_a_call_at_its_oldest_requests() {
    let (mut pump, wire) = pump(SETTINGS);
    pump.enqueue(1, 0, 0).unwrap();
    pump.enqueue(2, 0, 60).unwrap();
    let completed = pump.turn(100);
    assert_eq!(owners(&completed), [Some(1)]);
    assert_eq!(completed[0].outcome, Err(Definite::Expired.into()));
    assert_eq!(wire.sent.borrow()[0].1, 60, "request 2 has until 160");
}

#[test]
fn a_clock_that_is_set_back_makes_no_call_longer_than_a_deadline() {
    let (mut pump, wire) = pump(SETTINGS);
    pump.enqueue(1, 0, 1_000_000).unwrap();
    pump.turn(5);
    assert_eq!(wire.sent.borrow()[0].1, 100);
}

#[test]
fn an_unknown_script_is_sent_again_spelt_out_once() {
    let (mut pump, wire) = pump(SETTINGS);
    (0..3).for_each(|n| pump.enqueue(n, n, 0).unwrap());
    pump.turn(0);
    let noscript = || Value::Error(b"NOSCRIPT No matching script.".to_vec());
    let completed = pump
        .on_reply(0, |_| Ok(vec![Value::Integer(1), noscript()]), 30)
        .unwrap();
    assert_eq!(
        owners(&completed),
        [Some(0), Some(2)],
        "the call that Redis knew has completed"
    );
    let (body, timeout_ms) = wire.sent.borrow()[1].clone();
    assert!(body.starts_with(b"*5\r\n$4\r\nEVAL\r\n$11\r\nreturn ARGV\r\n"));
    assert_eq!(timeout_ms, 70);
    let completed = pump.on_reply(1, |_| Ok(vec![noscript()]), 31).unwrap();
    assert!(matches!(completed[0].outcome, Err(Failure::Definite(_))));
    assert_eq!(wire.sent.borrow().len(), 2, "no third try");
}

#[test]
fn a_refused_call_fails_its_requests_at_once_and_the_next_turn_tries_the_rest() {
    let (mut pump, wire) = pump(SETTINGS);
    (0..100).for_each(|n| pump.enqueue(n, 0, 0).unwrap());
    wire.is_down.set(true);
    let completed = pump.turn(0);
    assert_eq!(owners(&completed).len(), BATCH_MAX);
    assert_eq!(completed[0].outcome, Err(Definite::NotSent.into()));
    assert_eq!(wire.wakes.get(), 2, "36 still wait");
    wire.is_down.set(false);
    assert!(pump.turn(1).is_empty());
    assert_eq!(wire.sent.borrow().len(), 1);
}

#[test]
fn one_callback_never_completes_more_than_one_batches_worth() {
    let (mut pump, wire) = pump(SETTINGS);
    (0..300).for_each(|n| pump.enqueue(n, 0, 0).unwrap());
    let first = pump.turn(100);
    assert_eq!(owners(&first).len(), BATCH_MAX);
    let mut rest = 0;
    while wire.wakes.replace(0) > 0 {
        let completed = owners(&pump.turn(100)).len();
        assert!(completed <= BATCH_MAX);
        rest += completed;
    }
    assert_eq!(rest, 300 - BATCH_MAX);
}

#[test]
fn an_owner_that_goes_is_dropped_while_it_waits_and_forgotten_once_it_is_sent() {
    let (mut pump, _wire) = pump(SETTINGS);
    pump.enqueue(1, 0, 0).unwrap();
    pump.enqueue(2, 0, 0).unwrap();
    pump.forget(1);
    pump.turn(0);
    pump.forget(2);
    let completed = pump.on_reply(0, ok, 1).unwrap();
    assert_eq!(owners(&completed), [None], "1 was never sent, 2 was");
}

#[test]
fn a_call_that_is_not_the_pumps_is_left_to_its_owner() {
    let (mut pump, _wire) = pump(SETTINGS);
    assert_eq!(pump.on_reply(9, ok, 0), None);
}

#[derive(Clone, Debug)]
enum Event {
    Enqueue,
    Forget(u32),
    Turn,
    Respond {
        which: usize,
        fails: bool,
        noscript: bool,
    },
    Down(bool),
    Ready(bool),
    Pass(u64),
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => Just(Event::Enqueue),
        2 => (0..60_u32).prop_map(Event::Forget),
        3 => Just(Event::Turn),
        4 => (0..4_usize, any::<bool>(), any::<bool>())
            .prop_map(|(which, fails, noscript)| Event::Respond { which, fails, noscript }),
        1 => any::<bool>().prop_map(Event::Down),
        1 => any::<bool>().prop_map(Event::Ready),
        2 => (0..80_u64).prop_map(Event::Pass),
    ]
}

/// What a run of events has come to.
#[derive(Default)]
struct Tally {
    completed: Vec<u32>,
    dropped: BTreeSet<u32>,
}

impl Tally {
    fn take(&mut self, completed: Vec<Completed<u32>>) {
        let jobs = completed.iter().flat_map(|l| &l.requests).map(|t| t.job);
        self.completed.extend(jobs);
    }
}

proptest! {
    /// Whatever happens in whatever order, every request completes exactly once, or is dropped unsent
    /// because its owner went; nothing waits for ever.
    #[test]
    fn every_request_completes_exactly_once(events in prop::collection::vec(any_event(), 0..200)) {
        let (mut pump, wire) = pump(SETTINGS);
        let (mut now_ms, mut next, mut tally) = (0, 0_u32, Tally::default());
        for event in events {
            match event {
                Event::Enqueue => { pump.enqueue(next, next, now_ms).unwrap(); next += 1; }
                Event::Forget(owner) => {
                    let waited = pump.waiting.iter().any(|t| t.owner == Some(owner));
                    pump.forget(owner);
                    if waited { tally.dropped.insert(owner); }
                }
                Event::Turn => tally.take(pump.turn(now_ms)),
                Event::Respond { which, fails, noscript } => {
                    let Some(&token) = pump.batches.keys().nth(which) else { continue };
                    let completed = pump.on_reply(token, |count| match (fails, noscript) {
                        (true, _) => Err(Unknown::Timeout.into()),
                        (false, true) => Ok(vec![Value::Error(b"NOSCRIPT".to_vec()); count]),
                        (false, false) => ok(count),
                    }, now_ms);
                    tally.take(completed.unwrap());
                }
                Event::Down(is_down) => wire.is_down.set(is_down),
                Event::Ready(is_ready) => wire.is_ready.set(is_ready),
                Event::Pass(ms) => now_ms += ms,
            }
            // NOSCRIPT sends again in place of a batch that has just completed.
            prop_assert!(pump.batches.len() <= SETTINGS.batches_max);
        }
        for _ in 0..400 {
            while let Some(&token) = pump.batches.keys().next() {
                tally.take(pump.on_reply(token, ok, now_ms).unwrap());
            }
            tally.take(pump.turn(now_ms));
        }
        tally.completed.extend(&tally.dropped);
        tally.completed.sort_unstable();
        prop_assert_eq!(tally.completed, (0..next).collect::<Vec<_>>());
    }

    /// Whoever waits is always going to be looked at: by a wake-up, or by a batch that completes.
    #[test]
    fn nobody_waits_without_a_wake_up_or_a_batch(
        turns in prop::collection::vec((0..150_u32, any::<bool>(), any::<bool>()), 1..8),
    ) {
        let (mut pump, wire) = pump(SETTINGS);
        for (count, is_ready, is_down) in turns {
            wire.is_ready.set(is_ready);
            wire.is_down.set(is_down);
            (0..count).for_each(|n| pump.enqueue(n, n, 0).unwrap_or(()));
            prop_assert!(pump.waiting.is_empty() || wire.wakes.get() > 0 || !pump.batches.is_empty());
            wire.wakes.set(0);
            pump.turn(0);
            prop_assert!(pump.waiting.is_empty() || wire.wakes.get() > 0 || !pump.batches.is_empty());
        }
    }
}
