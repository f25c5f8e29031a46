//! The routes of events: requests in, answers out. What they ask for is decided elsewhere.

mod collect;
mod dead;
mod groups;
mod page;
mod pulls;
mod query;
mod types;

pub use page::page;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts};
use axum::http::request::Parts;
use axum::routing::{get, post};
use weir_event::limits::BODY_LEN_MAX;

use super::Events;
use super::admin::AdminError;
use super::collect::CollectError;
use super::log::AppendError;
use weir_origin_core::http::Problem;

/// How long a client waits that found the log full, in seconds: a group has to catch up.
const FULL_RETRY_S: u64 = 5;

/// The events of an origin, if it has any. Without them the routes answer `events_off`.
#[derive(Clone, Debug)]
struct Enabled(Option<Events>);

impl FromRequestParts<Enabled> for Events {
    type Rejection = Problem;

    async fn from_request_parts(_: &mut Parts, enabled: &Enabled) -> Result<Self, Problem> {
        enabled.0.clone().ok_or_else(|| {
            let detail = "this origin has no events: start it with --events-log";
            Problem::not_found("events_off", "No events", detail)
        })
    }
}

/// The routes for gateways: `POST /events` and `GET /events.gif`, with a gateway's stamps.
pub fn public(events: Option<Events>) -> Router {
    Router::new()
        .route(
            "/events",
            post(collect::collect).layer(DefaultBodyLimit::max(BODY_LEN_MAX)),
        )
        .route("/events.gif", get(collect::pixel))
        .with_state(Enabled(events))
}

/// The routes for operators and for business systems.
///
/// - `POST /events`: events of a server
/// - `GET /events/types`; `GET`, `PUT` and `DELETE /events/types/{name}`
/// - `GET /events/dead-letters`; `GET`, `PUT` and `DELETE /events/dead-letters/{id}`; `POST …/{id}/resend` and `…/resend`
/// - `GET /events/pulls`: how far collectors are that fetch events
/// - `GET /groups` and `/groups/{group}`; `POST /groups/{group}/seek`, `/pause` and `/resume`; its retries
/// - `GET /customers/{id}/events` and `/customers/{id}/windows/…`, the same of `/visitors/{id}`
pub fn admin(events: Option<Events>) -> Router {
    Router::new()
        .route(
            "/events",
            post(collect::push).layer(DefaultBodyLimit::max(BODY_LEN_MAX)),
        )
        .route("/events/types", get(types::list))
        .route(
            "/events/types/{name}",
            get(types::get)
                .put(types::put)
                .delete(types::delete)
                .layer(DefaultBodyLimit::max(crate::model::types::TYPE_LEN_MAX)),
        )
        .route("/events/dead-letters", get(dead::list))
        .route("/events/dead-letters/resend", post(dead::resend_many))
        .route(
            "/events/dead-letters/{id}",
            get(dead::get)
                .put(dead::mend)
                .delete(dead::delete)
                .layer(DefaultBodyLimit::max(dead::BODY_LEN_MAX)),
        )
        .route("/events/dead-letters/{id}/resend", post(dead::resend))
        .route("/events/pulls", get(pulls::list))
        .route("/groups", get(groups::list))
        .route("/groups/{group}", get(groups::get))
        .route("/groups/{group}/seek", post(groups::seek))
        .route("/groups/{group}/pause", post(groups::pause))
        .route("/groups/{group}/resume", post(groups::resume))
        .route("/groups/{group}/retries", get(groups::retries))
        .route("/groups/{group}/retries/now", post(groups::retry_now))
        .route("/groups/{group}/compensations", get(groups::compensations))
        .route("/customers/{id}/events", get(query::customer))
        .route(
            "/customers/{id}/windows/{window}",
            get(query::customer_window),
        )
        .route("/visitors/{id}/events", get(query::visitor))
        .route(
            "/visitors/{id}/windows/{window}",
            get(query::visitor_window),
        )
        .with_state(Enabled(events))
}

/// Nothing was taken: what a client is told.
impl From<CollectError> for Problem {
    fn from(error: CollectError) -> Self {
        let detail = error.to_string();
        match error {
            CollectError::Body(error) if error.status() == 413 => too_large(detail),
            CollectError::Body(_) => Self::invalid_body(detail),
            CollectError::Append(AppendError::Full) => {
                Self::unavailable("events_full", detail).retry_after(FULL_RETRY_S)
            }
            CollectError::Append(AppendError::Unknown) => {
                let detail =
                    "it is not known whether the events are kept; please send the same again";
                Self::unavailable("events_unknown", detail)
            }
            CollectError::Append(AppendError::Refused) => {
                Self::unavailable("events_refused", detail)
            }
        }
    }
}

impl From<AdminError> for Problem {
    fn from(error: AdminError) -> Self {
        let detail = error.to_string();
        match error {
            AdminError::Store(error) => error.into(),
            AdminError::Collect(error) => error.into(),
            AdminError::Log(_) => {
                tracing::error!(error = detail, "the log of events cannot be read");
                Self::unavailable("events_log", "the log of events cannot be read")
            }
            AdminError::Unknown => {
                Self::not_found("unknown_dead_letter", "Unknown dead letter", detail)
            }
            AdminError::Kind(detail) => {
                Self::unprocessable("not_resendable", "Cannot be sent again", detail)
            }
        }
    }
}

fn too_large(detail: impl Into<std::borrow::Cow<'static, str>>) -> Problem {
    let status = axum::http::StatusCode::PAYLOAD_TOO_LARGE;
    Problem::new(status, "body_too_large", "Body too large", detail)
}

/// How many entries a page has: 100 unless the query says otherwise.
fn page_len(limit: Option<u32>) -> Result<u32, Problem> {
    Ok(weir_origin_core::http::page_len(limit, 1_000)?.unwrap_or(100))
}
