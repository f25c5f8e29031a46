//! The routes of garages: the signed-in user's vehicles.

use axum::Json;
use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{GARAGE_FULL, GarageRequest, read_vehicle, unknown_vehicle};
use crate::store::{Bound, GARAGE_MAX, GarageVehicle};
use weir_origin_core::http::{Problem, ReadQuery};

/// Options for adding a vehicle.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct GarageVehicleQuery {
    /// Whether it becomes the default.
    #[serde(default)]
    #[param(required = false)]
    default: bool,
}

/// A user's vehicles.
#[derive(Serialize, ToSchema)]
struct Garage {
    /// The vehicles, default first.
    vehicles: Vec<GarageVehicle>,
}

/// List the signed-in user's vehicles, default first; at most 20
#[utoipa::path(
    get,
    path = "/fitment/garage",
    operation_id = "getGarage",
    responses((status = 200, description = "The vehicles", body = Garage)),
    security(("user" = [], "userSignature" = [])),
)]
pub(super) async fn list(request: GarageRequest) -> Result<Response, Problem> {
    let vehicles = request
        .fitment
        .store()
        .garages()
        .garage(&request.user)
        .await?;
    let mut response = Json(Garage { vehicles }).into_response();
    // A garage is personal, so no cache may store it.
    let no_store = HeaderValue::from_static("private, no-store");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, no_store);
    Ok(response)
}

/// Add a vehicle to the garage
///
/// Adds a vehicle to the signed-in user's garage, optionally as the default.
#[utoipa::path(
    put,
    path = "/fitment/garage/{vehicle}",
    operation_id = "addToGarage",
    params(("vehicle" = String, Path, description = "The number of the vehicle."), GarageVehicleQuery),
    responses((status = 204, description = "The vehicle is in the garage")),
    security(("user" = [], "userSignature" = [])),
)]
pub(super) async fn bind(
    request: GarageRequest,
    Path(vehicle): Path<String>,
    ReadQuery(requested): ReadQuery<GarageVehicleQuery>,
) -> Result<StatusCode, Problem> {
    let vehicle = read_vehicle(&vehicle)?;
    bound(
        request
            .fitment
            .store()
            .garages()
            .bind(&request.user, vehicle, requested.default)
            .await?,
    )
}

/// Remove a vehicle from the garage
#[utoipa::path(
    delete,
    path = "/fitment/garage/{vehicle}",
    operation_id = "removeFromGarage",
    params(("vehicle" = String, Path, description = "The number of the vehicle.")),
    responses((status = 204, description = "The vehicle is not in the garage")),
    security(("user" = [], "userSignature" = [])),
)]
pub(super) async fn unbind(
    request: GarageRequest,
    Path(vehicle): Path<String>,
) -> Result<StatusCode, Problem> {
    let vehicle = read_vehicle(&vehicle)?;
    bound(
        request
            .fitment
            .store()
            .garages()
            .unbind(&request.user, vehicle)
            .await?,
    )
}

fn bound(bound: Bound) -> Result<StatusCode, Problem> {
    match bound {
        Bound::Done => Ok(StatusCode::NO_CONTENT),
        Bound::NoVehicle => Err(unknown_vehicle()),
        Bound::Full => {
            let detail = format!("the garage is full: the maximum is {GARAGE_MAX} vehicles");
            Err(GARAGE_FULL.because(detail))
        }
    }
}
