//! The built filter when Redis, the origin, the client or the VM fails.

use std::time::Duration;

use super::support::{CONFIG, Gate, granted};
use weir_base::id::UserId;
use weir_host_test::{FailurePolicy, Reply, Thread, Upstream};
use weir_sale::redis::{claim, release};
use weir_sale::shard::bucket;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn claim_script_missing_in_redis_is_sent_in_full() {
    let gate = Gate::ready();
    let buyer = gate.buy("alice");
    gate.host.run_until_idle();
    let [first] = &gate.host.calls()[..] else {
        panic!("one call")
    };
    assert!(first.body.windows(7).any(|w| w == b"EVALSHA"));
    gate.host
        .answer(first.id, Reply::ok("-NOSCRIPT No matching script.\r\n"));
    gate.host.run_until_idle();
    let [second] = &gate.host.calls()[..] else {
        panic!("one more call")
    };
    let source = claim::SCRIPT.source.as_bytes();
    assert!(second.body.windows(source.len()).any(|w| w == source));
    gate.answer_claims(|_user| granted(7));
    assert!(buyer.is_continued());
}

#[test]
fn definite_and_unknown_failures_are_counted_and_retryable() {
    let gate = Gate::ready();
    for (reply, outcome) in [
        (Reply::ok("-no upstream host\r\n"), "definite"),
        (
            Reply::ok("refused: the body is not RESP commands"),
            "definite",
        ),
        (
            Reply::ok("-OOM command not allowed when used memory > 'maxmemory'.\r\n"),
            "definite",
        ),
        (Reply::ok("failed: the replies are not RESP"), "unknown"),
        (Reply::ok("login: WRONGPASS invalid password"), "unknown"),
        (Reply::status(400, "bad"), "unknown"),
        (Reply::ok("-upstream failure\r\n"), "unknown"),
        (Reply::ok("garbage"), "unknown"),
        (Reply::ok(""), "unknown"),
        (Reply::ok("*1\r\n:1\r\n"), "unknown"),
        (Reply::unreachable(), "unknown"),
        (Reply::Fail, "unknown"),
    ] {
        let name = format!("weir_seckill_gate_redis_failed_total.outcome.{outcome}");
        let before = gate.metric(&name);
        let buyer = gate.buy("alice");
        gate.host.run_until_idle();
        gate.host.answer(gate.host.calls()[0].id, reply);
        gate.host.run_until_idle();
        let answer = buyer.reply().unwrap();
        assert_eq!(answer.status, 503);
        assert_eq!(answer.header("x-weir-verdict").unwrap(), "unavailable");
        assert_eq!(answer.header("retry-after").unwrap(), "1");
        assert_eq!(gate.metric(&name), before + 1);
    }
}

#[test]
fn no_healthy_host_is_answered_at_once_and_recovers() {
    let gate = Gate::ready();
    gate.host.set_cluster("weir_redis", Upstream::unhealthy());
    let buyers: Vec<_> = (0..200).map(|n| gate.buy(&format!("user-{n}"))).collect();
    gate.host.run_until_idle();
    assert!(buyers.iter().all(|buyer| buyer.status() == Some(503)));
    gate.host.set_cluster("weir_redis", Upstream::held());
    // The breaker stays open this long.
    gate.host.advance(SECOND);
    let buyer = gate.buy("alice");
    gate.answer_claims(|_user| granted(7));
    assert!(buyer.is_continued());
}

#[test]
fn unanswered_call_ends_at_its_deadline() {
    let gate = Gate::ready();
    let buyer = gate.buy("alice");
    gate.host.run_until_idle();
    gate.host.advance(Duration::from_millis(249));
    assert!(buyer.is_paused());
    // Ticks check it, four times per deadline.
    gate.host.advance(Duration::from_millis(65));
    assert_eq!(
        buyer.reply().unwrap().header("x-weir-verdict").unwrap(),
        "unavailable"
    );
}

#[test]
fn requests_behind_full_batches_are_answered() {
    let gate = Gate::ready_with_fast_redis();
    let buyers: Vec<_> = (0..700).map(|n| gate.buy(&format!("user-{n}"))).collect();
    gate.host.run_until_idle();
    assert_eq!(gate.host.calls().len(), 8);
    gate.host.advance(SECOND);
    let words: Vec<_> = buyers
        .iter()
        .map(|b| {
            b.reply()
                .unwrap()
                .header("x-weir-verdict")
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(
        words.iter().filter(|word| *word == "unavailable").count(),
        8 * 64
    );
    assert_eq!(
        words.iter().filter(|word| *word == "overloaded").count(),
        700 - 8 * 64
    );
}

#[test]
fn requests_beyond_the_queue_limit_are_refused_at_once() {
    let config = CONFIG.replace(
        r#""deadline_ms": 250"#,
        r#""deadline_ms": 250, "waiting_max": 3"#,
    );
    let gate = Gate::ready_with(&config);
    let buyers: Vec<_> = (0..4).map(|n| gate.buy(&format!("user-{n}"))).collect();
    assert!(buyers[..3].iter().all(|buyer| buyer.is_paused()));
    assert_eq!(
        buyers[3].reply().unwrap().header("x-weir-verdict").unwrap(),
        "overloaded"
    );
}

#[test]
fn client_that_disconnects_in_the_queue_is_never_sent() {
    let gate = Gate::ready();
    let stream = gate.buy("alice");
    gate.buy("bob");
    stream.disconnect();
    gate.host.run_until_idle();
    assert_eq!(super::support::users(&gate.host.calls()[0].body), ["bob"]);
}

#[test]
fn claim_of_a_disconnected_client_returns_with_the_next_batch() {
    let gate = Gate::ready();
    let stream = gate.buy("alice");
    gate.host.run_until_idle();
    stream.disconnect();
    gate.answer_claims(|_user| granted(7));
    let [call] = &gate.host.calls()[..] else {
        panic!("a hand-back is under way")
    };
    let sha = release::SCRIPT.sha1_hex();
    assert!(call.body.windows(40).any(|w| w == sha.as_bytes()));
    let bucket = bucket(&UserId::new("alice").unwrap()).to_string();
    let words = format!(
        "$5\r\nalice\r\n${}\r\n{bucket}\r\n$1\r\n7\r\n$1\r\n0\r\n",
        bucket.len()
    );
    assert!(call.body.ends_with(words.as_bytes()));
    gate.host.answer(call.id, Reply::ok("*1\r\n:1\r\n"));
    gate.host.run_until_idle();
    assert_eq!(gate.metric("weir_seckill_gate_claims_handed_back_total"), 1);
}

#[test]
fn clients_that_disconnect_at_any_moment_leave_nothing_behind() {
    let gate = Gate::ready();
    for moment in 0..4 {
        let buyers: Vec<_> = (0..100).map(|n| gate.buy(&format!("user-{n}"))).collect();
        let go = |at: usize| {
            if at == moment {
                buyers.iter().for_each(weir_host_test::Stream::disconnect)
            }
        };
        go(0);
        gate.host.turn();
        go(1);
        gate.host.turn();
        go(2);
        gate.answer_claims(|_user| granted(7));
        gate.host.run_until_idle();
        go(3);
        gate.host.advance(SECOND);
        assert_eq!(
            gate.host.open_contexts(Thread::Worker(0)),
            0,
            "moment {moment}"
        );
        gate.answer_polls();
    }
    assert!(gate.host.is_alive(0));
}

#[test]
fn request_before_the_first_catalogue_waits_for_it() {
    let gate = Gate::start(CONFIG);
    let early = gate.buy("alice");
    assert!(early.is_paused());
    gate.answer_polls();
    gate.answer_claims(|_user| granted(7));
    assert!(early.is_continued());
    gate.host.assert_sound();
}

#[test]
fn unreadable_catalogue_leaves_the_last_one() {
    let gate = Gate::ready();
    for reply in [
        "$-1\r\n",
        "$2\r\n{}\r\n",
        "-LOADING\r\n",
        "$4\r\n\u{0}\u{1}\u{2}\u{3}\r\n",
    ] {
        gate.host.advance(SECOND);
        for call in gate.host.calls() {
            gate.host.answer(call.id, Reply::ok(reply));
        }
        gate.host.run_until_idle();
        let buyer = gate.buy("alice");
        assert!(buyer.is_paused(), "{reply:?}");
        gate.answer_claims(|_user| granted(7));
    }
    assert!(gate.host.logged("catalogue not refreshed"));
}

#[test]
fn fresh_vm_serves_again_after_a_trap() {
    let gate = Gate::builder(CONFIG, |host| {
        host.failure_policy(FailurePolicy::FailReload)
    });
    gate.make_ready();
    gate.host.trap_next("proxy_get_header_map_pairs");
    gate.buy("alice");
    assert!(!gate.host.is_alive(0));
    gate.host.advance(SECOND * 2);
    let first = gate.buy("alice");
    assert!(first.is_paused(), "it knows no sale yet");
    gate.answer_polls();
    gate.answer_claims(|_user| granted(7));
    assert!(first.is_continued());
}
