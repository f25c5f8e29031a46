//! The streams to the bridge: each has one call at a time, and no reply reaches another call.

use std::time::Duration;

use weir_host_test::{Call, Reply, Thread};

use super::support::{CATALOGUE, Gate, granted};

/// The calls of claims in flight on worker 0.
fn claims(gate: &Gate) -> Vec<Call> {
    gate.host.run_until_idle();
    let calls = gate.host.calls().into_iter();
    calls
        .filter(|call| call.body_text().contains("EVALSHA"))
        .collect()
}

fn stream_of(call: &Call) -> u32 {
    call.stream().expect("calls come on streams")
}

/// Answers the call with a claim, and returns its stream.
fn grant(gate: &Gate) -> u32 {
    let call = claims(gate).remove(0);
    gate.answer_claims(|_user| granted(7));
    stream_of(&call)
}

#[test]
fn one_stream_carries_successive_calls() {
    let gate = Gate::ready();
    let streams: Vec<u32> = (0..5)
        .map(|n| {
            let buyer = gate.buy(&format!("user-{n}"));
            let stream = grant(&gate);
            assert!(buyer.is_continued());
            stream
        })
        .collect();
    assert!(streams.iter().all(|stream| *stream == streams[0]));
}

#[test]
fn concurrent_calls_use_separate_streams() {
    let gate = Gate::ready_with_fast_redis();
    let buyers: Vec<_> = (0..4 * 64)
        .map(|n| gate.buy(&format!("user-{n}")))
        .collect();
    let mut streams: Vec<u32> = claims(&gate).iter().map(stream_of).collect();
    streams.sort_unstable();
    streams.dedup();
    assert_eq!(streams.len(), claims(&gate).len());
    assert!(streams.len() >= 4);
    gate.answer_claims(|_user| granted(7));
    assert!(buyers.iter().all(|buyer| buyer.is_continued()));
}

#[test]
fn late_reply_is_discarded_with_its_stream() {
    let gate = Gate::ready();
    let late = gate.buy("alice");
    let call = claims(&gate).remove(0);
    gate.host.advance(Duration::from_millis(320));
    assert_eq!(late.status(), Some(503));
    assert!(
        !gate.host.answer(call.id, Reply::ok("*1\r\n:1\r\n")),
        "its stream has ended with it"
    );
    let next = gate.buy("bob");
    assert_ne!(grant(&gate), stream_of(&call));
    assert!(next.is_continued());
}

#[test]
fn closed_stream_is_replaced_by_a_new_one() {
    for end in [Reply::Fail, Reply::ok("failed: the replies are not RESP")] {
        let gate = Gate::ready();
        let lost = gate.buy("alice");
        let call = claims(&gate).remove(0);
        gate.host.answer(call.id, end);
        gate.host.run_until_idle();
        assert_eq!(lost.status(), Some(503));
        let next = gate.buy("bob");
        assert_ne!(grant(&gate), stream_of(&call));
        assert!(next.is_continued());
    }
}

#[test]
fn unanswered_poll_times_out_and_is_retried() {
    let gate = Gate::start(super::support::CONFIG);
    let early = gate.buy("bob");
    gate.host.run_until_idle();
    assert!(early.is_paused(), "no sale is known yet");
    let polls = |gate: &Gate| gate.host.calls().len();
    assert!(polls(&gate) > 0);
    // The polls in flight get no reply; their successors do.
    gate.host.advance(Duration::from_millis(700));
    gate.answer_polls_with(CATALOGUE);
    let buyer = gate.buy("alice");
    gate.answer_claims(|_user| granted(7));
    assert!(early.is_continued() && buyer.is_continued());
}

#[test]
fn redis_error_reply_makes_next_call_use_a_new_connection() {
    for error in [
        "-READONLY You can't write against a read only replica.\r\n",
        "-LOADING Redis is loading the dataset in memory\r\n",
    ] {
        let gate = Gate::ready();
        let lost = gate.buy("alice");
        let call = claims(&gate).remove(0);
        gate.host.answer(call.id, Reply::ok(error));
        gate.host.run_until_idle();
        assert_eq!(lost.status(), Some(503));
        let next = gate.buy("bob");
        assert_ne!(grant(&gate), stream_of(&call));
        assert!(next.is_continued());
        let open = gate.host.open_grpc_streams(Thread::Worker(0));
        gate.host.tick();
        let remaining = gate.host.open_grpc_streams(Thread::Worker(0));
        assert_eq!(remaining, open - 1, "the tick closes it");
        gate.host.assert_sound();
    }
}

#[test]
fn missing_redis_script_does_not_close_the_connection() {
    let gate = Gate::ready();
    let buyer = gate.buy("alice");
    let call = claims(&gate).remove(0);
    let unknown = "-NOSCRIPT No matching script. Please use EVAL.\r\n";
    gate.host.answer(call.id, Reply::ok(unknown));
    gate.host.run_until_idle();
    let calls = gate.host.calls();
    let spelt_out = calls
        .iter()
        .find(|call| call.body_text().contains("$4\r\nEVAL\r\n"))
        .expect("it goes again, spelt out");
    assert_eq!(stream_of(spelt_out), stream_of(&call));
    gate.answer_claims(|_user| granted(7));
    assert!(buyer.is_continued());
}

#[test]
fn streams_of_a_burst_are_closed_after_it_ends() {
    let gate = Gate::ready_with_fast_redis();
    let buyers: Vec<_> = (0..4 * 64)
        .map(|n| gate.buy(&format!("user-{n}")))
        .collect();
    gate.host.run_until_idle();
    gate.answer_claims(|_user| granted(7));
    assert!(buyers.iter().all(|buyer| buyer.is_continued()));
    let open = || gate.host.open_grpc_streams(Thread::Worker(0));
    let burst = open();
    assert!(burst >= 4, "{burst}");
    // For more than a minute, every poll gets its reply before its timeout.
    for _ in 0..700 {
        gate.host.advance(Duration::from_millis(100));
        gate.answer_polls_with(CATALOGUE);
    }
    assert!(open() <= 2, "{} of {burst} are left", open());
    let buyer = gate.buy("late");
    gate.answer_claims(|_user| granted(7));
    assert!(buyer.is_continued());
    gate.host.assert_sound();
}
