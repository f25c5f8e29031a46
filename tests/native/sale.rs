//! A sale on the native module, in each supported Envoy version.

use anyhow::{Context, Result};
use weir_stack::Stack;
use weir_stack::native::Host;
use weir_stack::report::SilentReporter;
use weir_stack::tools::{OLDEST_ENVOY_VERSION, Options, oldest_envoy};
use weir_tests::{buy, rush, script_calls, stock_balance, until, users, verdict};

const STOCK: u64 = 300;

/// Sells all units, and sends more requests.
async fn sells_exactly(mut stack: Stack, sale: &str) -> Result<()> {
    stack.open_sale(sale, STOCK, 4).await?;
    let pid = stack.envoy.process().pid();
    let verdicts = rush(&stack, sale, users(0..1_000), 64).await?;
    assert_eq!(
        verdicts.get("granted"),
        Some(&(STOCK as usize)),
        "{verdicts:?}"
    );
    assert_eq!(verdicts.get("sold_out"), Some(&700), "{verdicts:?}");
    let sold = stock_balance(&stack, sale).await?;
    assert_eq!((sold.orders, sold.stock, sold.held), (STOCK, 0, 0));
    // "Sold out" is cached: it needs no Redis call.
    let before = script_calls(&stack).await?;
    for user in users(2_000..2_200) {
        let answer = buy(&stack, sale, &user).await?;
        assert_eq!((answer.status, verdict(&answer)), (409, "sold_out"));
    }
    let after = script_calls(&stack).await?;
    assert!(
        after - before < 20,
        "{before}, {after}: the origin's own jobs at most"
    );
    let counted = "wasmcustom.weir_seckill_gate_requests_total.verdict.granted";
    until("Envoy tells what was counted", async || {
        stack
            .envoy
            .stat(counted)
            .await
            .is_ok_and(|count| count == STOCK)
    })
    .await?;
    assert_eq!(stack.envoy.process().pid(), pid);
    let [worker, module] = calls(&stack).await?;
    assert!(
        worker > module,
        "calls of workers {worker}, of the module's thread {module}"
    );
    Ok(stack.check_children()?)
}

/// The Redis calls of workers, and of the module's own thread.
async fn calls(stack: &Stack) -> Result<[u64; 2]> {
    let name = "wasmcustom.weir_native_redis_calls_total.thread";
    let count = async |thread: &str| stack.envoy.stat(&format!("{name}.{thread}")).await;
    Ok([count("worker").await?, count("module").await?])
}

#[tokio::test(flavor = "multi_thread")]
async fn native_gateway_sells_exactly_the_stock() -> Result<()> {
    let builder = Stack::builder().host(Host::Native).workers(2);
    sells_exactly(builder.key_prefix("native").start().await?, "native").await
}

#[tokio::test(flavor = "multi_thread")]
async fn oldest_envoy_loads_the_library_and_serves() -> Result<()> {
    let envoy = oldest_envoy(&mut SilentReporter)?;
    assert!(envoy.display().to_string().contains(OLDEST_ENVOY_VERSION));
    let options = Options { envoy: Some(envoy) };
    let builder = Stack::builder().tools(options).host(Host::Native);
    let stack = builder.workers(2).key_prefix("oldest").start().await?;
    sells_exactly(stack, "oldest").await
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_outage_returns_unavailable_and_recovers_automatically() -> Result<()> {
    let builder = Stack::builder().host(Host::Native).workers(2);
    let mut stack = builder.key_prefix("native-away").start().await?;
    stack.open_sale("native-away", 40, 2).await?;
    rush(&stack, "native-away", users(0..10), 4).await?;
    let server = stack.redis.server.as_mut().context("its own Redis")?;
    server.stop();
    for user in users(10..20) {
        let answer = buy(&stack, "native-away", &user).await?;
        assert_eq!(
            (answer.status, answer.header("retry-after")),
            (503, Some("1"))
        );
    }
    let server = stack.redis.server.as_mut().context("its own Redis")?;
    server.start_again().await?;
    until("a purchase goes through", async || {
        buy(&stack, "native-away", "user-10")
            .await
            .is_ok_and(|answer| matches!(answer.status, 200 | 201 | 409))
    })
    .await?;
    rush(&stack, "native-away", users(0..400), 16).await?;
    let after = stock_balance(&stack, "native-away").await?;
    assert_eq!((after.orders, after.held, after.stock), (40, 0, 0));
    Ok(stack.check_children()?)
}

/// A worker has no timer of its own, so the module's thread must find the calls that Redis does not answer.
#[tokio::test(flavor = "multi_thread")]
async fn frozen_redis_ends_calls_of_workers_at_their_deadline() -> Result<()> {
    let builder = Stack::builder().host(Host::Native).workers(1);
    let mut stack = builder.key_prefix("native-frozen").start().await?;
    stack.open_sale("native-frozen", 40, 2).await?;
    rush(&stack, "native-frozen", users(0..10), 4).await?;
    let [worker, _] = calls(&stack).await?;
    let server = stack.redis.server.as_mut().context("its own Redis")?;
    server.process().freeze();
    for user in users(10..14) {
        let answer = buy(&stack, "native-frozen", &user).await?;
        assert_eq!(answer.status, 503, "{user}");
    }
    let server = stack.redis.server.as_mut().context("its own Redis")?;
    server.process().thaw();
    until("a purchase goes through", async || {
        buy(&stack, "native-frozen", "user-10")
            .await
            .is_ok_and(|answer| matches!(answer.status, 200 | 201 | 409))
    })
    .await?;
    rush(&stack, "native-frozen", users(0..400), 16).await?;
    until("workers call Redis again", async || {
        calls(&stack).await.is_ok_and(|[now, _]| now > worker + 10)
    })
    .await?;
    let after = stock_balance(&stack, "native-frozen").await?;
    assert_eq!((after.orders, after.held, after.stock), (40, 0, 0));
    Ok(stack.check_children()?)
}
