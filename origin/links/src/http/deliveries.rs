//! Who is told of changes of links, and what waits for them.

use axum::Json;
use serde::Serialize;
use serde_json::{Value, json};

use super::within::Within;
use crate::Links;
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::Problem;
use weir_origin_core::outbox::{SinkName, Waiting};
use weir_origin_core::tenants::NameRange;

/// The most waiting links in one answer.
const LIST_LEN_MAX: usize = 200;

/// A link that waits.
#[derive(Debug, Serialize)]
struct WaitingView {
    link: String,
    next_sequence: u64,
    last_sequence: u64,
    since_ms: u64,
    tried_again_at_ms: u64,
    tries: u32,
    last_error: Option<String>,
}

impl From<Waiting> for WaitingView {
    fn from(waiting: Waiting) -> Self {
        Self {
            link: waiting.subject,
            next_sequence: waiting.next_seq,
            last_sequence: waiting.last_seq,
            since_ms: waiting.since_ms,
            tried_again_at_ms: waiting.due_at_ms,
            tries: waiting.tries,
            last_error: Some(waiting.last_error).filter(|error| !error.is_empty()),
        }
    }
}

/// `GET /link-deliveries`: what waits for each receiver, and the links that have waited longest.
pub(super) async fn list(links: Links, within: Within) -> Result<Json<Value>, Problem> {
    within.check_all()?;
    let (queue, all) = (links.store().outbox(), NameRange::default());
    let mut receivers = serde_json::Map::new();
    for name in SinkName::ALL {
        let backlog = queue.backlog(name, &all).await?;
        let waiting = queue.waiting(name, &all, LIST_LEN_MAX).await?;
        let waiting: Vec<WaitingView> = waiting.into_iter().map(Into::into).collect();
        let view = json!({
            "links": backlog.subjects, "oldest_since_ms": backlog.oldest_ms, "waiting": waiting,
        });
        receivers.insert(name.word().to_owned(), view);
    }
    Ok(Json(Value::Object(receivers)))
}

/// `POST /link-deliveries/retry`: what waits for another try has its turn now.
pub(super) async fn retry(links: Links, within: Within) -> Result<Json<Value>, Problem> {
    within.check_all()?;
    let (queue, all, mut retried) = (links.store().outbox(), NameRange::default(), 0);
    for sink in SinkName::ALL {
        retried += queue.retry(sink, &all, now_ms()).await?;
    }
    Ok(Json(json!({ "links": retried })))
}
