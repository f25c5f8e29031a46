//! The routes of history switches.

use axum::Json;

use super::refusals::INVALID_SWITCHES;
use crate::History;
use crate::model::switches::SwitchSettings;
use crate::switches::{BATCH_MAX, EffectiveSwitches};
use weir_origin_core::http::{Problem, TypedBody};

/// Get this origin's effective history switches
#[utoipa::path(
    get,
    path = "/history-switches",
    operation_id = "getHistorySwitches",
    responses((status = 200, description = "The switches of this origin", body = EffectiveSwitches)),
)]
pub(super) async fn get(history: History) -> Json<EffectiveSwitches> {
    Json(history.switches())
}

/// Set cold reads, the count cache and the product batch size
///
/// All origins follow within seconds. A null or missing field uses the flags of each origin.
#[utoipa::path(
    put,
    path = "/history-switches",
    operation_id = "setHistorySwitches",
    request_body = SwitchSettings,
    responses((status = 200, description = "The switch is set at this origin", body = EffectiveSwitches)),
)]
pub(super) async fn put(
    history: History,
    TypedBody(switched): TypedBody<SwitchSettings>,
) -> Result<Json<EffectiveSwitches>, Problem> {
    let batch = switched.products_batch.unwrap_or(1);
    if !(1..=BATCH_MAX).contains(&batch) {
        let detail = format!("products_batch: must be 1 to {BATCH_MAX}");
        return Err(INVALID_SWITCHES.because(detail));
    }
    history.switch(switched).await?;
    Ok(Json(history.switches()))
}
