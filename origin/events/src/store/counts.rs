//! The number of events by hour and type, kept while events are stored, so that trends do not read the events.

use std::collections::BTreeMap;

use sqlx::Error;

use super::EventStore;
use super::events::NewEvent;
use weir_origin_core::sql::{MANY, Row, SqlError, Tx, filled, in_many_then, sql};

/// Maximum number of types in a [`Trend`].
pub const TREND_TYPES_MAX: usize = MANY;

const HOUR_MS: u64 = 60 * 60 * 1_000;

const ADD: &str = "
    UPDATE event_counts SET events = events + ? WHERE hour_ms = ? AND type = ? AND source = ?";

const INSERT: &str = "
    INSERT INTO event_counts (events, hour_ms, type, source) VALUES (?, ?, ?, ?)";

const SELECT_TYPES: &str = "
    SELECT type, CAST(SUM(events) AS SIGNED) AS total FROM event_counts
    WHERE hour_ms >= ? AND hour_ms < ? AND (? = '' OR type = ?)
    GROUP BY type ORDER BY total DESC, type LIMIT ?";

const SELECT_POINTS: &str = in_many_then!(
    "SELECT type, hour_ms - hour_ms % ? AS at_ms, CAST(SUM(events) AS SIGNED) AS total FROM event_counts
    WHERE hour_ms >= ? AND hour_ms < ? AND type",
    " GROUP BY type, at_ms ORDER BY at_ms"
);

const DELETE_OLD: &str = "DELETE FROM event_counts WHERE hour_ms < ?";

/// The events of a type over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeTrend {
    /// The type.
    pub event_type: String,
    /// Number of events.
    pub events: u64,
    /// The start of each step with events, in milliseconds since the Unix epoch, and their number; oldest first.
    pub points: Vec<(u64, u64)>,
}

/// The most frequent types of a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trend {
    /// The most frequent type first.
    pub types: Vec<TypeTrend>,
    /// Whether these are all types.
    pub is_complete: bool,
}

/// Selects a trend. The times are starts of steps.
#[derive(Clone, Copy, Debug)]
pub struct TrendFilter<'a> {
    /// Only this type; `None`: the most frequent ones.
    pub event_type: Option<&'a str>,
    /// From this time, in milliseconds since the Unix epoch.
    pub from_ms: u64,
    /// Before this time, in milliseconds since the Unix epoch.
    pub to_ms: u64,
    /// Length of a step: a multiple of an hour.
    pub step_ms: u64,
}

/// Counts the new events of a transaction.
#[derive(Debug, Default)]
pub(super) struct NewCounts<'a>(BTreeMap<(u64, &'a str), u64>);

impl<'a> NewCounts<'a> {
    pub(super) fn add(&mut self, event: &'a NewEvent) {
        let hour_ms = event.at_ms - event.at_ms % HOUR_MS;
        *self.0.entry((hour_ms, &event.event_type)).or_default() += 1;
    }

    /// Adds the counts in SQL. Only the transaction that moves the group in this source does so, so nobody inserts the
    /// same rows.
    pub(super) async fn write(&self, tx: &mut Tx, source: &str) -> Result<(), Error> {
        for ((hour_ms, event_type), events) in &self.0 {
            let put = |statement| {
                let statement = sql(statement).number(*events).number(*hour_ms);
                statement.text(event_type).text(source)
            };
            if tx.execute(put(ADD)).await? == 0 {
                tx.execute(put(INSERT)).await?;
            }
        }
        Ok(())
    }
}

/// Reads counts of events.
#[derive(Clone, Copy, Debug)]
pub struct CountStore<'a>(pub(super) &'a EventStore);

impl CountStore<'_> {
    /// The number of events by type and step.
    pub async fn trend(self, filter: TrendFilter<'_>) -> Result<Trend, SqlError> {
        let event_type = filter.event_type.unwrap_or_default();
        let select = sql(SELECT_TYPES)
            .number(filter.from_ms)
            .number(filter.to_ms);
        let select = select.text(event_type).text(event_type);
        let rows = self.0.db.all(select.number(TREND_TYPES_MAX + 1)).await?;
        let mut types = rows.iter().map(type_trend).collect::<Result<Vec<_>, _>>()?;
        let is_complete = types.len() <= TREND_TYPES_MAX;
        types.truncate(TREND_TYPES_MAX);
        if types.is_empty() {
            return Ok(Trend { types, is_complete });
        }
        let names: Vec<String> = types.iter().map(|one| one.event_type.clone()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let select = sql(SELECT_POINTS).number(filter.step_ms);
        let select = select.number(filter.from_ms).number(filter.to_ms);
        let select = filled(&names).fold(select, |select, name| select.text(name));
        for row in self.0.db.all(select).await? {
            let (name, point) = (row.text("type")?, point(&row)?);
            let found = types.iter_mut().find(|one| one.event_type == name);
            if let Some(found) = found {
                found.points.push(point);
            }
        }
        Ok(Trend { types, is_complete })
    }

    /// Deletes counts of hours before this time.
    pub async fn clean_counts(self, before_ms: u64) -> Result<(), SqlError> {
        self.0.db.execute(sql(DELETE_OLD).number(before_ms)).await?;
        Ok(())
    }
}

fn type_trend(row: &Row) -> Result<TypeTrend, Error> {
    Ok(TypeTrend {
        event_type: row.text("type")?,
        events: row.number("total")?,
        points: Vec::new(),
    })
}

fn point(row: &Row) -> Result<(u64, u64), Error> {
    Ok((row.number("at_ms")?, row.number("total")?))
}
