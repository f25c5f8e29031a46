//! Receivers of link changes, and changes that wait for them.

use std::collections::BTreeMap;

use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;

use super::within::CallerFilter;
use crate::Links;
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::Problem;
use weir_origin_core::outbox::{Backlog, PendingSubject};
use weir_origin_core::tenants::NameRange;

/// Undelivered changes of one receiver.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LinkDeliveries)]
pub(super) struct LinkBacklog {
    /// Number of waiting links.
    links: u64,
    /// Time of the oldest waiting change, in milliseconds since the Unix epoch.
    #[schema(required)]
    oldest_since_ms: Option<u64>,
    /// Longest waiting entries.
    waiting: Vec<WaitingLink>,
}

/// A link whose changes wait for a receiver.
#[derive(Debug, Serialize, ToSchema)]
struct WaitingLink {
    /// The link's domain and code.
    link: String,
    #[serde(flatten)]
    waiting: PendingSubject,
}

/// Undelivered changes by receiver.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LinkDeliveriesByReceiver)]
pub(super) struct LinkDeliveries(BTreeMap<&'static str, LinkBacklog>);

/// Result of a retry.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RetriedLinkDeliveries)]
pub(super) struct RetriedLinks {
    /// Links with changes that were waiting for a retry.
    links: u64,
}

impl LinkBacklog {
    fn new(backlog: Backlog, waiting: Vec<PendingSubject>) -> Self {
        let link = |waiting: PendingSubject| WaitingLink {
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

/// List undelivered link changes of each receiver, with errors
#[utoipa::path(
    get,
    path = "/link-deliveries",
    operation_id = "listLinkDeliveries",
    responses((status = 200, description = "Longest waiting first", body = LinkDeliveries)),
)]
pub(super) async fn list(
    links: Links,
    within: CallerFilter,
) -> Result<Json<LinkDeliveries>, Problem> {
    within.check_all()?;
    let (queue, all) = (links.store().outbox(), NameRange::default());
    let backlogs = queue.backlogs(&all, LinkBacklog::new).await?;
    Ok(Json(LinkDeliveries(backlogs)))
}

/// Retry all waiting changes now
#[utoipa::path(
    post,
    path = "/link-deliveries/retry",
    operation_id = "retryLinkDeliveries",
    responses((status = 200, description = "The count", body = RetriedLinks)),
)]
pub(super) async fn retry(
    links: Links,
    within: CallerFilter,
) -> Result<Json<RetriedLinks>, Problem> {
    within.check_all()?;
    let queue = links.store().outbox();
    let links = queue.retry_all(&NameRange::default(), now_ms()).await?;
    Ok(Json(RetriedLinks { links }))
}
