//! Admin routes of switches, sale changes and blocked users.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracing::{error, info};
use utoipa::ToSchema;
use weir_base::id::{SaleId, UserId};
use weir_sale::sale::{SALES_MAX, Sale, SaleState};

use super::refusals::{
    CATALOGUE_FULL, INVALID_USER, NOT_PUBLISHED, SALE_ARCHIVED, SALE_DRAWING, SALE_STARTED,
    SALE_WARMED,
};
use super::{SalePath, invalid_sale, unknown_sale};
use crate::Sales;
use crate::jobs::catalogue::ended_after_ms;
use crate::ledger::UserList;
use crate::model::sale::{DrawRules, INSTANT_MS_MAX, NewSale, NewSaleError};
use crate::status::SaleSummary;
use crate::store::{EditRefusal, StoredSale, SwitchChange, UpdateOutcome};
use crate::warm::WarmError;
use weir_origin_core::access::{AuditDetail, TENANT_LIMIT};
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::{Problem, TypedBody, read_typed_value};

/// A sale's switch. Missing fields keep their values.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Switch {
    /// The switch: see State.
    #[schema(nullable = false)]
    state: Option<SaleState>,
    /// The degraded modes.
    #[serde(default)]
    degrade: DegradeChange,
}

/// As [`Degrade`](weir_sale::sale::Degrade).
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DegradeChange)]
struct DegradeChange {
    /// Whether to skip risk checks.
    #[schema(nullable = false)]
    skip_risk: Option<bool>,
    /// Whether users without a reservation can buy.
    #[schema(nullable = false)]
    skip_reservation: Option<bool>,
    /// Whether gateways answer only with the static page.
    #[schema(nullable = false)]
    static_page: Option<bool>,
}

/// Changes of a sale.
#[derive(Deserialize, ToSchema)]
pub(super) struct SaleChanges {
    #[serde(flatten)]
    #[schema(value_type = NewSale)]
    changes: serde_json::Map<String, Value>,
}

/// Schema of a sale's order bodies.
#[derive(Serialize, ToSchema)]
pub(super) struct PayloadSchema {
    /// The sale's id.
    #[schema(value_type = String)]
    sale: SaleId,
    /// JSON Schema of the order body; null: none.
    #[schema(required, value_type = Option<Object>)]
    payload_schema: Option<Value>,
}

/// The switch of all sales.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GlobalSwitch {
    /// Its state.
    state: SaleState,
}

/// Set a sale's switch
///
/// Opens, drains or closes a sale, or sets it to dry run (`shadow`), and sets its degraded modes. Gateways follow within
/// a second. The stricter of this switch and the global switch applies.
#[utoipa::path(
    put,
    path = "/sales/{id}/switch",
    operation_id = "setSaleSwitch",
    params(("id" = String, Path, description = "The sale's id.")),
    request_body = Switch,
    responses((status = 200, description = "The switch is set", body = SaleSummary)),
)]
pub(super) async fn set(
    State(sales): State<Sales>,
    SalePath(id): SalePath,
    TypedBody(switch): TypedBody<Switch>,
) -> Result<ChangedSale, Problem> {
    switch_to(&sales, &id, switch).await
}

/// Close a sale
///
/// Sets the switch to `closed`; degraded modes stay unchanged.
#[utoipa::path(
    post,
    path = "/sales/{id}/close",
    operation_id = "closeSale",
    params(("id" = String, Path, description = "The sale's id.")),
    responses((status = 200, description = "The sale is closed", body = SaleSummary)),
)]
pub(super) async fn close(
    State(sales): State<Sales>,
    SalePath(id): SalePath,
) -> Result<ChangedSale, Problem> {
    let switch = Switch {
        state: Some(SaleState::Closed),
        ..Switch::default()
    };
    switch_to(&sales, &id, switch).await
}

/// A changed sale, with the changed members for the audit trail.
type ChangedSale = (Extension<AuditDetail>, Json<SaleSummary>);

/// Returns the sale after a change. `members` lists the fields that the change may set.
async fn changed(
    sales: &Sales,
    before: &StoredSale,
    members: impl Fn(&StoredSale) -> Value,
) -> Result<ChangedSale, Problem> {
    let after = stored(sales, &before.sale.id).await?;
    let detail = AuditDetail::between(&members(before), &members(&after));
    Ok((Extension(detail), summary(sales, after).await?))
}

async fn switch_to(sales: &Sales, id: &SaleId, switch: Switch) -> Result<ChangedSale, Problem> {
    let before = stored(sales, id).await?;
    let change = SwitchChange {
        state: switch.state,
        skip_risk: switch.degrade.skip_risk,
        skip_reservation: switch.degrade.skip_reservation,
        static_page: switch.degrade.static_page,
    };
    if !sales.store.change_switch(id, &change).await? {
        return Err(unknown_sale());
    }
    info!(sale = %id, ?switch, "switched");
    publish(sales).await?;
    let members = |of: &StoredSale| json!({ "state": of.sale.state, "degrade": of.sale.degrade });
    changed(sales, &before, members).await
}

/// Set the global switch of all sales
///
/// The stricter of this switch and a sale's own applies.
#[utoipa::path(
    put,
    path = "/switch",
    operation_id = "setSwitch",
    request_body = GlobalSwitch,
    responses((status = 200, description = "The switch is set", body = GlobalSwitch)),
)]
pub(super) async fn set_global(
    State(sales): State<Sales>,
    TypedBody(switch): TypedBody<GlobalSwitch>,
) -> Result<(Extension<AuditDetail>, Json<GlobalSwitch>), Problem> {
    let state = sales.store.global_switch().await?;
    let detail = AuditDetail::between(&GlobalSwitch { state }, &switch);
    sales.store.set_global_switch(switch.state).await?;
    info!(?switch, "switched all sales");
    publish(&sales).await?;
    Ok((Extension(detail), Json(switch)))
}

/// Get the global switch of all sales
#[utoipa::path(
    get,
    path = "/switch",
    operation_id = "getSwitch",
    responses((status = 200, description = "The switch is set", body = GlobalSwitch)),
)]
pub(super) async fn global(State(sales): State<Sales>) -> Result<Json<GlobalSwitch>, Problem> {
    let state = sales.store.global_switch().await?;
    Ok(Json(GlobalSwitch { state }))
}

/// Publishes the catalogue at once. If that fails, SQL has the switch and the publisher retries; the operator gets an
/// error, because gateways do not apply the switch yet.
async fn publish(sales: &Sales) -> Result<(), Problem> {
    sales.publisher.publish().await.map_err(|error| {
        error!(%error, "cannot publish the catalogue");
        let detail = "stored, but not yet published to gateways: Redis or SQL did not answer";
        NOT_PUBLISHED.because(detail)
    })
}

/// Change a sale
///
/// Changes the given fields of a sale that is neither started nor warm. After the start, only `ends_at_ms` can change;
/// `listed` can change at any time.
#[utoipa::path(
    patch,
    path = "/sales/{id}",
    operation_id = "changeSale",
    params(("id" = String, Path, description = "The sale's id.")),
    request_body = SaleChanges,
    responses((status = 200, description = "The sale is changed", body = SaleSummary)),
)]
pub(super) async fn edit(
    State(sales): State<Sales>,
    SalePath(id): SalePath,
    TypedBody(SaleChanges { changes }): TypedBody<SaleChanges>,
) -> Result<ChangedSale, Problem> {
    let before = stored(&sales, &id).await?;
    apply(&sales, &before, changes).await?;
    changed(&sales, &before, |of| json!(of.fields)).await
}

async fn apply(
    sales: &Sales,
    stored_sale: &StoredSale,
    changes: serde_json::Map<String, Value>,
) -> Result<(), Problem> {
    let id = &stored_sale.sale.id;
    let has_started = stored_sale.sale.starts_at_ms <= now_ms();
    if let Some(end) = only(&changes, "ends_at_ms").filter(|_| has_started) {
        return move_end(sales, stored_sale, end).await;
    }
    if let Some(listed) = only(&changes, "listed") {
        return list(sales, id, listed).await;
    }
    let schema = sales.store.payloads().payload_schema(id).await?;
    let draw = sales.store.draws().draw(id).await?;
    let draw = draw.map(|draw| DrawRules {
        winners: draw.winners,
    });
    let edited = edited(stored_sale, schema, draw, changes)?;
    match sales.store.update_sale(&edited, now_ms()).await? {
        UpdateOutcome::Done => {}
        UpdateOutcome::Unknown => return Err(unknown_sale()),
        UpdateOutcome::Refused(refusal) => return Err(not_edited(refusal)),
    }
    info!(sale = %id, "sale changed");
    publish(sales).await
}

/// Returns the new value of this member if it is the only change.
fn only<'a>(changes: &'a serde_json::Map<String, Value>, name: &str) -> Option<&'a Value> {
    changes.get(name).filter(|_| changes.len() == 1)
}

/// Lists or unlists a sale. Allowed at any time, because it does not affect who can buy.
async fn list(sales: &Sales, id: &SaleId, listed: &Value) -> Result<(), Problem> {
    let Some(listed) = listed.as_bool() else {
        return Err(Problem::invalid_body("listed: must be true or false"));
    };
    sales.store.set_listed(id, listed).await?;
    info!(sale = %id, listed, "changed the listing of a sale");
    Ok(())
}

/// Moves the end of a started sale. A past end means now. An ended sale continues unless it is archived.
async fn move_end(sales: &Sales, stored_sale: &StoredSale, end: &Value) -> Result<(), Problem> {
    let Some(wanted_ms) = end.as_u64() else {
        let detail = "ends_at_ms: must be a time in milliseconds since the Unix epoch";
        return Err(Problem::invalid_body(detail));
    };
    if wanted_ms > INSTANT_MS_MAX {
        return Err(invalid_sale(&[NewSaleError::TooLate]));
    }
    let (sale, now_ms) = (&stored_sale.sale, now_ms());
    // The earliest possible end: now, or the current end if it has already passed.
    let soonest_ms = sale.ends_at_ms.min(now_ms).max(sale.starts_at_ms + 1);
    let ends_at_ms = wanted_ms.max(soonest_ms);
    check_room(sales, sale, ends_at_ms).await?;
    if !sales
        .store
        .stock_changes()
        .move_end(&sale.id, ends_at_ms)
        .await?
    {
        // The sale exists, so the only cause is that it is archived.
        running(sales, &sale.id).await?;
        return Err(Problem::sql());
    }
    info!(sale = %sale.id, ends_at_ms, "end of sale changed");
    publish(sales).await
}

/// Checks the catalogue's size before a sale returns to it that ended so long ago that gateways have dropped it.
async fn check_room(sales: &Sales, sale: &Sale, ends_at_ms: u64) -> Result<(), Problem> {
    let returns = sale.ends_at_ms <= ended_after_ms() && ends_at_ms > ended_after_ms();
    if returns && sales.publisher.sales().await?.len() >= SALES_MAX {
        let failure = WarmError::CatalogueFull.to_string();
        return Err(CATALOGUE_FULL.because(failure));
    }
    Ok(())
}

fn edited(
    stored: &StoredSale,
    payload_schema: Option<Value>,
    draw: Option<DrawRules>,
    changes: serde_json::Map<String, Value>,
) -> Result<NewSale, Problem> {
    let sale = &stored.sale;
    if let Some(name) = changes.get("id").filter(|name| **name != sale.id.as_str()) {
        let detail = format!("id: cannot change the id \"{name}\" of a sale");
        return Err(Problem::invalid_body(detail));
    }
    let mut whole = json!(NewSale {
        id: sale.id.clone(),
        shards: sale.shards,
        fields: stored.fields.clone(),
        draw,
        payload_schema,
    });
    if let Some(members) = whole.as_object_mut() {
        members.extend(changes);
    }
    let edited: NewSale = read_typed_value(&whole)?;
    edited.check().map_err(|error| invalid_sale(&error))?;
    Ok(edited)
}

/// Get the JSON Schema for bodies of POST /orders
#[utoipa::path(
    get,
    path = "/sales/{id}/payload-schema",
    operation_id = "getPayloadSchema",
    params(("id" = String, Path, description = "The sale's id.")),
    responses((status = 200, description = "The schema, or null", body = PayloadSchema)),
)]
pub(super) async fn payload_schema(
    State(sales): State<Sales>,
    SalePath(id): SalePath,
) -> Result<Json<PayloadSchema>, Problem> {
    stored(&sales, &id).await?;
    let payload_schema = sales.store.payloads().payload_schema(&id).await?;
    Ok(Json(PayloadSchema {
        sale: id,
        payload_schema,
    }))
}

fn not_edited(refusal: EditRefusal) -> Problem {
    let kind = match refusal {
        EditRefusal::Started => SALE_STARTED,
        EditRefusal::Warmed => SALE_WARMED,
        EditRefusal::Drawing => SALE_DRAWING,
        EditRefusal::Over(_) => TENANT_LIMIT,
    };
    kind.because(refusal.to_string())
}

/// Block a user from buying in a sale
#[utoipa::path(
    put,
    path = "/sales/{id}/blocked/{user}",
    operation_id = "blockUser",
    params(("id" = String, Path, description = "The sale's id."), ("user" = String, Path, description = "The user.")),
    responses((status = 204, description = "Blocked")),
)]
pub(super) async fn block(
    State(sales): State<Sales>,
    Path((id, user)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let (stored, user) = sale_and_user(&sales, id, user).await?;
    let (sale, users) = (&stored.sale, std::slice::from_ref(&user));
    let store = &sales.store;
    store
        .reservations()
        .block(&sale.id, &user, "operator", now_ms())
        .await?;
    let list = UserList::Blocked;
    sales.ledger.add_users(sale, list, users).await?;
    info!(sale = %stored.sale.id, "user blocked");
    Ok(StatusCode::NO_CONTENT)
}

/// Unblock a user in a sale
#[utoipa::path(
    delete,
    path = "/sales/{id}/blocked/{user}",
    operation_id = "unblockUser",
    params(("id" = String, Path, description = "The sale's id."), ("user" = String, Path, description = "The user.")),
    responses((status = 204, description = "Not blocked")),
)]
pub(super) async fn unblock(
    State(sales): State<Sales>,
    Path((id, user)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let (stored, user) = sale_and_user(&sales, id, user).await?;
    let (sale, list) = (&stored.sale, UserList::Blocked);
    sales.store.reservations().unblock(&sale.id, &user).await?;
    sales.ledger.remove_user(sale, list, &user).await?;
    info!(sale = %stored.sale.id, "user unblocked");
    Ok(StatusCode::NO_CONTENT)
}

async fn sale_and_user(
    sales: &Sales,
    id: String,
    user: String,
) -> Result<(StoredSale, UserId), Problem> {
    let id = SaleId::new(id).map_err(|_| unknown_sale())?;
    let user = UserId::new(user).map_err(|error| INVALID_USER.because(error.to_string()))?;
    Ok((running(sales, &id).await?, user))
}

/// Returns the sale in its admin form.
pub(super) async fn summary(
    sales: &Sales,
    stored: StoredSale,
) -> Result<Json<SaleSummary>, Problem> {
    let switch = sales.store.global_switch().await?;
    Ok(Json(SaleSummary::new(stored, switch)))
}

/// Returns a sale that is not archived.
pub(super) async fn running(sales: &Sales, id: &SaleId) -> Result<StoredSale, Problem> {
    let stored = stored(sales, id).await?;
    match stored.archived_at_ms {
        None => Ok(stored),
        Some(_) => {
            let detail = "the sale is archived and cannot change";
            Err(SALE_ARCHIVED.because(detail))
        }
    }
}

pub(super) async fn stored(sales: &Sales, id: &SaleId) -> Result<StoredSale, Problem> {
    sales.store.sale(id).await?.ok_or_else(unknown_sale)
}
