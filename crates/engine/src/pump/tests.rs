use alloc::collections::BTreeSet;
use alloc::string::ToString;
use alloc::vec;

use proptest::prelude::*;
use weir_scripts::Script;

use super::*;
use crate::effect::Effect;

mod refusals;

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
#[derive(Debug)]
struct ByParity;

impl Plan for ByParity {
    type Job = u32;

    fn plan(&self, requests: Vec<Pending<u32>>, _now_ms: u64) -> Vec<PlannedBatch<u32>> {
        let (even, odd): (Vec<_>, Vec<_>) = requests.into_iter().partition(|r| r.job % 2 == 0);
        [even, odd]
            .into_iter()
            .filter(|requests| !requests.is_empty())
            .map(|requests| PlannedBatch {
                call: Call {
                    script: &SCRIPT,
                    keys: [b"k"].into(),
                    args: requests
                        .iter()
                        .map(|r| r.job.to_string().into_bytes())
                        .collect(),
                },
                requests,
            })
            .collect()
    }
}

/// A pump and a host that applies its effects.
struct Bench {
    pump: Pump<ByParity>,
    effects: Effects,
    /// Each sent call: its id, its body and its timeout in milliseconds.
    sent: Vec<(BatchId, Vec<u8>, u64)>,
    wakes: usize,
    logged: Vec<String>,
    is_down: bool,
    /// Whether a connection is open, so that sending needs no turn.
    is_ready: bool,
    metrics: Metrics,
}

impl Bench {
    fn new(settings: Settings) -> Self {
        let mut metrics = Metrics::new();
        let counts = Counts::new(&mut metrics, "t");
        let refusals = Refusals::new(&mut metrics, "t", "weir_redis");
        Self {
            pump: Pump::new(settings, ByParity, counts, refusals),
            effects: Effects::new(),
            sent: vec![],
            wakes: 0,
            logged: vec![],
            is_down: false,
            is_ready: true,
            metrics,
        }
    }

    /// A pump whose first batch has completed.
    fn warm() -> Self {
        let mut bench = Self::new(Settings {
            batches_max: 4,
            ..SETTINGS
        });
        bench.enqueue(1_000, 0, 0).unwrap();
        assert_eq!(bench.sent.len(), 0, "the first one takes a turn");
        bench.turn(0);
        bench.reply(0, 0);
        bench.sent.clear();
        bench.wakes = 0;
        bench
    }

    fn apply(&mut self) {
        loop {
            let mut list = vec![];
            self.effects.take_into(&mut list);
            if list.is_empty() {
                return self.effects.clear_bytes();
            }
            for effect in list {
                match effect {
                    Effect::Wake => self.wakes += 1,
                    Effect::Log(_, text) => self.logged.push(text),
                    Effect::Call {
                        batch,
                        at_once: true,
                        ..
                    } if self.is_down || !self.is_ready => {
                        assert!(self.pump.deferred(batch, &mut self.effects));
                    }
                    Effect::Call { batch, .. } if self.is_down => {
                        assert!(self.pump.not_sent(batch, &mut self.effects));
                    }
                    Effect::Call {
                        batch,
                        body,
                        timeout_ms,
                        ..
                    } => {
                        let body = self.effects.bytes(&body).to_vec();
                        self.sent.push((batch, body, timeout_ms));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn enqueue(&mut self, stream: u32, job: u32, now_ms: u64) -> Result<(), PumpFull> {
        let accepted = self.pump.enqueue(stream, job, now_ms, &mut self.effects);
        self.apply();
        accepted
    }

    fn enqueue_all(&mut self, streams: core::ops::Range<u32>, now_ms: u64) {
        streams.for_each(|n| self.enqueue(n, 0, now_ms).unwrap());
    }

    fn enqueue_unowned(&mut self, job: u32, now_ms: u64) {
        self.pump.enqueue_unowned(job, now_ms, &mut self.effects);
        self.apply();
    }

    fn turn(&mut self, now_ms: u64) -> Vec<CompletedBatch<u32>> {
        let completed = self.pump.flush(now_ms, &mut self.effects);
        self.apply();
        completed
    }

    fn reply_with(
        &mut self,
        batch: BatchId,
        reply: impl FnOnce(usize) -> Reply,
        now_ms: u64,
    ) -> Option<Vec<CompletedBatch<u32>>> {
        let commands = self.pump.batches.get(&batch).map_or(0, |b| b.calls.len());
        let reply = reply(commands);
        let completed = self.pump.on_reply(batch, reply, now_ms, &mut self.effects);
        self.apply();
        completed
    }

    /// Redis replies to the sent call with this index.
    fn reply(&mut self, index: usize, now_ms: u64) -> Vec<CompletedBatch<u32>> {
        let batch = self.sent[index].0;
        self.reply_with(batch, ok, now_ms).unwrap()
    }

    fn is_looked_after(&self) -> bool {
        self.pump.waiting.is_empty() || self.wakes > 0 || !self.pump.batches.is_empty()
    }
}

fn ok(count: usize) -> Reply {
    Ok(b":7\r\n".repeat(count))
}

fn noscript(count: usize) -> Reply {
    Ok(b"-NOSCRIPT No matching script.\r\n".repeat(count))
}

fn streams(completed: &[CompletedBatch<u32>]) -> Vec<Option<u32>> {
    completed
        .iter()
        .flat_map(|c| &c.requests)
        .map(|r| r.stream)
        .collect()
}

#[test]
fn requests_of_one_turn_are_sent_in_one_call_with_one_wake_up() {
    let mut bench = Bench::new(SETTINGS);
    (0..10).for_each(|n| bench.enqueue(n, n, 0).unwrap());
    assert_eq!(bench.wakes, 1);
    assert!(bench.turn(0).is_empty());
    assert_eq!(bench.sent.len(), 1);
    let completed = bench.reply(0, 5);
    assert_eq!(completed.len(), 2, "one call for each parity");
    assert_eq!(streams(&completed).len(), 10);
    let mut counted = vec![];
    bench
        .metrics
        .collect(|index, count| counted.push((index, count)));
    assert_eq!(counted[..3], [(0, 1), (1, 2), (2, 10)]);
}

#[test]
fn histogram_counts_the_wait_in_the_queue_and_for_redis() {
    let mut bench = Bench::new(SETTINGS);
    bench.enqueue(0, 0, 0).unwrap();
    bench.turn(2);
    bench.reply(0, 4);
    let names: Vec<_> = bench.metrics.counters().map(String::from).collect();
    let mut counted = vec![];
    bench
        .metrics
        .collect(|index, count| counted.push((names[index].as_str(), count)));
    assert_eq!(counted[3], ("t_redis_seconds_bucket.le.0.005", 1));
    assert_eq!(counted.last(), Some(&("t_redis_seconds_bucket.le.+Inf", 1)));
}

#[test]
fn batches_are_bounded_and_remainder_is_sent_on_completion() {
    let mut bench = Bench::new(SETTINGS);
    bench.enqueue_all(0..200, 0);
    bench.turn(0);
    assert_eq!(bench.sent.len(), 2);
    assert_eq!(bench.pump.waiting(), 200 - 2 * BATCH_MAX);
    let completed = bench.reply(0, 1);
    assert_eq!(streams(&completed).len(), BATCH_MAX);
    assert_eq!(bench.sent.len(), 3);
    assert_eq!(bench.pump.waiting(), 200 - 3 * BATCH_MAX);
}

#[test]
fn requests_during_a_batch_are_sent_on_completion_or_when_late() {
    let mut bench = Bench::new(SETTINGS);
    bench.enqueue(0, 0, 0).unwrap();
    bench.turn(0);
    bench.wakes = 0;
    bench.enqueue_all(1..4, 1);
    assert_eq!(bench.wakes, 0, "the end of the batch will do");
    assert!(bench.turn(1).is_empty());
    assert_eq!(bench.sent.len(), 1);
    bench.reply(0, 2);
    assert_eq!(bench.sent.len(), 2, "the three go together");

    bench.enqueue(4, 0, 3).unwrap();
    assert_eq!(bench.wakes, 0);
    bench.is_ready = false;
    bench.enqueue(5, 0, 2 + LATE_MS).unwrap();
    assert_eq!(bench.wakes, 1, "the batch is late");
    bench.turn(2 + LATE_MS);
    assert_eq!(bench.sent.len(), 3);
}

#[test]
fn second_to_fourth_batches_start_at_growing_sizes() {
    let mut bench = Bench::new(Settings {
        batches_max: 5,
        ..SETTINGS
    });
    bench.is_ready = false;
    let mut next = 0;
    for (index, enough) in [1, 4, 8, 64].into_iter().enumerate() {
        let mut wait = |count: u32| {
            bench.enqueue_all(next..next + count, 1);
            next += count;
            bench.turn(1);
            (bench.sent.len(), core::mem::take(&mut bench.wakes))
        };
        assert_eq!(wait(enough - 1), (index, 0), "{enough} are enough");
        assert_eq!(wait(1), (index + 1, 1));
    }
}

#[test]
fn batch_is_sent_at_once_with_few_requests_in_flight() {
    let mut bench = Bench::warm();
    bench.enqueue(0, 0, 1).unwrap();
    assert_eq!((bench.sent.len(), bench.wakes), (1, 0), "alone");
    bench.enqueue_all(1..4, 1);
    assert_eq!(bench.sent.len(), 1);
    bench.enqueue(4, 0, 1).unwrap();
    assert_eq!((bench.sent.len(), bench.wakes), (2, 0), "four at once");
    bench.enqueue_all(5..13, 1);
    assert_eq!(
        (bench.sent.len(), bench.wakes),
        (2, 1),
        "five are under way"
    );
    bench.turn(1);
    assert_eq!(bench.sent.len(), 3);
    let completed = bench.reply(1, 1);
    assert_eq!(streams(&completed), (1..5).map(Some).collect::<Vec<_>>());
}

#[test]
fn requests_after_a_large_batch_are_batched_again() {
    let mut bench = Bench::warm();
    bench.enqueue_unowned(0, 1);
    bench.enqueue_all(1..9, 1);
    bench.turn(1);
    bench.reply(0, 1);
    bench.enqueue_all(10..15, 2);
    assert_eq!((bench.sent.len(), bench.wakes), (1, 2), "all by one turn");
    bench.turn(2);
    bench.reply(1, 2);
    bench.enqueue(20, 0, 3).unwrap();
    assert_eq!((bench.sent.len(), bench.wakes), (2, 3), "after five");
    bench.turn(3);
    bench.reply(2, 3);
    bench.enqueue(21, 0, 4).unwrap();
    assert_eq!((bench.sent.len(), bench.wakes), (4, 3), "after one");
}

#[test]
fn request_is_immediate_after_batch_of_four_but_not_of_five() {
    for (len, goes_at_once) in [(4, true), (5, false)] {
        let mut bench = Bench::warm();
        bench.enqueue_unowned(0, 1);
        bench.enqueue_all(1..len, 1);
        bench.turn(1);
        assert_eq!(streams(&bench.reply(0, 1)).len(), len as usize);
        bench.enqueue(9, 0, 2).unwrap();
        assert_eq!(bench.sent.len() == 2, goes_at_once, "{len}");
    }
}

#[test]
fn request_without_a_stream_waits_for_a_turn() {
    let mut bench = Bench::warm();
    bench.enqueue_unowned(0, 1);
    bench.enqueue(1, 0, 1).unwrap();
    assert_eq!((bench.sent.len(), bench.wakes), (0, 1), "both, by one turn");
}

#[test]
fn delayed_requests_wait_for_a_turn_in_order() {
    let mut bench = Bench::warm();
    bench.enqueue(0, 0, 1).unwrap();
    bench.is_ready = false;
    for n in 1..5 {
        bench.enqueue(n, n, n.into()).unwrap();
    }
    assert_eq!((bench.pump.waiting(), bench.wakes), (4, 1));
    let waiting = bench.pump.waiting.iter().map(|pending| pending.stream);
    assert_eq!(waiting.collect::<Vec<_>>(), [1, 2, 3, 4].map(Some));
    assert!(bench.turn(4).is_empty());
    assert_eq!(streams(&bench.reply(1, 4)).len(), 4);
    assert_eq!(streams(&bench.reply(0, 4)).len(), 1);

    bench.enqueue(9, 9, 6).unwrap();
    assert_eq!((bench.pump.waiting(), bench.wakes), (1, 2));
}

#[test]
fn full_pump_refuses_requests_but_accepts_unowned_ones() {
    let mut bench = Bench::new(Settings {
        waiting_max: 1,
        ..SETTINGS
    });
    assert_eq!(bench.enqueue(1, 1, 0), Ok(()));
    assert_eq!(bench.enqueue(2, 2, 0), Err(PumpFull));
    bench.enqueue_unowned(3, 0);
    assert_eq!(bench.pump.waiting(), 2);
}

#[test]
fn waiting_ends_at_deadline_and_call_ends_with_oldest_request() {
    let mut bench = Bench::new(SETTINGS);
    bench.enqueue(1, 0, 0).unwrap();
    bench.enqueue(2, 0, 60).unwrap();
    let completed = bench.turn(100);
    assert_eq!(streams(&completed), [Some(1)]);
    assert_eq!(completed[0].outcome, Err(DefiniteFailure::Expired.into()));
    assert_eq!(bench.sent[0].2, 60, "request 2 has until 160");
}

#[test]
fn calls_never_exceed_a_deadline_after_clock_goes_back() {
    let mut bench = Bench::new(SETTINGS);
    bench.enqueue(1, 0, 1_000_000).unwrap();
    bench.turn(5);
    assert_eq!(bench.sent[0].2, 100);
}

#[test]
fn unknown_script_is_retried_once_with_its_source() {
    let mut bench = Bench::new(SETTINGS);
    (0..3).for_each(|n| bench.enqueue(n, n, 0).unwrap());
    bench.turn(0);
    let first = bench.sent[0].0;
    let half = |_| Ok(b":1\r\n-NOSCRIPT No matching script.\r\n".to_vec());
    let completed = bench.reply_with(first, half, 30).unwrap();
    assert_eq!(
        streams(&completed),
        [Some(0), Some(2)],
        "the call that Redis knew has completed"
    );
    let (second, body, timeout_ms) = bench.sent[1].clone();
    assert!(body.starts_with(b"*5\r\n$4\r\nEVAL\r\n$11\r\nreturn ARGV\r\n"));
    assert_eq!(timeout_ms, 70);
    let completed = bench.reply_with(second, noscript, 31).unwrap();
    assert!(matches!(completed[0].outcome, Err(Failure::Definite(_))));
    assert_eq!(bench.sent.len(), 2, "no third try");
}

#[test]
fn unsendable_calls_fail_their_requests_in_next_turn() {
    let mut bench = Bench::new(SETTINGS);
    bench.enqueue_all(0..100, 0);
    bench.is_down = true;
    bench.wakes = 0;
    assert!(bench.turn(0).is_empty());
    assert_eq!(bench.wakes, 1);
    bench.is_down = false;
    let completed = bench.turn(1);
    assert_eq!(streams(&completed).len(), BATCH_MAX);
    assert_eq!(completed[0].outcome, Err(DefiniteFailure::NotSent.into()));
    assert_eq!(streams(&bench.turn(1)).len(), 100 - BATCH_MAX);
    let mut counted = vec![];
    bench
        .metrics
        .collect(|index, count| counted.push((index, count)));
    assert_eq!(counted, [], "nothing was sent");
}

#[test]
fn one_event_never_completes_more_than_one_batchs_worth() {
    let mut bench = Bench::new(SETTINGS);
    bench.enqueue_all(0..300, 0);
    let first = bench.turn(100);
    assert_eq!(streams(&first).len(), BATCH_MAX);
    let mut rest = 0;
    while core::mem::take(&mut bench.wakes) > 0 {
        let completed = streams(&bench.turn(100)).len();
        assert!(completed <= BATCH_MAX);
        rest += completed;
    }
    assert_eq!(rest, 300 - BATCH_MAX);
}

#[test]
fn closed_stream_is_dropped_if_waiting_and_forgotten_if_sent() {
    let mut bench = Bench::new(SETTINGS);
    bench.enqueue(1, 0, 0).unwrap();
    bench.enqueue(2, 0, 0).unwrap();
    bench.pump.forget(1);
    bench.turn(0);
    bench.pump.forget(2);
    assert_eq!(
        streams(&bench.reply(0, 1)),
        [None],
        "1 was never sent, 2 was"
    );
}

#[test]
fn pump_ignores_calls_of_other_owners() {
    let mut bench = Bench::new(SETTINGS);
    assert_eq!(bench.reply_with(BatchId(9), ok, 0), None);
    assert!(!bench.pump.not_sent(BatchId(9), &mut bench.effects));
    assert!(!bench.pump.deferred(BatchId(9), &mut bench.effects));
    assert!(bench.effects.as_slice().is_empty());
    assert!(!bench.pump.has(BatchId(9)));
    bench.enqueue(1, 1, 0).unwrap();
    bench.turn(0);
    assert!(bench.pump.has(bench.sent[0].0));
}

#[test]
fn jobs_of_one_stream_are_accepted_all_or_none() {
    let mut bench = Bench::new(Settings {
        waiting_max: 2,
        ..SETTINGS
    });
    let enqueue_all = |bench: &mut Bench, jobs: core::ops::Range<u32>| {
        let effects = &mut bench.effects;
        let accepted = bench.pump.enqueue_all(1, jobs, 0, effects);
        bench.apply();
        accepted
    };
    assert_eq!(enqueue_all(&mut bench, 0..3), Ok(()));
    assert_eq!((bench.pump.waiting(), bench.wakes), (3, 1));
    assert_eq!(enqueue_all(&mut bench, 3..5), Err(PumpFull));
    assert_eq!(bench.pump.waiting(), 3);
    bench.turn(0);
    assert_eq!(streams(&bench.reply(0, 1)), [Some(1); 3]);
}

#[test]
fn pump_calls_its_configured_redis() {
    let mut bench = Bench::new(SETTINGS);
    bench.pump = bench.pump.with_redis(RedisId(3));
    bench.pump.enqueue(1, 1, 0, &mut bench.effects).unwrap();
    bench.pump.flush(0, &mut bench.effects);
    let is_to =
        |effect: &Effect| matches!(effect, Effect::Call { redis, .. } if *redis == RedisId(3));
    assert!(bench.effects.as_slice().iter().any(is_to));
}

#[test]
fn retried_request_is_queued_even_in_a_full_pump() {
    let mut bench = Bench::new(Settings {
        waiting_max: 1,
        ..SETTINGS
    });
    bench.enqueue(1, 1, 0).unwrap();
    bench.pump.enqueue_again(2, 2, 0, &mut bench.effects);
    bench.apply();
    assert!(bench.pump.is_full());
    assert_eq!((bench.pump.waiting(), bench.wakes), (2, 1));
    bench.turn(0);
    let completed = bench.reply(0, 1);
    assert_eq!(streams(&completed).len(), 2);
}

#[test]
fn tick_interval_is_a_bounded_quarter_of_the_deadline() {
    for (deadline_ms, tick_ms) in [(100, 25), (1, 10), (60_000, 500)] {
        let bench = Bench::new(Settings {
            deadline_ms,
            ..SETTINGS
        });
        assert_eq!(bench.pump.tick_ms(), tick_ms);
        assert_eq!(bench.pump.settings().deadline_ms, deadline_ms);
    }
}

#[derive(Clone, Debug)]
enum Step {
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

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::Enqueue),
        2 => (0..60_u32).prop_map(Step::Forget),
        3 => Just(Step::Turn),
        4 => (0..4_usize, any::<bool>(), any::<bool>())
            .prop_map(|(which, fails, noscript)| Step::Respond { which, fails, noscript }),
        1 => any::<bool>().prop_map(Step::Down),
        1 => any::<bool>().prop_map(Step::Ready),
        2 => (0..80_u64).prop_map(Step::Pass),
    ]
}

/// The totals of a run.
#[derive(Default)]
struct Total {
    completed: Vec<u32>,
    dropped: BTreeSet<u32>,
}

impl Total {
    fn take(&mut self, completed: Vec<CompletedBatch<u32>>) {
        let jobs = completed.iter().flat_map(|c| &c.requests).map(|r| r.job);
        self.completed.extend(jobs);
    }
}

proptest! {
    /// In every order of events, every request completes exactly once, or is dropped unsent because its stream ended;
    /// no request waits forever.
    #[test]
    fn every_request_completes_exactly_once(steps in prop::collection::vec(any_step(), 0..200)) {
        let mut bench = Bench::new(SETTINGS);
        let (mut now_ms, mut next, mut total) = (0, 0_u32, Total::default());
        for step in steps {
            match step {
                Step::Enqueue => { bench.enqueue(next, next, now_ms).unwrap(); next += 1; }
                Step::Forget(stream) => {
                    let waited = bench.pump.waiting.iter().any(|r| r.stream == Some(stream));
                    bench.pump.forget(stream);
                    if waited { total.dropped.insert(stream); }
                }
                Step::Turn => total.take(bench.turn(now_ms)),
                Step::Respond { which, fails, noscript: is_unknown } => {
                    let Some(&batch) = bench.pump.batches.keys().nth(which) else { continue };
                    let completed = bench.reply_with(batch, |count| match (fails, is_unknown) {
                        (true, _) => Err(UnknownFailure::Timeout.into()),
                        (false, true) => noscript(count),
                        (false, false) => ok(count),
                    }, now_ms);
                    total.take(completed.unwrap());
                }
                Step::Down(is_down) => bench.is_down = is_down,
                Step::Ready(is_ready) => bench.is_ready = is_ready,
                Step::Pass(ms) => now_ms += ms,
            }
            // After `NOSCRIPT`, the resent batch replaces the completed one.
            prop_assert!(bench.pump.batches.len() <= SETTINGS.batches_max);
            prop_assert!(bench.is_looked_after());
        }
        for _ in 0..400 {
            while let Some(&batch) = bench.pump.batches.keys().next() {
                total.take(bench.reply_with(batch, ok, now_ms).unwrap());
            }
            total.take(bench.turn(now_ms));
        }
        total.completed.extend(&total.dropped);
        total.completed.sort_unstable();
        prop_assert_eq!(total.completed, (0..next).collect::<Vec<_>>());
    }

    /// Every waiting request has a next event: a wake-up, or the completion of a batch.
    #[test]
    fn waiting_requests_always_have_a_wake_up_or_a_batch(
        turns in prop::collection::vec((0..150_u32, any::<bool>(), any::<bool>()), 1..8),
    ) {
        let mut bench = Bench::new(SETTINGS);
        for (count, is_ready, is_down) in turns {
            (bench.is_ready, bench.is_down) = (is_ready, is_down);
            (0..count).for_each(|n| bench.enqueue(n, n, 0).unwrap_or(()));
            prop_assert!(bench.is_looked_after());
            bench.wakes = 0;
            bench.turn(0);
            prop_assert!(bench.is_looked_after());
        }
    }
}

/// Requests count from here on: before, the pump has no measurement of Redis.
const WARM_UP_MS: u64 = 500;

/// Sends `per_ms` requests each millisecond until `until_ms`. Redis takes `per_request_us` for each, one after the
/// other, also for requests that have timed out. Returns the numbers of requests that were answered, rejected
/// immediately, and timed out.
fn outcomes(per_ms: u32, until_ms: u64, per_request_us: u64) -> [usize; 3] {
    let mut bench = Bench::new(Settings {
        batches_max: 8,
        waiting_max: 10_000,
        ..SETTINGS
    });
    // The calls in Redis, each with its end time and whether it ends with a reply.
    let mut calls: Vec<(BatchId, u64, bool)> = vec![];
    let [mut answered, mut refused, mut late] = [0; 3];
    let (mut stream, mut free_at_us) = (0, 0);
    for now_ms in 0..until_ms {
        for _ in 0..per_ms {
            stream += 1;
            refused += usize::from(bench.enqueue(stream, 0, now_ms).is_err());
        }
        let mut completed = bench.turn(now_ms);
        for (id, _, timeout_ms) in core::mem::take(&mut bench.sent) {
            let len = bench.pump.batches[&id].len as u64;
            free_at_us = free_at_us.max(now_ms * 1_000) + len * per_request_us;
            let deadline_us = (now_ms + timeout_ms) * 1_000;
            let is_reply = free_at_us <= deadline_us;
            calls.push((id, free_at_us.min(deadline_us), is_reply));
        }
        let ended = calls.extract_if(.., |(_, at_us, _)| *at_us <= now_ms * 1_000);
        for (id, _, is_reply) in ended.collect::<Vec<_>>() {
            let reply = |count| match is_reply {
                true => ok(count),
                false => Err(UnknownFailure::Lost.into()),
            };
            completed.extend(bench.reply_with(id, reply, now_ms).unwrap());
        }
        if now_ms < WARM_UP_MS {
            [answered, refused, late] = [0; 3];
            continue;
        }
        for one in completed {
            match one.outcome {
                Ok(_) => answered += one.requests.len(),
                Err(_) => late += one.requests.len(),
            }
        }
    }
    [answered, refused, late]
}

#[test]
fn double_overload_still_uses_full_redis_capacity() {
    const UNTIL_MS: u64 = 4_000;
    let capacity = (UNTIL_MS - WARM_UP_MS) as usize;
    let [answered, refused, late] = outcomes(2, UNTIL_MS, 1_000);
    assert!(answered * 10 >= capacity * 9, "{answered} of {capacity}");
    assert_eq!(late, 0, "were given up late");
    assert!(refused * 10 >= capacity * 9, "{refused} were told at once");
}

#[test]
fn load_within_redis_capacity_is_never_refused() {
    for (per_ms, per_request_us) in [(1, 900), (9, 100), (60, 15)] {
        let [_, refused, late] = outcomes(per_ms, 4_000, per_request_us);
        assert_eq!((refused, late), (0, 0), "{per_ms} a ms");
    }
}
