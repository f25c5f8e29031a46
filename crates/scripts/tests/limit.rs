//! Compares rate limits in Redis with the model, which is [`weir_limit`]: the same histories on both, every answer and
//! every key's expiry compared.

mod history;
mod pair;

use std::time::{Duration, Instant};

use crate::support::Server;
use history::{histories_go_as_in_the_model, mixed, steady};
use pair::{ALGORITHMS, NOW_MS, Pair, ask, new_key, quota};
use weir_base::resp::Value;
use weir_limit::redis::keys::LimitKey;
use weir_limit::redis::limit;
use weir_limit::redis::limit::{Answer, LimitRequest};
use weir_limit::redis::limit_back::Charge;
use weir_limit::{Algorithm, Quota, RATE_MAX, SET_BACK_MS_MAX};

#[test]
fn random_limit_requests_match_the_model() {
    histories_go_as_in_the_model(mixed(), 384);
}

#[test]
fn steady_limit_requests_match_the_model() {
    histories_go_as_in_the_model(steady(), 192);
}

/// The backlog of a low limit with many requests, converted to one with a long period and a high rate. The product of
/// requests and period exceeds the exact range of doubles, and one more tick is one more millisecond.
#[test]
fn backlog_of_another_period_converts_exactly() {
    let server = Server::start();
    let mut pair = Pair::new(&server);
    let slow = quota(Algorithm::Gcra, 1, 4_503_599_627, RATE_MAX);
    let (rate, elapsed_ms) = (149_999, 33_000_000_000);
    let fast = quota(Algorithm::Gcra, rate, u64::from(rate) * 210_001, 142_969);
    for requests in (300_001..300_041).step_by(2) {
        let key = new_key();
        pair.set_clock(NOW_MS);
        assert_eq!(pair.ask_one(&key, slow, requests).used, requests);
        pair.set_clock(NOW_MS + elapsed_ms);
        let ticks = u64::from(requests) * fast.per_ms();
        assert!(ticks > 1 << 53 && ticks % 2 == 1, "it is no double");
        let reset_ms = pair.ask_one(&key, fast, 0).check.reset_ms;
        let remaining = ticks - elapsed_ms * u64::from(rate);
        let others = remaining.div_ceil(fast.per_ms()) - 1;
        let over = remaining - others * fast.per_ms();
        assert_eq!(reset_ms, over.div_ceil(u64::from(rate)));
    }
}

/// A log with too many lines after its period was extended; some requests had been taken back.
#[test]
fn shared_sliding_window_lines_match_the_model() {
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
            assert_eq!(pair.ask_one(&key, short, 1).used, 1);
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
fn request_is_charged_by_all_its_limits_or_by_none() {
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
        let accepted = |answer: &Answer| answer.used;
        let accepted: Vec<Vec<u32>> = answers
            .iter()
            .map(|answers| answers.iter().map(accepted).collect())
            .collect();
        assert_eq!(
            accepted,
            [[1, 1], [1, 1], [0, 0], [1, 1]].map(Vec::from),
            "{algorithm:?}"
        );
        assert!(answers[2][0].check.is_allowed() && !answers[2][1].check.is_allowed());
        let remaining = pair.ask_one(&all, wide, 0).check.remaining;
        assert_eq!(remaining, 7, "{algorithm:?}");
    }
}

/// Otherwise requests of two rules for one key, each within the limit, would together exceed it.
#[test]
fn checks_of_one_key_in_one_request_count_together() {
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
        let observed: Vec<_> = answers.iter().map(allowed).collect();
        // Four never fit, so they count as three.
        assert_eq!(observed, [(true, true), (false, false), (false, false)]);
        assert_eq!((answers[0][0].used, answers[0][1].used), (2, 1));
        assert_eq!(pair.ask_one(&key, three, 0).check.remaining, 0);
    }
}

#[test]
fn lease_takes_only_the_quota_left_after_all_costs() {
    let server = Server::start();
    let mut pair = Pair::new(&server);
    for algorithm in ALGORITHMS {
        let (key, ten) = (new_key(), quota(algorithm, 10, 60_000, 10));
        let lease = |cost, extra| LimitRequest {
            extra,
            ..ask(&key, ten, cost)
        };
        let mut take = |asks: &[LimitRequest]| {
            let answers = pair.ask(&[asks.to_vec()]);
            answers[0]
                .iter()
                .map(|answer| answer.used)
                .collect::<Vec<_>>()
        };
        assert_eq!(take(&[lease(1, 4)]), [5], "{algorithm:?}");
        assert_eq!(take(&[lease(0, 1)]), [1], "{algorithm:?}");
        assert_eq!(take(&[lease(1, 9), lease(2, 9)]), [2, 2], "{algorithm:?}");
        assert_eq!(take(&[lease(1, 9)]), [0], "{algorithm:?}");
    }
}

#[test]
fn foreign_value_counts_as_an_unused_key() {
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
fn small_backward_clock_step_grants_no_second_burst() {
    let server = Server::start();
    let mut pair = Pair::new(&server);
    for algorithm in ALGORITHMS {
        let (key, three) = (new_key(), quota(algorithm, 3, 10_000, 3));
        // A window ends between this moment and the next.
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
fn ended_requests_in_flight_free_capacity_for_others() {
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

/// With Redis' own clock.
#[test]
fn refusal_wait_suffices_and_then_the_redis_key_expires() {
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
        assert_eq!((answer.check.wait_ms, answer.used), (0, 1), "{quota:?}");
    }
    let concurrency = quota(Algorithm::Concurrency, 1, 900, 1);
    assert_eq!(run(&new_key(), concurrency).used, 1);
    let deadline = Instant::now() + Duration::from_secs(60);
    while redis.command(&[b"DBSIZE"]) != Value::Integer(0) {
        assert!(Instant::now() < deadline, "keys stay");
        std::thread::sleep(Duration::from_millis(20));
    }
}
