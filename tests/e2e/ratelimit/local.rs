//! Rules that count within one Envoy, shared by its two workers.

use std::net::Ipv4Addr;
use std::time::Instant;

use anyhow::{Context, Result};
use tokio::time::sleep;
use weir_stack::http::{Connection, Method, Response};
use weir_tests::{Limiters, RedisPath, Setup};

use super::{config, told_to_wait};

const HOME: Ipv4Addr = Ipv4Addr::new(127, 0, 9, 1);
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 9, 2);

async fn two_workers(rules: &[&str]) -> Result<Limiters> {
    let rules: Vec<String> = rules.iter().map(|&rule| rule.into()).collect();
    let setup = Setup {
        gateways: 1,
        workers: 2,
        redis: RedisPath::None,
        config: &config(&rules, ""),
    };
    setup.start().await
}

/// One GET from an address, over a new connection.
async fn ask_from(
    limiters: &Limiters,
    client: Ipv4Addr,
    forwarded_for: Option<&str>,
) -> Result<Response> {
    let mut connection = Connection::open_from(client, &limiters.authority(0)).await?;
    let headers: Vec<_> = forwarded_for
        .map(|chain| ("x-forwarded-for", chain))
        .into_iter()
        .collect();
    connection.send(Method::GET, "/", &headers, "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn exact_burst_passes_and_the_rest_gets_a_retry_time() -> Result<()> {
    let rule = r#"{ "name": "all", "limit": { "rate": 1, "per": "1h", "burst": 20 } }"#;
    let mut limiters = two_workers(&[rule]).await?;
    let burst = limiters.burst("/", "anyone", 50).await?;
    assert_eq!((burst.passed.len(), burst.limited.len()), (20, 30));
    for answer in &burst.limited {
        assert_eq!(
            answer.header("ratelimit-policy"),
            Some(r#""all";q=20;w=72000"#)
        );
        let reply = answer.header("ratelimit").context("no RateLimit")?;
        assert!(reply.starts_with(r#""all";r=0;t="#), "{reply}");
        let wait = told_to_wait(answer)?.as_secs();
        assert!((1..=3_600).contains(&wait), "{wait}");
        assert_eq!(answer.json()?["error"], "rate_limited");
    }
    assert_eq!(
        limiters
            .count_reaching("allowed_total.rule.all", 20)
            .await?,
        20
    );
    assert_eq!(
        limiters
            .count_reaching("limited_total.rule.all", 30)
            .await?,
        30
    );
    let stats = limiters.envoys[0].stats().await?;
    for worker in ["worker_0", "worker_1"] {
        let name = format!(".{worker}.downstream_cx_total");
        let mut its = stats.iter().filter(|(stat, _)| stat.ends_with(&name));
        assert!(its.any(|(_, count)| *count > 0), "{worker} has worked");
    }
    limiters.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn request_after_the_retry_time_passes() -> Result<()> {
    for algorithm in ["gcra", "sliding_window", "fixed_window"] {
        let rule = format!(
            r#"{{ "name": "r", "algorithm": "{algorithm}", "key": ["user"], "limit": {{ "rate": 2, "per": "4s" }} }}"#
        );
        let limiters = two_workers(&[&rule]).await?;
        let started = Instant::now();
        let limited = limiters.burst("/", "alice", 30).await?.limited;
        let lasted = started.elapsed();
        assert!(
            !limited.is_empty(),
            "{algorithm}: never limited in {lasted:?}"
        );
        let wait = limited
            .iter()
            .map(told_to_wait)
            .max_by_key(|wait| wait.as_ref().ok().copied());
        sleep(wait.context("no wait")??).await;
        let answer = limiters.ask("/", &[("x-user-id", "alice")]).await?;
        assert_eq!(answer.status, 200, "{algorithm}: {}", answer.text());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn client_cannot_choose_its_address() -> Result<()> {
    let rule = r#"{ "name": "address", "key": ["address"], "limit": { "rate": 1, "per": "1h", "burst": 5 } }"#;
    let limiters = two_workers(&[rule]).await?;
    let mut passed = 0;
    for n in 1..=20 {
        let forged = format!("198.51.100.{n}");
        let answer = ask_from(&limiters, HOME, Some(&forged)).await?;
        passed += u32::from(answer.status == 200);
    }
    assert_eq!(passed, 5);
    // It does not consume another user's limit.
    let forged = HOME.to_string();
    for _ in 0..5 {
        let answer = ask_from(&limiters, ELSEWHERE, Some(&forged)).await?;
        assert_eq!(answer.status, 200);
    }
    assert_eq!(ask_from(&limiters, ELSEWHERE, None).await?.status, 429);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn trusted_proxies_determine_the_counted_client_address() -> Result<()> {
    let rule = r#"{ "name": "client", "key": [{ "forwarded": { "trusted_hops": 1 } }],
        "limit": { "rate": 1, "per": "1h", "burst": 3 } }"#;
    let limiters = two_workers(&[rule]).await?;
    // The proxy at HOME appends the client's address to the claimed ones.
    let chain = |client: &str, n: u8| format!("203.0.113.{n}, {client}");
    let ask = async |client: &str, n: u8| -> Result<u16> {
        let chain = chain(client, n);
        Ok(ask_from(&limiters, HOME, Some(&chain)).await?.status)
    };
    let mut passed = 0;
    for n in 0..10 {
        passed += u32::from(ask("192.0.2.1", n).await? == 200);
    }
    assert_eq!(passed, 3, "what the client claims makes no difference");
    assert_eq!(
        ask("192.0.2.2", 1).await?,
        200,
        "another one is another one"
    );
    // An IPv6 network counts as one client.
    for last in 1..=3 {
        assert_eq!(ask(&format!("2001:db8:1:2::{last}"), 1).await?, 200);
    }
    assert_eq!(ask("2001:db8:1:2:ffff::", 1).await?, 429);
    assert_eq!(ask("2001:db8:1:3::1", 1).await?, 200);
    // Without a proxy's header, the peer counts.
    for _ in 0..3 {
        assert_eq!(ask_from(&limiters, ELSEWHERE, None).await?.status, 200);
    }
    assert_eq!(ask_from(&limiters, ELSEWHERE, None).await?.status, 429);
    Ok(())
}
