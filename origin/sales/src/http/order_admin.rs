//! Admin routes of orders: search, export, cancellation, refunds, and deliveries of their changes.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tracing::{error, info};
use utoipa::ToSchema;
use utoipa::openapi::Object;
use weir_base::id::{SaleId, UserId};

use super::orders::OrderView;
use super::payments::PaymentView;
use super::refusals::{INVALID_ORDERS, ORDER_EXPIRED, ORDER_NOT_PAID, ORDER_PAID, ORDER_SETTLING};
use super::user_orders::{AnyOrder, ended};
use crate::Sales;
use crate::model::payload::Payload;
use crate::order_admin::export::export;
use crate::order_admin::{self, ActError, Action, Verdict};
use crate::store::{
    CancelOutcome, FoundOrder, OrderChange, OrderCursor, OrderFilter, OrderStatus, OrdersOf,
    Refund, Sorting,
};
use weir_origin_core::access::Caller;
use weir_origin_core::access::tenancy::UNKNOWN_ORDER;
use weir_origin_core::api::words;
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::{Problem, ReadQuery, TypedBody};
use weir_origin_core::outbox::{Backlog, PendingSubject};

/// Default number of orders per page, and its maximum.
const LIMIT_DEFAULT: usize = 50;
const LIMIT_MAX: usize = 500;

/// Maximum number of orders in one batch, so that the request ends within its time limit.
const BATCH_ORDERS_MAX: usize = 200;

/// Maximum number of changes of an order in one answer.
const CHANGES_MAX: usize = 200;

/// An order for operators.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DeskOrder)]
pub(super) struct DeskView {
    #[serde(flatten)]
    order: OrderView,
    /// Creation time, in milliseconds since the Unix epoch.
    created_at_ms: u64,
    /// Payment time, in milliseconds since the Unix epoch.
    #[schema(required)]
    paid_at_ms: Option<u64>,
    /// End time of a cancelled, expired or refunded order, in milliseconds since the Unix epoch.
    #[schema(required)]
    ended_at_ms: Option<u64>,
    /// Its payments, oldest first.
    payments: Vec<PaymentView>,
    /// The buyer's data; null: the sale has no payload_schema.
    #[schema(required, value_type = Option<serde_json::Value>)]
    payload: Option<Payload>,
    /// The attributed link; null: none.
    #[schema(required)]
    link: Option<String>,
}

impl From<FoundOrder> for DeskView {
    fn from(found: FoundOrder) -> Self {
        Self {
            order: OrderView::from(&found.order),
            created_at_ms: found.order.created_at_ms,
            paid_at_ms: found.paid_at_ms,
            ended_at_ms: found.ended_at_ms,
            payments: found.payments.into_iter().map(Into::into).collect(),
            payload: found.payload,
            link: found.order.click.map(|click| click.link),
        }
    }
}

/// Filters of the order list and of the CSV export.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Search {
    /// Only this sale; sale or user is required.
    sale: Option<String>,
    /// Only this user.
    user: Option<String>,
    /// Only this status.
    #[param(required = false, schema_with = statuses)]
    status: Option<String>,
    /// Created at or after this time, in milliseconds since the Unix epoch.
    #[serde(default)]
    #[param(required = false)]
    from_ms: u64,
    /// Created before this time.
    until_ms: Option<u64>,
    /// Sort order by creation time.
    #[serde(default)]
    #[param(required = false, inline, default = "newest")]
    sort: SortWord,
    /// Page size. Not for CSV, which has all.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<usize>,
    /// The `next` of the previous page. Not for CSV.
    after: Option<String>,
}

/// Sort order by creation time.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum SortWord {
    #[default]
    Newest,
    Oldest,
}

fn statuses() -> Object {
    words(
        "Only orders with this status.",
        OrderStatus::ALL.map(OrderStatus::label),
    )
}

/// A page of orders.
#[derive(Serialize, ToSchema)]
pub(super) struct DeskOrderList {
    /// The orders of this page.
    orders: Vec<DeskView>,
    /// `after` of the next page; null: this is the last page.
    #[schema(required)]
    next: Option<String>,
}

/// Changes of an order, as sent to receivers.
#[derive(Serialize, ToSchema)]
pub(super) struct OrderChangeList {
    /// The changes, in order.
    #[schema(value_type = Vec<OrderChange<'static>>)]
    changes: Vec<Box<RawValue>>,
}

/// A refunded order.
#[derive(Serialize, ToSchema)]
pub(super) struct RefundedOrder {
    #[serde(flatten)]
    order: OrderView,
    /// Its payment; null: unknown.
    #[schema(required)]
    payment: Option<PaymentView>,
}

/// Outcome of each order.
#[derive(Serialize, ToSchema)]
pub(super) struct OrderVerdicts {
    /// One verdict per order, in order.
    verdicts: Vec<OrderVerdict>,
}

/// Outcome of an order.
#[derive(Serialize, ToSchema)]
struct OrderVerdict {
    /// The order's id.
    order: String,
    /// The outcome.
    verdict: Verdict,
}

impl Search {
    fn filter(&self, caller: &Caller) -> Result<OrderFilter, Problem> {
        let sale = self.sale.as_ref().map(SaleId::new).transpose();
        let sale = sale.map_err(|error| Problem::invalid_query(format!("sale: {error}")))?;
        let user = self.user.as_ref().map(UserId::new).transpose();
        let user = user.map_err(|error| Problem::invalid_query(format!("user: {error}")))?;
        let of = match (sale, user) {
            (Some(sale), user) => OrdersOf::Sale(sale, user),
            (None, Some(user)) => OrdersOf::User(user),
            (None, None) => {
                let detail = "sale, user: one of them is required";
                return Err(Problem::invalid_query(detail));
            }
        };
        Ok(OrderFilter {
            of,
            status: self.status.as_deref().map(read_status).transpose()?,
            from_ms: self.from_ms,
            until_ms: self.until_ms.unwrap_or(u64::MAX),
            sales: caller.names(),
            sorting: match self.sort {
                SortWord::Newest => Sorting::Newest,
                SortWord::Oldest => Sorting::Oldest,
            },
        })
    }
}

fn read_status(word: &str) -> Result<OrderStatus, Problem> {
    let mut all = OrderStatus::ALL.into_iter();
    all.find(|status| status.label() == word).ok_or_else(|| {
        let words = OrderStatus::ALL.map(OrderStatus::label).join(", ");
        Problem::invalid_query(format!("status: must be one of {words}"))
    })
}

pub(super) fn read_cursor(text: &str) -> Result<OrderCursor, Problem> {
    let cursor = text.split_once('.').and_then(|(at_ms, id)| {
        Some(OrderCursor {
            created_at_ms: at_ms.parse().ok()?,
            id: id.to_owned(),
        })
    });
    cursor.ok_or_else(|| Problem::invalid_query("after: must be the `next` of an earlier page"))
}

/// The `next` of a page of at most `limit` orders.
pub(super) fn next_cursor(found: &[FoundOrder], limit: usize) -> Option<String> {
    let last = found.last().filter(|_| found.len() == limit)?;
    Some(format!("{}.{}", last.order.created_at_ms, last.order.id))
}

/// List orders of a sale or a user, including archived sales
#[utoipa::path(
    get,
    path = "/orders",
    operation_id = "listDeskOrders",
    params(Search),
    responses((status = 200, description = "A page", body = DeskOrderList)),
)]
pub(super) async fn list(
    State(sales): State<Sales>,
    caller: Caller,
    ReadQuery(search): ReadQuery<Search>,
) -> Result<Json<DeskOrderList>, Problem> {
    let filter = search.filter(&caller)?;
    let limit = search.limit.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        let detail = format!("limit: must be 1 to {LIMIT_MAX}");
        return Err(Problem::invalid_query(detail));
    }
    let after = search.after.as_deref().map(read_cursor).transpose()?;
    let found = sales
        .store
        .search()
        .find_orders(&filter, after.as_ref(), limit);
    let found = found.await?;
    let next = next_cursor(&found, limit);
    let orders = found.into_iter().map(Into::into).collect();
    Ok(Json(DeskOrderList { orders, next }))
}

/// Export matching orders as CSV, streamed
///
/// Cells that a spreadsheet could read as a formula start with an apostrophe.
#[utoipa::path(
    get,
    path = "/orders.csv",
    operation_id = "exportOrders",
    params(Search),
    responses(
        (status = 200, description = "CSV (RFC 4180); the download breaks off if SQL does not answer", body = String, content_type = "text/csv"),
    ),
)]
pub(super) async fn csv(
    State(sales): State<Sales>,
    caller: Caller,
    ReadQuery(search): ReadQuery<Search>,
) -> Result<Response, Problem> {
    if search.limit.is_some() || search.after.is_some() {
        let detail = "limit, after: not supported for CSV; use from_ms and until_ms";
        return Err(Problem::invalid_query(detail));
    }
    let headers = [
        (CONTENT_TYPE, "text/csv; charset=utf-8; header=present"),
        (CONTENT_DISPOSITION, "attachment; filename=\"orders.csv\""),
    ];
    let table = export(sales.store.clone(), search.filter(&caller)?);
    Ok((headers, Body::new(table)).into_response())
}

/// Get an order with its last payment
///
/// The signed-in user gets only their own orders. On the admin port: any order, as DeskOrder.
#[utoipa::path(
    get,
    path = "/orders/{id}",
    operation_id = "getOrder",
    params(("id" = String, Path, description = "The order's id.")),
    responses((status = 200, description = "The order, with its last payment", body = AnyOrder)),
)]
pub(super) async fn get(
    State(sales): State<Sales>,
    Path(id): Path<String>,
) -> Result<Json<AnyOrder>, Problem> {
    let found = sales.store.search().find_order(&id).await?;
    let found = found.ok_or_else(unknown_order)?;
    Ok(Json(AnyOrder::Desk(Box::new(found.into()))))
}

/// List an order's changes, as sent to receivers
///
/// Changes that every receiver has are deleted after their retention.
#[utoipa::path(
    get,
    path = "/orders/{id}/changes",
    operation_id = "listOrderChanges",
    params(("id" = String, Path, description = "The order's name.")),
    responses((status = 200, description = "Changes in order, without pruned ones", body = OrderChangeList)),
)]
pub(super) async fn changes(
    State(sales): State<Sales>,
    Path(id): Path<String>,
) -> Result<Json<OrderChangeList>, Problem> {
    let changes = sales.store.outbox().changes(&id, 1, CHANGES_MAX).await?;
    if changes.is_empty() && sales.store.search().find_order(&id).await?.is_none() {
        return Err(unknown_order());
    }
    // Pruned changes have no body.
    let bodies = changes
        .into_iter()
        .filter(|change| !change.body.is_empty())
        .map(|change| RawValue::from_string(change.body));
    let bodies: Result<Vec<Box<RawValue>>, _> = bodies.collect();
    let changes = bodies.map_err(|error| {
        error!(%error, order = %id, "stored order change is not JSON");
        Problem::sql()
    })?;
    Ok(Json(OrderChangeList { changes }))
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
    responses((status = 200, description = "The order is cancelled", body = OrderView)),
)]
pub(super) async fn cancel(
    State(sales): State<Sales>,
    Path(id): Path<String>,
) -> Result<Json<OrderView>, Problem> {
    match ended(sales.orders.cancel_any(id).await)? {
        CancelOutcome::Now(order) => {
            info!(order = %order.id, "cancelled by an operator");
            Ok(Json(OrderView::from(&order)))
        }
        CancelOutcome::Again(order) => Ok(Json(OrderView::from(&order))),
        CancelOutcome::Expired(_) => Err(ORDER_EXPIRED.because("the order has already expired")),
        CancelOutcome::Paid(_) => {
            Err(ORDER_PAID.because("the order is paid: use POST /orders/{id}/refund"))
        }
        CancelOutcome::Unknown => Err(unknown_order()),
    }
}

/// Refund a paid order: its units return to stock, and its payment becomes due for refund
///
/// Weir does not transfer money. Repeating it changes nothing.
#[utoipa::path(
    post,
    path = "/orders/{id}/refund",
    operation_id = "refundOrder",
    params(("id" = String, Path, description = "The order's name.")),
    responses((status = 200, description = "A refund is due, now or already before", body = RefundedOrder)),
)]
pub(super) async fn refund(
    State(sales): State<Sales>,
    Path(id): Path<String>,
) -> Result<Json<RefundedOrder>, Problem> {
    let (order, payment) = match ended(sales.orders.refund(id).await)? {
        Refund::Now(order, payment) => {
            info!(order = %order.id, "refund due: an operator refunded a paid order");
            (order, payment)
        }
        Refund::Again(order, payment) => (order, payment),
        Refund::NotPaid(_) => {
            return Err(ORDER_NOT_PAID.because("the order is not paid, or has already ended"));
        }
        Refund::Busy => {
            let detail = "the payment is not in Redis yet; please try again";
            return Err(ORDER_SETTLING.because(detail));
        }
        Refund::Unknown => return Err(unknown_order()),
    };
    Ok(Json(RefundedOrder {
        order: OrderView::from(&order),
        payment: payment.map(PaymentView::from),
    }))
}

/// A batch of order actions.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OrderBatch {
    /// The action.
    action: Action,
    /// The order ids.
    #[schema(min_items = 1, max_items = 200)]
    orders: Vec<String>,
}

/// Cancel or refund up to 200 orders
///
/// Orders are processed one by one, each with its own verdict. Repeating it changes nothing for completed orders.
#[utoipa::path(
    post,
    path = "/order-batches",
    operation_id = "runOrderBatch",
    request_body = OrderBatch,
    responses((status = 200, description = "One verdict per order, in order", body = OrderVerdicts)),
)]
pub(super) async fn run_batch(
    State(sales): State<Sales>,
    caller: Caller,
    TypedBody(batch): TypedBody<OrderBatch>,
) -> Result<Json<OrderVerdicts>, Problem> {
    let OrderBatch { action, orders } = batch;
    if !(1..=BATCH_ORDERS_MAX).contains(&orders.len()) {
        let detail = format!("orders: must be 1 to {BATCH_ORDERS_MAX}");
        return Err(INVALID_ORDERS.because(detail));
    }
    let mut verdicts = Vec::with_capacity(orders.len());
    for order in orders {
        let verdict = match caller.may_name(&order) {
            true => {
                let verdict = order_admin::act(&sales.orders, action, order.clone()).await;
                verdict.unwrap_or_else(|error| not_known(&order, &error))
            }
            false => Verdict::UnknownOrder,
        };
        verdicts.push(OrderVerdict { order, verdict });
    }
    info!(
        ?action,
        orders = verdicts.len(),
        "operator action on orders"
    );
    Ok(Json(OrderVerdicts { verdicts }))
}

/// The outcome is unknown; other orders of the batch still get their verdicts.
fn not_known(order: &str, error: &ActError) -> Verdict {
    error!(%order, %error, "unknown outcome of an operator action on an order");
    Verdict::TryAgain
}

/// Undelivered changes of one receiver.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Deliveries)]
pub(super) struct OrderBacklog {
    /// Number of waiting orders.
    orders: u64,
    /// Time since the oldest waits, in milliseconds since the Unix epoch.
    #[schema(required)]
    oldest_since_ms: Option<u64>,
    /// Longest waiting entries.
    waiting: Vec<WaitingOrder>,
}

/// An order whose changes wait for a receiver.
#[derive(Debug, Serialize, ToSchema)]
struct WaitingOrder {
    /// The order's id.
    order: String,
    #[serde(flatten)]
    waiting: PendingSubject,
}

/// Undelivered changes by receiver.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DeliveriesByReceiver)]
pub(super) struct OrderDeliveries(BTreeMap<&'static str, OrderBacklog>);

/// Result of a retry.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RetriedDeliveries)]
pub(super) struct RetriedOrders {
    /// Orders with changes that were waiting for a retry.
    orders: u64,
}

impl OrderBacklog {
    fn new(backlog: Backlog, waiting: Vec<PendingSubject>) -> Self {
        let order = |waiting: PendingSubject| WaitingOrder {
            order: waiting.subject.clone(),
            waiting,
        };
        Self {
            orders: backlog.subjects,
            oldest_since_ms: backlog.oldest_ms,
            waiting: waiting.into_iter().map(order).collect(),
        }
    }
}

/// List undelivered order changes of each receiver, with errors
#[utoipa::path(
    get,
    path = "/order-deliveries",
    operation_id = "listOrderDeliveries",
    responses((status = 200, description = "Longest waiting first", body = OrderDeliveries)),
)]
pub(super) async fn deliveries(
    State(sales): State<Sales>,
    caller: Caller,
) -> Result<Json<OrderDeliveries>, Problem> {
    let (queue, orders) = (sales.store.outbox(), caller.names());
    let backlogs = queue.backlogs(&orders, OrderBacklog::new).await?;
    Ok(Json(OrderDeliveries(backlogs)))
}

/// Retry all waiting changes now
#[utoipa::path(
    post,
    path = "/order-deliveries/retry",
    operation_id = "retryOrderDeliveries",
    responses((status = 200, description = "The count", body = RetriedOrders)),
)]
pub(super) async fn retry(
    State(sales): State<Sales>,
    caller: Caller,
) -> Result<Json<RetriedOrders>, Problem> {
    let queue = sales.store.outbox();
    let orders = queue.retry_all(&caller.names(), now_ms()).await?;
    Ok(Json(RetriedOrders { orders }))
}

fn unknown_order() -> Problem {
    let detail = "order not found";
    UNKNOWN_ORDER.because(detail)
}
