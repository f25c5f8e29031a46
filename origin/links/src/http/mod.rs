//! The routes of links: requests in, answers out. What they ask for is decided elsewhere.

mod clicked;
mod conversions;
mod deliveries;
mod domains;
mod export;
mod feed;
mod follow;
mod idempotency;
mod import;
mod links;
mod page;
mod qr;
mod stats;
mod within;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts};
use axum::http::request::Parts;
use axum::routing::{get, post};
use weir_link::routes::{LINK_FOLLOW, LINK_RECORD};

use super::Links;
use super::logo::FILE_LEN_MAX;
use weir_origin_core::http::{Edges, Problem, with_stamp};

pub use page::routes as page;

/// The routes of QR codes. Their POST changes nothing: it brings a picture.
pub const QR_SVG: &str = "/links/{code}/qr.svg";
/// See [`QR_SVG`].
pub const QR_PNG: &str = "/links/{code}/qr.png";

/// The route that takes files, for as long as there is something to be made.
pub const IMPORTS: &str = "/link-imports";

/// The links of an origin, if it has any. Without them the routes answer `links_off`.
#[derive(Clone, Debug)]
struct Enabled(Option<Links>);

impl FromRequestParts<Enabled> for Links {
    type Rejection = Problem;

    async fn from_request_parts(_: &mut Parts, enabled: &Enabled) -> Result<Self, Problem> {
        enabled.0.clone().ok_or_else(links_off)
    }
}

fn links_off() -> Problem {
    let detail = "this origin has no links: start it with --links";
    Problem::not_found("links_off", "No links", detail)
}

/// The routes for gateways.
///
/// - `GET` and `HEAD /l/{code}`: a client's request that passed a gateway, by the host; also for the domain's files. `POST`: with
///   the password of a link.
/// - `GET /link-clicks/{name}`: what an app asks that was installed after a click.
/// - `GET /link-records/{domain}/{code}`: a short link that Redis does not know. Gateways route no client there.
pub fn public(links: Option<Links>) -> Router {
    Router::new()
        .route(LINK_FOLLOW, get(follow::follow))
        .route(
            &format!("{LINK_FOLLOW}{{code}}"),
            get(follow::follow)
                .post(follow::unlock)
                .layer(DefaultBodyLimit::max(follow::FORM_LEN_MAX)),
        )
        .route(
            &format!("{LINK_FOLLOW}.well-known/{{file}}"),
            get(follow::follow),
        )
        .route(
            &format!("{LINK_RECORD}{{domain}}/{{code}}"),
            get(follow::record),
        )
        .route("/link-clicks/{name}", get(clicked::get))
        .with_state(Enabled(links))
}

/// The routes for edges.
///
/// - `GET /edge/v1/feed/links`: what has become of links.
/// - `GET /edge/v1/feed/domains`: the domains, and whether maxima stand in objects: of links whose keys begin so.
pub fn feeds(links: Option<Links>, edges: Edges, maxima_in_objects: Option<String>) -> Router {
    let state = feed::Feeds {
        links,
        maxima_in_objects,
        edges: edges.clone(),
    };
    let routes = Router::new()
        .route(weir_base::feed::routes::LINKS, get(feed::links))
        .route(weir_base::feed::routes::DOMAINS, get(feed::domains))
        .with_state(state);
    with_stamp(routes, edges)
}

/// The routes for operators.
///
/// - `POST /links`, `GET /links`, `GET`, `PATCH` and `DELETE /links/{code}`, `GET /links/{code}/history`
/// - `GET /links.csv` and `/links.ndjson`, `POST /link-imports`
/// - `GET /link-deliveries`, `POST /link-deliveries/retry`
/// - `GET` and `PUT /link-domains`; `GET`, `PUT` and `DELETE /link-domains/{id}`
/// - `GET /links/{code}/stats`, `/stats.csv`, `/cross` and `/conversions`; `GET` and `POST` of `/qr.svg` and `/qr.png`
pub fn admin(links: Option<Links>) -> Router {
    Router::new()
        .route(
            "/links",
            post(links::create)
                .layer(DefaultBodyLimit::max(links::BODY_LEN_MAX))
                .get(links::list),
        )
        .route("/links.csv", get(export::csv))
        .route("/links.ndjson", get(export::ndjson))
        .route(
            IMPORTS,
            post(import::import).layer(DefaultBodyLimit::max(import::BODY_LEN_MAX)),
        )
        .route(
            "/links/{code}",
            get(links::get).patch(links::edit).delete(links::delete),
        )
        .route(
            "/link-domains",
            get(domains::list)
                .put(domains::replace_all)
                .layer(DefaultBodyLimit::max(domains::BODY_LEN_MAX)),
        )
        .route(
            "/link-domains/{id}",
            get(domains::get)
                .put(domains::put)
                .delete(domains::delete)
                .layer(DefaultBodyLimit::max(domains::BODY_LEN_MAX)),
        )
        .route("/link-deliveries", get(deliveries::list))
        .route("/link-deliveries/retry", post(deliveries::retry))
        .route("/links/{code}/history", get(links::history))
        .route("/links/{code}/stats", get(stats::stats))
        .route("/links/{code}/stats.csv", get(stats::csv))
        .route("/links/{code}/cross", get(stats::cross))
        .route("/links/{code}/conversions", get(conversions::get))
        .route(
            QR_SVG,
            get(qr::svg)
                .post(qr::svg_with_logo)
                .layer(DefaultBodyLimit::max(FILE_LEN_MAX)),
        )
        .route(
            QR_PNG,
            get(qr::png)
                .post(qr::png_with_logo)
                .layer(DefaultBodyLimit::max(FILE_LEN_MAX)),
        )
        .with_state(Enabled(links))
}
