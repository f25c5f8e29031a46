//! SQL's data of one sale, read from the origin's SQLite file.

use anyhow::{Context, Result};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use std::path::Path;

/// SQL's data of one sale. Expired and cancelled orders hold no units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sql {
    /// Unpaid and paid orders.
    pub(super) orders: u64,
    /// Units in these orders.
    pub(super) units: u64,
    /// Paid orders.
    pub(super) paid: u64,
    /// Users with paid orders.
    pub(super) buyers: u64,
    /// Orders not paid in time.
    pub(super) expired: u64,
    /// Orders of bots, in any state.
    pub(super) bots: u64,
    /// Units left in `stock`.
    pub(super) remaining: u64,
}

/// SQL's counts of users with reservations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SqlCounts {
    /// Users with reservations.
    pub(super) reserved: u64,
    /// Those whom the risk check has not scored yet.
    pub(super) pending: u64,
    /// Those whom the risk check has blocked.
    pub(super) blocked: u64,
}

const ORDERS: &str = "
    SELECT COUNT(*) FILTER (WHERE status IN ('unpaid', 'paid')),
        COALESCE(SUM(quantity) FILTER (WHERE status IN ('unpaid', 'paid')), 0),
        COUNT(*) FILTER (WHERE status = 'paid'),
        COUNT(DISTINCT user_id) FILTER (WHERE status = 'paid'),
        COUNT(*) FILTER (WHERE status = 'expired'),
        COUNT(*) FILTER (WHERE user_id LIKE 'bot-%'),
        (SELECT remaining FROM stock WHERE stock.sale_id = ?1)
    FROM orders WHERE sale_id = ?1";

const CHECKED: &str = "
    SELECT COUNT(*), COUNT(*) FILTER (WHERE risk_state = 'pending'),
        (SELECT COUNT(*) FROM blocked_users WHERE blocked_users.sale_id = ?1)
    FROM reservations WHERE sale_id = ?1";

type Orders = (i64, i64, i64, i64, i64, i64, i64);

impl Sql {
    pub(super) async fn read(database: &Path, sale: &str) -> Result<Self> {
        let mut connection = open(database).await?;
        let query = sqlx::query_as(ORDERS).bind(sale);
        let row: Orders = query
            .fetch_one(&mut connection)
            .await
            .context("cannot count the orders")?;
        connection.close().await?;
        let (orders, units, paid, buyers, expired, bots, remaining) = row;
        Ok(Self {
            orders: u64::try_from(orders)?,
            units: u64::try_from(units)?,
            paid: u64::try_from(paid)?,
            buyers: u64::try_from(buyers)?,
            expired: u64::try_from(expired)?,
            bots: u64::try_from(bots)?,
            remaining: u64::try_from(remaining)?,
        })
    }

    /// Orders that may be paid or may expire.
    pub(super) fn unpaid(&self) -> u64 {
        self.orders.saturating_sub(self.paid)
    }
}

impl SqlCounts {
    pub(super) async fn read(database: &Path, sale: &str) -> Result<Self> {
        let mut connection = open(database).await?;
        let query = sqlx::query_as(CHECKED).bind(sale);
        let (reserved, pending, blocked): (i64, i64, i64) = query
            .fetch_one(&mut connection)
            .await
            .context("cannot count the reservations")?;
        connection.close().await?;
        Ok(Self {
            reserved: u64::try_from(reserved)?,
            pending: u64::try_from(pending)?,
            blocked: u64::try_from(blocked)?,
        })
    }
}

/// SQL's counts of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EventBooks {
    /// Stored events.
    pub(super) events: u64,
    /// Rejected events, stored as dead letters.
    pub(super) dead_letters: u64,
}

const EVENTS: &str = "
    SELECT (SELECT COUNT(*) FROM events), (SELECT COUNT(*) FROM event_dead_letters)";

impl EventBooks {
    pub(super) async fn read(database: &Path) -> Result<Self> {
        let mut connection = open(database).await?;
        let query = sqlx::query_as(EVENTS);
        let (events, dead_letters): (i64, i64) = query
            .fetch_one(&mut connection)
            .await
            .context("cannot count the events")?;
        connection.close().await?;
        Ok(Self {
            events: u64::try_from(events)?,
            dead_letters: u64::try_from(dead_letters)?,
        })
    }

    /// The difference from `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            events: self.events.saturating_sub(before.events),
            dead_letters: self.dead_letters.saturating_sub(before.dead_letters),
        }
    }
}

async fn open(database: &Path) -> Result<SqliteConnection> {
    let options = SqliteConnectOptions::new()
        .filename(database)
        .read_only(true);
    let opened = options.connect().await;
    opened.with_context(|| format!("cannot open {}", database.display()))
}
