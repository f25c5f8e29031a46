//! Collectors that fetch events from elsewhere, each by itself and with a cursor in SQL.
//!
//! What is fetched is judged as if it had been pushed: the good events go into the log, the others to the dead letters. Then the
//! cursor moves. A crash in between fetches the same once more, and ids make that harmless: events that are fetched need ids.
//! A collector that fails waits longer and longer, and holds up no other.
//!
//! A collector may hand what it fetches to a [`Sink`] in place of the log, such as changes of products.

//!
//! | module | fetches |
//! |---|---|
//! | `http` | what a service answers |
//! | `sql` | rows of a table; `window` knows which of them were taken |
//! | `kafka` | records of a topic (feature `kafka`) |
//! | `body` | puts them together |
//! | `config` | what a file says of them |

mod body;
mod config;
mod http;
#[cfg(feature = "kafka")]
mod kafka;
mod sql;
mod window;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use tokio_util::sync::CancellationToken;
use weir_event::consent::Consent;
use weir_event::name::KeyName;
use weir_event::stamps::{Kind, Stamps};

use super::Events;
use super::collect::{CollectError, Sender};
use super::store::Step;
use weir_origin_core::background::{Backoff, Interval};
use weir_origin_core::sql::SqlError;

pub use config::PullsConfig;
pub use http::HttpSource;
#[cfg(feature = "kafka")]
pub use kafka::TopicSource;
pub use sql::{TableError, TableSource};

/// The longest cursor of a service, in bytes.
pub const CURSOR_LEN_MAX: usize = 1_024;

/// The pauses of a collector that fails.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_secs(1),
    max: Duration::from_secs(600),
};

/// What was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedPage {
    /// A JSON list of events; none if there is nothing new.
    pub events: Option<Bytes>,
    /// Where the next ones begin.
    pub cursor: String,
}

/// What is being fetched, or why it could not be.
pub type Fetching<'a> = Pin<Box<dyn Future<Output = Result<FetchedPage, String>> + Send + 'a>>;

/// Where events are fetched from.
pub trait Source: fmt::Debug + Send + Sync {
    /// The events behind `cursor`, which is empty in the beginning.
    fn fetch<'a>(&'a self, cursor: &'a str) -> Fetching<'a>;

    /// What operators are shown of a cursor.
    fn shown(&self, cursor: &str) -> String {
        cursor.to_owned()
    }
}

/// What [`Sink::take`] returns.
pub type SinkFuture<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Takes what a collector fetches, in place of the log.
pub trait Sink: fmt::Debug + Send + Sync {
    /// Takes a JSON list. The same list may come again after a crash. After an error the collector fetches it again later.
    fn take<'a>(&'a self, list: &'a [u8]) -> SinkFuture<'a>;
}

/// Where a collector's records go.
#[derive(Clone, Debug, Default)]
pub enum Destination {
    /// They are events, and go into the log.
    #[default]
    Log,
    /// To the sink of this name. The program that opens [`Events`] replaces the name by the sink.
    Named(String),
    /// To this sink.
    Sink(Arc<dyn Sink>),
}

/// A collector.
#[derive(Clone, Debug)]
pub struct Pull {
    /// Its name; also that of its events' key.
    pub name: KeyName,
    /// The pause when there was nothing new.
    pub every: Duration,
    /// The pauses when it fails.
    pub backoff: Backoff,
    /// Where events are fetched from.
    pub source: Arc<dyn Source>,
    /// Where they go.
    pub destination: Destination,
}

#[derive(Debug, thiserror::Error)]
enum PullError {
    #[error("{0}")]
    Fetch(String),
    #[error("not accepted: {0}")]
    Sink(String),
    #[error(transparent)]
    Collect(#[from] CollectError),
    #[error(transparent)]
    Store(#[from] SqlError),
}

/// Fetches events until `stop`.
pub(super) async fn run(events: Events, pull: Pull, stop: CancellationToken) {
    let interval = Interval::every(pull.every, "fetching events", stop);
    let mut interval = interval.backing_off(pull.backoff);
    while interval.next().await {
        let fetched = fetch(&events, &pull).await;
        if let Err(error) = &fetched {
            let store = events.store();
            if let Err(unnoted) = store
                .pulls()
                .fail_pull(pull.name.as_str(), &error.to_string())
                .await
            {
                tracing::warn!(error = %unnoted, name = %pull.name, "cannot record a failure");
            }
        }
        interval.ended(&fetched);
        if matches!(fetched, Ok(true)) {
            interval.next_at_once();
        }
    }
}

async fn hand_over(events: &Events, pull: &Pull, body: Bytes) -> Result<(), PullError> {
    match &pull.destination {
        Destination::Log => {}
        Destination::Named(name) => {
            return Err(PullError::Sink(format!("this origin has no {name}")));
        }
        Destination::Sink(sink) => return sink.take(&body).await.map_err(PullError::Sink),
    }
    let stamps = Stamps {
        key: pull.name.clone(),
        kind: Kind::Server,
        received_ms: events.now_ms(),
        address: None,
        consent: Consent::Full,
    };
    let sender = Sender { stamps, user: None };
    events.collector().collect(sender, body).await?;
    Ok(())
}

/// Whether there may be more.
async fn fetch(events: &Events, pull: &Pull) -> Result<bool, PullError> {
    let (store, name) = (events.store(), pull.name.as_str());
    let state = store.pulls().pull(name).await?;
    let fetched = pull.source.fetch(&state.cursor).await;
    let fetched = fetched.map_err(PullError::Fetch)?;
    let is_new = fetched.events.is_some();
    if let Some(body) = fetched.events {
        hand_over(events, pull, body).await?;
    }
    let moved = store
        .pulls()
        .move_pull(name, &state.cursor, &fetched.cursor, events.now_ms());
    // Another origin has moved it: the next round goes on from there.
    let is_ours = moved.await? == Step::Taken;
    Ok(is_new && is_ours)
}
