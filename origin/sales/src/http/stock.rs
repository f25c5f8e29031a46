//! The admin's routes of a running sale's stock.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use tracing::warn;
use weir_base::id::SaleId;
use weir_sale::idempotency::IdempotencyKey;

use super::switches::stored;
use super::{SalePath, unknown_sale};
use crate::Sales;
use crate::model::sale::TOTAL_MAX;
use crate::store::{ChangeBegun, ChangeRefusal, StoredChange};
use weir_origin_core::http::{JsonBody, Problem};

/// The request header by which an operator names a change.
const KEY_HEADER: &str = "idempotency-key";

/// The most changes in one list: the last ones.
const LIST_LEN_MAX: usize = 100;

/// By how much a stock is to change.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewChange {
    /// Units that are added; below 0: that are withdrawn, as far as nobody holds them.
    units: i64,
}

/// A change of a sale's stock.
#[derive(Debug, Serialize)]
pub(super) struct ChangeView {
    sale: SaleId,
    /// By which the operator named it.
    key: String,
    wanted: i64,
    /// `under_way` until every shard has answered, then `done`.
    state: &'static str,
    /// Units that were added, or below 0 withdrawn; null as long as that is not known.
    units: Option<i64>,
    asked_at_ms: u64,
    done_at_ms: Option<u64>,
}

impl From<StoredChange> for ChangeView {
    fn from(change: StoredChange) -> Self {
        Self {
            sale: change.sale,
            key: change.key,
            wanted: change.wanted,
            state: match change.done_at_ms {
                Some(_) => "done",
                None => "under_way",
            },
            units: change.units,
            asked_at_ms: change.asked_at_ms,
            done_at_ms: change.done_at_ms,
        }
    }
}

/// A sale's stock and how it came to be.
#[derive(Debug, Serialize)]
pub(super) struct StockView {
    id: SaleId,
    /// `initial + topped_up - withdrawn`.
    total: u64,
    initial: u64,
    topped_up: u64,
    withdrawn: u64,
    /// Units that SQL has not sold.
    remaining: u64,
    /// The last first.
    changes: Vec<ChangeView>,
}

/// `POST /sales/{id}/stock`: adds units to a running sale, or withdraws some. The same key again changes nothing, and
/// says what came of it.
pub(super) async fn change(
    State(sales): State<Sales>,
    SalePath(id): SalePath,
    headers: HeaderMap,
    JsonBody(new): JsonBody<NewChange>,
) -> Result<(StatusCode, Json<ChangeView>), Problem> {
    let key = checked(&headers, &new)?;
    let change = match sales.changer().begin(&id, &key, new.units).await? {
        ChangeBegun::New(change) | ChangeBegun::Known(change) => change,
        ChangeBegun::Refused(refusal) => return Err(refused(refusal)),
    };
    if change.wanted != new.units {
        let detail = format!("the change of this key is one of {} units", change.wanted);
        let code = "idempotency_key_reused";
        return Err(Problem::unprocessable(code, "Key used before", detail));
    }
    if change.done_at_ms.is_some() {
        return Ok((StatusCode::OK, Json(change.into())));
    }
    // It is noted: whatever fails now, jobs go on with it.
    match sales.changer().finish(&change).await {
        Ok(Some(done)) => return Ok((StatusCode::OK, Json(done.into()))),
        Ok(None) => {}
        Err(error) => warn!(sale = %id, %error, "a change of the stock goes on later"),
    }
    Ok((StatusCode::ACCEPTED, Json(change.into())))
}

/// `GET /sales/{id}/stock`: how its stock came to be, with the last changes.
pub(super) async fn list(
    State(sales): State<Sales>,
    SalePath(id): SalePath,
) -> Result<Json<StockView>, Problem> {
    let changes = sales.store.changes(&id, LIST_LEN_MAX).await?;
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

/// The change's key; all that is wrong with the request at once if something is.
fn checked(headers: &HeaderMap, new: &NewChange) -> Result<IdempotencyKey, Problem> {
    let key = match headers.get(KEY_HEADER) {
        Some(value) => IdempotencyKey::read(value.as_bytes())
            .map_err(|error| format!("Idempotency-Key: {error}")),
        None => Err("Idempotency-Key: must name the change, so that it counts once".to_owned()),
    };
    let is_right = (1..=TOTAL_MAX).contains(&new.units.unsigned_abs());
    let units = (!is_right).then(|| format!("units: must be 1 to {TOTAL_MAX}, or as many below 0"));
    match (key, units) {
        (Ok(key), None) => Ok(key),
        (key, units) => {
            let wrong: Vec<String> = key.err().into_iter().chain(units).collect();
            let detail = wrong.join("; ");
            Err(Problem::unprocessable(
                "invalid_stock_change",
                "Invalid change",
                detail,
            ))
        }
    }
}

fn refused(refusal: ChangeRefusal) -> Problem {
    let code = match refusal {
        ChangeRefusal::UnknownSale => return unknown_sale(),
        ChangeRefusal::NotWarmed => "not_warmed",
        ChangeRefusal::Ended => "sale_ended",
        ChangeRefusal::Archived => "sale_archived",
        ChangeRefusal::UnderWay => "change_under_way",
        ChangeRefusal::TooMany => "too_many_units",
        ChangeRefusal::Over(_) => "tenant_limit",
    };
    let problem = Problem::conflict(code, "Not changed", refusal.to_string());
    match refusal {
        ChangeRefusal::UnderWay => problem.retry(),
        _ => problem,
    }
}
