//! A very large number of reservations, written directly into the origin's SQLite file.
//!
//! The origin accepts one reservation per request, each in a transaction that waits for the disk, which would take too
//! long.

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use std::path::Path;
use std::time::Duration;

/// Rows per transaction. The origin waits 2 s for the file's lock, so each transaction must be much shorter.
const BATCH: u32 = 20_000;

/// The maximum wait for the origin's own transactions.
const BUSY_LIMIT: Duration = Duration::from_secs(30);

/// The state after the risk check, so that the origin does not score the reservations.
const RESERVE: &str = "
    WITH RECURSIVE numbers(n) AS (SELECT ? UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ?)
    INSERT INTO reservations (user_id, sale_id, at_ms, risk_state, score)
    SELECT printf('user-%08d', n), ?, ?, 'scored', 0 FROM numbers";

const BLOCK: &str = "
    WITH RECURSIVE numbers(n) AS (SELECT ? UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ?)
    INSERT INTO blocked_users (user_id, sale_id, at_ms, reason)
    SELECT printf('user-%08d', n), ?, ?, 'risk' FROM numbers";

/// The name of user `n`, as in the statements.
pub(super) fn user(n: u32) -> String {
    format!("user-{n:08}")
}

/// Reserves for users 0 to `reserved` (exclusive) of `sale`; the first `blocked` of them are blocked.
pub(super) async fn write(
    database: &Path,
    sale: &str,
    reserved: u32,
    blocked: u32,
    now_ms: u64,
) -> Result<()> {
    let options = SqliteConnectOptions::new()
        .filename(database)
        .busy_timeout(BUSY_LIMIT);
    let mut connection = options
        .connect()
        .await
        .with_context(|| format!("cannot open {}", database.display()))?;
    let bar = ProgressBar::new((reserved + blocked).into()).with_style(style()?);
    let mut to = Target {
        connection: &mut connection,
        sale,
        now_ms: i64::try_from(now_ms)?,
        bar: &bar,
    };
    to.fill(RESERVE, reserved).await?;
    to.fill(BLOCK, blocked).await?;
    bar.finish_and_clear();
    connection.close().await?;
    Ok(())
}

fn style() -> Result<ProgressStyle> {
    let template = "{elapsed:>4} [{wide_bar}] {pos}/{len} users in SQL";
    Ok(ProgressStyle::with_template(template)?.progress_chars("=> "))
}

struct Target<'a> {
    connection: &'a mut SqliteConnection,
    sale: &'a str,
    now_ms: i64,
    bar: &'a ProgressBar,
}

impl Target<'_> {
    async fn fill(&mut self, insert: &'static str, count: u32) -> Result<()> {
        let mut from = 0;
        while from < count {
            let until = count.min(from.saturating_add(BATCH));
            sqlx::query(insert)
                .bind(from)
                .bind(until)
                .bind(self.sale)
                .bind(self.now_ms)
                .execute(&mut *self.connection)
                .await
                .context("cannot write reservations")?;
            self.bar.inc((until - from).into());
            from = until;
        }
        Ok(())
    }
}
