//! The route of collectors that fetch events.

use axum::Json;
use serde_json::{Value, json};

use crate::Events;
use weir_origin_core::http::Problem;

/// `GET /events/pulls`: how far each is, and what went wrong.
pub(super) async fn list(events: Events) -> Result<Json<Value>, Problem> {
    let mut all = Vec::new();
    for pull in events.pulls() {
        let state = events.store().pull(pull.name.as_str()).await?;
        all.push(json!({
            "name": state.name, "cursor": pull.source.shown(&state.cursor), "failures": state.failures,
            "error": state.error, "fetched_at_ms": state.fetched_at_ms,
        }));
    }
    Ok(Json(json!({ "pulls": all })))
}
