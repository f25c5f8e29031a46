//! Guarantees of rules that hold for both stores: each check runs with both.

use anyhow::{Context, Result};
use tokio::task::JoinHandle;
use weir_stack::envoy::HOLD_HEADER;
use weir_stack::http::Response;
use weir_tests::{DEBUG_SECRET, Limiters, RedisPath, Setup, until};

use super::{PATIENT, config};

/// Longer than any check takes, and shorter than Envoy's stream timeout.
const HELD_MS: &str = "14000";

/// All rules of the checks, selected by path.
fn rules(store: &str) -> Vec<String> {
    let rule = |name: &str, path: &str, fields: &str| {
        format!(
            r#"{{ "name": "{name}", "match": {{ "path": {{ "exact": "{path}" }} }}, "store": "{store}", {fields} }}"#
        )
    };
    let mut rules: Vec<String> = [
        ("gcra", r#"{ "rate": 1, "per": "1h", "burst": 5 }"#),
        ("sliding_window", r#"{ "rate": 5, "per": "1h" }"#),
        // The window restarts only once in 366 days between two requests of a test.
        ("fixed_window", r#"{ "rate": 5, "per": "366d" }"#),
        ("concurrency", r#"{ "rate": 3, "per": "1h" }"#),
    ]
    .iter()
    .map(|(name, limit)| {
        let fields = format!(r#""algorithm": "{name}", "key": ["user"], "limit": {limit}"#);
        rule(name, &format!("/{name}"), &fields)
    })
    .collect();
    let limit = |burst| format!(r#""limit": {{ "rate": 1, "per": "1h", "burst": {burst} }}"#);
    let of_user = format!(r#""key": ["user"], {}"#, limit(2));
    rules.extend([
        rule("both-all", "/both", &limit(5)),
        rule("both-user", "/both", &of_user),
        rule(
            "shadow",
            "/shadow",
            &format!(r#""mode": "shadow", {of_user}"#),
        ),
        rule(
            "cost",
            "/cost",
            &format!(r#""cost": 3, "key": ["user"], {}"#, limit(10)),
        ),
    ]);
    rules
}

async fn all_checks(store: &str, redis: RedisPath) -> Result<()> {
    let more = match redis {
        RedisPath::None => String::new(),
        _ => format!("{PATIENT},"),
    };
    let more = format!(
        r#"{more} "debug": {{ "secret": {{ "env": "WEIR_DEBUG_SECRET" }} }}, "headers": {{ "on_allowed": true, "legacy": true }}"#
    );
    let setup = Setup {
        gateways: 1,
        workers: 2,
        redis,
        config: &config(&rules(store), &more),
    };
    let mut limiters = setup.start().await?;
    windows_admit_at_most_their_limit(&limiters).await?;
    costs_are_charged(&limiters).await?;
    in_flight_request_counts_until_it_ends(&limiters).await?;
    all_or_nothing(&limiters).await?;
    shadow_rule_refuses_no_request(&limiters).await?;
    let failed = limiters.envoys[0].stats().await?;
    let failed = failed
        .iter()
        .filter(|(name, _)| name.contains("_fallback_total"));
    assert!(
        failed.clone().all(|(_, count)| *count == 0),
        "{:?}",
        failed.collect::<Vec<_>>()
    );
    limiters.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_enforce_their_limits_in_the_gateway() -> Result<()> {
    all_checks("local", RedisPath::None).await
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_enforce_their_limits_in_redis() -> Result<()> {
    all_checks("redis", RedisPath::Straight).await
}

async fn windows_admit_at_most_their_limit(limiters: &Limiters) -> Result<()> {
    for (name, window_s) in [
        ("gcra", 18_000),
        ("sliding_window", 3_600),
        ("fixed_window", 31_622_400),
    ] {
        let path = format!("/{name}");
        for user in ["alice", "bob"] {
            let burst = limiters.burst(&path, user, 20).await?;
            assert_eq!(burst.passed.len(), 5, "{name} {user}");
            let policy = format!(r#""{name}";q=5;w={window_s}"#);
            for answer in burst.passed.iter().chain(&burst.limited) {
                assert_eq!(answer.header("ratelimit-policy"), Some(policy.as_str()));
                assert_eq!(answer.header("x-ratelimit-limit"), Some("5"), "{name}");
            }
            // Each passed request reports the remaining quota, and all numbers differ.
            let mut rest: Vec<_> = burst.passed.iter().map(remaining).collect::<Result<_>>()?;
            rest.sort_unstable();
            assert_eq!(rest, [0, 1, 2, 3, 4], "{name} {user}");
        }
        let counted = limiters
            .count_reaching(&format!("allowed_total.rule.{name}"), 10)
            .await?;
        let refused = limiters
            .count_reaching(&format!("limited_total.rule.{name}"), 30)
            .await?;
        assert_eq!((counted, refused), (10, 30), "{name}");
    }
    Ok(())
}

fn remaining(answer: &Response) -> Result<u32> {
    let rest = answer.header("x-ratelimit-remaining");
    Ok(rest.context("nothing says what is left")?.parse()?)
}

async fn costs_are_charged(limiters: &Limiters) -> Result<()> {
    assert_eq!(limiters.burst("/cost", "alice", 10).await?.passed.len(), 3);
    Ok(())
}

/// A request that stays in flight until it is aborted.
fn hold(limiters: &Limiters) -> JoinHandle<Result<Response>> {
    let authority = limiters.authority(0);
    tokio::spawn(async move {
        let mut connection = weir_stack::http::Connection::open(&authority).await?;
        let headers = [("x-user-id", "alice"), (HOLD_HEADER, HELD_MS)];
        let method = weir_stack::http::Method::GET;
        connection.send(method, "/concurrency", &headers, "").await
    })
}

async fn in_flight_request_counts_until_it_ends(limiters: &Limiters) -> Result<()> {
    let allowed = "allowed_total.rule.concurrency";
    let held: Vec<_> = (0..3).map(|_| hold(limiters)).collect();
    until("three are under way", async || {
        limiters.count(allowed).await.is_ok_and(|count| count == 3)
    })
    .await?;
    let burst = limiters.burst("/concurrency", "alice", 10).await?;
    assert_eq!(burst.passed.len(), 0, "three are under way");
    assert_eq!(burst.limited.len(), 10);
    let other = limiters
        .ask("/concurrency", &[("x-user-id", "bob")])
        .await?;
    assert_eq!(other.status, 200);
    // Aborted requests are no longer in flight.
    held.iter().for_each(JoinHandle::abort);
    until("nothing is under way", async || {
        let ask = limiters.ask("/concurrency", &[("x-user-id", "alice")]);
        ask.await
            .is_ok_and(|answer| remaining(&answer).is_ok_and(|rest| rest == 2))
    })
    .await?;
    // Nor are requests with a complete response, in any number.
    for _ in 0..20 {
        until("the one before has ended", async || {
            let ask = limiters.ask("/concurrency", &[("x-user-id", "alice")]);
            ask.await.is_ok_and(|answer| answer.status == 200)
        })
        .await?;
    }
    Ok(())
}

async fn all_or_nothing(limiters: &Limiters) -> Result<()> {
    for (user, passed) in [("alice", 2), ("bob", 2), ("carol", 1), ("dave", 0)] {
        let burst = limiters.burst("/both", user, 10).await?;
        assert_eq!(
            burst.passed.len(),
            passed,
            "{user}: what others were refused was charged to nobody"
        );
    }
    let allowed = limiters
        .count_reaching("allowed_total.rule.both-all", 5)
        .await?;
    assert_eq!(allowed, 5);
    assert_eq!(
        limiters
            .count_reaching("allowed_total.rule.both-user", 5)
            .await?,
        5
    );
    Ok(())
}

async fn shadow_rule_refuses_no_request(limiters: &Limiters) -> Result<()> {
    let burst = limiters.burst("/shadow", "alice", 6).await?;
    assert_eq!(burst.passed.len(), 6);
    for answer in &burst.passed {
        assert_eq!(answer.header("x-weir-ratelimit-shadow"), None);
    }
    assert_eq!(
        limiters
            .count_reaching("shadow_limited_total.rule.shadow", 4)
            .await?,
        4
    );
    assert_eq!(
        limiters
            .count_reaching("allowed_total.rule.shadow", 2)
            .await?,
        2
    );
    for (user, secret, reply) in [
        ("alice", DEBUG_SECRET, Some("shadow")),
        ("bob", DEBUG_SECRET, Some("none")),
        ("alice", "not for operators", None),
    ] {
        let headers = [("x-user-id", user), ("x-weir-debug", secret)];
        let answer = limiters.ask("/shadow", &headers).await?;
        assert_eq!(
            (answer.status, answer.header("x-weir-ratelimit-shadow")),
            (200, reply)
        );
    }
    Ok(())
}
