//! Admin routes of sales.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::Response;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use tracing::{error, info};
use utoipa::ToSchema;
use weir_base::id::SaleId;
use weir_sale::sale::Phase;

use super::refusals::{
    CATALOGUE_FULL, DUPLICATE_SALE, NOT_WARMED, OTHER_SITE, REDIS_NOT_EMPTY, STOCK_LOST,
};
use super::switches::{running, stored, summary};
use super::{SalePath, invalid_sale, unknown_sale};
use crate::Sales;
use crate::jobs::catalogue::PublishError;
use crate::model::sale::NewSale;
use crate::status::{SaleStatus, SaleSummary};
use crate::stock_balance::{BooksView, StockBalance};
use crate::store::{CreateError, Money, OrderCounts};
use crate::verdicts::Verdicts;
use crate::warm::WarmError;
use weir_origin_core::access::{Caller, over_limit};
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::{LiveAnswers, Problem, ReadQuery, TypedBody, page_len};

/// Maximum number of sales per page.
const PAGE_MAX: usize = 1_000;

/// Which page of sales.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Page {
    /// The `next` of the previous page.
    after: Option<String>,
    /// Maximum number of entries.
    #[param(minimum = 1, maximum = 1000, default = 1000)]
    limit: Option<usize>,
}

/// A page of sales.
#[derive(Serialize, ToSchema)]
#[schema(as = Sales)]
pub(super) struct SalePage {
    /// The sales of this page.
    sales: Vec<SaleSummary>,
    /// `after` of the next page; null: this is the last page.
    #[schema(required)]
    next: Option<String>,
}

/// A new sale with its path in `location`.
type CreatedSale = (StatusCode, [(HeaderName, String); 1], Json<SaleSummary>);

/// Create a sale
///
/// Gateways list it within a second, and sell when it is warm: automatically `warm_before_ms` before its start, or after
/// POST /sales/{id}/warm. A refusal lists all mistakes in `errors`.
#[utoipa::path(
    post,
    path = "/sales",
    operation_id = "createSale",
    request_body = NewSale,
    responses((status = 201, description = "The sale is created", body = SaleSummary)),
)]
pub(super) async fn create(
    State(sales): State<Sales>,
    caller: Caller,
    TypedBody(sale): TypedBody<NewSale>,
) -> Result<CreatedSale, Problem> {
    sale.check().map_err(|error| invalid_sale(&error))?;
    caller.check_new_name("id", sale.id.as_str())?;
    let created = sales.store.create_sale(&sale, now_ms()).await;
    let created = created.map_err(|failure| match failure {
        CreateError::Sql(error) => error.into(),
        CreateError::Over(over) => over_limit(over),
    })?;
    if !created {
        let detail = "a sale with this id exists";
        return Err(DUPLICATE_SALE.because(detail));
    }
    info!(sale = %sale.id, total = sale.fields.total, shards = sale.shards, "sale created");
    let created = summary(&sales, stored(&sales, &sale.id).await?).await?;
    let location = [(header::LOCATION, format!("/sales/{}", sale.id))];
    Ok((StatusCode::CREATED, location, created))
}

/// List sales, latest end first, without their state in Redis
#[utoipa::path(
    get,
    path = "/sales",
    operation_id = "listSales",
    params(Page),
    responses((status = 200, description = "A page of sales", body = SalePage)),
)]
pub(super) async fn list(
    State(sales): State<Sales>,
    caller: Caller,
    ReadQuery(page): ReadQuery<Page>,
) -> Result<Json<SalePage>, Problem> {
    let after = page.after.as_deref().map(parse_cursor).transpose()?;
    let after = after.as_ref().map(|(ends_at_ms, id)| (*ends_at_ms, id));
    let limit = page_len(page.limit, PAGE_MAX)?.unwrap_or(PAGE_MAX);
    // One more sale shows whether there is another page.
    let names = caller.names();
    let mut stored = sales
        .store
        .tenants()
        .sales_of(&names, after, limit + 1)
        .await?;
    let has_more = stored.len() > limit;
    stored.truncate(limit);
    let next = stored.last().filter(|_| has_more);
    let next = next.map(|last| format!("{}.{}", last.sale.ends_at_ms, last.sale.id));
    let switch = sales.store.global_switch().await?;
    let summary = |stored| SaleSummary::new(stored, switch);
    let sales = stored.into_iter().map(summary).collect();
    Ok(Json(SalePage { sales, next }))
}

/// Parses a cursor: `<ends_at_ms>.<id>` of the previous page's last sale.
fn parse_cursor(after: &str) -> Result<(u64, SaleId), Problem> {
    let parts = after.split_once('.');
    let place =
        parts.and_then(|(ends_at_ms, id)| Some((ends_at_ms.parse().ok()?, SaleId::new(id).ok()?)));
    place.ok_or_else(|| Problem::invalid_query("after: must be the `next` of an earlier page"))
}

/// Get a sale's status in SQL and Redis, including the stock of each shard
#[utoipa::path(
    get,
    path = "/sales/{id}",
    operation_id = "getSale",
    params(("id" = String, Path, description = "The sale's id.")),
    responses((status = 200, description = "The sale's status", body = SaleStatus)),
)]
pub(super) async fn status(
    State(sales): State<Sales>,
    SalePath(id): SalePath,
) -> Result<Json<SaleStatus>, Problem> {
    let status = SaleStatus::read(&sales.store, &sales.ledger, &id).await?;
    status.map(Json).ok_or_else(unknown_sale)
}

/// The answer to a warm-up.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Warmed)]
pub(super) struct WarmView {
    /// Its id.
    #[schema(value_type = String)]
    id: SaleId,
    /// Number of stock shards in Redis.
    shard_count: u32,
    /// Shards loaded just now; the others already had their stock.
    shards_filled: u32,
}

/// Time until gateways have read a new catalogue: a poll interval of 250 ms, and some time for the reply.
const GATEWAYS_LEARN: Duration = Duration::from_millis(300);

/// Load a sale's stock into Redis
///
/// Loads the stock and publishes the sale to gateways. Repeating it changes nothing. If the sale has started, the answer
/// comes when gateways sell, at their default poll interval.
#[utoipa::path(
    post,
    path = "/sales/{id}/warm",
    operation_id = "warmSale",
    params(("id" = String, Path, description = "The sale's id.")),
    responses((status = 200, description = "The sale is warm", body = WarmView)),
)]
pub(super) async fn warm(
    State(sales): State<Sales>,
    SalePath(id): SalePath,
) -> Result<Json<WarmView>, Problem> {
    running(&sales, &id).await?;
    let warmed = sales.warmer.warm(&id).await;
    let warmed = warmed.map_err(|error| not_warm(&id, &error))?;
    let sale = stored(&sales, &id).await?.sale;
    if sale.phase(now_ms()) == Phase::Running {
        tokio::time::sleep(GATEWAYS_LEARN).await;
    }
    Ok(Json(WarmView {
        id,
        shard_count: warmed.shards,
        shards_filled: warmed.filled,
    }))
}

/// The answer to a rebuild.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Rebuilt)]
pub(super) struct RebuiltView {
    /// Its id.
    #[schema(value_type = String)]
    id: SaleId,
    /// Shards rebuilt just now.
    shards_rebuilt: u32,
}

/// Rebuild shards that have lost their data
///
/// The origin also does this automatically.
#[utoipa::path(
    post,
    path = "/sales/{id}/rebuild",
    operation_id = "rebuildSale",
    params(("id" = String, Path, description = "The sale's id.")),
    responses((status = 200, description = "The shards are rebuilt", body = RebuiltView)),
)]
pub(super) async fn rebuild(
    State(sales): State<Sales>,
    SalePath(id): SalePath,
) -> Result<Json<RebuiltView>, Problem> {
    let stored = running(&sales, &id).await?;
    if stored.warmed_at_ms.is_none() {
        let detail = "the sale was never warmed: there is nothing to rebuild";
        return Err(NOT_WARMED.because(detail));
    }
    let shards: Vec<u32> = stored.sale.shard_numbers().collect();
    let rebuilt = sales.rebuilder.rebuild(&stored.sale, &shards).await?;
    let shards_rebuilt = u32::try_from(rebuilt.len()).unwrap_or(u32::MAX);
    Ok(Json(RebuiltView { id, shards_rebuilt }))
}

/// Run the balance check: stock + transfers + claims + orders = total
#[utoipa::path(
    get,
    path = "/sales/{id}/audit",
    operation_id = "auditSale",
    params(("id" = String, Path, description = "The sale's id.")),
    responses((status = 200, description = "The balance", body = BooksView)),
)]
pub(super) async fn audit(
    State(sales): State<Sales>,
    SalePath(id): SalePath,
) -> Result<Json<BooksView>, Problem> {
    let balance = StockBalance::read(&sales.store, &sales.ledger, &id).await?;
    Ok(Json(balance.ok_or_else(unknown_sale)?.view(id)))
}

/// Get a sale's revenue by order status, and how many claims became orders
///
/// Reads all orders of the sale: do not poll it every second.
#[utoipa::path(
    get,
    path = "/sales/{id}/money",
    operation_id = "getSaleMoney",
    params(("id" = String, Path, description = "The sale's id.")),
    responses((status = 200, description = "The sums", body = Money)),
)]
pub(super) async fn money(
    State(sales): State<Sales>,
    SalePath(id): SalePath,
) -> Result<Json<Money>, Problem> {
    stored(&sales, &id).await?;
    Ok(Json(sales.store.money(&id).await?))
}

/// Live status of a sale.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LiveSale)]
struct LiveView {
    sale: SaleStatus,
    /// Over all shards.
    orders_by_state: OrderCounts,
    verdicts: Verdicts,
}

impl LiveView {
    async fn read(sales: Sales, id: SaleId) -> Result<Self, Problem> {
        let sale = SaleStatus::read(&sales.store, &sales.ledger, &id).await?;
        let mut orders_by_state = OrderCounts::default();
        for shard in sales.store.counters().counts(&id).await? {
            orders_by_state += shard.orders;
        }
        Ok(Self {
            sale: sale.ok_or_else(unknown_sale)?,
            orders_by_state,
            verdicts: sales.ledger.verdicts(&id).await?,
        })
    }
}

/// Get a sale's live status and orders, once or as server-sent events
///
/// One JSON document. With `accept: text/event-stream`, one event per second; the stream ends after a minute, and
/// browsers reconnect.
#[utoipa::path(
    get,
    path = "/sales/{id}/live",
    operation_id = "watchSale",
    params(("id" = String, Path, description = "The sale's id.")),
    responses(
        (status = 200, description = "`LiveSale`, or events: `LiveSale` each, or `problem`", content((LiveView = "application/json"), (LiveView = "text/event-stream"))),
    ),
)]
pub(super) async fn live(
    State(sales): State<Sales>,
    Extension(live): Extension<LiveAnswers>,
    caller: Caller,
    SalePath(id): SalePath,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    stored(&sales, &id).await?;
    let read = move || LiveView::read(sales.clone(), id.clone());
    let of = caller.tenant().map(|tenant| tenant.name.as_str());
    live.answer(of, &headers, read).await
}

fn not_warm(id: &SaleId, failure: &WarmError) -> Problem {
    let refusal = match failure {
        WarmError::UnknownSale => return unknown_sale(),
        WarmError::StockLost { .. } => Some(STOCK_LOST),
        WarmError::NotOurs { .. } => Some(REDIS_NOT_EMPTY),
        WarmError::CatalogueFull => Some(CATALOGUE_FULL),
        WarmError::Elsewhere => Some(OTHER_SITE),
        _ => None,
    };
    if let Some(refusal) = refusal {
        return refusal.because(failure.to_string());
    }
    error!(error = %failure, sale = %id, "cannot warm the sale");
    match failure {
        WarmError::Ledger(_) | WarmError::Publish(PublishError::Ledger(_)) => Problem::redis(),
        _ => Problem::sql(),
    }
}
