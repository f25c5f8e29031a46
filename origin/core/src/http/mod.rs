//! HTTP parts that all domains share: limits, logs, problem details, the admin token, probes.
//!
//! Each domain has its own router and its own state; start-up merges them and calls [`finish`].

mod access_log;
mod auth;
mod chunks;
pub mod client;
mod cors;
pub mod csv;
mod edge;
pub mod files;
mod health;
mod input;
mod layers;
mod live;
mod problem;
pub mod refusal;
pub mod server;
mod shape;
mod trace;
mod traffic;
pub mod webhook;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::HeaderMap;
use axum::middleware::from_fn_with_state;

use weir_base::id::UserId;

use crate::metrics::RequestMetrics;

pub use access_log::{AccessLog, AccessLogConfig};
pub use auth::bearer;
pub use auth::{ADMIN_TOKEN_LEN_MIN, AdminToken, TokenTooShort};
pub use chunks::{ChunkSender, streamed};
pub use cors::{AllowedOrigin, Cors};
pub use edge::{EDGE_REFUSALS, EdgeHeaders, Edges, document_ms, with_stamp};
pub use health::HeartbeatTimeouts;
pub use health::{Component, Health, Loop, alive, probes, serving, starting};
pub use input::{ReadQuery, TypedBody, page_len, read_typed, read_typed_value, shared_members};
pub use live::{LiveAnswers, TOO_MANY_STREAMS};
pub use problem::{Problem, ProblemBody, RETRY_AFTER_S, Remedy, ValidationError};
pub use refusal::Refusal;
use refusal::{NO_METHOD, NO_ROUTE};
pub use traffic::Traffic;

/// Reads the user that a gateway has authenticated from a request's headers. Start-up passes it to domains that do not
/// have the gateways' keys.
pub type UserReader = Arc<dyn Fn(&HeaderMap) -> Result<UserId, Problem> + Send + Sync>;

/// Default maximum length of a body, in bytes. Orders have no relevant body; a sale's is under 1 KiB.
pub const BODY_LEN_MAX: usize = 16 * 1024;

/// Timeout of public requests. It is below the 5 s timeout in `envoy/weir.yaml`, so that the answer comes from the
/// origin.
pub const PUBLIC_LIMIT: Duration = Duration::from_millis(4_500);

/// Timeout of admin requests. Audits of large sales read many records.
pub const ADMIN_LIMIT: Duration = Duration::from_secs(30);

/// The peer address of a request's connection, which may be a proxy's. Stored in the request's extensions.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress(pub std::net::IpAddr);

/// Timeouts of requests.
#[derive(Clone, Copy, Debug)]
pub struct TimeLimit {
    /// Timeout of all other routes.
    pub usual: Duration,
    /// Path patterns of routes whose POST has no timeout, because the upload takes long.
    pub none_for: &'static [&'static str],
}

impl From<Duration> for TimeLimit {
    fn from(usual: Duration) -> Self {
        Self {
            usual,
            none_for: &[],
        }
    }
}

/// Adds the layers of every port: limits, logs, and problem details for unknown paths.
pub fn finish(routes: Router, limit: TimeLimit, metrics: RequestMetrics, log: AccessLog) -> Router {
    routes
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(BODY_LEN_MAX))
        .layer(from_fn_with_state(limit, layers::limit_time))
        .layer(from_fn_with_state((metrics, log), layers::log))
}

/// Adds CORS to the routes if `cors` allows any site.
pub fn shared(routes: Router, cors: &Cors) -> Router {
    match cors.is_on() {
        true => routes.layer(from_fn_with_state(cors.clone(), cors::share)),
        false => routes,
    }
}

/// The answer to an unknown path: 404 `no_route`.
pub async fn no_route() -> Problem {
    NO_ROUTE.because("there is no such path")
}

/// The answer to a method that a path does not support: 405 `no_method`.
pub async fn no_method() -> Problem {
    NO_METHOD.because("this path does not support this method")
}
