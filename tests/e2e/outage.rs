//! Parts that go away in the middle of a sale, and come back.

use std::time::Duration;

use anyhow::{Context, Result};
use weir_stack::Stack;
use weir_tests::{books, buy, rests, rush, until, users, verdict};

#[tokio::test(flavor = "multi_thread")]
async fn redis_stopped_and_started_in_mid_sale() -> Result<()> {
    let mut stack = Stack::builder()
        .workers(2)
        .key_prefix("outage")
        .start()
        .await?;
    stack.open_sale("outage", 40, 2).await?;
    rush(&stack, "outage", users(0..10), 4).await?;
    let before = books(&stack, "outage").await?;
    assert_eq!(before.orders, 10);

    stack.redis.as_mut().context("its own Redis")?.stop();
    for n in 10..30 {
        let started = std::time::Instant::now();
        let answer = buy(&stack, "outage", &format!("user-{n}")).await?;
        assert_eq!((answer.status, verdict(&answer)), (503, "unavailable"));
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
    let after = books(&stack, "outage").await?;
    assert_eq!((after.orders, after.held, after.stock), (40, 0, 0));
    assert!(
        !stack.envoy.process().tail(500).contains("VM failed"),
        "the VMs lived through it"
    );
    assert_eq!(stack.envoy.process().pid(), Some(pid), "without a restart");
    stack.check_children()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_does_not_answer_is_given_up_at_the_deadline() -> Result<()> {
    let stack = Stack::builder()
        .workers(1)
        .key_prefix("silent")
        .start()
        .await?;
    stack.open_sale("silent", 10, 1).await?;
    let mut redis = weir_stack::redis::connect(&stack.redis_url).await?;
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

    // The claim may have been made: alice gets that one or a new one, never two.
    until("alice has bought", async || {
        buy(&stack, "silent", "alice")
            .await
            .is_ok_and(|answer| matches!(answer.status, 200 | 201 | 409))
    })
    .await?;
    let books = books(&stack, "silent").await?;
    assert_eq!((books.orders, books.held, books.stock), (1, 0, 9));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_origin_that_dies_loses_no_claim() -> Result<()> {
    let mut stack = Stack::builder()
        .workers(1)
        .key_prefix("origin")
        .start()
        .await?;
    stack.open_sale("origin", 10, 1).await?;
    stack.origin.process().kill();
    let answer = buy(&stack, "origin", "alice").await?;
    assert_eq!((answer.status, verdict(&answer)), (503, "granted"));
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
    let books = books(&stack, "origin").await?;
    assert_eq!((books.orders, books.held, books.stock), (1, 0, 9));
    Ok(())
}
