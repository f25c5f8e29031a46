//! The routes of links: parse requests and write answers. Other modules contain the logic.

mod clicked;
mod conversions;
mod deliveries;
mod domains;
mod export;
mod feed;
mod follow;
mod group;
mod idempotency;
#[cfg(feature = "imports")]
mod import;
mod links;
mod page;
mod qr;
mod refusals;
mod shared;
mod stats;
mod utm;
mod within;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts};
use axum::http::request::Parts;
use utoipa_axum::router::UtoipaMethodRouterExt;
use utoipa_axum::routes;

use super::Links;
use crate::model::logo::FILE_LEN_MAX;
use feed::Feeds;
use refusals::{
    CODE_TAKEN, CONVERSIONS_OFF, DOMAIN_HAS_LINKS, DOMAINS_BUSY, IDEMPOTENCY_MISMATCH,
    IDEMPOTENCY_UNDER_WAY, INVALID_DOMAIN, INVALID_IDEMPOTENCY_KEY, INVALID_IF_MATCH, INVALID_LINK,
    INVALID_PICTURE, INVALID_REPORT, INVALID_TEMPLATE, LINK_BUSY, LINKS_OFF, LOG_UNAVAILABLE,
    NO_NUMBERS, NO_SUCH_DOMAIN, NO_SUCH_PLACE, TARGETS, TOO_MANY_ITEMS, TOO_MANY_READS,
    UNKNOWN_CLICK, UNKNOWN_DOMAIN, UNKNOWN_LINK, UNKNOWN_REPORT, UNKNOWN_TEMPLATE,
    VERSION_CONFLICT,
};
use weir_origin_core::access::TENANT_LIMIT;
use weir_origin_core::access::scope::Area;
use weir_origin_core::api::{Api, AuditTiming, Document, RouteRules};
use weir_origin_core::http::refusal::{
    BODY_TOO_LARGE, OVERLOADED, REDIS_UNAVAILABLE, SQL_UNAVAILABLE,
};
use weir_origin_core::http::{EDGE_REFUSALS, Edges, Problem, with_stamp};

pub use page::page;

/// The import route, whose requests may take long.
#[cfg(feature = "imports")]
pub const IMPORTS: &str = "/link-imports";

/// Selects a link.
#[derive(utoipa::IntoParams)]
#[into_params(names("code"), parameter_in = Path)]
struct CodeParam(
    /// The code of the link, its slashes escaped.
    #[param(max_length = 385)]
    #[expect(dead_code, reason = "describes a parameter")]
    String,
);

/// The links of an origin, if enabled. Otherwise the routes answer `links_off`.
#[derive(Clone, Debug)]
pub struct Enabled(pub Option<Links>);

impl FromRequestParts<Enabled> for Links {
    type Rejection = Problem;

    async fn from_request_parts(_: &mut Parts, enabled: &Enabled) -> Result<Self, Problem> {
        enabled.0.clone().ok_or_else(links_off)
    }
}

fn links_off() -> Problem {
    LINKS_OFF.because("this origin has no links: start it with --links")
}

/// The routes for gateways, and for clients behind a gateway.
pub fn public() -> Api<Enabled> {
    let form = DefaultBodyLimit::max(follow::FORM_LEN_MAX);
    let record = RouteRules::OPEN.refuses(&[
        LINKS_OFF,
        SQL_UNAVAILABLE,
        OVERLOADED,
        REDIS_UNAVAILABLE,
        LINK_BUSY,
    ]);
    Api::public()
        .route(
            routes!(follow::home),
            RouteRules::OPEN.refuses(&[LINKS_OFF]),
        )
        .route(
            routes!(follow::follow, follow::unlock).layer(form),
            RouteRules::OPEN.refuses(&[LINKS_OFF]),
        )
        .route(
            routes!(follow::file),
            RouteRules::OPEN.refuses(&[LINKS_OFF]),
        )
        .route(routes!(follow::record), record)
        .route(routes!(clicked::get), record.refuses(&[UNKNOWN_CLICK]))
        .route(
            routes!(shared::read),
            RouteRules::OPEN.refuses(&[
                LINKS_OFF,
                UNKNOWN_REPORT,
                TOO_MANY_READS,
                SQL_UNAVAILABLE,
                OVERLOADED,
            ]),
        )
}

/// Additions of all routes to the OpenAPI document.
pub fn document() -> Document {
    let mut document = public().into_document();
    document.merge(feeds().into_document());
    document.merge(admin().into_document());
    document.merge(page().into_document());
    document
}

/// The routes for edges.
fn feeds() -> Api<Feeds> {
    let rules = RouteRules::OPEN
        .refuses(EDGE_REFUSALS)
        .refuses(&[LINKS_OFF]);
    Api::public()
        .route(
            routes!(feed::links),
            rules.refuses(&[NO_SUCH_PLACE, SQL_UNAVAILABLE, OVERLOADED]),
        )
        .route(routes!(feed::domains), rules)
}

/// The routes for edges. `click_limits_in_objects`: the key prefix of links whose click limits are counted in objects.
pub fn feed_routes(
    links: Option<Links>,
    edges: Edges,
    click_limits_in_objects: Option<String>,
) -> Router {
    let state = Feeds {
        links,
        click_limits_in_objects,
        edges: edges.clone(),
    };
    with_stamp(feeds().into_router(state), edges)
}

/// The admin routes. [Narrow](RouteRules::narrow) routes accept keys that are limited to some domains or tags, and
/// check each link.
pub fn admin() -> Api<Enabled> {
    let links = RouteRules::HEEDS.refuses(&[LINKS_OFF]);
    let all = RouteRules::PLATFORM.refuses(&[LINKS_OFF]);
    let named = links.refuses(&[UNKNOWN_LINK, REDIS_UNAVAILABLE, LINK_BUSY]);
    let named_narrow = named.narrow();
    let created = links.narrow().refuses(&[
        BODY_TOO_LARGE,
        REDIS_UNAVAILABLE,
        LOG_UNAVAILABLE,
        NO_NUMBERS,
    ]);
    let domains = &[
        INVALID_IF_MATCH,
        VERSION_CONFLICT,
        INVALID_DOMAIN,
        DOMAINS_BUSY,
    ];
    let api = Api::admin(Area::Links);
    #[cfg(feature = "imports")]
    let api = api.route(
        routes!(import::import).layer(DefaultBodyLimit::max(import::BODY_LEN_MAX)),
        created.refuses(import::REFUSALS),
    );
    api
        // Creation works without SQL and is faster than an audit transaction would allow.
        .route(
            routes!(links::create).layer(DefaultBodyLimit::max(links::BODY_LEN_MAX)),
            created
                .audited_at(AuditTiming::Behind)
                .refuses(TARGETS)
                .refuses(&[
                    INVALID_LINK,
                    NO_SUCH_DOMAIN,
                    CODE_TAKEN,
                    TENANT_LIMIT,
                    INVALID_IDEMPOTENCY_KEY,
                    IDEMPOTENCY_UNDER_WAY,
                    IDEMPOTENCY_MISMATCH,
                ]),
        )
        .route(
            routes!(links::list),
            links.narrow().refuses(&[REDIS_UNAVAILABLE, LINK_BUSY]),
        )
        .route(
            routes!(group::stats),
            links.narrow().refuses(&[UNKNOWN_DOMAIN]),
        )
        .route(routes!(group::folders), links.narrow())
        .route(routes!(shared::list), links.narrow())
        .route(
            routes!(shared::create),
            named_narrow.refuses(&[UNKNOWN_DOMAIN, INVALID_REPORT, TOO_MANY_ITEMS]),
        )
        .route(
            routes!(shared::delete),
            links.narrow().refuses(&[UNKNOWN_REPORT]),
        )
        .route(routes!(utm::list), links.narrow())
        .route(
            routes!(utm::put),
            links.narrow().refuses(&[INVALID_TEMPLATE, TOO_MANY_ITEMS]),
        )
        .route(
            routes!(utm::delete),
            links.narrow().refuses(&[UNKNOWN_TEMPLATE]),
        )
        .route(routes!(export::csv), links.narrow())
        .route(routes!(export::ndjson), links.narrow())
        .route(routes!(links::get), named_narrow)
        .route(
            routes!(links::edit),
            named_narrow.refuses(TARGETS).refuses(&[
                INVALID_LINK,
                INVALID_IF_MATCH,
                VERSION_CONFLICT,
            ]),
        )
        .route(
            routes!(links::delete),
            named_narrow.refuses(&[INVALID_IF_MATCH, VERSION_CONFLICT]),
        )
        .route(routes!(domains::list), links.narrow())
        .route(
            routes!(domains::replace_all).layer(DefaultBodyLimit::max(domains::BODY_LEN_MAX)),
            all.refuses(domains).refuses(&[DOMAIN_HAS_LINKS]),
        )
        .route(
            routes!(domains::get),
            links.narrow().refuses(&[UNKNOWN_DOMAIN]),
        )
        .route(
            routes!(domains::put).layer(DefaultBodyLimit::max(domains::BODY_LEN_MAX)),
            all.refuses(domains).refuses(&[DOMAIN_HAS_LINKS]),
        )
        .route(
            routes!(domains::delete),
            all.refuses(domains)
                .refuses(&[UNKNOWN_DOMAIN, DOMAIN_HAS_LINKS]),
        )
        .route(routes!(deliveries::list), all)
        .route(routes!(deliveries::retry), all)
        .route(routes!(links::history), named_narrow)
        .route(routes!(stats::stats), named_narrow)
        .route(routes!(stats::csv), named_narrow)
        .route(routes!(stats::crosstab), named_narrow)
        .route(routes!(conversions::get), named.refuses(&[CONVERSIONS_OFF]))
        .route(routes!(qr::svg), named_narrow)
        .route(routes!(qr::png), named_narrow)
        .route(
            routes!(qr::svg_with_logo).layer(DefaultBodyLimit::max(FILE_LEN_MAX)),
            named_narrow.question().refuses(&[INVALID_PICTURE]),
        )
        .route(
            routes!(qr::png_with_logo).layer(DefaultBodyLimit::max(FILE_LEN_MAX)),
            named_narrow.question().refuses(&[INVALID_PICTURE]),
        )
}
