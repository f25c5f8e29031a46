//! The routes of garages: what the signed user drives.

use axum::Json;
use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;

use super::{Asked, read_vehicle, unknown_vehicle};
use crate::store::{Bound, GARAGE_MAX};
use weir_origin_core::http::{Problem, ReadQuery};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    #[serde(default)]
    default: bool,
}

/// `GET /fitment/garage`.
pub(super) async fn list(asked: Asked) -> Result<Response, Problem> {
    let vehicles = asked.fitment.store().garage(&asked.user).await?;
    let mut response = Json(json!({ "vehicles": vehicles })).into_response();
    // A garage is one person's: no cache on the way keeps it.
    let no_store = HeaderValue::from_static("private, no-store");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, no_store);
    Ok(response)
}

/// `PUT /fitment/garage/{vehicle}?default=`.
pub(super) async fn bind(
    asked: Asked,
    Path(vehicle): Path<String>,
    ReadQuery(wanted): ReadQuery<Wanted>,
) -> Result<StatusCode, Problem> {
    let vehicle = read_vehicle(&vehicle)?;
    bound(
        asked
            .fitment
            .store()
            .bind(&asked.user, vehicle, wanted.default)
            .await?,
    )
}

/// `DELETE /fitment/garage/{vehicle}`.
pub(super) async fn unbind(
    asked: Asked,
    Path(vehicle): Path<String>,
) -> Result<StatusCode, Problem> {
    let vehicle = read_vehicle(&vehicle)?;
    bound(asked.fitment.store().unbind(&asked.user, vehicle).await?)
}

fn bound(bound: Bound) -> Result<StatusCode, Problem> {
    match bound {
        Bound::Done => Ok(StatusCode::NO_CONTENT),
        Bound::NoVehicle => Err(unknown_vehicle()),
        Bound::Full => {
            let detail = format!("a garage has room for {GARAGE_MAX} vehicles");
            Err(Problem::conflict(
                "garage_full",
                "The garage is full",
                detail,
            ))
        }
    }
}
