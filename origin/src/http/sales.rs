//! The admin's routes of sales.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use serde::Serialize;
use serde_json::{Value, json};
use tracing::{error, info};
use weir_base::id::SaleId;

use super::input::{JsonBody, SalePath};
use super::switches::stored;
use super::user_orders::sql_failed;
use crate::Origin;
use crate::books::{Books, BooksView};
use crate::catalogue::PublishError;
use crate::clock::now_ms;
use crate::new_sale::NewSale;
use crate::problem::Problem;
use crate::rebuild::RebuildError;
use crate::status::{SaleStatus, SaleSummary, StatusError};
use crate::warm::WarmError;

/// The most sales in one list: those that end last.
const LIST_LEN_MAX: usize = 1_000;

/// A new sale, with the path at which it is found.
type Created = (StatusCode, [(HeaderName, String); 1], Json<SaleSummary>);

/// `POST /sales`: makes a sale. Gateways do not know of it before it is warmed.
pub(super) async fn create(
    State(origin): State<Origin>,
    JsonBody(sale): JsonBody<NewSale>,
) -> Result<Created, Problem> {
    sale.check().map_err(|error| {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Problem::new(status, "invalid_sale", "Invalid sale", error.to_string())
    })?;
    let made = origin.store.create_sale(&sale, now_ms()).await;
    if !made.map_err(|error| sql_failed(&error))? {
        let detail = "there is a sale of this id already";
        let status = StatusCode::CONFLICT;
        return Err(Problem::new(status, "duplicate_sale", "Duplicate", detail));
    }
    info!(sale = %sale.id, total = sale.total, shards = sale.shards, "sale made");
    let stored = stored(&origin, &sale.id).await?;
    let location = [(header::LOCATION, format!("/sales/{}", sale.id))];
    Ok((StatusCode::CREATED, location, Json(stored.into())))
}

/// `GET /sales`: those that end last, without what Redis holds of them.
pub(super) async fn list(State(origin): State<Origin>) -> Result<Json<Value>, Problem> {
    let sales = origin.store.sales(LIST_LEN_MAX).await;
    let sales = sales.map_err(|error| sql_failed(&error))?;
    let sales: Vec<SaleSummary> = sales.into_iter().map(Into::into).collect();
    Ok(Json(json!({ "sales": sales })))
}

/// `GET /sales/{id}`: what SQL and Redis hold of it.
pub(super) async fn status(
    State(origin): State<Origin>,
    SalePath(id): SalePath,
) -> Result<Json<SaleStatus>, Problem> {
    let status = origin.status(&id).await;
    let status = status.map_err(|failure| no_status(&id, &failure))?;
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
    State(origin): State<Origin>,
    SalePath(id): SalePath,
) -> Result<Json<WarmView>, Problem> {
    let warmed = origin.warmer.warm(&id).await;
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

/// `POST /sales/{id}/rewarm`: rebuilds the shards that have lost their data. Their units follow within
/// some seconds, as soon as it is sure how many are missing. The origin does all of it by itself, too.
pub(super) async fn rewarm(
    State(origin): State<Origin>,
    SalePath(id): SalePath,
) -> Result<Json<RewarmView>, Problem> {
    let stored = stored(&origin, &id).await?;
    if stored.warmed_at_ms.is_none() {
        let detail = "the sale was never warmed: there is nothing to rebuild";
        let status = StatusCode::CONFLICT;
        return Err(Problem::new(status, "not_warmed", "Not warmed", detail));
    }
    let mut shards_rebuilt = 0;
    for shard in 0..stored.sale.shards {
        let rebuilt = origin.rebuilder().rebuild(&stored.sale, shard).await;
        let rebuilt = rebuilt.map_err(|error| {
            error!(%error, sale = %id, shard, "not rebuilt");
            match error {
                RebuildError::Store(_) => Problem::sql(),
                RebuildError::Ledger(_) => Problem::redis(),
            }
        })?;
        shards_rebuilt += u32::from(rebuilt);
    }
    Ok(Json(RewarmView { id, shards_rebuilt }))
}

/// `GET /sales/{id}/audit`: each term of `stock + transfers + claims + orders = total`.
pub(super) async fn audit(
    State(origin): State<Origin>,
    SalePath(id): SalePath,
) -> Result<Json<BooksView>, Problem> {
    let books = Books::read(&*origin.store, &origin.ledger, &id).await;
    let books = books.map_err(|failure| no_status(&id, &failure))?;
    Ok(Json(books.ok_or_else(unknown_sale)?.view(id)))
}

fn no_status(id: &SaleId, failure: &StatusError) -> Problem {
    error!(error = %failure, sale = %id, "no status");
    match failure {
        StatusError::Store(_) => Problem::sql(),
        StatusError::Ledger(_) => Problem::redis(),
    }
}

fn not_warm(id: &SaleId, failure: &WarmError) -> Problem {
    let conflict = |code| {
        let detail = failure.to_string();
        Problem::new(StatusCode::CONFLICT, code, "Not warmed", detail)
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

fn unknown_sale() -> Problem {
    Problem::unknown_sale(StatusCode::NOT_FOUND)
}
