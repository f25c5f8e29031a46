//! Parts that fail during a sale and recover.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use weir_stack::envoy::{EnvoyConfig, GATE, HOLD_HEADER, set};
use weir_stack::http::{self, Method};
use weir_stack::{GatewayOptions, Stack};
use weir_tests::{buy, rests, rush, stock_balance, until, users, verdict};

#[tokio::test(flavor = "multi_thread")]
async fn sale_continues_after_redis_stops_and_restarts() -> Result<()> {
    let mut stack = Stack::builder()
        .workers(2)
        .key_prefix("outage")
        .start()
        .await?;
    stack.open_sale("outage", 40, 2).await?;
    rush(&stack, "outage", users(0..10), 4).await?;
    let before = stock_balance(&stack, "outage").await?;
    assert_eq!(before.orders, 10);

    stack.redis.server.as_mut().context("its own Redis")?.stop();
    for n in 10..30 {
        let started = std::time::Instant::now();
        let answer = buy(&stack, "outage", &format!("user-{n}")).await?;
        // After ten failures, a worker may have twenty outcomes, half of them failures, and stops calling Redis.
        let is_expected = match verdict(&answer) {
            "unavailable" => true,
            "overloaded" => n >= 20,
            _ => false,
        };
        assert!(answer.status == 503 && is_expected, "{n}: {answer:?}");
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "it must not hang"
        );
    }
    let pid = stack.envoy.process().pid().context("Envoy runs")?;
    rests(pid).await?;

    stack
        .redis
        .server
        .as_mut()
        .context("its own Redis")?
        .start_again()
        .await?;
    until("a purchase goes through", async || {
        buy(&stack, "outage", "user-10")
            .await
            .is_ok_and(|answer| matches!(answer.status, 200 | 201 | 409))
    })
    .await?;
    let verdicts = rush(&stack, "outage", users(0..400), 16).await?;
    assert!(verdicts.contains_key("sold_out"), "{verdicts:?}");
    let after = stock_balance(&stack, "outage").await?;
    assert_eq!((after.orders, after.held, after.stock), (40, 0, 0));
    assert!(
        !stack.envoy.process().tail(500).contains("VM failed"),
        "the VMs lived through it"
    );
    assert_eq!(stack.envoy.process().pid(), Some(pid), "without a restart");
    stack.check_children()?;
    Ok(())
}

/// C4: Redis loses everything during a sale. No user gets "sold out" until SQL has nothing left.
#[tokio::test(flavor = "multi_thread")]
async fn loss_of_all_redis_data_returns_no_false_sold_out() -> Result<()> {
    const STOCK: u64 = 60;
    let mut stack = Stack::builder()
        .workers(2)
        .key_prefix("forgot")
        .start()
        .await?;
    stack.open_sale("forgot", STOCK, 4).await?;
    rush(&stack, "forgot", users(0..20), 4).await?;
    assert_eq!(stock_balance(&stack, "forgot").await?.orders, 20);
    let mut redis = weir_stack::redis::connect(stack.redis_url()).await?;
    let _: String = redis::cmd("FLUSHALL").query_async(&mut redis).await?;
    // Requests continue; each served one is of another user.
    let mut orders = 20;
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while orders < STOCK {
        let answer = buy(&stack, "forgot", &format!("user-{}", 1_000 + orders)).await?;
        match verdict(&answer) {
            "granted" | "granted_again" if matches!(answer.status, 200 | 201) => orders += 1,
            "unavailable" | "all_reserved" | "overloaded" | "granted" | "granted_again" => {
                // Slower than the limit per user.
                tokio::time::sleep(Duration::from_millis(80)).await;
            }
            other => anyhow::bail!("{other} with {orders} of {STOCK} sold: {answer:?}"),
        }
        assert!(std::time::Instant::now() < deadline, "{orders} sold");
    }
    until("the last is told", async || {
        buy(&stack, "forgot", "latecomer")
            .await
            .is_ok_and(|answer| verdict(&answer) == "sold_out")
    })
    .await?;
    assert_eq!(stock_balance(&stack, "forgot").await?.orders, STOCK);
    stack.check_children()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_redis_is_abandoned_at_the_deadline() -> Result<()> {
    let stack = Stack::builder()
        .workers(1)
        .key_prefix("silent")
        .start()
        .await?;
    stack.open_sale("silent", 10, 1).await?;
    let mut redis = weir_stack::redis::connect(stack.redis_url()).await?;
    let _: String = redis::cmd("CLIENT")
        .arg("PAUSE")
        .arg(3_000)
        .arg("WRITE")
        .query_async(&mut redis)
        .await?;
    let answer = buy(&stack, "silent", "alice").await?;
    assert_eq!((answer.status, verdict(&answer)), (503, "unavailable"));
    let _: String = redis::cmd("CLIENT")
        .arg("UNPAUSE")
        .query_async(&mut redis)
        .await?;

    // The claim may have been granted: alice gets that one or a new one, never two.
    until("alice has bought", async || {
        buy(&stack, "silent", "alice")
            .await
            .is_ok_and(|answer| matches!(answer.status, 200 | 201 | 409))
    })
    .await?;
    let stock_balance = stock_balance(&stack, "silent").await?;
    assert_eq!(
        (
            stock_balance.orders,
            stock_balance.held,
            stock_balance.stock
        ),
        (1, 0, 9)
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn origin_crash_loses_no_claim() -> Result<()> {
    let mut stack = Stack::builder()
        .workers(1)
        .key_prefix("origin")
        .start()
        .await?;
    stack.open_sale("origin", 10, 1).await?;
    stack.origin.process().kill();
    let answer = buy(&stack, "origin", "alice").await?;
    assert_eq!((answer.status, verdict(&answer)), (503, "unavailable"));
    assert!(answer.header("retry-after").is_some());
    assert_eq!(answer.json()?["error"], "unavailable", "{}", answer.text());
    assert!(
        !answer.text().contains("upstream"),
        "what is behind the gateway is nobody's business"
    );
    stack.origin.start_again().await?;
    until("alice has bought", async || {
        buy(&stack, "origin", "alice")
            .await
            .is_ok_and(|answer| matches!(answer.status, 200 | 201))
    })
    .await?;
    let stock_balance = stock_balance(&stack, "origin").await?;
    assert_eq!(
        (
            stock_balance.orders,
            stock_balance.held,
            stock_balance.stock
        ),
        (1, 0, 9)
    );
    Ok(())
}

/// An origin that receives the request and does not respond: the route's timeout ends it, and the client is told to
/// retry.
#[tokio::test(flavor = "multi_thread")]
async fn hanging_origin_times_out_and_loses_no_claim() -> Result<()> {
    let mut stack = Stack::builder()
        .workers(1)
        .key_prefix("hangs")
        .start()
        .await?;
    stack.open_sale("hangs", 10, 1).await?;
    stack.origin.process().freeze();
    let answer = buy(&stack, "hangs", "alice").await;
    stack.origin.process().thaw();
    let answer = answer?;
    assert_eq!((answer.status, verdict(&answer)), (504, "unavailable"));
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.json()?["error"], "unavailable", "{}", answer.text());
    let ended_by = async |stat: &str| stack.envoy.stat(stat).await;
    assert_eq!(ended_by("cluster.origin.upstream_rq_timeout").await?, 1);
    assert_eq!(
        ended_by("http.gateway.downstream_rq_max_duration_reached").await?,
        0
    );
    // The origin either never read the timed-out request, or makes an order of it later.
    until("alice has bought", async || {
        buy(&stack, "hangs", "alice").await.is_ok_and(|answer| {
            matches!(answer.status, 200 | 201) || verdict(&answer) == "cap_reached"
        })
    })
    .await?;
    let stock_balance = stock_balance(&stack, "hangs").await?;
    assert_eq!(
        (
            stock_balance.orders,
            stock_balance.held,
            stock_balance.stock
        ),
        (1, 0, 9)
    );
    Ok(())
}

/// A client that sends half of its headers, and a request without an answer, as if its VM had died.
#[tokio::test(flavor = "multi_thread")]
async fn endless_request_is_terminated() -> Result<()> {
    let shorter = |config: EnvoyConfig| {
        config.holding()?.edit_http(|http| {
            let stream = "/common_http_protocol_options/max_stream_duration";
            set(http, stream, "2s")?;
            set(http, "/request_headers_timeout", "1s")
        })
    };
    let stack = Stack::builder()
        .workers(1)
        .key_prefix("endless")
        .edit_config(shorter)
        .start()
        .await?;
    let gateway = stack.gateway_authority();
    let mut slow = TcpStream::connect(&gateway).await?;
    slow.write_all(b"POST /sales/endless/orders HTTP/1.1\r\nhost:")
        .await?;
    let mut answer = Vec::new();
    timeout(Duration::from_secs(8), slow.read_to_end(&mut answer)).await??;
    let answer = String::from_utf8(answer)?;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");

    stack.open_sale("endless", 10, 1).await?;
    let held = [("x-user-id", "alice"), (HOLD_HEADER, "60000")];
    let url = stack.buy_url("endless");
    let answer = http::send(Method::POST, &url, &held, "");
    let answer = timeout(Duration::from_secs(8), answer).await??;
    assert_eq!((answer.status, verdict(&answer)), (504, "unavailable"));
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.json()?["error"], "unavailable", "{}", answer.text());
    Ok(())
}

/// A low number of failures that open the origin's circuit breaker.
const FAILURES: u64 = 3;

/// A gateway of one worker with a sensitive breaker, and a sale named after its prefix.
async fn watching(sale: &str) -> Result<Stack> {
    let stack = Stack::builder()
        .workers(1)
        .key_prefix(sale)
        .edit_config(|config| {
            config.edit_filter(GATE, |json| {
                json["overload"] = json!({ "origin_breaker": { "min_requests": FAILURES } });
                Ok(())
            })
        })
        .start()
        .await?;
    stack.open_sale(sale, 100, 2).await?;
    Ok(stack)
}

/// How often the origin's breaker has entered this state.
async fn entered(stack: &Stack, state: &str) -> Result<u64> {
    let name = format!("wasmcustom.weir_seckill_gate_origin_breaker_total.state.{state}");
    stack.envoy.stat(&name).await
}

/// The breaker reads the origin's status from a property that only a real Envoy provides.
#[tokio::test(flavor = "multi_thread")]
async fn failing_origin_gets_no_requests_until_it_recovers() -> Result<()> {
    let mut stack = watching("breaker").await?;
    for n in 0..2 * FAILURES {
        let answer = buy(&stack, "breaker", &format!("well-{n}")).await?;
        assert_eq!((answer.status, verdict(&answer)), (201, "granted"));
    }

    stack.origin.process().kill();
    // Successes count, too: it opens at half of all. Up to seven failures have no effect.
    let mut lost = 0;
    let answer = loop {
        let answer = buy(&stack, "breaker", &format!("lost-{lost}")).await?;
        if verdict(&answer) == "overloaded" {
            break answer;
        }
        assert_eq!((answer.status, verdict(&answer)), (503, "unavailable"));
        lost += 1;
        assert!(lost <= 2 * FAILURES + 7, "it does not open");
    };
    assert!(lost >= FAILURES, "{lost} are too few to judge by");
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (503, Some("1"))
    );
    until("it is told that the breaker has opened", async || {
        entered(&stack, "open").await.is_ok_and(|times| times > 0)
    })
    .await?;

    stack.origin.start_again().await?;
    let number = AtomicUsize::new(0);
    until("the breaker has closed", async || {
        let n = number.fetch_add(1, Ordering::Relaxed);
        let answer = buy(&stack, "breaker", &format!("back-{n}")).await;
        answer.is_ok_and(|answer| answer.status == 201)
            && entered(&stack, "closed").await.is_ok_and(|times| times > 0)
    })
    .await?;
    stack.check_children()?;
    Ok(())
}

/// A breaker opens for a second, even if its clock is changed.
#[tokio::test(flavor = "multi_thread")]
async fn clock_set_back_during_origin_outage_stops_no_sale() -> Result<()> {
    const BACK: Duration = Duration::from_secs(1_200);
    let mut stack = watching("stepped").await?;
    let own_clock = GatewayOptions {
        workers: 1,
        clock_ahead_ms: Some(0),
    };
    let gateway = stack.start_gateway(own_clock).await?;
    // It is open by every clock.
    let time = SystemTime::now() - 2 * BACK;
    let begun_ms = u64::try_from(time.duration_since(UNIX_EPOCH)?.as_millis())?;
    let more = json!({ "starts_at_ms": begun_ms });
    stack.open_sale_with("old", 100, 2, more).await?;
    let number = AtomicUsize::new(0);
    let buy = async || {
        let user = format!("user-{}", number.fetch_add(1, Ordering::Relaxed));
        let url = format!("{gateway}/sales/old/orders");
        http::send(Method::POST, &url, &[("x-user-id", &user)], "").await
    };
    assert_eq!(buy().await?.status, 201);

    stack.origin.process().kill();
    until("its breaker has opened", async || {
        let opened = "wasmcustom.weir_seckill_gate_origin_breaker_total.state.open";
        let answer = buy().await;
        answer.is_ok_and(|answer| verdict(&answer) == "overloaded")
            && stack.gateways[0].stat(opened).await.is_ok_and(|n| n > 0)
    })
    .await?;
    stack.gateways[0].set_clock(-i64::try_from(BACK.as_millis())?)?;
    let answer = buy().await?;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert_eq!(answer.header("retry-after"), Some("1"));

    stack.origin.start_again().await?;
    until("it sells by its new clock", async || {
        buy().await.is_ok_and(|answer| answer.status == 201)
    })
    .await?;
    stack.check_children()?;
    Ok(())
}

/// Envoy answers in the origin's place, with a verdict of its own. A client's header must not count as a verdict.
#[tokio::test(flavor = "multi_thread")]
async fn verdict_header_of_a_client_is_replaced_by_the_gate() -> Result<()> {
    let mut stack = watching("forged").await?;
    stack.origin.process().kill();
    let forged = [("x-user-id", "alice"), ("x-weir-verdict", "granted")];
    for headers in [&forged[..1], &forged[..], &forged[1..]] {
        let url = format!("{}/orders/forged-0-1", stack.gateway_url());
        let answer = http::send(Method::GET, &url, headers, "").await?;
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.header("x-weir-verdict"), Some("unavailable"));
    }
    Ok(())
}
