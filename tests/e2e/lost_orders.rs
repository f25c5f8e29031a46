//! SQL is restored from an earlier copy while Redis continues: the sale pauses until an operator decides.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_stack::http::{self, Method};
use weir_stack::{Stack, command, origin};
use weir_tests::{buy, faulty, stock_balance, until, verdict};

/// Units of a sale: four are sold before the copy, four after it.
const UNITS: u64 = 10;
const SOLD: u64 = 4;

/// The time limit of the command.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);

/// The files of a SQLite database.
fn files(database: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|end| PathBuf::from(format!("{}{end}", database.display())))
}

/// Copies the files of the database `from` to `to`. No process may have either of them open.
fn copy_database(from: &Path, to: &Path) -> Result<()> {
    for (from, to) in files(from).iter().zip(files(to)) {
        let _ = std::fs::remove_file(&to);
        if from.exists() {
            std::fs::copy(from, to)?;
        }
    }
    Ok(())
}

/// The users buy one after another; returns the IDs of the acknowledged orders.
async fn orders_of(
    stack: &Stack,
    sale: &str,
    users: std::ops::Range<u64>,
) -> Result<BTreeSet<String>> {
    let orders = Mutex::new(BTreeSet::new());
    for n in users {
        let user = format!("user-{n}");
        until("the user has bought", async || {
            let Ok(answer) = buy(stack, sale, &user).await else {
                return false;
            };
            let order = answer
                .json()
                .ok()
                .and_then(|body| Some(body["order"].as_str()?.to_owned()));
            let is_order = matches!(answer.status, 200 | 201);
            let order = order.filter(|_| is_order);
            let mut orders = orders.lock().unwrap_or_else(PoisonError::into_inner);
            order.map(|order| orders.insert(order)).is_some()
        })
        .await?;
    }
    Ok(orders.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Sells eight of ten units. SQL then loses the last four orders; returns their IDs.
async fn sell_and_go_back(stack: &mut Stack, sale: &str) -> Result<BTreeSet<String>> {
    stack.open_sale(sale, UNITS, 2).await?;
    orders_of(stack, sale, 0..SOLD).await?;
    let database = stack.origin.database().to_owned();
    let copy = database.with_extension("copy");
    stack.origin.process().kill();
    copy_database(&database, &copy)?;
    stack.origin.start_again().await?;
    let lost = orders_of(stack, sale, SOLD..2 * SOLD).await?;
    assert_eq!(lost.len() as u64, SOLD);
    stack.origin.process().kill();
    copy_database(&copy, &database)?;
    stack.origin.start_again().await?;
    Ok(lost)
}

/// New users buy until the sale is paused; returns the number of orders acknowledged before that.
async fn sold_until_paused(stack: &Stack, sale: &str) -> Result<u64> {
    let sold = AtomicU64::new(0);
    until("the sale is paused", async || {
        let user = format!("late-{}", sold.load(Relaxed));
        let Ok(answer) = buy(stack, sale, &user).await else {
            return false;
        };
        sold.fetch_add(matches!(answer.status, 200 | 201).into(), Relaxed);
        if verdict(&answer) != "paused" {
            return false;
        }
        let is_right = answer.status == 503 && answer.header("retry-after").is_some();
        assert!(is_right, "{answer:?}");
        true
    })
    .await?;
    // A user whose request met the restart may still hold a unit.
    until("no claim is open", async || {
        stock_balance(stack, sale)
            .await
            .is_ok_and(|stock_balance| stock_balance.held == 0)
    })
    .await?;
    Ok(sold.into_inner())
}

/// The IDs in an answer about lost orders.
fn ids(answer: &Value) -> Result<BTreeSet<String>> {
    let orders = answer["orders"].as_array().context("no orders")?;
    let ids = orders.iter().filter_map(|order| order["id"].as_str());
    Ok(ids.map(str::to_owned).collect())
}

/// New users buy exactly the remaining units.
async fn sell_out(stack: &Stack, sale: &str, remaining: u64) -> Result<()> {
    let sold = AtomicU64::new(0);
    until("all is sold", async || {
        let user = format!("new-{}", sold.load(Relaxed));
        let Ok(answer) = buy(stack, sale, &user).await else {
            return false;
        };
        sold.fetch_add(matches!(answer.status, 200 | 201).into(), Relaxed);
        verdict(&answer) == "sold_out"
    })
    .await?;
    let sold = sold.into_inner();
    ensure!(sold == remaining, "{sold} of {remaining} units are sold");
    let stock_balance = stock_balance(stack, sale).await?;
    assert_eq!(
        (
            stock_balance.orders,
            stock_balance.stock,
            stock_balance.held
        ),
        (UNITS, 0, 0)
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_orders_pause_the_sale_until_they_are_restored() -> Result<()> {
    const SALE: &str = "restored";
    let mut stack = faulty(SALE).start().await?;
    let lost = sell_and_go_back(&mut stack, SALE).await?;
    let more = sold_until_paused(&stack, SALE).await?;
    ensure!(2 * SOLD + more <= UNITS, "{more} more orders than units");

    let path = format!("/sales/{SALE}/lost-orders");
    let listed = stack.admin(Method::GET, &path, "", 200).await?;
    assert_eq!(listed["changes_lost"], SOLD, "{listed}");
    assert_eq!(ids(&listed)?, lost);
    let ready = format!("{}/readyz", stack.origin_admin_url());
    until("the origin reports it", async || {
        let answer = http::get(&ready).await;
        let body = answer.ok().filter(|answer| answer.status == 200);
        body.and_then(|answer| answer.json().ok())
            .is_some_and(|body| body["sales"] == "paused")
    })
    .await?;
    let metrics = http::get(&format!("{}/metrics", stack.origin_admin_url())).await?;
    assert!(metrics.text().contains("weir_origin_paused_sales 1\n"));
    // Only Redis has the lost order, and still prevents a second one.
    let user = format!("user-{SOLD}");
    until("every worker knows the pause", async || {
        let answer = buy(&stack, SALE, &user).await;
        answer.is_ok_and(|answer| verdict(&answer) == "paused")
    })
    .await?;

    let mut doctor = Command::new(origin::ensure_built()?);
    let database = format!("sqlite://{}", stack.origin.database().display());
    doctor
        .args(["--database-url", &database, "--key-prefix", SALE, "doctor"])
        .env("WEIR_REDIS_URL", stack.redis_url());
    let found = String::from_utf8(doctor.output()?.stdout)?;
    let line = found
        .lines()
        .find(|line| line.ends_with("[sql-lost-orders]"));
    let line = line.with_context(|| format!("doctor says only: {found}"))?;
    assert!(
        lost.iter().all(|order| line.contains(order.as_str())),
        "{line}"
    );

    let mut restore = Command::new(origin::ensure_built()?);
    restore
        .args(["lost-orders", SALE, "--restore"])
        .args(["--url", &stack.origin_admin_url()])
        .env("WEIR_ADMIN_TOKEN", &stack.admin_token);
    let output = command::succeed(&mut restore, COMMAND_LIMIT)?;
    let restored: Value = serde_json::from_str(&output)?;
    assert_eq!(ids(&restored)?, lost);
    let mut outcomes = restored["orders"].as_array().context("no orders")?.iter();
    assert!(
        outcomes.all(|order| order["outcome"] == "restored"),
        "{restored}"
    );
    let first = &restored["orders"][0];
    let (order, user) = (first["id"].as_str(), first["user"].as_str());
    let response = http::send(
        Method::GET,
        &format!("{}/orders/{}", stack.gateway_url(), order.context("no id")?),
        &[("x-user-id", user.context("no user")?)],
        "",
    )
    .await?;
    assert_eq!(response.status, 200, "{response:?}");
    sell_out(&stack, SALE, UNITS - 2 * SOLD - more).await?;
    let refused = stack
        .admin(Method::POST, &path, r#"{"decision":"accept"}"#, 409)
        .await?;
    assert_eq!(refused["error"], "sale_not_paused");
    stack.check_children()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn units_of_lost_orders_are_sold_again_once_accepted() -> Result<()> {
    const SALE: &str = "accepted";
    let mut stack = faulty(SALE).start().await?;
    let lost = sell_and_go_back(&mut stack, SALE).await?;
    let more = sold_until_paused(&stack, SALE).await?;
    let path = format!("/sales/{SALE}/lost-orders");
    let accepted = stack
        .admin(Method::POST, &path, r#"{"decision":"accept"}"#, 200)
        .await?;
    assert_eq!(ids(&accepted)?, lost);
    sell_out(&stack, SALE, UNITS - SOLD - more).await?;
    stack.check_children()?;
    Ok(())
}
