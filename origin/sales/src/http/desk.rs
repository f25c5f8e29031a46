//! Orders as operators see and handle them: found, exported, cancelled, refunded; and who is told of their changes.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use tracing::{error, info};
use weir_base::id::{SaleId, UserId};

use super::orders::OrderView;
use super::payments::PaymentView;
use super::user_orders::{conflict, ended};
use crate::Sales;
use crate::desk::export::export;
use crate::desk::{self, ActError, Action, Verdict};
use crate::payload::Payload;
use crate::store::{
    Cancelled, FoundOrder, OrderCursor, OrderFilter, OrderStatus, OrdersOf, Refund, Sorting,
};
use weir_origin_core::access::Caller;
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::{JsonBody, Problem, ReadQuery};
use weir_origin_core::outbox::{Backlog, Waiting};

/// The orders of a page, unless the query says so, and at most.
const LIMIT_DEFAULT: usize = 50;
const LIMIT_MAX: usize = 500;

/// The most orders that are handled by one request: within the time that it may take.
const ACTIONS_MAX: usize = 200;

/// The most changes of an order in one answer.
const CHANGES_MAX: usize = 200;

/// An order, as operators see it.
#[derive(Debug, Serialize)]
struct DeskView {
    #[serde(flatten)]
    order: OrderView,
    created_at_ms: u64,
    paid_at_ms: Option<u64>,
    ended_at_ms: Option<u64>,
    payments: Vec<PaymentView>,
    /// null: the sale wants none.
    payload: Option<Payload>,
    /// The link whose click it came of; null: none that is known.
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

/// What is asked of the list of orders, and of the table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Search {
    sale: Option<String>,
    user: Option<String>,
    status: Option<String>,
    #[serde(default)]
    from_ms: u64,
    until_ms: Option<u64>,
    #[serde(default)]
    sort: SortWord,
    limit: Option<usize>,
    after: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SortWord {
    #[default]
    Newest,
    Oldest,
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
                let detail = "sale, user: one of them must be there";
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
    all.find(|status| status.word() == word).ok_or_else(|| {
        let words = OrderStatus::ALL.map(OrderStatus::word).join(", ");
        Problem::invalid_query(format!("status: must be one of {words}"))
    })
}

fn read_cursor(text: &str) -> Result<OrderCursor, Problem> {
    let cursor = text.split_once('.').and_then(|(at_ms, id)| {
        Some(OrderCursor {
            created_at_ms: at_ms.parse().ok()?,
            id: id.to_owned(),
        })
    });
    cursor.ok_or_else(|| Problem::invalid_query("after: must be the `next` of an answer"))
}

/// `GET /orders`: a page of a sale's or a user's orders.
pub(super) async fn list(
    State(sales): State<Sales>,
    caller: Caller,
    ReadQuery(search): ReadQuery<Search>,
) -> Result<Json<Value>, Problem> {
    let filter = search.filter(&caller)?;
    let limit = search.limit.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        let detail = format!("limit: must be 1 to {LIMIT_MAX}");
        return Err(Problem::invalid_query(detail));
    }
    let after = search.after.as_deref().map(read_cursor).transpose()?;
    let found = sales.store.find_orders(&filter, after.as_ref(), limit);
    let found = found.await?;
    let last = found.last().filter(|_| found.len() == limit);
    let next = last.map(|last| format!("{}.{}", last.order.created_at_ms, last.order.id));
    let orders: Vec<DeskView> = found.into_iter().map(Into::into).collect();
    Ok(Json(json!({ "orders": orders, "next": next })))
}

/// `GET /orders.csv`: all that a list would show, as a table.
pub(super) async fn csv(
    State(sales): State<Sales>,
    caller: Caller,
    ReadQuery(search): ReadQuery<Search>,
) -> Result<Response, Problem> {
    if search.limit.is_some() || search.after.is_some() {
        let detail = "limit, after: a table has all orders; narrow it by from_ms and until_ms";
        return Err(Problem::invalid_query(detail));
    }
    let headers = [
        (CONTENT_TYPE, "text/csv; charset=utf-8; header=present"),
        (CONTENT_DISPOSITION, "attachment; filename=\"orders.csv\""),
    ];
    let table = export(sales.store.clone(), search.filter(&caller)?);
    Ok((headers, Body::new(table)).into_response())
}

/// `GET /orders/{id}`: an order, whosever it is, with its payments.
pub(super) async fn get(
    State(sales): State<Sales>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    let found = sales.store.find_order(&id).await?;
    let found = found.ok_or_else(unknown_order)?;
    Ok(Json(json!(DeskView::from(found))))
}

/// `GET /orders/{id}/changes`: what others were, or will be, told of it. Without receivers nothing is written.
pub(super) async fn changes(
    State(sales): State<Sales>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    let changes = sales.store.outbox().changes(&id, 1, CHANGES_MAX).await?;
    if changes.is_empty() && sales.store.find_order(&id).await?.is_none() {
        return Err(unknown_order());
    }
    // What was pruned has no body.
    let bodies = changes
        .into_iter()
        .filter(|change| !change.body.is_empty())
        .map(|change| RawValue::from_string(change.body));
    let bodies: Result<Vec<Box<RawValue>>, _> = bodies.collect();
    let bodies = bodies.map_err(|error| {
        error!(%error, order = %id, "a change of an order is no JSON");
        Problem::sql()
    })?;
    Ok(Json(json!({ "changes": bodies })))
}

/// `POST /orders/{id}/cancel`: ends an unpaid order. Again changes nothing.
pub(super) async fn cancel(
    State(sales): State<Sales>,
    Path(id): Path<String>,
) -> Result<Json<OrderView>, Problem> {
    match ended(sales.orders.cancel_any(id).await)? {
        Cancelled::Now(order) => {
            info!(order = %order.id, "cancelled by an operator");
            Ok(Json(OrderView::from(&order)))
        }
        Cancelled::Again(order) => Ok(Json(OrderView::from(&order))),
        Cancelled::Expired(_) => Err(conflict("order_expired", "the order has expired before")),
        Cancelled::Paid(_) => Err(conflict(
            "order_paid",
            "the order is paid: POST /orders/{id}/refund ends it",
        )),
        Cancelled::Unknown => Err(unknown_order()),
    }
}

/// `POST /orders/{id}/refund`: ends a paid order; its money is due for refund. Again changes nothing.
pub(super) async fn refund(
    State(sales): State<Sales>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    let (order, payment) = match ended(sales.orders.refund(id).await)? {
        Refund::Now(order, payment) => {
            info!(order = %order.id, "a refund is due: an operator has ended a paid order");
            (order, payment)
        }
        Refund::Again(order, payment) => (order, payment),
        Refund::NotPaid(_) => {
            return Err(conflict(
                "order_not_paid",
                "the order is not paid, or ended",
            ));
        }
        Refund::Busy => {
            let detail = "Redis has not followed the order's payment yet; please try again";
            return Err(Problem::unavailable("order_settling", detail));
        }
        Refund::Unknown => return Err(unknown_order()),
    };
    let mut view = json!(OrderView::from(&order));
    view["payment"] = json!(payment.map(PaymentView::from));
    Ok(Json(view))
}

/// Orders that the same is done with.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Actions {
    action: Action,
    orders: Vec<String>,
}

/// `POST /order-actions`: cancels or refunds orders, one after another; a verdict for each, in their order.
pub(super) async fn act(
    State(sales): State<Sales>,
    caller: Caller,
    JsonBody(actions): JsonBody<Actions>,
) -> Result<Json<Value>, Problem> {
    let Actions { action, orders } = actions;
    if !(1..=ACTIONS_MAX).contains(&orders.len()) {
        let detail = format!("orders: must be 1 to {ACTIONS_MAX}");
        return Err(Problem::unprocessable(
            "invalid_orders",
            "Not so many",
            detail,
        ));
    }
    let mut verdicts = Vec::with_capacity(orders.len());
    for order in orders {
        let verdict = match caller.may_name(&order) {
            true => {
                let verdict = desk::act(&sales.orders, action, order.clone()).await;
                verdict.unwrap_or_else(|error| not_known(&order, &error))
            }
            false => Verdict::UnknownOrder,
        };
        verdicts.push(json!({ "order": order, "verdict": verdict }));
    }
    info!(
        ?action,
        orders = verdicts.len(),
        "an operator has handled orders"
    );
    Ok(Json(json!({ "verdicts": verdicts })))
}

/// The others have their verdicts nevertheless.
fn not_known(order: &str, error: &ActError) -> Verdict {
    error!(%order, %error, "it is not known whether an order was handled");
    Verdict::TryAgain
}

/// What one receiver does not have yet.
#[derive(Debug, Serialize)]
pub(super) struct OrderBacklog {
    orders: u64,
    oldest_since_ms: Option<u64>,
    waiting: Vec<WaitingOrder>,
}

#[derive(Debug, Serialize)]
struct WaitingOrder {
    order: String,
    #[serde(flatten)]
    waiting: Waiting,
}

impl OrderBacklog {
    fn new(backlog: Backlog, waiting: Vec<Waiting>) -> Self {
        let order = |waiting: Waiting| WaitingOrder {
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

/// `GET /order-deliveries`: what waits for each receiver, and the orders that have waited longest.
pub(super) async fn deliveries(
    State(sales): State<Sales>,
    caller: Caller,
) -> Result<Json<BTreeMap<&'static str, OrderBacklog>>, Problem> {
    let (queue, orders) = (sales.store.outbox(), caller.names());
    let backlogs = queue.backlogs(&orders, OrderBacklog::new).await?;
    Ok(Json(backlogs))
}

/// `POST /order-deliveries/retry`: what waits for another try has its turn now.
pub(super) async fn retry(
    State(sales): State<Sales>,
    caller: Caller,
) -> Result<Json<Value>, Problem> {
    let queue = sales.store.outbox();
    let orders = queue.retry_all(&caller.names(), now_ms()).await?;
    Ok(Json(json!({ "orders": orders })))
}

fn unknown_order() -> Problem {
    let detail = "there is no such order";
    Problem::not_found("unknown_order", "Unknown order", detail)
}
