//! Admin routes of a running sale's stock.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use tracing::warn;
use utoipa::ToSchema;
use weir_base::id::SaleId;
use weir_sale::idempotency::IdempotencyKey;

use super::refusals::{
    CHANGE_UNDER_WAY, IDEMPOTENCY_KEY_REUSED, INVALID_STOCK_CHANGE, NOT_WARMED, OTHER_SITE,
    SALE_ARCHIVED, SALE_ENDED, TOO_MANY_UNITS,
};
use super::switches::stored;
use super::{SalePath, unknown_sale};
use crate::Sales;
use crate::model::sale::TOTAL_MAX;
use crate::store::{ChangeBegun, ChangeRefusal, StoredChange};
use weir_origin_core::access::{AuditDetail, TENANT_LIMIT};
use weir_origin_core::http::{Problem, TypedBody};

/// Header with the idempotency key of a change.
const KEY_HEADER: &str = "idempotency-key";

/// Maximum number of changes in a list; the newest ones.
const LIST_LEN_MAX: usize = 100;

/// A stock change.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewStockChange)]
pub(super) struct NewChange {
    /// Units to add; below 0: free units to withdraw.
    units: i64,
}

/// A stock change of a sale.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StockChange)]
pub(super) struct ChangeView {
    /// The sale's id.
    #[schema(value_type = String)]
    sale: SaleId,
    /// Idempotency key of the change.
    key: String,
    /// Units to add; below 0: to withdraw.
    requested: i64,
    /// `under_way` until every shard has answered, then `done`.
    state: ChangeState,
    /// Units actually added, or below 0 withdrawn; null: not known yet.
    #[schema(required)]
    units: Option<i64>,
    /// Request time, in milliseconds since the Unix epoch.
    asked_at_ms: u64,
    /// Completion time, in milliseconds since the Unix epoch.
    #[schema(required)]
    done_at_ms: Option<u64>,
}

/// Whether every shard has answered.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StockChangeState)]
#[serde(rename_all = "snake_case")]
enum ChangeState {
    UnderWay,
    Done,
}

impl From<StoredChange> for ChangeView {
    fn from(change: StoredChange) -> Self {
        Self {
            sale: change.sale,
            key: change.key,
            requested: change.requested,
            state: match change.done_at_ms {
                Some(_) => ChangeState::Done,
                None => ChangeState::UnderWay,
            },
            units: change.units,
            asked_at_ms: change.asked_at_ms,
            done_at_ms: change.done_at_ms,
        }
    }
}

/// A sale's stock and its changes.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Stock)]
pub(super) struct StockView {
    /// The sale's id.
    #[schema(value_type = String)]
    id: SaleId,
    /// `initial + topped_up - withdrawn`.
    total: u64,
    /// Initial units.
    initial: u64,
    /// Units added.
    topped_up: u64,
    /// Units withdrawn.
    withdrawn: u64,
    /// Units not sold according to SQL.
    remaining: u64,
    /// Newest first.
    changes: Vec<ChangeView>,
}

/// Add units to a running sale, or withdraw free ones
///
/// Each Idempotency-Key is applied exactly once, even after a crash.
#[utoipa::path(
    post,
    path = "/sales/{id}/stock",
    operation_id = "changeStock",
    params(
        ("id" = String, Path, description = "The name of the sale."),
        ("Idempotency-Key" = String, Header, description = "Idempotency key of the change: repeating the key returns the earlier outcome.", max_length = 128),
    ),
    request_body = NewChange,
    responses(
        (status = 200, description = "Done", body = ChangeView),
        (status = 202, description = "The change is stored, but not every shard has answered: the origin retries", body = ChangeView),
    ),
)]
pub(super) async fn change(
    State(sales): State<Sales>,
    SalePath(id): SalePath,
    headers: HeaderMap,
    TypedBody(new): TypedBody<NewChange>,
) -> Result<(StatusCode, Extension<AuditDetail>, Json<ChangeView>), Problem> {
    let detail = Extension(AuditDetail(format!("units: {:+}", new.units)));
    let key = checked(&headers, &new)?;
    let change = match sales.changer().begin(&id, &key, new.units).await? {
        ChangeBegun::New(change) | ChangeBegun::Known(change) => change,
        ChangeBegun::Refused(refusal) => return Err(refused(refusal)),
    };
    if change.requested != new.units {
        let detail = format!(
            "this Idempotency-Key was used for a change of {} units",
            change.requested
        );
        return Err(IDEMPOTENCY_KEY_REUSED.because(detail));
    }
    if change.done_at_ms.is_some() {
        return Ok((StatusCode::OK, detail, Json(change.into())));
    }
    // The change is stored. If this fails, jobs continue with it.
    match sales.changer().finish(&change).await {
        Ok(Some(done)) => return Ok((StatusCode::OK, detail, Json(done.into()))),
        Ok(None) => {}
        Err(error) => warn!(sale = %id, %error, "stock change continues in the background"),
    }
    Ok((StatusCode::ACCEPTED, detail, Json(change.into())))
}

/// Get a sale's stock, with its last 100 changes
#[utoipa::path(
    get,
    path = "/sales/{id}/stock",
    operation_id = "getStock",
    params(("id" = String, Path, description = "The name of the sale.")),
    responses((status = 200, description = "The sale's stock", body = StockView)),
)]
pub(super) async fn list(
    State(sales): State<Sales>,
    SalePath(id): SalePath,
) -> Result<Json<StockView>, Problem> {
    let changes = sales
        .store
        .stock_changes()
        .changes(&id, LIST_LEN_MAX)
        .await?;
    let stored = stored(&sales, &id).await?;
    let (topped_up, withdrawn) = (stored.topped_up, stored.withdrawn);
    Ok(Json(StockView {
        id,
        total: stored.fields.total,
        initial: (stored.fields.total + withdrawn).saturating_sub(topped_up),
        topped_up,
        withdrawn,
        remaining: stored.remaining,
        changes: changes.into_iter().map(ChangeView::from).collect(),
    }))
}

/// Returns the idempotency key. Reports all errors of the request together.
fn checked(headers: &HeaderMap, new: &NewChange) -> Result<IdempotencyKey, Problem> {
    let key = match headers.get(KEY_HEADER) {
        Some(value) => IdempotencyKey::read(value.as_bytes())
            .map_err(|error| format!("Idempotency-Key: {error}")),
        None => Err("Idempotency-Key: is required".to_owned()),
    };
    let is_right = (1..=TOTAL_MAX).contains(&new.units.unsigned_abs());
    let units =
        (!is_right).then(|| format!("units: must be 1 to {TOTAL_MAX}, or -{TOTAL_MAX} to -1"));
    match (key, units) {
        (Ok(key), None) => Ok(key),
        (key, units) => {
            let wrong: Vec<String> = key.err().into_iter().chain(units).collect();
            let detail = wrong.join("; ");
            Err(INVALID_STOCK_CHANGE.because(detail))
        }
    }
}

fn refused(refusal: ChangeRefusal) -> Problem {
    let kind = match refusal {
        ChangeRefusal::UnknownSale => return unknown_sale(),
        ChangeRefusal::NotWarmed => NOT_WARMED,
        ChangeRefusal::Ended => SALE_ENDED,
        ChangeRefusal::Archived => SALE_ARCHIVED,
        ChangeRefusal::UnderWay => CHANGE_UNDER_WAY,
        ChangeRefusal::OtherSite => OTHER_SITE,
        ChangeRefusal::TooMany => TOO_MANY_UNITS,
        ChangeRefusal::Over(_) => TENANT_LIMIT,
    };
    let problem = kind.because(refusal.to_string());
    match refusal {
        ChangeRefusal::UnderWay => problem.retry(),
        _ => problem,
    }
}
