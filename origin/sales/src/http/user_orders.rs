//! Routes of a user's orders. Gateways authenticate the user with a signature.

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use serde::{Deserialize, Serialize};
use tokio::task::JoinError;
use tracing::{error, warn};
use utoipa::ToSchema;
use weir_base::headers;
use weir_base::id::UserId;
use weir_sale::identity;

use super::order_admin::{DeskView, next_cursor, read_cursor};
use super::orders::{OrderView, only};
use super::payments::PaymentView;
use super::refusals::{ORDER_EXPIRED, ORDER_PAID};
use crate::Sales;
use crate::model::payload::Payload;
use crate::store::{CancelOutcome, FoundOrder, OrderFilter, OrdersOf, Sorting};
use weir_origin_core::access::tenancy::UNKNOWN_ORDER;
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::refusal::{USER_INVALID, USER_MISSING};
use weir_origin_core::http::{Problem, ReadQuery, page_len};
use weir_origin_core::sql::SqlError;
use weir_origin_core::tenants::NameRange;

/// The authenticated user.
pub(super) struct SignedUser(pub UserId);

impl FromRequestParts<Sales> for SignedUser {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, sales: &Sales) -> Result<Self, Problem> {
        signed_user(sales, &parts.headers).map(Self)
    }
}

/// Authenticates the user by the headers that a gateway has signed.
pub(super) fn signed_user(sales: &Sales, headers: &HeaderMap) -> Result<UserId, Problem> {
    let value = only(headers, headers::USER, user_missing, user_invalid)?;
    let signature = headers::USER_SIGNATURE;
    let signature = only(headers, signature, user_missing, user_invalid)?;
    let user = identity::verify(&sales.keys, value, signature, now_ms());
    user.map_err(|error| {
        warn!(%error, "user refused");
        user_invalid()
    })
}

/// Default number of orders per page, and its maximum.
const LIMIT_DEFAULT: usize = 20;
const LIMIT_MAX: usize = 100;

/// Selects a page of a user's own orders.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OwnOrdersPage {
    /// Maximum number of orders.
    #[param(minimum = 1, maximum = 100, default = 20)]
    limit: Option<usize>,
    /// The `next` of the previous page.
    after: Option<String>,
}

/// A page of a user's own orders.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OwnOrders)]
pub(super) struct OwnOrdersView {
    /// The orders of this page, newest first.
    orders: Vec<PaidOrderView>,
    /// `after` of the next page; null: this is the last page.
    #[schema(required)]
    next: Option<String>,
}

/// An order with its last payment.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PaidOrder)]
pub(super) struct PaidOrderView {
    #[serde(flatten)]
    order: OrderView,
    /// The last payment; null: none.
    #[schema(required)]
    payment: Option<PaymentView>,
    /// The buyer's data; null: the sale has no payload_schema.
    #[schema(required, value_type = Option<serde_json::Value>)]
    payload: Option<Payload>,
    /// Creation time, in milliseconds since the Unix epoch.
    created_at_ms: u64,
}

impl From<FoundOrder> for PaidOrderView {
    fn from(mut found: FoundOrder) -> Self {
        Self {
            order: OrderView::from(&found.order),
            payment: found.payments.pop().map(PaymentView::from),
            payload: found.payload,
            created_at_ms: found.order.created_at_ms,
        }
    }
}

/// An order: for its user with its last payment; on the admin port, for operators.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum AnyOrder {
    Paid(Box<PaidOrderView>),
    Desk(Box<DeskView>),
}

/// List the user's own orders
///
/// Orders of all sales, newest first, including archived sales.
#[utoipa::path(
    get,
    path = "/my-orders",
    operation_id = "listMyOrders",
    params(OwnOrdersPage),
    security(("user" = [], "userSignature" = [])),
    responses((status = 200, description = "A page", body = OwnOrdersView)),
)]
pub(super) async fn list(
    State(sales): State<Sales>,
    SignedUser(user): SignedUser,
    ReadQuery(page): ReadQuery<OwnOrdersPage>,
) -> Result<Json<OwnOrdersView>, Problem> {
    let after = page.after.as_deref().map(read_cursor).transpose()?;
    let limit = page_len(page.limit, LIMIT_MAX)?.unwrap_or(LIMIT_DEFAULT);
    let filter = OrderFilter {
        of: OrdersOf::User(user),
        status: None,
        from_ms: 0,
        until_ms: u64::MAX,
        sales: NameRange::default(),
        sorting: Sorting::Newest,
    };
    let found = sales
        .store
        .search()
        .find_orders(&filter, after.as_ref(), limit);
    let found = sales.orders.sql(found).await?;
    let next = next_cursor(&found, limit);
    let orders = found.into_iter().map(PaidOrderView::from).collect();
    Ok(Json(OwnOrdersView { orders, next }))
}

/// Get an order with its last payment
///
/// The signed-in user gets only their own orders. On the admin port: any order, as DeskOrder.
#[utoipa::path(
    get,
    path = "/orders/{id}",
    operation_id = "getOrder",
    params(("id" = String, Path, description = "The order's id.")),
    security(("user" = [], "userSignature" = [])),
    responses((status = 200, description = "The order, with its last payment", body = AnyOrder)),
)]
pub(super) async fn get(
    State(sales): State<Sales>,
    SignedUser(user): SignedUser,
    Path(id): Path<String>,
) -> Result<Json<AnyOrder>, Problem> {
    let order = sales.orders.sql(sales.store.order(&id, &user)).await;
    let order = order?.ok_or_else(unknown_order)?;
    let payment = sales
        .orders
        .sql(sales.store.provider().last_payment(&id))
        .await?;
    Ok(Json(AnyOrder::Paid(Box::new(PaidOrderView {
        order: OrderView::from(&order),
        payment: payment.map(PaymentView::from),
        payload: sales
            .orders
            .sql(sales.store.payloads().payload(&id))
            .await?,
        created_at_ms: order.created_at_ms,
    }))))
}

/// Cancel an unpaid order
///
/// Its units return to stock. Repeating it changes nothing. On the admin port: any order, and it does not count against
/// the user.
#[utoipa::path(
    post,
    path = "/orders/{id}/cancel",
    operation_id = "cancelOrder",
    params(("id" = String, Path, description = "The order's id.")),
    security(("user" = [], "userSignature" = [])),
    responses((status = 200, description = "The order is cancelled", body = OrderView)),
)]
pub(super) async fn cancel(
    State(sales): State<Sales>,
    SignedUser(user): SignedUser,
    Path(id): Path<String>,
) -> Result<Json<OrderView>, Problem> {
    let cancelled = sales.orders.cancel(id, user).await;
    match ended(cancelled)? {
        CancelOutcome::Now(order) | CancelOutcome::Again(order) => {
            Ok(Json(OrderView::from(&order)))
        }
        CancelOutcome::Expired(_) => Err(ORDER_EXPIRED.because("the order has already expired")),
        CancelOutcome::Paid(_) => {
            Err(ORDER_PAID.because("the order is paid and cannot be changed"))
        }
        CancelOutcome::Unknown => Err(unknown_order()),
    }
}

/// Result of a task that decides an order.
type Ended<T> = Result<Result<T, SqlError>, JoinError>;

pub(super) fn ended<T>(outcome: Ended<T>) -> Result<T, Problem> {
    let answer = outcome.map_err(|error| {
        // The task panicked: a bug in the origin, with an unknown outcome.
        error!(%error, "order task failed");
        Problem::sql()
    })?;
    Ok(answer?)
}

pub(super) fn unknown_order() -> Problem {
    UNKNOWN_ORDER.because("you have no such order")
}

fn user_missing() -> Problem {
    let detail = "the user is missing: send the request through a gateway";
    USER_MISSING.because(detail).challenge("Weir-User")
}

fn user_invalid() -> Problem {
    let detail = "the user is not signed by a known gateway";
    USER_INVALID.because(detail)
}
