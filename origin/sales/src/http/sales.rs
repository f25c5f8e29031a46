//! The admin's routes of sales.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::Response;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracing::{error, info};
use weir_base::id::SaleId;

use super::switches::{running, stored, summary};
use super::{SalePath, invalid_sale, unknown_sale};
use crate::Sales;
use crate::books::{Books, BooksView};
use crate::catalogue::PublishError;
use crate::model::sale::NewSale;
use crate::status::{SaleStatus, SaleSummary};
use crate::store::{CreateError, OrderCounts};
use crate::verdicts::Verdicts;
use crate::warm::WarmError;
use weir_origin_core::access::{Caller, over_limit};
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::{JsonBody, Live, Problem, ReadQuery, page_len};

/// The most sales on one page.
const PAGE_MAX: usize = 1_000;

/// Which page of sales.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    /// `next` of an earlier page.
    after: Option<String>,
    limit: Option<usize>,
}

/// A new sale, with the path at which it is found.
type Created = (StatusCode, [(HeaderName, String); 1], Json<SaleSummary>);

/// `POST /sales`: makes a sale. Gateways do not know of it before it is warmed.
pub(super) async fn create(
    State(sales): State<Sales>,
    caller: Caller,
    JsonBody(sale): JsonBody<NewSale>,
) -> Result<Created, Problem> {
    sale.check().map_err(|error| invalid_sale(&error))?;
    caller.check_new_name("id", sale.id.as_str())?;
    let made = sales.store.create_sale(&sale, now_ms()).await;
    let made = made.map_err(|failure| match failure {
        CreateError::Sql(error) => error.into(),
        CreateError::Over(over) => over_limit(over),
    })?;
    if !made {
        let detail = "there is a sale of this id already";
        return Err(Problem::conflict("duplicate_sale", "Duplicate", detail));
    }
    info!(sale = %sale.id, total = sale.fields.total, shards = sale.shards, "sale made");
    let made = summary(&sales, stored(&sales, &sale.id).await?).await?;
    let location = [(header::LOCATION, format!("/sales/{}", sale.id))];
    Ok((StatusCode::CREATED, location, made))
}

/// `GET /sales`: those that end last first, page by page, without what Redis holds of them.
pub(super) async fn list(
    State(sales): State<Sales>,
    caller: Caller,
    ReadQuery(page): ReadQuery<Page>,
) -> Result<Json<Value>, Problem> {
    let after = page.after.as_deref().map(place).transpose()?;
    let after = after.as_ref().map(|(ends_at_ms, id)| (*ends_at_ms, id));
    let limit = page_len(page.limit, PAGE_MAX)?.unwrap_or(PAGE_MAX);
    // One more tells whether there is another page.
    let names = caller.names();
    let mut stored = sales.store.sales_of(&names, after, limit + 1).await?;
    let has_more = stored.len() > limit;
    stored.truncate(limit);
    let next = stored.last().filter(|_| has_more);
    let next = next.map(|last| format!("{}.{}", last.sale.ends_at_ms, last.sale.id));
    let switch = sales.store.global_switch().await?;
    let list: Vec<SaleSummary> = stored
        .into_iter()
        .map(|stored| SaleSummary::new(stored, switch))
        .collect();
    Ok(Json(json!({ "sales": list, "next": next })))
}

/// Where a page begins: `<ends_at_ms>.<id>` of the last sale of the page before it.
fn place(after: &str) -> Result<(u64, SaleId), Problem> {
    let parts = after.split_once('.');
    let place =
        parts.and_then(|(ends_at_ms, id)| Some((ends_at_ms.parse().ok()?, SaleId::new(id).ok()?)));
    place.ok_or_else(|| Problem::invalid_query("after: is no `next` of an earlier page"))
}

/// `GET /sales/{id}`: what SQL and Redis hold of it.
pub(super) async fn status(
    State(sales): State<Sales>,
    SalePath(id): SalePath,
) -> Result<Json<SaleStatus>, Problem> {
    let status = SaleStatus::read(&sales.store, &sales.ledger, &id).await?;
    status.map(Json).ok_or_else(unknown_sale)
}

/// The answer to a warm-up.
#[derive(Debug, Serialize)]
pub(super) struct WarmView {
    id: SaleId,
    shard_count: u32,
    /// Shards that got their stock just now; the others held it already.
    shards_filled: u32,
}

/// `POST /sales/{id}/warm`: puts its stock on Redis and tells gateways of it. Again changes
/// nothing.
pub(super) async fn warm(
    State(sales): State<Sales>,
    SalePath(id): SalePath,
) -> Result<Json<WarmView>, Problem> {
    running(&sales, &id).await?;
    let warmed = sales.warmer.warm(&id).await;
    let warmed = warmed.map_err(|error| not_warm(&id, &error))?;
    Ok(Json(WarmView {
        id,
        shard_count: warmed.shards,
        shards_filled: warmed.filled,
    }))
}

/// The answer to a rebuilding.
#[derive(Debug, Serialize)]
pub(super) struct RewarmView {
    id: SaleId,
    /// Shards that had lost their data and were rebuilt just now.
    shards_rebuilt: u32,
}

/// `POST /sales/{id}/rewarm`: rebuilds shards that lost their data. Their units follow within seconds, once the
/// reconciler is sure how many are missing. The origin also does all of this by itself.
pub(super) async fn rewarm(
    State(sales): State<Sales>,
    SalePath(id): SalePath,
) -> Result<Json<RewarmView>, Problem> {
    let stored = running(&sales, &id).await?;
    if stored.warmed_at_ms.is_none() {
        let detail = "the sale was never warmed: there is nothing to rebuild";
        return Err(Problem::conflict("not_warmed", "Not warmed", detail));
    }
    let shards: Vec<u32> = (0..stored.sale.shards).collect();
    let rebuilt = sales.rebuilder.rebuild(&stored.sale, &shards).await?;
    let shards_rebuilt = u32::try_from(rebuilt.len()).unwrap_or(u32::MAX);
    Ok(Json(RewarmView { id, shards_rebuilt }))
}

/// `GET /sales/{id}/audit`: each term of `stock + transfers + claims + orders = total`.
pub(super) async fn audit(
    State(sales): State<Sales>,
    SalePath(id): SalePath,
) -> Result<Json<BooksView>, Problem> {
    let books = Books::read(&sales.store, &sales.ledger, &id).await?;
    Ok(Json(books.ok_or_else(unknown_sale)?.view(id)))
}

/// A sale as it is this second.
#[derive(Debug, Serialize)]
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
        for shard in sales.store.counts(&id).await? {
            orders_by_state += shard.orders;
        }
        Ok(Self {
            sale: sale.ok_or_else(unknown_sale)?,
            orders_by_state,
            verdicts: sales.ledger.verdicts(&id).await?,
        })
    }
}

/// `GET /sales/{id}/live`: its status every second, as server-sent events.
pub(super) async fn live(
    State(sales): State<Sales>,
    Extension(live): Extension<Live>,
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
    let conflict = |code| {
        let detail = failure.to_string();
        Problem::conflict(code, "Not warmed", detail)
    };
    match failure {
        WarmError::UnknownSale => return unknown_sale(),
        WarmError::StockLost { .. } => return conflict("stock_lost"),
        WarmError::NotOurs { .. } => return conflict("redis_not_empty"),
        WarmError::CatalogueFull => return conflict("catalogue_full"),
        _ => {}
    }
    error!(error = %failure, sale = %id, "not warmed");
    match failure {
        WarmError::Ledger(_) | WarmError::Publish(PublishError::Ledger(_)) => Problem::redis(),
        _ => Problem::sql(),
    }
}
