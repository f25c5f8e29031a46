//! Routes of sales. Handlers parse requests and format answers; other modules decide.

mod draw;
mod feed;
mod language;
mod lost_orders;
mod order_admin;
mod orders;
mod payments;
mod public_sales;
mod refusals;
mod reservations;
mod sales;
mod stock;
mod switches;
mod user_list;
mod user_orders;

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::middleware::from_fn;
use utoipa_axum::routes;
use weir_base::id::SaleId;

use super::Sales;
use crate::model::sale::NewSaleError;
use feed::Feeds;
use refusals::{
    BARRED, BLOCKED, CATALOGUE_FULL, CHANGE_UNDER_WAY, CLAIM_INVALID, CLAIM_MISSING,
    CLAIM_RELEASED, CLAIMS_OPEN, COOLING_DOWN, DRAW_OPEN, DUPLICATE_SALE, EVENT_REUSED, GROUP_CAP,
    IDEMPOTENCY_KEY_REUSED, INVALID_IDEMPOTENCY_KEY, INVALID_ORDERS, INVALID_PAYLOAD,
    INVALID_REASON, INVALID_REFERENCE, INVALID_SALE, INVALID_STOCK_CHANGE, INVALID_USER,
    NO_CATALOGUE, NO_DRAW, NO_REFUND_DUE, NO_RESERVATION, NOT_PUBLISHED, NOT_WARMED,
    ORDER_CANCELLED, ORDER_EXPIRED, ORDER_NOT_PAID, ORDER_PAID, ORDER_SETTLING, OTHER_SITE,
    PAYMENTS_NOT_CONFIGURED, REDIS_NOT_EMPTY, RESERVATION_CLOSED, RESERVATION_GONE,
    RESERVATION_NOT_OPEN, SALE_ARCHIVED, SALE_DRAWING, SALE_ENDED, SALE_GONE, SALE_NOT_PAUSED,
    SALE_STARTED, SALE_WARMED, SIGNATURE_INVALID, SIGNATURE_MISSING, SOLD_OUT, STOCK_LOST,
    TIMESTAMP_OUT_OF_WINDOW, TOO_MANY_UNITS, UNKNOWN_RESERVATION, UNPAID_HOLDS, USER_CAP, VERDICTS,
};
use weir_origin_core::access::TENANT_LIMIT;
use weir_origin_core::access::scope::Area;
use weir_origin_core::access::tenancy::{
    ResourceKind, UNKNOWN_ORDER, UNKNOWN_PAYMENT, UNKNOWN_SALE,
};
use weir_origin_core::api::{Api, Document, RouteRules};
use weir_origin_core::http::refusal::{
    BODY_TOO_LARGE, OVERLOADED, REDIS_UNAVAILABLE, SQL_UNAVAILABLE, USER_INVALID, USER_MISSING,
};
use weir_origin_core::http::{
    EDGE_REFUSALS, Edges, Problem, TOO_MANY_STREAMS, UserReader, ValidationError, with_stamp,
};

/// The public routes: for gateways, for buyers behind a gateway, and for the payment provider.
pub fn public() -> Api<Sales> {
    let sql = RouteRules::OPEN.refuses(&[SQL_UNAVAILABLE, OVERLOADED]);
    let user = sql.refuses(&[USER_MISSING, USER_INVALID]);
    let order = user.refuses(&[UNKNOWN_ORDER]);
    let reservation = user.refuses(&[UNKNOWN_SALE]);
    let draw = sql.refuses(&[UNKNOWN_SALE, NO_DRAW]);
    Api::public()
        .route(
            routes!(orders::post),
            sql.refuses(VERDICTS).refuses(&[
                INVALID_IDEMPOTENCY_KEY,
                CLAIM_MISSING,
                CLAIM_INVALID,
                CLAIM_RELEASED,
                IDEMPOTENCY_KEY_REUSED,
                INVALID_PAYLOAD,
                SALE_GONE,
                SOLD_OUT,
                USER_CAP,
                GROUP_CAP,
                COOLING_DOWN,
                UNPAID_HOLDS,
                BARRED,
            ]),
        )
        .route(routes!(user_orders::list), user)
        .route(routes!(user_orders::get), order)
        .route(
            routes!(payments::start),
            order.refuses(&[
                ORDER_PAID,
                ORDER_EXPIRED,
                ORDER_CANCELLED,
                SOLD_OUT,
                PAYMENTS_NOT_CONFIGURED,
            ]),
        )
        .route(
            routes!(user_orders::cancel),
            order.refuses(&[ORDER_PAID, ORDER_EXPIRED]),
        )
        .route(
            routes!(payments::callback),
            sql.refuses(&[
                SIGNATURE_MISSING,
                SIGNATURE_INVALID,
                TIMESTAMP_OUT_OF_WINDOW,
                UNKNOWN_PAYMENT,
                EVENT_REUSED,
                BODY_TOO_LARGE,
                PAYMENTS_NOT_CONFIGURED,
            ]),
        )
        .route(routes!(public_sales::list), sql)
        .route(routes!(draw::get), draw)
        .route(routes!(draw::entries), draw.refuses(&[DRAW_OPEN]))
        .route(
            routes!(reservations::reserve),
            reservation.refuses(&[
                BLOCKED,
                RESERVATION_NOT_OPEN,
                RESERVATION_CLOSED,
                NO_RESERVATION,
                RESERVATION_GONE,
                REDIS_UNAVAILABLE,
            ]),
        )
        .route(
            routes!(reservations::get),
            reservation.refuses(&[UNKNOWN_RESERVATION]),
        )
        .route(
            routes!(reservations::cancel),
            reservation.refuses(&[RESERVATION_CLOSED, REDIS_UNAVAILABLE]),
        )
}

/// Translates the routes' refusals into the buyer's language.
pub fn in_buyers_language(routes: Router) -> Router {
    routes.layer(from_fn(language::localize))
}

/// The route for edges. [`feed_routes`] mounts it.
fn feeds() -> Api<Feeds> {
    let rules = RouteRules::OPEN.refuses(EDGE_REFUSALS);
    Api::public().route(
        routes!(feed::sold_out),
        rules.refuses(&[NO_CATALOGUE, SQL_UNAVAILABLE, REDIS_UNAVAILABLE]),
    )
}

/// Mounts the route for edges. It also tells them whether the stock is in edge objects.
pub fn feed_routes(sales: Sales, edges: Edges, is_stock_in_objects: bool) -> Router {
    let key_prefix = sales.ledger().key_prefix();
    let state = Feeds {
        stock_in_objects: is_stock_in_objects.then(|| key_prefix.to_owned()),
        sales,
        edges: edges.clone(),
    };
    with_stamp(feeds().into_router(state), edges)
}

/// The part of all routes in the OpenAPI document.
pub fn document() -> Document {
    let mut document = public().into_document();
    document.merge(feeds().into_document());
    document.merge(admin().into_document());
    document
}

/// Authenticates users by the gateway's signature, for other domains.
pub fn users(sales: Sales) -> UserReader {
    Arc::new(move |headers| user_orders::signed_user(&sales, headers))
}

/// The admin routes. Names of sales, orders and payments start with their tenant's name. The global switch and the user
/// list belong to the platform.
pub fn admin() -> Api<Sales> {
    let reads = RouteRules::HEEDS;
    let sale = RouteRules::for_resource(ResourceKind::Sale);
    let order = RouteRules::for_resource(ResourceKind::Order);
    let platform = RouteRules::PLATFORM;
    let switched = sale.refuses(&[NOT_PUBLISHED]);
    let blocked = sale.refuses(&[SALE_ARCHIVED, INVALID_USER, REDIS_UNAVAILABLE]);
    let user = platform.refuses(&[INVALID_USER]);
    let changed_user = user.refuses(&[BODY_TOO_LARGE, INVALID_REASON, REDIS_UNAVAILABLE]);
    Api::admin(Area::Sales)
        .route(
            routes!(sales::create),
            reads.refuses(&[
                DUPLICATE_SALE,
                TENANT_LIMIT,
                BODY_TOO_LARGE,
                INVALID_SALE,
                REDIS_UNAVAILABLE,
            ]),
        )
        .route(routes!(sales::list), reads)
        .route(routes!(sales::status), sale.refuses(&[REDIS_UNAVAILABLE]))
        .route(
            routes!(switches::edit),
            switched.refuses(&[
                SALE_STARTED,
                SALE_WARMED,
                SALE_ARCHIVED,
                SALE_DRAWING,
                CATALOGUE_FULL,
                TENANT_LIMIT,
                BODY_TOO_LARGE,
                INVALID_SALE,
            ]),
        )
        .route(
            routes!(stock::change),
            sale.refuses(&[
                NOT_WARMED,
                SALE_ENDED,
                SALE_ARCHIVED,
                CHANGE_UNDER_WAY,
                OTHER_SITE,
                TOO_MANY_UNITS,
                TENANT_LIMIT,
                BODY_TOO_LARGE,
                INVALID_STOCK_CHANGE,
                IDEMPOTENCY_KEY_REUSED,
                REDIS_UNAVAILABLE,
            ]),
        )
        .route(routes!(stock::list), sale)
        .route(routes!(switches::payload_schema), sale)
        .route(routes!(switches::set), switched.refuses(&[BODY_TOO_LARGE]))
        .route(routes!(switches::close), switched)
        .route(routes!(switches::block, switches::unblock), blocked)
        .route(routes!(order_admin::list), reads)
        .route(routes!(order_admin::csv), reads)
        .route(routes!(order_admin::get), order)
        .route(routes!(order_admin::changes), order)
        .route(
            routes!(order_admin::cancel),
            order.refuses(&[ORDER_PAID, ORDER_EXPIRED]),
        )
        .route(
            routes!(order_admin::refund),
            order.refuses(&[ORDER_NOT_PAID, ORDER_SETTLING, REDIS_UNAVAILABLE]),
        )
        .route(routes!(user_list::list), platform)
        .route(routes!(user_list::get), user)
        .route(routes!(user_list::put, user_list::delete), changed_user)
        .route(
            routes!(order_admin::run_batch),
            reads.refuses(&[BODY_TOO_LARGE, INVALID_ORDERS]),
        )
        .route(routes!(order_admin::deliveries), reads)
        .route(routes!(order_admin::retry), reads)
        .route(routes!(payments::list), reads)
        .route(
            routes!(payments::refunded),
            RouteRules::for_resource(ResourceKind::Payment)
                .refuses(&[NO_REFUND_DUE, INVALID_REFERENCE]),
        )
        .route(routes!(switches::global), platform)
        .route(
            routes!(switches::set_global),
            platform.refuses(&[BODY_TOO_LARGE, NOT_PUBLISHED]),
        )
        .route(
            routes!(sales::warm),
            sale.refuses(&[
                SALE_ARCHIVED,
                STOCK_LOST,
                REDIS_NOT_EMPTY,
                CATALOGUE_FULL,
                OTHER_SITE,
                REDIS_UNAVAILABLE,
            ]),
        )
        .route(
            routes!(sales::rebuild),
            sale.refuses(&[SALE_ARCHIVED, NOT_WARMED, REDIS_UNAVAILABLE]),
        )
        .route(routes!(sales::audit), sale.refuses(&[REDIS_UNAVAILABLE]))
        .route(routes!(sales::money), sale)
        .route(
            routes!(lost_orders::list),
            sale.refuses(&[REDIS_UNAVAILABLE]),
        )
        .route(
            routes!(lost_orders::decide),
            sale.refuses(&[
                SALE_NOT_PAUSED,
                CLAIMS_OPEN,
                BODY_TOO_LARGE,
                REDIS_UNAVAILABLE,
            ]),
        )
        .route(
            routes!(sales::live),
            sale.refuses(&[TOO_MANY_STREAMS, REDIS_UNAVAILABLE]),
        )
}

/// The sale in the path.
struct SalePath(SaleId);

impl<S: Send + Sync> FromRequestParts<S> for SalePath {
    type Rejection = Problem;

    /// An invalid sale id gives the same 404 as an unknown one.
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(id) = path.map_err(|_| unknown_sale())?;
        SaleId::new(id).map(Self).map_err(|_| unknown_sale())
    }
}

/// 404 on the routes of a sale.
fn unknown_sale() -> Problem {
    UNKNOWN_SALE.because("sale not found")
}

/// All errors of a new sale: as the detail, and also in `errors` if there are several.
fn invalid_sale(errors: &[NewSaleError]) -> Problem {
    let details: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let problem = INVALID_SALE.because(details.join("; "));
    let fault = |(error, detail): (&NewSaleError, String)| ValidationError {
        pointer: format!("/{}", error.field()),
        detail,
    };
    problem.with_validation_errors(errors.iter().zip(details).map(fault).collect())
}
