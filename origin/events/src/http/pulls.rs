//! The route of collectors that fetch events.

use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;

use crate::Events;
use weir_origin_core::http::Problem;

/// All collectors.
#[derive(Serialize, ToSchema)]
pub(super) struct EventPulls {
    /// All collectors.
    pulls: Vec<PullView>,
}

/// A collector.
#[derive(Serialize, ToSchema)]
#[schema(as = EventPullsPull)]
struct PullView {
    /// Its name.
    name: String,
    /// How far it is, in the source's own words.
    cursor: String,
    /// How often it has failed since it last worked.
    failures: u64,
    /// What went wrong last; empty: nothing.
    error: String,
    /// When it fetched last, in milliseconds since the Unix epoch; null: never.
    #[schema(required)]
    fetched_at_ms: Option<u64>,
}

/// How far collectors are that fetch events
///
/// How far each collector is that fetches events from services, tables or topics.
#[utoipa::path(
    get,
    path = "/events/pulls",
    operation_id = "listEventPulls",
    responses((status = 200, description = "All", body = EventPulls)),
)]
pub(super) async fn list(events: Events) -> Result<Json<EventPulls>, Problem> {
    let mut pulls = Vec::new();
    for pull in events.pulls() {
        let state = events.store().pulls().pull(pull.name.as_str()).await?;
        pulls.push(PullView {
            cursor: pull.source.shown(&state.cursor),
            name: state.name,
            failures: state.failures,
            error: state.error,
            fetched_at_ms: state.fetched_at_ms,
        });
    }
    Ok(Json(EventPulls { pulls }))
}
