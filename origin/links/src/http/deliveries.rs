//! Who is told of changes of links, and what waits for them.

use std::collections::BTreeMap;

use axum::Json;
use serde::Serialize;
use serde_json::{Value, json};

use super::within::Within;
use crate::Links;
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::Problem;
use weir_origin_core::outbox::{Backlog, Waiting};
use weir_origin_core::tenants::NameRange;

/// What one receiver does not have yet.
#[derive(Debug, Serialize)]
pub(super) struct LinkBacklog {
    links: u64,
    oldest_since_ms: Option<u64>,
    waiting: Vec<WaitingLink>,
}

#[derive(Debug, Serialize)]
struct WaitingLink {
    link: String,
    #[serde(flatten)]
    waiting: Waiting,
}

impl LinkBacklog {
    fn new(backlog: Backlog, waiting: Vec<Waiting>) -> Self {
        let link = |waiting: Waiting| WaitingLink {
            link: waiting.subject.clone(),
            waiting,
        };
        Self {
            links: backlog.subjects,
            oldest_since_ms: backlog.oldest_ms,
            waiting: waiting.into_iter().map(link).collect(),
        }
    }
}

/// `GET /link-deliveries`: what waits for each receiver, and the links that have waited longest.
pub(super) async fn list(
    links: Links,
    within: Within,
) -> Result<Json<BTreeMap<&'static str, LinkBacklog>>, Problem> {
    within.check_all()?;
    let (queue, all) = (links.store().outbox(), NameRange::default());
    let backlogs = queue.backlogs(&all, LinkBacklog::new).await?;
    Ok(Json(backlogs))
}

/// `POST /link-deliveries/retry`: what waits for another try has its turn now.
pub(super) async fn retry(links: Links, within: Within) -> Result<Json<Value>, Problem> {
    within.check_all()?;
    let queue = links.store().outbox();
    let retried = queue.retry_all(&NameRange::default(), now_ms()).await?;
    Ok(Json(json!({ "links": retried })))
}
