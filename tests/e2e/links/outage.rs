//! Without Redis, without the origin, and without both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use weir_stack::http::{Connection, Method};
use weir_tests::{LinkGateways, LinkSetup, until};

use super::{SHIPPED, TARGET};

/// Clicks until each worker has loaded the link: a connection reaches any worker.
const CLICKS: usize = 30;

#[tokio::test(flavor = "multi_thread")]
async fn links_survive_loss_of_all_redis_data() -> Result<()> {
    let mut gateways = SHIPPED.start().await?;
    let hot = gateways.create(TARGET, json!({})).await?;
    let cold = gateways.create("https://cold.example/", json!({})).await?;
    assert_eq!(gateways.location(0, &hot).await?, TARGET);
    let mut connection = gateways.redis.connection().await?;
    redis::cmd("FLUSHALL")
        .query_async::<()>(&mut connection)
        .await?;
    // First from the cold store through the origin, then from Redis, where the origin has stored it again.
    assert_eq!(gateways.location(0, &cold).await?, "https://cold.example/");
    for _ in 0..CLICKS {
        assert_eq!(gateways.location(0, &cold).await?, "https://cold.example/");
        assert_eq!(gateways.location(0, &hot).await?, TARGET);
    }
    // A worker reports its counts at its next tick.
    until("the origin was asked", async || {
        let lookups = gateways.count("lookups_total").await;
        lookups.is_ok_and(|lookups| lookups >= 1)
    })
    .await?;
    // Redis is down.
    gateways.redis.stop();
    assert_eq!(gateways.location(0, &cold).await?, "https://cold.example/");
    gateways.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_links_resolve_without_origin_and_cached_without_both() -> Result<()> {
    let mut gateways = SHIPPED.start().await?;
    let hot = gateways.create(TARGET, json!({})).await?;
    let warm = gateways.create("https://warm.example/", json!({})).await?;
    for _ in 0..CLICKS {
        assert_eq!(gateways.location(0, &hot).await?, TARGET);
    }
    gateways.origin.process().kill();
    // This gateway has not loaded the link, but Redis has it.
    assert_eq!(gateways.location(0, &warm).await?, "https://warm.example/");
    let unknown = gateways.ask(0, "/nowhere", &[]).await?;
    assert_eq!(
        (unknown.status, unknown.header("retry-after")),
        (503, Some("1"))
    );
    gateways.redis.stop();
    for _ in 0..CLICKS {
        assert_eq!(gateways.location(0, &hot).await?, TARGET);
    }
    until("neither can be asked", async || {
        let answer = gateways.ask(0, "/anything", &[]).await;
        answer.is_ok_and(|answer| answer.status == 503)
    })
    .await?;
    // Both return. The cold store has what Redis lost.
    gateways.redis.start_again().await?;
    gateways.origin.start_again().await?;
    until("it resolves again", async || {
        let location = gateways.location(0, &warm).await;
        location.is_ok_and(|at| at == "https://warm.example/")
    })
    .await?;
    gateways.check()
}

/// Creates links in batches of a thousand.
async fn many(gateways: &LinkGateways, count: usize) -> Result<Vec<String>> {
    let mut codes = Vec::with_capacity(count);
    while codes.len() < count {
        let link = |n| json!({ "target": format!("https://target.example/{n}") });
        let body: Value = (0..500).map(link).collect();
        let response = gateways.admin(Method::POST, "/links", body, 201).await?;
        let response = response.as_array().cloned().unwrap_or_default();
        codes.extend(
            response
                .iter()
                .filter_map(|link| link["code"].as_str().map(str::to_owned)),
        );
    }
    Ok(codes)
}

/// Every link resolves, on one connection and therefore at one worker.
async fn all_resolve(connection: &mut Connection, codes: &[String]) -> Result<()> {
    for (n, code) in codes.iter().enumerate() {
        let path = format!("/{code}");
        let answer = connection.send(Method::GET, &path, &[], "").await?;
        ensure!(
            answer.status == 302,
            "{n}: {}: {}",
            answer.status,
            answer.text()
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_cached_links_resolve_after_redis_loss() -> Result<()> {
    let setup = LinkSetup {
        workers: 1,
        ..SHIPPED
    };
    let mut gateways = setup.start().await?;
    let mut codes = many(&gateways, 5_000).await?;
    // The stream of changes has an entry, so that gateways detect its loss. The origin writes this edit again after
    // Redis has lost it. A gateway drops a link when it receives a change of it.
    let edited = codes.pop().context("there are many")?;
    let edited = format!("/links/{edited}");
    let edit = json!({ "target": "https://edited.example/" });
    gateways.admin(Method::PATCH, &edited, edit, 200).await?;
    until("the gateway has heard of it", async || {
        let changes = gateways.count("changes_total").await;
        changes.is_ok_and(|changes| changes >= 1)
    })
    .await?;
    let mut connection = Connection::open(&gateways.authority(0)).await?;
    all_resolve(&mut connection, &codes).await?;
    let missed = gateways.count("changes_missed_total").await?;
    let mut redis = gateways.redis.connection().await?;
    redis::cmd("FLUSHALL").query_async::<()>(&mut redis).await?;
    until("the loss is seen", async || {
        let now = gateways.count("changes_missed_total").await;
        now.is_ok_and(|now| now > missed)
    })
    .await?;
    all_resolve(&mut connection, &codes).await?;
    // The origin is down, too.
    gateways.origin.process().kill();
    redis::cmd("FLUSHALL").query_async::<()>(&mut redis).await?;
    all_resolve(&mut connection, &codes).await?;
    gateways.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn link_from_origin_is_cached_during_redis_outage() -> Result<()> {
    let setup = LinkSetup {
        workers: 1,
        ..SHIPPED
    };
    let mut gateways = setup.start().await?;
    let code = gateways.create(TARGET, json!({})).await?;
    gateways.redis.stop();
    until("the origin tells of it", async || {
        gateways.location(0, &code).await.is_ok()
    })
    .await?;
    let lookups = gateways.count("lookups_total").await?;
    for _ in 0..1_000 {
        assert_eq!(gateways.location(0, &code).await?, TARGET);
    }
    // One lookup in ten seconds, and the test is faster; each is at most a retry.
    let since = gateways.count("lookups_total").await? - lookups;
    assert!(since <= 10, "{since} look-ups for a thousand clicks");
    gateways.check()
}

/// The only click on a link, while Redis is paused for longer than the gateway waits.
#[tokio::test(flavor = "multi_thread")]
async fn only_click_of_a_link_is_admitted_despite_slow_redis() -> Result<()> {
    let mut gateways = SHIPPED.start().await?;
    for n in 0..10 {
        let code = gateways.create(TARGET, json!({ "max_clicks": 1 })).await?;
        let mut redis = gateways.redis.connection().await?;
        let pause = redis::cmd("CLIENT").arg("PAUSE").arg(150).to_owned();
        pause.query_async::<()>(&mut redis).await?;
        assert_eq!(gateways.location(0, &code).await?, TARGET, "{n}");
        let again = gateways.ask(0, &format!("/{code}"), &[]).await?;
        assert_eq!(again.status, 410, "{n}");
    }
    gateways.check()
}

/// Redis pauses repeatedly while two gateways serve 200 clicks: exactly these are redirected.
#[tokio::test(flavor = "multi_thread")]
async fn click_maximum_is_exact_despite_repeated_redis_stalls() -> Result<()> {
    const CLICKS: usize = 200;
    let setup = LinkSetup {
        gateways: 2,
        ..SHIPPED
    };
    let mut gateways = setup.start().await?;
    let code = gateways
        .create(TARGET, json!({ "max_clicks": CLICKS }))
        .await?;
    let admitted = Arc::new(AtomicUsize::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for n in 0..16 {
        let (authority, path) = (gateways.authority(n % 2), format!("/{code}"));
        let (admitted, is_over) = (Arc::clone(&admitted), Arc::clone(&is_over));
        clients.spawn(async move {
            let mut connection = Connection::open(&authority).await?;
            while !is_over.load(Ordering::Relaxed) {
                let answer = connection.send(Method::GET, &path, &[], "").await?;
                match answer.status {
                    302 => drop(admitted.fetch_add(1, Ordering::Relaxed)),
                    410 | 503 => {}
                    other => anyhow::bail!("{other}: {}", answer.text()),
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(())
        });
    }
    for stall_ms in [150, 700, 150, 1_500, 300, 150, 2_500, 150] {
        gateways.redis.process().freeze();
        tokio::time::sleep(Duration::from_millis(stall_ms)).await;
        gateways.redis.process().thaw();
        tokio::time::sleep(Duration::from_millis(120)).await;
    }
    until("all clicks have led on", async || {
        admitted.load(Ordering::Relaxed) >= CLICKS
    })
    .await?;
    // Any remaining returned clicks would be used by now.
    tokio::time::sleep(Duration::from_secs(3)).await;
    is_over.store(true, Ordering::Relaxed);
    while let Some(client) = clients.join_next().await {
        client??;
    }
    assert_eq!(admitted.load(Ordering::Relaxed), CLICKS);
    gateways.check()
}

/// SQL has the used clicks, and restores them in Redis after a loss.
#[tokio::test(flavor = "multi_thread")]
async fn used_clicks_are_not_granted_again_after_redis_loss() -> Result<()> {
    let mut gateways = SHIPPED.start().await?;
    let code = gateways.create(TARGET, json!({ "max_clicks": 20 })).await?;
    for _ in 0..12 {
        assert_eq!(gateways.location(0, &code).await?, TARGET);
    }
    until("they are counted", async || {
        let path = format!("/links/{code}/stats");
        let stats = gateways.admin(Method::GET, &path, Value::Null, 200).await;
        stats.is_ok_and(|stats| stats["clicks"] == 12)
    })
    .await?;
    let mut redis = gateways.redis.connection().await?;
    redis::cmd("FLUSHALL").query_async::<()>(&mut redis).await?;
    let mut admitted = 0;
    for _ in 0..30 {
        let answer = gateways.ask(0, &format!("/{code}"), &[]).await?;
        admitted += usize::from(answer.status == 302);
    }
    assert_eq!(admitted, 8);
    gateways.check()
}
