//! The routes: requests in, answers out. What they ask for is decided elsewhere.
//!
//! Two ports, two routers. [`app`] is for gateways, [`admin`] for operators and probes.

mod auth;
mod health;
mod input;
mod layers;
mod orders;
mod sales;

use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};

use crate::Origin;
use crate::config::AdminToken;
use crate::problem::Problem;

/// The largest body, in bytes. Orders have none that counts, a sale's is under 1 KiB.
pub const BODY_LEN_MAX: usize = 16 * 1024;

/// How long a public request may take: below the 5 s after which `envoy/weir.yaml` gives up, so that
/// the answer is ours.
const PUBLIC_LIMIT: Duration = Duration::from_millis(4_500);

/// How long an admin request may take: audits of large sales read many records.
const ADMIN_LIMIT: Duration = Duration::from_secs(30);

/// The routes for gateways.
///
/// - `POST /orders`: a signed claim becomes an order.
/// - `GET /healthz`: the process is alive.
pub fn app(origin: Origin) -> Router {
    let routes = Router::new()
        .route("/orders", post(orders::post))
        .route("/healthz", get(health::alive))
        .with_state(origin);
    finish(routes, PUBLIC_LIMIT)
}

/// The routes for operators, who show `token`, and for probes, who need none.
///
/// - `POST /sales`, `GET /sales`, `GET /sales/{id}`, `POST /sales/{id}/warm`
/// - `POST /sales/{id}/rewarm`, `GET /sales/{id}/audit`
/// - `GET /healthz`: the process is alive; `GET /readyz`: SQL and Redis answer.
pub fn admin(origin: Origin, token: AdminToken) -> Router {
    let routes = Router::new()
        .route("/sales", post(sales::create).get(sales::list))
        .route("/sales/{id}", get(sales::status))
        .route("/sales/{id}/warm", post(sales::warm))
        .route("/sales/{id}/rewarm", post(sales::rewarm))
        .route("/sales/{id}/audit", get(sales::audit))
        .route_layer(from_fn_with_state(token, auth::require_token))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .with_state(origin);
    finish(routes, ADMIN_LIMIT)
}

/// What both routers share: limits, logs, and problem details for whatever has no route.
fn finish(routes: Router, limit: Duration) -> Router {
    routes
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(BODY_LEN_MAX))
        .layer(from_fn_with_state(limit, layers::limit_time))
        .layer(from_fn(layers::log))
}

async fn no_route() -> Problem {
    let detail = "there is nothing at this path";
    Problem::new(StatusCode::NOT_FOUND, "no_route", "Not found", detail)
}

async fn no_method() -> Problem {
    let status = StatusCode::METHOD_NOT_ALLOWED;
    let detail = "this path does not take this method";
    Problem::new(status, "no_method", "Method not allowed", detail)
}
