//! The routes: requests in, answers out. What they ask for is decided elsewhere.
//!
//! Two ports, two routers. [`app`] is for gateways, [`admin`] for operators and probes.

mod auth;
mod go;
mod health;
mod idempotency;
mod input;
mod layers;
mod link_stats;
mod links;
mod orders;
mod page;
mod qr;
mod sales;
mod switches;
mod user_orders;

use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post, put};

use crate::Origin;
use crate::config::AdminToken;
use crate::metrics::Metrics;
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
/// - `GET /orders/{id}`, `POST /orders/{id}/pay`, `POST /orders/{id}/cancel`: of the signed user.
/// - `POST /sales/{id}/reservations`: for the signed user.
/// - `GET` and `HEAD /l/{code}`: a short link that Redis does not know, by the host.
/// - `GET /healthz`: the process is alive.
pub fn app(origin: Origin) -> Router {
    let metrics = origin.metrics.clone();
    let routes = Router::new()
        .route("/orders", post(orders::post))
        .route("/orders/{id}", get(user_orders::get))
        .route("/orders/{id}/pay", post(user_orders::pay))
        .route("/orders/{id}/cancel", post(user_orders::cancel))
        .route("/sales/{id}/reservations", post(user_orders::reserve))
        .route("/l/{code}", get(go::follow))
        .route("/healthz", get(health::alive))
        .with_state(origin);
    finish(routes, PUBLIC_LIMIT, metrics)
}

/// The routes for operators, who show `token`, and for probes, who need none.
///
/// - `POST /sales`, `GET /sales`, `GET /sales/{id}`, `POST /sales/{id}/warm`
/// - `PATCH /sales/{id}`, `PUT /sales/{id}/switch`, `POST /sales/{id}/close`, `PUT /switch`
/// - `PUT` and `DELETE /sales/{id}/blocked/{user}`
/// - `GET /metrics`, `GET /openapi.json`: without the token, as probes
/// - `GET /ui`: the page of links, without the token
/// - `POST /sales/{id}/rewarm`, `GET /sales/{id}/audit`
/// - `POST /links`, `GET /links`, `GET`, `PATCH` and `DELETE /links/{code}`, `GET /links/{code}/history`
/// - `GET /links/{code}/stats` and `/stats.csv`, `/qr.svg` and `/qr.png`
/// - `GET /healthz`: the process is alive; `GET /readyz`: SQL and Redis answer.
pub fn admin(origin: Origin, token: AdminToken) -> Router {
    let metrics = origin.metrics.clone();
    let routes = Router::new()
        .route("/sales", post(sales::create).get(sales::list))
        .route("/sales/{id}", get(sales::status).patch(switches::edit))
        .route("/sales/{id}/switch", put(switches::set))
        .route("/sales/{id}/close", post(switches::close))
        .route(
            "/sales/{id}/blocked/{user}",
            put(switches::block).delete(switches::unblock),
        )
        .route("/switch", put(switches::set_global))
        .route("/sales/{id}/warm", post(sales::warm))
        .route("/sales/{id}/rewarm", post(sales::rewarm))
        .route("/sales/{id}/audit", get(sales::audit))
        .route(
            "/links",
            post(links::create)
                .layer(DefaultBodyLimit::max(links::BODY_LEN_MAX))
                .get(links::list),
        )
        .route(
            "/links/{code}",
            get(links::get).patch(links::edit).delete(links::delete),
        )
        .route("/links/{code}/history", get(links::history))
        .route("/links/{code}/stats", get(link_stats::stats))
        .route("/links/{code}/stats.csv", get(link_stats::csv))
        .route("/links/{code}/qr.svg", get(qr::svg))
        .route("/links/{code}/qr.png", get(qr::png))
        .route_layer(from_fn_with_state(token, auth::require_token))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .route("/openapi.json", get(health::openapi))
        .route("/ui", get(page::page))
        .route("/ui/{file}", get(page::file))
        .with_state(origin);
    finish(routes, ADMIN_LIMIT, metrics)
}

/// What both routers share: limits, logs, and problem details for whatever has no route.
fn finish(routes: Router, limit: Duration, metrics: Metrics) -> Router {
    routes
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(BODY_LEN_MAX))
        .layer(from_fn_with_state(limit, layers::limit_time))
        .layer(from_fn_with_state(metrics, layers::log))
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
