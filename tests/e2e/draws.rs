//! A draw among users with reservations, through the gateway: winners can buy, and anyone can verify the draw.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_stack::http::{self, Method};
use weir_stack::{Stack, command, origin};
use weir_tests::{buy, until, verdict};

use crate::whole_sale::audited;

const USERS: usize = 12;
const WINNERS: usize = 4;
/// The reservation period.
const WINDOW_MS: u64 = 6_000;
const CHECK_LIMIT: Duration = Duration::from_secs(30);

fn user(number: usize) -> String {
    format!("user-{number}")
}

/// A sale that draws when reservations end, and starts then.
async fn sale(stack: &Stack) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let ends = u64::try_from(now)? + WINDOW_MS;
    let body = json!({
        "id": "s", "title": "s", "total": 8, "shards": 2, "user_cap": 1, "warm_before_ms": null,
        "starts_at_ms": ends, "ends_at_ms": ends + 3_600_000,
        "reservation": { "from_ms": 0, "until_ms": ends }, "draw": { "winners": WINNERS },
    });
    stack.create_sale(&body).await?;
    stack.warm_sale("s").await
}

/// The ticket of each user.
async fn enter(stack: &Stack) -> Result<BTreeMap<String, String>> {
    let url = format!("{}/sales/s/reservations", stack.gateway_url());
    let mut tickets = BTreeMap::new();
    for user in (0..USERS).map(user) {
        let entered = http::send(Method::POST, &url, &[("x-user-id", &user)], "").await?;
        let body = entered.json()?;
        ensure!(
            (entered.status, &body["state"]) == (201, &json!("entered")),
            "{user}: {body}"
        );
        let ticket = body["ticket"].as_str().context("no ticket")?;
        tickets.insert(user, ticket.to_owned());
    }
    Ok(tickets)
}

/// The public view of the draw, without signing in.
async fn drawn(stack: &Stack) -> Result<Value> {
    http::get(&format!("{}/sales/s/draw", stack.gateway_url()))
        .await?
        .json()
}

/// Whether the command confirms that this ticket has won, from public data of the gateway.
fn has_won(
    dir: &Path,
    draw: &Value,
    entries: &str,
    commitment: &str,
    ticket: &str,
) -> Result<bool> {
    std::fs::write(dir.join("draw.json"), draw.to_string())?;
    std::fs::write(dir.join("entries.txt"), entries)?;
    let mut check = Command::new(origin::ensure_built()?);
    check.current_dir(dir).args([
        "check-draw",
        "--draw",
        "draw.json",
        "--entries",
        "entries.txt",
    ]);
    check.args(["--commitment", commitment, "--ticket", ticket]);
    let output = command::succeed(&mut check, CHECK_LIMIT)?;
    let line = output.lines().find(|line| line.starts_with(ticket));
    Ok(line
        .context("it says nothing of the ticket")?
        .ends_with(", won"))
}

#[tokio::test(flavor = "multi_thread")]
async fn drawn_users_buy_and_the_draw_is_publicly_verifiable() -> Result<()> {
    let stack = Stack::builder().key_prefix("draws").start().await?;
    sale(&stack).await?;
    let before = drawn(&stack).await?;
    ensure!(before["seed"].is_null(), "told before the end: {before}");
    let commitment = before["commitment"].as_str().context("no commitment")?;
    let tickets = enter(&stack).await?;

    until("it is drawn", async || {
        drawn(&stack)
            .await
            .is_ok_and(|draw| draw["seed"].is_string())
    })
    .await?;
    let draw = drawn(&stack).await?;
    ensure!(draw["entries"] == json!(USERS), "{draw}");
    let entries = http::get(&format!("{}/sales/s/draw/entries", stack.gateway_url())).await?;
    let dir = tempfile::tempdir()?;
    let mut winners = 0;
    for (user, ticket) in &tickets {
        let has_won = has_won(dir.path(), &draw, &entries.text(), commitment, ticket)?;
        let expected = if has_won { "granted" } else { "not_reserved" };
        // Gateways may receive the start and the winners a moment later.
        until(&format!("{user} hears {expected}"), async || {
            buy(&stack, "s", user)
                .await
                .is_ok_and(|answer| verdict(&answer) == expected)
        })
        .await?;
        winners += usize::from(has_won);
    }
    ensure!(winners == WINNERS, "{winners} have won");
    audited(&stack, "s", 8 - WINNERS as u64, WINNERS as u64).await
}
