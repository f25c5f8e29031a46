//! Collectors that pull events. Each runs independently and stores its cursor in SQL.
//!
//! Pulled events are validated like pushed events: accepted events go to the log, refused events become dead letters.
//! Then the cursor moves. After a crash in between, the same events are pulled again. Ids make this harmless, so pulled
//! events need ids. A failing collector backs off and does not delay the others.
//!
//! A collector can pass its records to a [`Sink`] instead of the log, such as product changes.

//!
//! | module | fetches |
//! |---|---|
//! | `http` | events from an HTTP service |
//! | `sql` | rows of a table; `window` tracks which rows were taken |
//! | `kafka` | records of a topic (feature `kafka`) |
//! | `body` | combines events into a request body |
//! | `config` | the configuration file |

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

/// Maximum length of a cursor, in bytes.
pub const CURSOR_LEN_MAX: usize = 1_024;

/// Backoff of a failing collector.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_secs(1),
    max: Duration::from_secs(600),
};

/// A page of pulled events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedPage {
    /// A JSON list of events; `None` if there is nothing new.
    pub events: Option<Bytes>,
    /// The cursor of the next page.
    pub cursor: String,
}

/// Future of a fetch; the error is a message.
pub type Fetching<'a> = Pin<Box<dyn Future<Output = Result<FetchedPage, String>> + Send + 'a>>;

/// A source of events.
pub trait Source: fmt::Debug + Send + Sync {
    /// Fetches the events after `cursor`. The first cursor is empty.
    fn fetch<'a>(&'a self, cursor: &'a str) -> Fetching<'a>;

    /// The cursor as shown to operators.
    fn display_cursor(&self, cursor: &str) -> String {
        cursor.to_owned()
    }
}

/// Return type of [`Sink::take`].
pub type SinkFuture<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Accepts the records of a collector instead of the log.
pub trait Sink: fmt::Debug + Send + Sync {
    /// Accepts a JSON list. The same list may come again after a crash. After an error the collector fetches it again
    /// later.
    fn take<'a>(&'a self, list: &'a [u8]) -> SinkFuture<'a>;
}

/// Destination of a collector's records.
#[derive(Clone, Debug, Default)]
pub enum Destination {
    /// The log: the records are events.
    #[default]
    Log,
    /// The sink with this name. The program that opens [`Events`] replaces the name with the sink.
    Named(String),
    /// A sink.
    Sink(Arc<dyn Sink>),
}

/// A collector.
#[derive(Clone, Debug)]
pub struct Pull {
    /// Its name, which is also the key name of its events.
    pub name: KeyName,
    /// The interval when there is nothing new.
    pub every: Duration,
    /// The backoff after failures.
    pub backoff: Backoff,
    /// The source of its events.
    pub source: Arc<dyn Source>,
    /// Destination of its records.
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

/// Pulls events until `stop`.
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

/// Pulls one page. Returns whether there may be more.
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
    // Another origin moved the cursor: the next round continues there.
    let is_ours = moved.await? == Step::Taken;
    Ok(is_new && is_ours)
}
