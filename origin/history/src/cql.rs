//! The cold store in Cassandra, ScyllaDB or another CQL database. Each list is one row, which expires when its latest
//! view is too old.
//!
//! Writes use compare-and-set (`IF version = …`). If the result of a write is unknown, the fold reads the list again.

use std::sync::Arc;
use std::time::Duration;

use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::{ExecutionError, PrepareError};
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};
use scylla::value::{CqlValue, Row};
use tokio::sync::watch;
use tracing::{info, warn};
use weir_history::{COLD_MS, Owner, ViewedProduct, cold};

use super::model::cold::{ColdFuture, ColdStore, ColdStoreError, StoredList};
use weir_origin_core::clock::Clock;

/// Timeout of one call: a reader waits for it.
const CALL_LIMIT: Duration = Duration::from_secs(1);

/// Timeout of one connection attempt, and the pause after a failure.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_secs(1);

/// Maximum length of a keyspace name.
const KEYSPACE_LEN_MAX: usize = 48;

const TABLE: &str = "history_cold (owner_key text PRIMARY KEY, value blob, version bigint)";

const SELECT: &str = "SELECT version, value FROM history_cold WHERE owner_key = ?";

const INSERT: &str = "
    INSERT INTO history_cold (owner_key, value, version) VALUES (?, ?, ?) IF NOT EXISTS USING TTL ?";

const UPDATE: &str = "
    UPDATE history_cold USING TTL ? SET value = ?, version = ? WHERE owner_key = ? IF version = ?";

const DELETE_VERSION: &str = "DELETE FROM history_cold WHERE owner_key = ? IF version = ?";

/// Also a compare-and-set: Cassandra does not order plain writes relative to compare-and-set writes.
const DELETE: &str = "DELETE FROM history_cold WHERE owner_key = ? IF EXISTS";

/// The URL is invalid. The error does not show it, because it may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}: write cql://HOST:PORT,HOST:PORT/KEYSPACE, with USER:PASSWORD@ before the hosts for a login, and ?replicas=N for a new keyspace"
)]
pub struct CqlUrlError(&'static str);

/// The address of the store.
#[derive(Clone, PartialEq, Eq)]
struct CqlEndpoint {
    nodes: Vec<String>,
    login: Option<(String, String)>,
    keyspace: String,
    /// Number of replicas for a new keyspace; `None`: do not create it.
    replicas: Option<u8>,
}

/// Lists in a CQL store. Cloning is cheap.
#[derive(Clone)]
pub struct CqlStore {
    ready: watch::Receiver<Option<Arc<PreparedSession>>>,
    clock: Clock,
}

impl std::fmt::Debug for CqlStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CqlStore").finish_non_exhaustive()
    }
}

/// A session with its prepared statements.
struct PreparedSession {
    session: Session,
    select: PreparedStatement,
    insert: PreparedStatement,
    update: PreparedStatement,
    delete_version: PreparedStatement,
    delete: PreparedStatement,
}

impl CqlStore {
    /// Opens the store at `url` and connects in the background, so the nodes may be unreachable at first. Needs a tokio
    /// runtime.
    ///
    /// # Errors
    /// If the URL is invalid.
    pub fn open(url: &str, clock: Clock) -> Result<Self, CqlUrlError> {
        let place = CqlEndpoint::read(url)?;
        let (tell, ready) = watch::channel(None);
        tokio::spawn(connect_until_ready(place, tell));
        Ok(Self { ready, clock })
    }

    /// The session, once it is connected.
    async fn ready(&self) -> Result<Arc<PreparedSession>, ColdStoreError> {
        let mut ready = self.ready.clone();
        let waited = tokio::time::timeout(CALL_LIMIT, ready.wait_for(Option::is_some)).await;
        let ready = waited.ok().and_then(Result::ok);
        let ready = ready.and_then(|ready| ready.clone());
        ready.ok_or_else(|| ColdStoreError::Other("not connected yet".to_owned()))
    }

    async fn read_list(&self, owner: &Owner) -> Result<StoredList, ColdStoreError> {
        let ready = self.ready().await?;
        let key = cold::key(owner);
        let rows = ready.ask(&ready.select, (key,)).await?;
        let rows = rows.into_rows_result().map_err(other)?;
        let row = rows.maybe_first_row::<(Option<i64>, Option<Vec<u8>>)>();
        let Some((Some(version), Some(value))) = row.map_err(other)? else {
            return Ok(StoredList::default());
        };
        Ok(StoredList {
            version: Some(u64::try_from(version).map_err(other)?),
            views: cold::decode(&value)?,
        })
    }

    async fn write_list(
        &self,
        owner: &Owner,
        version: Option<u64>,
        views: &[ViewedProduct],
    ) -> Result<bool, ColdStoreError> {
        let ready = self.ready().await?;
        let (key, value) = (cold::key(owner), cold::encode(views));
        let now_ms = (self.clock)();
        let life_s = views.first().map(|newest| life_s(newest.at_ms, now_ms));
        let version = version.map(signed).transpose()?;
        let response = match (version, life_s) {
            (None, None) => return Ok(true),
            (Some(version), None) => ready.ask(&ready.delete_version, (key, version)).await,
            (None, Some(life_s)) => {
                let first = signed(now_ms)?;
                ready.ask(&ready.insert, (key, value, first, life_s)).await
            }
            (Some(version), Some(life_s)) => {
                let next = version.saturating_add(1);
                let values = (life_s, value, next, key, version);
                ready.ask(&ready.update, values).await
            }
        };
        is_applied(response?)
    }

    async fn forget_list(&self, owner: &Owner) -> Result<(), ColdStoreError> {
        let ready = self.ready().await?;
        ready.ask(&ready.delete, (cold::key(owner),)).await?;
        Ok(())
    }
}

impl ColdStore for CqlStore {
    fn read<'a>(&'a self, owner: &'a Owner) -> ColdFuture<'a, StoredList> {
        Box::pin(self.read_list(owner))
    }

    fn write<'a>(
        &'a self,
        owner: &'a Owner,
        version: Option<u64>,
        views: &'a [ViewedProduct],
    ) -> ColdFuture<'a, bool> {
        Box::pin(self.write_list(owner, version, views))
    }

    fn forget<'a>(&'a self, owner: &'a Owner) -> ColdFuture<'a, ()> {
        Box::pin(self.forget_list(owner))
    }

    /// Does nothing: rows expire by their TTL.
    fn forget_older<'a>(&'a self, _: u64, _: usize) -> ColdFuture<'a, u64> {
        Box::pin(std::future::ready(Ok(0)))
    }
}

/// TTL of a list in seconds, until its latest view is too old.
fn life_s(newest_ms: u64, now_ms: u64) -> i32 {
    let left_ms = newest_ms.saturating_add(COLD_MS).saturating_sub(now_ms);
    let left_s = left_ms.div_ceil(1_000).max(1);
    // A clock may be years off; the store accepts at most twenty years.
    const MOST: u64 = 2 * COLD_MS / 1_000;
    i32::try_from(left_s.min(MOST)).unwrap_or(i32::MAX)
}

fn signed(number: u64) -> Result<i64, ColdStoreError> {
    i64::try_from(number).map_err(other)
}

fn other(error: impl std::fmt::Display) -> ColdStoreError {
    ColdStoreError::Other(error.to_string())
}

/// Whether a compare-and-set was applied, from the first column of its reply.
fn is_applied(result: QueryResult) -> Result<bool, ColdStoreError> {
    let rows = result.into_rows_result().map_err(other)?;
    let row = rows.first_row::<Row>().map_err(other)?;
    match row.columns.first() {
        Some(Some(CqlValue::Boolean(is_applied))) => Ok(*is_applied),
        _ => Err(ColdStoreError::Other(
            "the reply to a write lacks [applied]".to_owned(),
        )),
    }
}

impl PreparedSession {
    async fn connect(place: &CqlEndpoint) -> Result<Self, String> {
        let profile = ExecutionProfile::builder()
            .consistency(Consistency::LocalQuorum)
            .serial_consistency(Some(SerialConsistency::LocalSerial))
            .request_timeout(Some(CALL_LIMIT))
            .build();
        let mut builder = SessionBuilder::new()
            .known_nodes(&place.nodes)
            .connection_timeout(CONNECT_LIMIT)
            .default_execution_profile_handle(profile.into_handle());
        if let Some((user, password)) = &place.login {
            builder = builder.user(user, password);
        }
        let session = builder.build().await.map_err(|error| error.to_string())?;
        let created = make(&session, place).await;
        Self::prepare(session, &place.keyspace)
            .await
            .map_err(|error| match created {
                Ok(()) => error.to_string(),
                // A user without permission to create tables can use existing ones. If they are missing, this is the
                // reason.
                Err(created) => created,
            })
    }

    async fn prepare(session: Session, keyspace: &str) -> Result<Self, PrepareError> {
        let name = format!("{keyspace}.history_cold");
        let prepared = async |text: &str| {
            let mut prepared = session.prepare(text.replace("history_cold", &name)).await?;
            // The driver may repeat only reads. A repeated compare-and-set would fail on its own first write.
            prepared.set_is_idempotent(text == SELECT);
            Ok::<_, PrepareError>(prepared)
        };
        Ok(Self {
            select: prepared(SELECT).await?,
            insert: prepared(INSERT).await?,
            update: prepared(UPDATE).await?,
            delete_version: prepared(DELETE_VERSION).await?,
            delete: prepared(DELETE).await?,
            session,
        })
    }

    async fn ask(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<QueryResult, ColdStoreError> {
        let requested = self.session.execute_unpaged(statement, values).await;
        requested.map_err(|error: ExecutionError| other(error))
    }
}

/// Creates the keyspace and the table if they are missing.
async fn make(session: &Session, place: &CqlEndpoint) -> Result<(), String> {
    let keyspace = &place.keyspace;
    let mut texts = Vec::new();
    if let Some(replicas) = place.replicas {
        texts.push(format!(
            "CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = \
             {{'class': 'NetworkTopologyStrategy', 'replication_factor': {replicas}}}"
        ));
    }
    let life_s = COLD_MS / 1_000;
    texts.push(format!(
        "CREATE TABLE IF NOT EXISTS {keyspace}.{TABLE} WITH default_time_to_live = {life_s}"
    ));
    for text in texts {
        let mut statement = scylla::statement::unprepared::Statement::new(text);
        // Schema changes in a cluster are slow.
        statement.set_request_timeout(Some(CONNECT_LIMIT));
        let created = session.query_unpaged(statement, ()).await;
        created.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Ends when a session is connected, or when the store is dropped.
async fn connect_until_ready(
    place: CqlEndpoint,
    tell: watch::Sender<Option<Arc<PreparedSession>>>,
) {
    let mut is_said = false;
    loop {
        let connected = tokio::select! {
            () = tell.closed() => return,
            connected = PreparedSession::connect(&place) => connected,
        };
        match connected {
            Ok(ready) => {
                info!(keyspace = place.keyspace, "cold store of history is ready");
                let _ = tell.send(Some(Arc::new(ready)));
                return;
            }
            Err(error) if !is_said => {
                warn!(
                    error,
                    "cannot connect to the cold store of history; retrying"
                );
                is_said = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(AGAIN).await;
    }
}

impl CqlEndpoint {
    fn read(url: &str) -> Result<Self, CqlUrlError> {
        let rest = url.strip_prefix("cql://");
        let rest = rest.ok_or(CqlUrlError("it does not start with cql://"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let parts = rest.rsplit_once('/');
        let (rest, keyspace) = parts.ok_or(CqlUrlError("it has no keyspace"))?;
        let (login, nodes) = match rest.rsplit_once('@') {
            None => (None, rest),
            Some((login, nodes)) => {
                let login = login
                    .split_once(':')
                    .ok_or(CqlUrlError("a user needs a password"))?;
                (Some((login.0.to_owned(), login.1.to_owned())), nodes)
            }
        };
        let is_node = |node: &str| {
            let parts = node.rsplit_once(':').filter(|(host, _)| !host.is_empty());
            parts.is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0))
        };
        if !nodes.split(',').all(is_node) {
            return Err(CqlUrlError("a node is not HOST:PORT"));
        }
        let is_of_name = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
        if !(1..=KEYSPACE_LEN_MAX).contains(&keyspace.len())
            || !keyspace.bytes().all(is_of_name)
            || !keyspace.starts_with(|first: char| first.is_ascii_lowercase())
        {
            return Err(CqlUrlError(
                "a keyspace has 1 to 48 of a-z, 0-9 and _, starting with a letter",
            ));
        }
        Ok(Self {
            nodes: nodes.split(',').map(str::to_owned).collect(),
            login,
            keyspace: keyspace.to_owned(),
            replicas: read_replicas(query)?,
        })
    }
}

fn read_replicas(query: &str) -> Result<Option<u8>, CqlUrlError> {
    if query.is_empty() {
        return Ok(None);
    }
    let number = query
        .strip_prefix("replicas=")
        .and_then(|text| text.parse().ok());
    let number = number.filter(|number| (1..=9).contains(number));
    number
        .map(Some)
        .ok_or(CqlUrlError("the only parameter is replicas, from 1 to 9"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cql_url_contains_nodes_keyspace_and_login() {
        let place = CqlEndpoint::read("cql://a:9042,b.c:1/shop?replicas=3").unwrap();
        assert_eq!(place.nodes, ["a:9042", "b.c:1"]);
        assert_eq!((place.keyspace.as_str(), place.replicas), ("shop", Some(3)));
        let place = CqlEndpoint::read("cql://me:h@s:h@a:9042/shop").unwrap();
        assert_eq!(place.login, Some(("me".into(), "h@s:h".into())));
        assert_eq!(
            (place.nodes, place.replicas),
            (vec!["a:9042".to_owned()], None)
        );
    }

    #[test]
    fn invalid_url_is_refused_with_its_format_and_without_password() {
        for url in [
            "",
            "a:1/shop",
            "cql://a:1",
            "cql://a/shop",
            "cql://a:0/shop",
            "cql://a:1,/shop",
            "cql://me@a:1/shop",
            "cql://a:1/Shop",
            "cql://a:1/1",
            "cql://a:1/a;b",
            "cql://a:1/shop?replicas=0",
            "cql://a:1/shop?x=1",
            "cql://me:hush@a/shop",
        ] {
            let error = CqlEndpoint::read(url)
                .err()
                .map(|error| error.to_string())
                .unwrap();
            assert!(error.contains("cql://HOST:PORT"), "{url}: {error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn history_list_expires_with_its_latest_view() {
        let now_ms = 20_000 * weir_history::DAY_MS;
        let day_s = 24 * 60 * 60;
        assert_eq!(life_s(now_ms, now_ms), 62 * day_s);
        assert_eq!(life_s(now_ms - COLD_MS + 1, now_ms), 1);
        assert_eq!(life_s(0, now_ms), 1);
        assert_eq!(life_s(now_ms, 0), 124 * day_s);
    }
}
