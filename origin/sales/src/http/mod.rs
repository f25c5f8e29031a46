//! The routes of sales: requests in, answers out. What they ask for is decided elsewhere.

mod desk;
mod draw;
mod feed;
mod language;
mod listing;
mod orders;
mod payments;
mod reservations;
mod sales;
mod stock;
mod switches;
mod user_list;
mod user_orders;

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, Path};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::from_fn;
use axum::routing::{get, post, put};
use weir_base::id::SaleId;

use super::Sales;
use crate::model::sale::NewSaleError;
use weir_origin_core::http::{Edges, Fault, Problem, UserReader, with_stamp};

/// The routes for gateways.
///
/// - `POST /orders`: a signed claim becomes an order.
/// - `GET /orders/{id}`, `POST /orders/{id}/pay`, `POST /orders/{id}/cancel`: for the signed user.
/// - `POST`, `GET` and `DELETE /sales/{id}/reservations`: for the signed user.
/// - `POST /payments/callback`: signed by the payment provider.
/// - `GET /sale-list`, `GET /sales/{id}/draw` and `/draw/entries`: for anybody.
pub fn public(sales: Sales) -> Router {
    Router::new()
        .route("/orders", post(orders::post))
        .route("/orders/{id}", get(user_orders::get))
        .route("/orders/{id}/pay", post(payments::start))
        .route("/orders/{id}/cancel", post(user_orders::cancel))
        .route("/payments/callback", post(payments::callback))
        .route("/sale-list", get(listing::list))
        .route("/sales/{id}/draw", get(draw::get))
        .route("/sales/{id}/draw/entries", get(draw::entries))
        .route(
            "/sales/{id}/reservations",
            post(reservations::reserve)
                .get(reservations::get)
                .delete(reservations::cancel),
        )
        .with_state(sales)
}

/// The same routes, whose refusals speak the language of buyers.
pub fn in_buyers_language(routes: Router) -> Router {
    routes.layer(from_fn(language::speak))
}

/// The route for edges, `GET /edge/v1/feed/sold-out`. It tells them whether the stock stands in objects.
pub fn feeds(sales: Sales, edges: Edges, is_stock_in_objects: bool) -> Router {
    let key_prefix = sales.ledger().key_prefix();
    let state = feed::Feeds {
        stock_in_objects: is_stock_in_objects.then(|| key_prefix.to_owned()),
        sales,
        edges: edges.clone(),
    };
    let routes = Router::new()
        .route(weir_base::feed::routes::SOLD_OUT, get(feed::sold_out))
        .with_state(state);
    with_stamp(routes, edges)
}

/// Reads whom the gateway has signed in, for other domains.
pub fn users(sales: Sales) -> UserReader {
    Arc::new(move |headers| user_orders::signed_user(&sales, headers))
}

/// The routes for operators.
///
/// - `POST /sales`, `GET /sales`, `GET /sales/{id}`, `PATCH /sales/{id}`
/// - `GET /sales/{id}/payload-schema`
/// - `POST /sales/{id}/stock`, `GET /sales/{id}/stock`
/// - `POST /sales/{id}/warm`, `POST /sales/{id}/rewarm`, `GET /sales/{id}/audit`, `GET /sales/{id}/live`
/// - `PUT /sales/{id}/switch`, `POST /sales/{id}/close`, `GET` and `PUT /switch`
/// - `PUT` and `DELETE /sales/{id}/blocked/{user}`
/// - `GET /payments`, `POST /payments/{id}/refunded`
/// - `GET /orders`, `GET /orders.csv`, `GET /orders/{id}` and `/orders/{id}/changes`
/// - `POST /orders/{id}/cancel` and `/refund`, `POST /order-actions`
/// - `GET /user-list`, `GET`, `PUT` and `DELETE /user-list/{user}`
/// - `GET /order-deliveries`, `POST /order-deliveries/retry`
pub fn admin(sales: Sales) -> Router {
    Router::new()
        .route("/sales", post(sales::create).get(sales::list))
        .route("/sales/{id}", get(sales::status).patch(switches::edit))
        .route("/sales/{id}/stock", post(stock::change).get(stock::list))
        .route("/sales/{id}/payload-schema", get(switches::payload_schema))
        .route("/sales/{id}/switch", put(switches::set))
        .route("/sales/{id}/close", post(switches::close))
        .route(
            "/sales/{id}/blocked/{user}",
            put(switches::block).delete(switches::unblock),
        )
        .route("/orders", get(desk::list))
        .route("/orders.csv", get(desk::csv))
        .route("/orders/{id}", get(desk::get))
        .route("/orders/{id}/changes", get(desk::changes))
        .route("/orders/{id}/cancel", post(desk::cancel))
        .route("/orders/{id}/refund", post(desk::refund))
        .route("/user-list", get(user_list::list))
        .route(
            "/user-list/{user}",
            get(user_list::get)
                .put(user_list::put)
                .delete(user_list::delete),
        )
        .route("/order-actions", post(desk::act))
        .route("/order-deliveries", get(desk::deliveries))
        .route("/order-deliveries/retry", post(desk::retry))
        .route("/payments", get(payments::list))
        .route("/payments/{id}/refunded", post(payments::refunded))
        .route("/switch", get(switches::global).put(switches::set_global))
        .route("/sales/{id}/warm", post(sales::warm))
        .route("/sales/{id}/rewarm", post(sales::rewarm))
        .route("/sales/{id}/audit", get(sales::audit))
        .route("/sales/{id}/live", get(sales::live))
        .with_state(sales)
}

/// The sale that the path names.
struct SalePath(SaleId);

impl<S: Send + Sync> FromRequestParts<S> for SalePath {
    type Rejection = Problem;

    /// A name that no sale can have is one that no sale has.
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(id) = path.map_err(|_| unknown_sale())?;
        SaleId::new(id).map(Self).map_err(|_| unknown_sale())
    }
}

/// 404 on the routes of a sale.
fn unknown_sale() -> Problem {
    unknown_sale_with(StatusCode::NOT_FOUND)
}

/// 404 on the routes of a sale, 409 for an order on one.
fn unknown_sale_with(status: StatusCode) -> Problem {
    let detail = "there is no such sale";
    Problem::new(status, "unknown_sale", "Unknown sale", detail)
}

/// The sentence says all; each mistake is told by itself, too, if there are more.
fn invalid_sale(errors: &[NewSaleError]) -> Problem {
    let details: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let problem = Problem::unprocessable("invalid_sale", "Invalid sale", details.join("; "));
    let fault = |(error, detail): (&NewSaleError, String)| Fault {
        pointer: format!("/{}", error.field()),
        detail,
    };
    problem.with_faults(errors.iter().zip(details).map(fault).collect())
}
