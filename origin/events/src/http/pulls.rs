//! The route of collectors that pull events.

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
    /// Its cursor, in the source's format.
    cursor: String,
    /// Consecutive failures.
    failures: u64,
    /// The last error; empty: none.
    error: String,
    /// Time of the last fetch, in milliseconds since the Unix epoch; null: never.
    #[schema(required)]
    fetched_at_ms: Option<u64>,
}

/// List collectors that pull events, with their cursors
///
/// Collectors pull events from services, tables or topics.
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
            cursor: pull.source.display_cursor(&state.cursor),
            name: state.name,
            failures: state.failures,
            error: state.error,
            fetched_at_ms: state.fetched_at_ms,
        });
    }
    Ok(Json(EventPulls { pulls }))
}
