//! The admin's routes: the catalogue, one thing at a time; rebuilds and verification.

use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use weir_fitment::{Offset, Spu};

use super::{invalid, read_sku, read_vehicle, unknown_sku, unknown_vehicle};
use crate::Fitment;
use crate::store::{Changed, NewVehicle, Product, Qualifiers, Vehicle};
use crate::verify::{STEP_MAX, Verified};
use weir_origin_core::http::{JsonBody, Problem, ReadQuery};

/// Vehicles of an answer.
const VEHICLES: usize = 50;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Search {
    #[serde(default)]
    make: String,
    #[serde(default)]
    model: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Behind {
    #[serde(default)]
    after: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OfProduct {
    spu: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    spu: Option<String>,
    #[serde(default)]
    after: u64,
    limit: Option<usize>,
}

/// A vehicle that a SKU fits, and for which years, engine and position.
#[derive(Serialize)]
struct Fit {
    #[serde(flatten)]
    vehicle: Vehicle,
    #[serde(skip_serializing_if = "Qualifiers::is_empty")]
    qualifiers: Qualifiers,
}

/// `GET /fitment/vehicles?make=&model=`.
pub(super) async fn search(
    fitment: Fitment,
    ReadQuery(search): ReadQuery<Search>,
) -> Result<Json<Value>, Problem> {
    let found = fitment
        .store()
        .search_vehicles(search.make.trim(), search.model.trim(), VEHICLES)
        .await?;
    Ok(Json(json!({ "vehicles": found })))
}

/// `GET /fitment/vehicles/{vehicle}`.
pub(super) async fn vehicle(
    fitment: Fitment,
    Path(vehicle): Path<String>,
) -> Result<Json<Vehicle>, Problem> {
    let found = fitment.store().vehicle(read_vehicle(&vehicle)?).await?;
    found.map(Json).ok_or_else(unknown_vehicle)
}

/// `PUT /fitment/vehicles/{vehicle}`.
pub(super) async fn put_vehicle(
    fitment: Fitment,
    Path(vehicle): Path<String>,
    JsonBody(about): JsonBody<NewVehicle>,
) -> Result<StatusCode, Problem> {
    let vehicle = read_vehicle(&vehicle)?;
    let check = about.check();
    check.map_err(|(name, reason)| invalid("invalid_vehicle", format_args!("{name}: {reason}")))?;
    fitment.store().put_vehicles(&[(vehicle, about)]).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /fitment/vehicles/{vehicle}`: it is retired.
pub(super) async fn retire(
    fitment: Fitment,
    Path(vehicle): Path<String>,
) -> Result<StatusCode, Problem> {
    match fitment
        .store()
        .retire_vehicle(read_vehicle(&vehicle)?)
        .await?
    {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(unknown_vehicle()),
    }
}

/// `GET /fitment/products/{sku}?after=`: a product, and a page of the vehicles that it fits.
pub(super) async fn product(
    fitment: Fitment,
    Path(sku): Path<String>,
    ReadQuery(behind): ReadQuery<Behind>,
) -> Result<Json<Value>, Problem> {
    let sku = read_sku(&sku)?;
    let row = fitment.store().sku(&sku).await?;
    let row = row.filter(|row| !row.is_deleted).ok_or_else(unknown_sku)?;
    let fits = row.fits.clone().unwrap_or_default();
    let page: Vec<u32> = fits
        .range(behind.after.saturating_add(1)..)
        .take(VEHICLES + 1)
        .collect();
    let mut vehicles = Vec::with_capacity(VEHICLES);
    for offset in page.iter().take(VEHICLES).copied().filter_map(Offset::new) {
        if let Some(vehicle) = fitment.store().vehicle_at(offset).await? {
            let qualifiers = fitment.store().qualifiers(&sku, offset).await?;
            vehicles.push(Fit {
                vehicle,
                qualifiers,
            });
        }
    }
    let next = page.get(VEHICLES - 1).filter(|_| page.len() > VEHICLES);
    Ok(Json(json!({
        "sku": sku,
        "spu": row.product.spu,
        "type": row.product.product_type,
        "merchant": row.product.merchant,
        "version": row.version,
        "is_known": row.fits.is_some(),
        "count": fits.len(),
        "vehicles": vehicles,
        "next": next,
    })))
}

/// `PUT /fitment/products/{sku}`. Another SPU moves what is in Redis.
pub(super) async fn put_product(
    fitment: Fitment,
    Path(sku): Path<String>,
    JsonBody(product): JsonBody<Product>,
) -> Result<StatusCode, Problem> {
    let sku = read_sku(&sku)?;
    let place = |product: &Product| fitment.place(product);
    fitment
        .store()
        .put_products(&[(sku, product)], &place)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /fitment/products/{sku}`.
pub(super) async fn delete_product(
    fitment: Fitment,
    Path(sku): Path<String>,
) -> Result<StatusCode, Problem> {
    let place = |product: &Product| fitment.place(product);
    match fitment
        .store()
        .delete_product(&read_sku(&sku)?, &place)
        .await?
    {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(unknown_sku()),
    }
}

/// `PUT /fitment/relations/{sku}/{vehicle}`, with what it holds for.
pub(super) async fn add_relation(
    fitment: Fitment,
    Path((sku, vehicle)): Path<(String, String)>,
    JsonBody(qualifiers): JsonBody<Qualifiers>,
) -> Result<StatusCode, Problem> {
    let (sku, vehicle) = (read_sku(&sku)?, read_vehicle(&vehicle)?);
    let check = qualifiers.check();
    check.map_err(|(name, reason)| {
        invalid("invalid_qualifiers", format_args!("{name}: {reason}"))
    })?;
    changed(
        fitment
            .store()
            .add_relation(&sku, vehicle, &qualifiers)
            .await?,
    )
}

/// `DELETE /fitment/relations/{sku}/{vehicle}`.
pub(super) async fn remove_relation(
    fitment: Fitment,
    Path((sku, vehicle)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let (sku, vehicle) = (read_sku(&sku)?, read_vehicle(&vehicle)?);
    changed(fitment.store().remove_relation(&sku, vehicle).await?)
}

/// 202: it is in SQL for good, and Redis follows. 204: it was so.
fn changed(changed: Changed) -> Result<StatusCode, Problem> {
    match changed {
        Changed::Done => Ok(StatusCode::ACCEPTED),
        Changed::Known => Ok(StatusCode::NO_CONTENT),
        Changed::NoSku => Err(unknown_sku()),
        Changed::NoVehicle => Err(unknown_vehicle()),
    }
}

/// `POST /fitment/rebuild?spu=`: of one product at once, of all in the background.
pub(super) async fn rebuild(
    fitment: Fitment,
    ReadQuery(of): ReadQuery<OfProduct>,
) -> Result<Json<Value>, Problem> {
    match read_spu(of.spu)? {
        Some(spu) => {
            let skus = fitment.rebuild_spu(&spu).await?;
            Ok(Json(json!({ "skus": skus })))
        }
        None => {
            fitment.begin_rebuild().await?;
            rebuild_state(fitment).await
        }
    }
}

/// `GET /fitment/rebuild`.
pub(super) async fn rebuild_state(fitment: Fitment) -> Result<Json<Value>, Problem> {
    let head = fitment.store().head().await?;
    let (waiting, since_ms) = fitment.store().waiting().await?;
    Ok(Json(json!({
        "rebuilding": head.rebuilt_up_to.is_some(),
        "rebuilt_up_to": head.rebuilt_up_to,
        "waiting": waiting,
        "waiting_since_ms": since_ms,
    })))
}

/// `POST /fitment/verify?spu=&after=&limit=`: one bounded step.
pub(super) async fn verify(
    fitment: Fitment,
    ReadQuery(step): ReadQuery<Step>,
) -> Result<Json<Verified>, Problem> {
    let limit = step.limit.unwrap_or(STEP_MAX);
    if !(1..=STEP_MAX).contains(&limit) {
        return Err(invalid(
            "invalid_query",
            format_args!("limit: must be 1 to {STEP_MAX}"),
        ));
    }
    let spu = read_spu(step.spu)?;
    Ok(Json(fitment.verify(spu.as_ref(), step.after, limit).await?))
}

fn read_spu(spu: Option<String>) -> Result<Option<Spu>, Problem> {
    let spu = spu.map(Spu::new).transpose();
    spu.map_err(|error| invalid("invalid_spu", format_args!("spu: {error}")))
}
