//! Pulls events from a table of a third-party database, by a query over an increasing number.
//!
//! The query returns the columns `position` and `event`. Rows that appear late with a smaller number are found for a
//! limited time: see [`Window`].

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::body::Body;
use super::window::Window;
use super::{FetchedPage, Fetching, Source};
use crate::Clock;
use weir_origin_core::sql::OpenError;
use weir_origin_core::sql::foreign::{ForeignDatabase, PlacedRow};

/// Placeholder of the cursor: the query selects rows with a greater number.
const CURSOR: &str = "{cursor}";

/// Placeholder of the maximum number of rows.
const LIMIT: &str = "{limit}";

/// Number of rows per query.
const PAGE: usize = 1_000;

/// Timeout of one query.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Number of intervals in the look-back. While new rows keep coming, the source looks for late rows once per interval.
const LOOKS: u64 = 16;

/// A position before all rows: positions are never negative.
const BEFORE_ALL: i64 = -1;

/// Why a table source is invalid.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The database URL is invalid.
    #[error("database: {0}")]
    Database(#[from] OpenError),
    /// The query lacks a placeholder.
    #[error(
        "query: must contain {CURSOR} and {LIMIT}, such as … WHERE id > {CURSOR} ORDER BY id LIMIT {LIMIT}"
    )]
    NoPlace,
    /// The look-back is zero.
    #[error("look_back: must be longer than 0")]
    LookBack,
}

/// A table that contains events.
pub struct TableSource {
    database: ForeignDatabase,
    /// The query with `?` for each placeholder.
    query: String,
    places: Vec<QueryParameter>,
    look_back_ms: u64,
    clock: Clock,
    /// When the source last looked for late rows.
    checked_at: Mutex<Option<Instant>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueryParameter {
    Cursor,
    Limit,
}

impl std::fmt::Debug for TableSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TableSource").field(&self.query).finish()
    }
}

impl TableSource {
    /// Creates a source that runs `query` on the database at `url`. A late row is found within `look_back_ms` after a
    /// row with a greater number.
    ///
    /// # Errors
    /// See [`TableError`].
    pub fn new(
        url: &str,
        query: &str,
        look_back_ms: u64,
        clock: Clock,
    ) -> Result<Self, TableError> {
        let (query, places) = bound(query);
        if !places.contains(&QueryParameter::Cursor) || !places.contains(&QueryParameter::Limit) {
            return Err(TableError::NoPlace);
        }
        if look_back_ms == 0 {
            return Err(TableError::LookBack);
        }
        Ok(Self {
            database: ForeignDatabase::new(url)?,
            query,
            places,
            look_back_ms,
            clock,
            checked_at: Mutex::default(),
        })
    }

    /// Whether it is time to look for late rows even if there are new ones. True at the start.
    fn must_look(&self) -> bool {
        let looked = self
            .checked_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let pause = Duration::from_millis(self.look_back_ms / LOOKS);
        looked.is_none_or(|at| at.elapsed() >= pause)
    }

    /// How long to wait for a missing number, in milliseconds: slightly longer than the look-back, because late rows
    /// are looked for at intervals.
    fn wait_ms(&self) -> u64 {
        self.look_back_ms
            .saturating_add(2 * (self.look_back_ms / LOOKS))
    }

    async fn page(&self, behind: i64) -> Result<Vec<PlacedRow>, String> {
        let number = |place: &QueryParameter| match place {
            QueryParameter::Cursor => behind,
            QueryParameter::Limit => PAGE as i64,
        };
        let numbers: Vec<i64> = self.places.iter().map(number).collect();
        let requested = self.database.rows(&self.query, &numbers);
        let answered = tokio::time::timeout(TIMEOUT, requested).await;
        let answered = answered.map_err(|_| format!("no answer within {TIMEOUT:?}"))?;
        answered.map_err(|error| error.to_string())
    }

    /// Fetches new rows first. If there are none, looks for late rows.
    async fn fetch_behind(&self, cursor: &str) -> Result<FetchedPage, String> {
        let window = Window::read(cursor);
        let mut window = window.ok_or("its cursor belongs to another kind of collector")?;
        let now_ms = (self.clock)();
        let mut body = Body::default();
        if let Some(greatest) = window.greatest()
            && !self.must_look()
        {
            self.take_behind(signed(greatest)?, &mut window, &mut body)
                .await?;
        }
        if body.is_empty() {
            let began = Instant::now();
            let begin = window.begin(now_ms, self.wait_ms());
            let begin = begin.map_or(Ok(BEFORE_ALL), signed)?;
            self.take_behind(begin, &mut window, &mut body).await?;
            *self
                .checked_at
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = Some(began);
        }
        window.pass(now_ms, self.wait_ms());
        Ok(FetchedPage {
            events: body.finish(),
            cursor: window.to_text(),
        })
    }

    /// Takes rows after a number, as many as exist and fit into the body.
    async fn take_behind(
        &self,
        mut behind: i64,
        window: &mut Window,
        body: &mut Body,
    ) -> Result<(), String> {
        loop {
            let rows = self.page(behind).await?;
            for row in &rows {
                let position = signed(row.position)?;
                if position <= behind {
                    return Err(format!(
                        "the query returns {position} after {behind}: it must be ordered by position, without duplicates"
                    ));
                }
                if !take(window, body, row)? {
                    return Ok(());
                }
                behind = position;
            }
            if rows.len() < PAGE || body.is_full() {
                return Ok(());
            }
            behind = signed(window.end_of_run(behind.unsigned_abs()))?;
        }
    }
}

/// Takes a row unless it was taken before. Returns false if it does not fit into the body.
fn take(window: &mut Window, body: &mut Body, row: &PlacedRow) -> Result<bool, String> {
    if window.has(row.position) {
        return Ok(true);
    }
    if window.is_full() {
        return Err("too many recent positions are missing: reading continues after look_back; a shorter look_back helps".into());
    }
    let is_taken = body.push(row.event.as_deref().unwrap_or(b"null"));
    if is_taken {
        window.take(row.position);
    }
    Ok(is_taken)
}

fn signed(number: u64) -> Result<i64, String> {
    i64::try_from(number).map_err(|_| "its cursor is too large for SQL".to_owned())
}

/// Replaces the placeholders with `?`, and returns their order.
fn bound(query: &str) -> (String, Vec<QueryParameter>) {
    let (mut out, mut places) = (String::new(), Vec::new());
    let mut rest = query;
    loop {
        let cursor = rest
            .find(CURSOR)
            .map(|at| (at, QueryParameter::Cursor, CURSOR));
        let limit = rest
            .find(LIMIT)
            .map(|at| (at, QueryParameter::Limit, LIMIT));
        let next = cursor.into_iter().chain(limit).min_by_key(|next| next.0);
        let Some((at, place, word)) = next else {
            out.push_str(rest);
            return (out, places);
        };
        let (before, behind) = rest.split_at(at);
        out.push_str(before);
        out.push('?');
        places.push(place);
        rest = behind.strip_prefix(word).unwrap_or_default();
    }
}

impl Source for TableSource {
    fn fetch<'a>(&'a self, cursor: &'a str) -> Fetching<'a> {
        Box::pin(self.fetch_behind(cursor))
    }

    fn display_cursor(&self, cursor: &str) -> String {
        let greatest = Window::read(cursor).and_then(|window| window.greatest());
        greatest.map_or_else(String::new, |number| number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn placeholders_become_parameters_in_order() {
        let (query, places) = bound("SELECT {limit}, {cursor} FROM t WHERE a > {cursor}");
        assert_eq!(query, "SELECT ?, ? FROM t WHERE a > ?");
        assert_eq!(
            places,
            [
                QueryParameter::Limit,
                QueryParameter::Cursor,
                QueryParameter::Cursor
            ]
        );
    }

    #[tokio::test]
    async fn invalid_table_source_is_refused_with_its_setting() {
        let new = |url: &str, query: &str, look_back_ms| {
            let created = TableSource::new(url, query, look_back_ms, Arc::new(|| 0));
            created.unwrap_err().to_string()
        };
        let query = "SELECT {cursor} {limit}";
        assert!(new("sqlite://a.db", "SELECT {cursor}", 1).starts_with("query: "));
        assert!(new("sqlite://a.db", query, 0).starts_with("look_back: "));
        assert!(new("oracle://me:hush@h/d", query, 1).starts_with("database: "));
        let url = "mysql://me:hush@h/d?ssl-mode=none";
        let response = new(url, query, 1);
        assert!(
            response.starts_with("database: ") && !response.contains("hush"),
            "{response}"
        );
        let source = TableSource::new("mysql://me:hush@h/d", query, 1, Arc::new(|| 0)).unwrap();
        assert!(!format!("{source:?}").contains("hush"));
    }
}
