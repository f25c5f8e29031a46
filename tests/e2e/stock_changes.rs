//! Changes of a sale's stock and end while it runs.

use anyhow::{Context, Result};
use serde_json::json;
use weir_stack::Stack;
use weir_stack::http::Method;
use weir_tests::{Crowd, buy, faulty, rush, sold_out_exactly, until, users, verdict};

/// A new user gets this verdict.
async fn gets_verdict(stack: &Stack, sale: &str, word: &str) -> Result<()> {
    until(word, async || {
        let answer = buy(stack, sale, &format!("newcomer-{word}")).await;
        answer.is_ok_and(|answer| verdict(&answer) == word)
    })
    .await
}

/// Waits until a change is done; returns its units.
async fn done(stack: &Stack, sale: &str, key: &str, units: i64) -> Result<i64> {
    until("the change is done", async || {
        let answer = stack.change_stock(sale, key, units).await;
        answer.is_ok_and(|answer| answer.status == 200)
    })
    .await?;
    let answer = stack.change_stock(sale, key, units).await?.json()?;
    answer["units"].as_i64().context("no units")
}

/// The origin dies after SQL has stored the change and before Redis has; later Redis loses everything.
#[tokio::test(flavor = "multi_thread")]
async fn sold_out_sale_sells_exactly_the_added_units() -> Result<()> {
    const SALE: &str = "added";
    let mut stack = faulty(SALE).start().await?;
    stack.open_sale(SALE, 20, 4).await?;
    rush(&stack, SALE, users(0..60), 8).await?;
    gets_verdict(&stack, SALE, "sold_out").await?;

    let redis = stack.redis.server.as_mut().context("its own Redis")?;
    redis.kill();
    let recorded = stack.change_stock(SALE, "first", 10).await?;
    assert_eq!(recorded.status, 202, "{}", recorded.text());
    assert_eq!(recorded.json()?["state"], "under_way");
    stack.origin.process().kill();
    let redis = stack.redis.server.as_mut().context("its own Redis")?;
    redis.start_again().await?;
    stack.origin.start_again().await?;
    assert_eq!(done(&stack, SALE, "first", 10).await?, 10);
    let balance = sold_out_exactly(&stack, SALE).await?;
    assert_eq!((balance.total, balance.orders), (30, 30));
    gets_verdict(&stack, SALE, "sold_out").await?;

    let mut redis = weir_stack::redis::connect(stack.redis_url()).await?;
    let _: String = redis::cmd("FLUSHALL").query_async(&mut redis).await?;
    assert_eq!(done(&stack, SALE, "second", 5).await?, 5);
    let balance = sold_out_exactly(&stack, SALE).await?;
    assert_eq!((balance.total, balance.orders), (35, 35));
    stack.check_children()?;
    Ok(())
}

/// Held units stay held; all other units can be withdrawn. Then the sale ends early, and continues.
#[tokio::test(flavor = "multi_thread")]
async fn units_are_withdrawn_and_the_end_moves_during_purchases() -> Result<()> {
    const SALE: &str = "withdrawn";
    let mut stack = faulty(SALE).start().await?;
    stack.open_sale(SALE, 600, 4).await?;
    let crowd = Crowd::start(&stack, SALE, users(0..1_200), 32);
    crowd.until_done(100).await?;
    let accepted = done(&stack, SALE, "less", -150).await?;
    assert!((-150..0).contains(&accepted), "{accepted}");
    let verdicts = crowd.finish().await?;
    let balance = sold_out_exactly(&stack, SALE).await?;
    let remaining = u64::try_from(600 + accepted)?;
    assert_eq!(
        (balance.total, balance.orders),
        (remaining, remaining),
        "{verdicts:?}"
    );

    let path = format!("/sales/{SALE}");
    let end = |ends_at_ms: u64| json!({ "ends_at_ms": ends_at_ms }).to_string();
    let ended = stack.admin(Method::PATCH, &path, &end(1), 200).await?;
    gets_verdict(&stack, SALE, "ended").await?;
    let later_ms = ended["ends_at_ms"].as_u64().context("no end")? + 600_000;
    stack
        .admin(Method::PATCH, &path, &end(later_ms), 200)
        .await?;
    assert_eq!(done(&stack, SALE, "more", 3).await?, 3);
    let balance = sold_out_exactly(&stack, SALE).await?;
    assert_eq!(balance.orders, remaining + 3);
    stack.check_children()?;
    Ok(())
}
