//! The admin's routes of switches, edits and blocked users.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::{error, info};
use weir_base::id::{SaleId, UserId};
use weir_sale::sale::{Degrade, SaleState};

use super::input::{JsonBody, SalePath, invalid_body};
use super::user_orders::sql_failed;
use crate::Origin;
use crate::clock::now_ms;
use crate::ledger::{LedgerError, UserList};
use crate::new_sale::NewSale;
use crate::problem::Problem;
use crate::status::SaleSummary;
use crate::store::{EditRefusal, StoredSale, Updated};

/// A sale's switch.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Switch {
    state: SaleState,
    #[serde(default)]
    degrade: Degrade,
}

/// The switch of all sales.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GlobalSwitch {
    state: SaleState,
}

/// `PUT /sales/{id}/switch`.
pub(super) async fn set(
    State(origin): State<Origin>,
    SalePath(id): SalePath,
    JsonBody(switch): JsonBody<Switch>,
) -> Result<Json<SaleSummary>, Problem> {
    switch_to(&origin, &id, switch).await
}

/// `POST /sales/{id}/close`: the switch to `closed`; degraded modes stay.
pub(super) async fn close(
    State(origin): State<Origin>,
    SalePath(id): SalePath,
) -> Result<Json<SaleSummary>, Problem> {
    let degrade = stored(&origin, &id).await?.sale.degrade;
    let state = SaleState::Closed;
    switch_to(&origin, &id, Switch { state, degrade }).await
}

async fn switch_to(
    origin: &Origin,
    id: &SaleId,
    switch: Switch,
) -> Result<Json<SaleSummary>, Problem> {
    let set = origin.store.set_state(id, switch.state, switch.degrade);
    if !set.await.map_err(|error| sql_failed(&error))? {
        return Err(unknown_sale());
    }
    info!(sale = %id, ?switch, "switched");
    publish(origin).await?;
    Ok(Json(stored(origin, id).await?.into()))
}

/// `PUT /switch`: of all sales. The stricter of this and a sale's own counts.
pub(super) async fn set_global(
    State(origin): State<Origin>,
    JsonBody(switch): JsonBody<GlobalSwitch>,
) -> Result<Json<Value>, Problem> {
    let set = origin.store.set_global_switch(switch.state).await;
    set.map_err(|error| sql_failed(&error))?;
    info!(?switch, "all sales switched");
    publish(&origin).await?;
    Ok(Json(json!({ "state": switch.state })))
}

/// Gateways shall hear of it now. If they cannot, SQL has the switch, and the publisher goes on
/// trying; the operator is told that it is not out yet.
async fn publish(origin: &Origin) -> Result<(), Problem> {
    origin.publisher.publish().await.map_err(|error| {
        error!(%error, "the catalogue is not published");
        let detail = "noted, but gateways do not know of it yet: Redis or SQL did not answer";
        Problem::unavailable("not_published", detail)
    })
}

/// `PATCH /sales/{id}`: changes the members that are given, before the sale starts.
pub(super) async fn edit(
    State(origin): State<Origin>,
    SalePath(id): SalePath,
    JsonBody(changes): JsonBody<serde_json::Map<String, Value>>,
) -> Result<Json<SaleSummary>, Problem> {
    let edited = edited(&stored(&origin, &id).await?, changes)?;
    let updated = origin.store.update_sale(&edited, now_ms()).await;
    match updated.map_err(|error| sql_failed(&error))? {
        Updated::Done => {}
        Updated::Unknown => return Err(unknown_sale()),
        Updated::Refused(refusal) => return Err(not_edited(refusal)),
    }
    info!(sale = %id, "sale changed");
    publish(&origin).await?;
    Ok(Json(stored(&origin, &id).await?.into()))
}

fn edited(
    stored: &StoredSale,
    changes: serde_json::Map<String, Value>,
) -> Result<NewSale, Problem> {
    let sale = &stored.sale;
    let mut whole = json!({
        "id": sale.id, "title": stored.title, "total": stored.total, "shards": sale.shards,
        "user_cap": sale.user_cap, "starts_at_ms": sale.starts_at_ms,
        "ends_at_ms": sale.ends_at_ms, "token": sale.token, "reservation": stored.reservation,
        "payment": stored.payment, "warm_before_ms": stored.warm_before_ms,
    });
    for (name, value) in changes {
        if name == "id" && value.as_str() != Some(sale.id.as_str()) {
            return Err(invalid_body("id: a sale's name is for ever".to_owned()));
        }
        whole[name] = value;
    }
    let edited: NewSale =
        serde_path_to_error::deserialize(whole).map_err(|error| invalid_body(error.to_string()))?;
    edited.check().map_err(|error| {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Problem::new(status, "invalid_sale", "Invalid sale", error.to_string())
    })?;
    Ok(edited)
}

fn not_edited(refusal: EditRefusal) -> Problem {
    let code = match refusal {
        EditRefusal::Started => "sale_started",
        EditRefusal::Warmed => "sale_warmed",
    };
    Problem::new(
        StatusCode::CONFLICT,
        code,
        "Not changed",
        refusal.to_string(),
    )
}

/// `PUT /sales/{id}/blocked/{user}`: the user may not buy.
pub(super) async fn block(
    State(origin): State<Origin>,
    Path((id, user)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let (stored, user) = sale_and_user(&origin, id, user).await?;
    let blocked = origin
        .store
        .block(&stored.sale.id, &user, "operator", now_ms());
    blocked.await.map_err(|error| sql_failed(&error))?;
    let users = std::slice::from_ref(&user);
    let added = origin
        .ledger
        .add_users(&stored.sale, UserList::Blocked, users);
    added.await.map_err(|error| redis_failed(&error))?;
    info!(sale = %stored.sale.id, "a user is blocked");
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /sales/{id}/blocked/{user}`: the user may buy again.
pub(super) async fn unblock(
    State(origin): State<Origin>,
    Path((id, user)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let (stored, user) = sale_and_user(&origin, id, user).await?;
    let unblocked = origin.store.unblock(&stored.sale.id, &user).await;
    unblocked.map_err(|error| sql_failed(&error))?;
    let removed = origin
        .ledger
        .remove_user(&stored.sale, UserList::Blocked, &user);
    removed.await.map_err(|error| redis_failed(&error))?;
    info!(sale = %stored.sale.id, "a user is no longer blocked");
    Ok(StatusCode::NO_CONTENT)
}

async fn sale_and_user(
    origin: &Origin,
    id: String,
    user: String,
) -> Result<(StoredSale, UserId), Problem> {
    let id = SaleId::new(id).map_err(|_| unknown_sale())?;
    let user = UserId::new(user).map_err(|error| {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Problem::new(status, "invalid_user", "Invalid user", error.to_string())
    })?;
    Ok((stored(origin, &id).await?, user))
}

pub(super) async fn stored(origin: &Origin, id: &SaleId) -> Result<StoredSale, Problem> {
    let stored = origin.store.sale(id).await;
    stored
        .map_err(|error| sql_failed(&error))?
        .ok_or_else(unknown_sale)
}

fn unknown_sale() -> Problem {
    Problem::unknown_sale(StatusCode::NOT_FOUND)
}

fn redis_failed(failure: &LedgerError) -> Problem {
    error!(error = %failure, "no answer from Redis");
    Problem::redis()
}
