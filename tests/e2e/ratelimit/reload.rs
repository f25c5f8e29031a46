//! Rules that change while gateways run.

use anyhow::Result;
use weir_stack::http::{Connection, Method, Response};
use weir_stack::native::Host;
use weir_tests::{Limiters, RedisPath, Setup, until};

use super::config;

const GATEWAYS: usize = 2;
const WORKERS: u32 = 2;

/// Enough connections to reach both workers of a gateway.
const LINES: usize = 16;

/// The key of the rules, from `envoy/ratelimit-redis.yaml`.
const KEY: &str = "weir:limit:rules";

/// A rule for each store, with this burst.
fn rules(burst: usize) -> Vec<String> {
    ["local", "redis"]
        .iter()
        .map(|store| {
            format!(
                r#"{{ "name": "{store}", "match": {{ "path": {{ "exact": "/{store}" }} }},
                  "store": "{store}", "key": ["user"],
                  "limit": {{ "rate": 1, "per": "1h", "burst": {burst} }} }}"#
            )
        })
        .collect()
}

/// The number of engines in all gateways, each of which reads the rules: in WebAssembly one per worker.
fn engines() -> u64 {
    GATEWAYS as u64 * Host::of_run().engines(WORKERS)
}

async fn two_gateways() -> Result<Limiters> {
    let more = r#""redis": { "deadline_ms": 5000 }, "reload": true, "poll_interval_ms": 50,
        "headers": { "on_allowed": true }"#;
    let setup = Setup {
        gateways: GATEWAYS,
        workers: WORKERS,
        redis: RedisPath::Straight,
        config: &config(&rules(3), more),
    };
    setup.start().await
}

async fn set(limiters: &mut Limiters, document: &str) -> Result<()> {
    let mut redis = limiters.redis()?.connection().await?;
    let set = redis::cmd("SET").arg(KEY).arg(document).to_owned();
    set.exec_async(&mut redis).await?;
    Ok(())
}

async fn ask(limiters: &Limiters, gateway: usize, store: &str, user: &str) -> Result<Response> {
    let mut connection = Connection::open(&limiters.authority(gateway)).await?;
    let headers = [("x-user-id", user)];
    connection
        .send(Method::GET, &format!("/{store}"), &headers, "")
        .await
}

/// The number of requests that pass at a gateway, out of more than may.
async fn passed(limiters: &Limiters, gateway: usize, store: &str, user: &str) -> Result<usize> {
    let mut passed = 0;
    for _ in 0..LINES {
        let answer = ask(limiters, gateway, store, user).await?;
        passed += usize::from(answer.status == 200);
    }
    Ok(passed)
}

/// Whether all gateways now apply this burst.
async fn all_say(limiters: &Limiters, burst: usize) -> bool {
    let policy = format!(r#""local";q={burst};w={}"#, burst * 3_600);
    for line in 0..GATEWAYS * LINES {
        let answer = ask(limiters, line % GATEWAYS, "local", "nobody").await;
        let is_so = answer.is_ok_and(|answer| answer.header("ratelimit-policy") == Some(&policy));
        if !is_so {
            return false;
        }
    }
    true
}

async fn until_all_say(limiters: &Limiters, burst: usize) -> Result<()> {
    let message = format!("all workers of all gateways allow {burst}");
    until(&message, async || all_say(limiters, burst).await).await
}

#[tokio::test(flavor = "multi_thread")]
async fn new_rules_apply_on_all_gateways_and_usage_is_kept() -> Result<()> {
    let mut limiters = two_gateways().await?;
    until_all_say(&limiters, 3).await?;
    for gateway in 0..GATEWAYS {
        assert_eq!(passed(&limiters, gateway, "local", "alice").await?, 3);
    }
    // Both share the rule in Redis.
    assert_eq!(passed(&limiters, 0, "redis", "alice").await?, 3);
    assert_eq!(passed(&limiters, 1, "redis", "alice").await?, 0);

    let document = format!(r#"{{ "rules": [{}] }}"#, rules(5).join(", "));
    set(&mut limiters, &document).await?;
    until_all_say(&limiters, 5).await?;
    for gateway in 0..GATEWAYS {
        assert_eq!(
            passed(&limiters, gateway, "local", "alice").await?,
            2,
            "three of the five have been used"
        );
        assert_eq!(passed(&limiters, gateway, "local", "bob").await?, 5);
    }
    assert_eq!(passed(&limiters, 1, "redis", "alice").await?, 2);
    assert_eq!(passed(&limiters, 0, "redis", "alice").await?, 0);
    limiters
        .count_reaching("rules_loaded_total", engines())
        .await?;
    assert_eq!(limiters.count("rules_refused_total").await?, 0);
    limiters.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_document_is_refused_and_previous_rules_stay() -> Result<()> {
    let mut limiters = two_gateways().await?;
    let good = |burst| format!(r#"{{ "rules": [{}] }}"#, rules(burst).join(", "));
    set(&mut limiters, &good(4)).await?;
    until_all_say(&limiters, 4).await?;
    let bad = [
        "no JSON".to_owned(),
        good(6).replace(r#""key""#, r#""keys""#),
        // The first rule is valid, but must not apply alone.
        good(6).replacen(r#""store": "redis""#, r#""store": "moon""#, 1),
        good(0),
    ];
    for (number, document) in (1..).zip(&bad) {
        set(&mut limiters, document).await?;
        // Each engine of each gateway refuses it once.
        until("all have refused it", async || {
            let refused = limiters.count("rules_refused_total").await;
            refused.is_ok_and(|refused| refused == number * engines())
        })
        .await?;
        assert!(all_say(&limiters, 4).await, "{document}");
    }
    assert_eq!(passed(&limiters, 0, "local", "alice").await?, 4);
    let log = limiters.envoys[0].process().tail(200);
    assert!(
        log.contains("invalid rules in Redis, using the previous ones: rules[0]."),
        "{log}"
    );
    // A valid document applies again.
    set(&mut limiters, &good(7)).await?;
    until_all_say(&limiters, 7).await?;
    let refused = bad.len() as u64 * engines();
    assert_eq!(limiters.count("rules_refused_total").await?, refused);
    limiters.check()
}
