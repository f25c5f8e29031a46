//! Admin routes of fitment: vehicles, products and relations one at a time, rebuilds and verification.

use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_fitment::{Merchant, Offset, ProductType, Sku, Spu};

use super::{
    INVALID_QUALIFIERS, INVALID_SPU, INVALID_STEP, INVALID_VEHICLE, SkuParam, VehicleParam,
    invalid, read_sku, read_vehicle, unknown_sku, unknown_vehicle,
};
use crate::Fitment;
use crate::store::{NewVehicle, Product, Qualifiers, SkuChangeOutcome, Vehicle};
use crate::verify::{STEP_MAX, VerifySummary};
use weir_origin_core::http::{Problem, ReadQuery, TypedBody};

/// Maximum number of vehicles in an answer.
const VEHICLES: usize = 50;

/// Selects vehicles.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Search {
    /// Substring of the make.
    #[serde(default)]
    #[param(required = false)]
    make: String,
    /// Substring of the model.
    #[serde(default)]
    #[param(required = false)]
    model: String,
}

/// Selects a page.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ProductPageQuery {
    /// The `next` of the previous page.
    #[serde(default)]
    #[param(required = false)]
    after: u32,
}

/// Selects what to rebuild.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RebuildQuery {
    /// Only this product; the answer then has the number of `skus` written.
    spu: Option<String>,
}

/// Selects what to compare.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Step {
    /// Only this product.
    spu: Option<String>,
    /// The `next` of the previous step.
    #[serde(default)]
    #[param(required = false)]
    after: u64,
    /// Number of SKUs.
    #[param(minimum = 1, maximum = 200, default = 200)]
    limit: Option<usize>,
}

/// Matching vehicles.
#[derive(Serialize, ToSchema)]
#[schema(as = Vehicles)]
pub(super) struct VehiclesView {
    /// The vehicles.
    vehicles: Vec<Vehicle>,
}

/// A vehicle that a SKU fits, with its qualifiers.
#[derive(Serialize, ToSchema)]
#[schema(as = FittedVehicle)]
struct FittingVehicle {
    #[serde(flatten)]
    vehicle: Vehicle,
    #[serde(skip_serializing_if = "Qualifiers::is_empty")]
    #[schema(required = false)]
    qualifiers: Qualifiers,
}

/// A product and the vehicles that it fits.
#[derive(Serialize, ToSchema)]
pub(super) struct FittedProduct {
    /// The SKU.
    #[schema(value_type = String)]
    sku: Sku,
    /// The product that the SKU belongs to.
    #[schema(value_type = String)]
    spu: Spu,
    /// The type of product, which selects its Redis.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    product_type: ProductType,
    /// The merchant.
    #[schema(value_type = String)]
    merchant: Merchant,
    /// Increases with each change.
    version: u64,
    /// Whether its fitment is known.
    is_known: bool,
    /// Number of vehicles that it fits.
    count: u64,
    /// The vehicles of this page.
    vehicles: Vec<FittingVehicle>,
    /// `after` of the next page; null: this is the last page.
    #[schema(required)]
    next: Option<u32>,
}

/// State of a full rebuild, or the result for one product.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = FitmentRebuild)]
pub(super) enum RebuildView {
    Whole(WholeRebuild),
    Product(ProductRebuild),
}

/// State of a full rebuild.
#[derive(Serialize, ToSchema)]
#[schema(as = FitmentWholeRebuild)]
pub(super) struct WholeRebuild {
    /// Whether it is running.
    rebuilding: bool,
    /// The last completed SKU; null: no rebuild is running.
    #[schema(required)]
    rebuilt_up_to: Option<u64>,
    /// Number of changes waiting for Redis.
    waiting: u64,
    /// Time of the oldest waiting change, in milliseconds since the Unix epoch; null: none.
    #[schema(required)]
    waiting_since_ms: Option<u64>,
}

/// Result of the rebuild of one product.
#[derive(Serialize, ToSchema)]
#[schema(as = FitmentProductRebuild)]
pub(super) struct ProductRebuild {
    /// Number of SKUs written.
    skus: usize,
}

/// Search vehicles by make and model
///
/// Returns the first 50 vehicles whose make and model contain these texts.
#[utoipa::path(
    get,
    path = "/fitment/vehicles",
    operation_id = "searchVehicles",
    params(Search),
    responses((status = 200, description = "The vehicles", body = VehiclesView)),
)]
pub(super) async fn search(
    fitment: Fitment,
    ReadQuery(search): ReadQuery<Search>,
) -> Result<Json<VehiclesView>, Problem> {
    let found = fitment
        .store()
        .search_vehicles(search.make.trim(), search.model.trim(), VEHICLES)
        .await?;
    Ok(Json(VehiclesView { vehicles: found }))
}

/// Get a vehicle by its number
#[utoipa::path(
    get,
    path = "/fitment/vehicles/{vehicle}",
    operation_id = "getVehicle",
    params(VehicleParam),
    responses((status = 200, description = "The vehicle", body = Vehicle)),
)]
pub(super) async fn vehicle(
    fitment: Fitment,
    Path(vehicle): Path<String>,
) -> Result<Json<Vehicle>, Problem> {
    let found = fitment.store().vehicle(read_vehicle(&vehicle)?).await?;
    found.map(Json).ok_or_else(unknown_vehicle)
}

/// Create or change a vehicle
///
/// Its offset is never reused for another vehicle.
#[utoipa::path(
    put,
    path = "/fitment/vehicles/{vehicle}",
    operation_id = "setVehicle",
    params(VehicleParam),
    request_body = NewVehicle,
    responses((status = 204, description = "Stored")),
)]
pub(super) async fn put_vehicle(
    fitment: Fitment,
    Path(vehicle): Path<String>,
    TypedBody(about): TypedBody<NewVehicle>,
) -> Result<StatusCode, Problem> {
    let vehicle = read_vehicle(&vehicle)?;
    let check = about.check();
    check.map_err(|(name, reason)| invalid(INVALID_VEHICLE, format_args!("{name}: {reason}")))?;
    fitment.store().put_vehicles(&[(vehicle, about)]).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Retire a vehicle
///
/// Its fitment becomes unknown, and its offset is never reused.
#[utoipa::path(
    delete,
    path = "/fitment/vehicles/{vehicle}",
    operation_id = "retireVehicle",
    params(VehicleParam),
    responses((status = 204, description = "The vehicle is retired")),
)]
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

/// Get a product and a page of the vehicles that it fits
#[utoipa::path(
    get,
    path = "/fitment/products/{sku}",
    operation_id = "getFittedProduct",
    params(SkuParam, ProductPageQuery),
    responses((status = 200, description = "The product", body = FittedProduct)),
)]
pub(super) async fn product(
    fitment: Fitment,
    Path(sku): Path<String>,
    ReadQuery(behind): ReadQuery<ProductPageQuery>,
) -> Result<Json<FittedProduct>, Problem> {
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
            vehicles.push(FittingVehicle {
                vehicle,
                qualifiers,
            });
        }
    }
    let next = page.get(VEHICLES - 1).filter(|_| page.len() > VEHICLES);
    Ok(Json(FittedProduct {
        sku,
        spu: row.product.spu,
        product_type: row.product.product_type,
        merchant: row.product.merchant,
        version: row.version,
        is_known: row.fits.is_some(),
        count: fits.len(),
        vehicles,
        next: next.copied(),
    }))
}

/// Create or change a product
///
/// A new SPU moves it in Redis without wrong answers in between.
#[utoipa::path(
    put,
    path = "/fitment/products/{sku}",
    operation_id = "setFittedProduct",
    params(SkuParam),
    request_body = Product,
    responses((status = 204, description = "Stored")),
)]
pub(super) async fn put_product(
    fitment: Fitment,
    Path(sku): Path<String>,
    TypedBody(product): TypedBody<Product>,
) -> Result<StatusCode, Problem> {
    let sku = read_sku(&sku)?;
    let place = |product: &Product| fitment.place(product);
    fitment
        .store()
        .put_products(&[(sku, product)], &place)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Delete a product
///
/// Its fitment becomes unknown.
#[utoipa::path(
    delete,
    path = "/fitment/products/{sku}",
    operation_id = "deleteFittedProduct",
    params(SkuParam),
    responses((status = 204, description = "Deleted")),
)]
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

/// Add a relation: a part fits a vehicle
///
/// The change is in SQL immediately, in Redis shortly afterwards.
#[utoipa::path(
    put,
    path = "/fitment/relations/{sku}/{vehicle}",
    operation_id = "addFit",
    params(SkuParam, VehicleParam),
    request_body = Qualifiers,
    responses((status = 202, description = "Stored in SQL; Redis is updated later"), (status = 204, description = "The relation existed already")),
)]
pub(super) async fn add_relation(
    fitment: Fitment,
    Path((sku, vehicle)): Path<(String, String)>,
    TypedBody(qualifiers): TypedBody<Qualifiers>,
) -> Result<StatusCode, Problem> {
    let (sku, vehicle) = (read_sku(&sku)?, read_vehicle(&vehicle)?);
    let check = qualifiers.check();
    check
        .map_err(|(name, reason)| invalid(INVALID_QUALIFIERS, format_args!("{name}: {reason}")))?;
    changed(
        fitment
            .store()
            .add_relation(&sku, vehicle, &qualifiers)
            .await?,
    )
}

/// Remove a relation: a part no longer fits a vehicle
///
/// The change is in SQL immediately, in Redis shortly afterwards.
#[utoipa::path(
    delete,
    path = "/fitment/relations/{sku}/{vehicle}",
    operation_id = "removeFit",
    params(SkuParam, VehicleParam),
    responses((status = 202, description = "Stored in SQL; Redis is updated later"), (status = 204, description = "There was no such relation")),
)]
pub(super) async fn remove_relation(
    fitment: Fitment,
    Path((sku, vehicle)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let (sku, vehicle) = (read_sku(&sku)?, read_vehicle(&vehicle)?);
    changed(fitment.store().remove_relation(&sku, vehicle).await?)
}

/// 202: stored in SQL; Redis follows. 204: nothing changed.
fn changed(changed: SkuChangeOutcome) -> Result<StatusCode, Problem> {
    match changed {
        SkuChangeOutcome::Done => Ok(StatusCode::ACCEPTED),
        SkuChangeOutcome::Known => Ok(StatusCode::NO_CONTENT),
        SkuChangeOutcome::NoSku => Err(unknown_sku()),
        SkuChangeOutcome::NoVehicle => Err(unknown_vehicle()),
    }
}

/// Rebuild all fitment in Redis in the background, or one product immediately
#[utoipa::path(
    post,
    path = "/fitment/rebuild",
    operation_id = "rebuildFitment",
    params(RebuildQuery),
    responses((status = 200, description = "The rebuild is started, or done for a product", body = RebuildView)),
)]
pub(super) async fn rebuild(
    fitment: Fitment,
    ReadQuery(of): ReadQuery<RebuildQuery>,
) -> Result<Json<RebuildView>, Problem> {
    match read_spu(of.spu)? {
        Some(spu) => {
            let skus = fitment.rebuild_spu(&spu).await?;
            Ok(Json(RebuildView::Product(ProductRebuild { skus })))
        }
        None => {
            fitment.begin_rebuild().await?;
            let Json(state) = rebuild_state(fitment).await?;
            Ok(Json(RebuildView::Whole(state)))
        }
    }
}

/// Get the state of the rebuild, and the changes waiting for Redis
#[utoipa::path(
    get,
    path = "/fitment/rebuild",
    operation_id = "getFitmentRebuild",
    responses((status = 200, description = "The state of the rebuild", body = WholeRebuild)),
)]
pub(super) async fn rebuild_state(fitment: Fitment) -> Result<Json<WholeRebuild>, Problem> {
    let head = fitment.store().head().await?;
    let (waiting, since_ms) = fitment.store().changes().waiting().await?;
    Ok(Json(WholeRebuild {
        rebuilding: head.rebuilt_up_to.is_some(),
        rebuilt_up_to: head.rebuilt_up_to,
        waiting,
        waiting_since_ms: since_ms,
    }))
}

/// Compare some SKUs with Redis and repair what differs
///
/// One bounded step. Continue with `next` as `after`.
#[utoipa::path(
    post,
    path = "/fitment/verify",
    operation_id = "verifyFitment",
    params(Step),
    responses((status = 200, description = "The result", body = VerifySummary)),
)]
pub(super) async fn verify(
    fitment: Fitment,
    ReadQuery(step): ReadQuery<Step>,
) -> Result<Json<VerifySummary>, Problem> {
    let limit = step.limit.unwrap_or(STEP_MAX);
    if !(1..=STEP_MAX).contains(&limit) {
        return Err(invalid(
            INVALID_STEP,
            format_args!("limit: must be 1 to {STEP_MAX}"),
        ));
    }
    let spu = read_spu(step.spu)?;
    Ok(Json(fitment.verify(spu.as_ref(), step.after, limit).await?))
}

fn read_spu(spu: Option<String>) -> Result<Option<Spu>, Problem> {
    let spu = spu.map(Spu::new).transpose();
    spu.map_err(|error| invalid(INVALID_SPU, format_args!("spu: {error}")))
}
