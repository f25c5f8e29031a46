//! The routes of vehicle fitment: parse requests and write answers. Other modules contain the logic.

mod admin;
mod garage;
mod imports;
mod page;
mod questions;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, FromRequestParts};
use axum::http::request::Parts;
use utoipa_axum::router::UtoipaMethodRouterExt;
use utoipa_axum::routes;
use weir_base::id::UserId;
use weir_fitment::check::BODY_LEN_MAX;

use self::imports::{FILE_TOO_LONG, IMPORT_ENDED, IMPORT_NOT_KEPT, INVALID_IMPORT, UNKNOWN_IMPORT};
use super::Fitment;
use weir_origin_core::access::scope::Area;
use weir_origin_core::api::{Api, Document, RouteRules};
use weir_origin_core::http::refusal::{
    INVALID_BODY, INVALID_QUERY, NO_ROUTE, OVERLOADED, SQL_UNAVAILABLE, USER_INVALID, USER_MISSING,
};
use weir_origin_core::http::{Problem, Refusal, UserReader};

pub use page::page;

/// The upload route, which may take long.
pub const UPLOAD: &str = "/fitment/imports";

/// The state of the routes.
pub struct Routes {
    fitment: Option<Fitment>,
    users: Option<UserReader>,
}

/// The owner of the garage in a request.
struct GarageRequest {
    fitment: Fitment,
    user: UserId,
}

/// The routes for gateways: queries that they could not answer, and the signed-in user's garage.
pub fn public() -> Api<Arc<Routes>> {
    let rules = RouteRules::OPEN.refuses(&[SQL_UNAVAILABLE, OVERLOADED]);
    let garage = rules.refuses(&[
        FITMENT_OFF,
        NO_ROUTE,
        USER_MISSING,
        USER_INVALID,
        UNAVAILABLE,
    ]);
    let vehicle = garage.refuses(&[UNKNOWN_VEHICLE, INVALID_VEHICLE]);
    questions(Api::public(), rules)
        .route(routes!(garage::list), garage)
        .route(routes!(garage::bind), vehicle.refuses(&[GARAGE_FULL]))
        .route(routes!(garage::unbind), vehicle)
}

fn questions(api: Api<Arc<Routes>>, rules: RouteRules) -> Api<Arc<Routes>> {
    let rules = rules.refuses(&[FITMENT_OFF, UNAVAILABLE, INVALID_VEHICLE]);
    api.route(
        routes!(questions::check).layer(DefaultBodyLimit::max(BODY_LEN_MAX)),
        rules.question().refuses(&[
            FILE_TOO_LONG,
            INVALID_VEHICLE_COUNT,
            INVALID_SKU_COUNT,
            INVALID_SKU,
            INVALID_SPU,
        ]),
    )
    .route(
        routes!(questions::skus),
        rules.refuses(&[UNKNOWN_VEHICLE, INVALID_AFTER]),
    )
}

/// Additions of all routes to the OpenAPI document.
pub fn document() -> Document {
    let mut document = public().into_document();
    document.merge(admin().into_document());
    document.merge(page().into_document());
    document
}

/// The routes for operators: the same queries, and changes of the catalogue.
pub fn admin() -> Api<Arc<Routes>> {
    let rules = RouteRules::PLATFORM;
    let vehicle = rules.refuses(&[FITMENT_OFF, UNKNOWN_VEHICLE, INVALID_VEHICLE, UNAVAILABLE]);
    let product = rules.refuses(&[
        FITMENT_OFF,
        UNKNOWN_SKU,
        INVALID_SKU,
        INVALID_SPU,
        INVALID_PRODUCT,
        INVALID_QUALIFIERS,
        UNAVAILABLE,
    ]);
    let relation = rules.refuses(&[
        FITMENT_OFF,
        UNKNOWN_SKU,
        UNKNOWN_VEHICLE,
        INVALID_SKU,
        INVALID_VEHICLE,
        INVALID_QUALIFIERS,
        UNAVAILABLE,
    ]);
    let upload = rules.refuses(&[
        FITMENT_OFF,
        INVALID_BODY,
        FILE_TOO_LONG,
        INVALID_IMPORT,
        IMPORT_NOT_KEPT,
    ]);
    questions(Api::admin(Area::Fitment), rules)
        .route(
            routes!(admin::search),
            rules.refuses(&[FITMENT_OFF, UNKNOWN_VEHICLE, UNAVAILABLE]),
        )
        .route(
            routes!(admin::vehicle, admin::put_vehicle, admin::retire),
            vehicle,
        )
        .route(
            routes!(admin::product, admin::put_product, admin::delete_product),
            product,
        )
        .route(
            routes!(admin::add_relation, admin::remove_relation),
            relation,
        )
        .route(
            routes!(imports::list),
            rules.refuses(&[FITMENT_OFF, UNAVAILABLE]),
        )
        .route(
            routes!(imports::upload).layer(DefaultBodyLimit::disable()),
            upload,
        )
        .route(
            routes!(imports::one),
            rules.refuses(&[FITMENT_OFF, UNKNOWN_IMPORT, UNAVAILABLE]),
        )
        .route(
            routes!(imports::give_up),
            rules.refuses(&[FITMENT_OFF, UNKNOWN_IMPORT, IMPORT_ENDED, UNAVAILABLE]),
        )
        .route(
            routes!(imports::errors),
            rules.refuses(&[FITMENT_OFF, UNKNOWN_IMPORT, UNAVAILABLE]),
        )
        .route(
            routes!(admin::rebuild_state),
            rules.refuses(&[FITMENT_OFF, UNAVAILABLE]),
        )
        .route(
            routes!(admin::rebuild),
            rules.refuses(&[FITMENT_OFF, INVALID_SPU, INVALID_STEP, UNAVAILABLE]),
        )
        .route(
            routes!(admin::verify),
            rules.refuses(&[FITMENT_OFF, INVALID_SPU, INVALID_STEP, UNAVAILABLE]),
        )
}

/// Selects a vehicle.
#[derive(utoipa::IntoParams)]
#[into_params(names("vehicle"), parameter_in = Path)]
struct VehicleParam(
    /// The number of the vehicle.
    #[expect(dead_code, reason = "describes a parameter")]
    String,
);

/// The SKU.
#[derive(utoipa::IntoParams)]
#[into_params(names("sku"), parameter_in = Path)]
struct SkuParam(
    /// The SKU.
    #[expect(dead_code, reason = "describes a parameter")]
    String,
);

const FITMENT_OFF: Refusal = Refusal::not_found(
    "fitment_off",
    "No vehicle fitment",
    "Vehicle fitment is not enabled",
);

const UNAVAILABLE: Refusal =
    Refusal::unavailable("fitment_unavailable", "Fitment is temporarily unavailable");

const UNKNOWN_VEHICLE: Refusal = Refusal::not_found(
    "unknown_vehicle",
    "Unknown vehicle",
    "There is no such vehicle",
);

const UNKNOWN_SKU: Refusal =
    Refusal::not_found("unknown_sku", "Unknown SKU", "There is no such SKU");

const INVALID_VEHICLE: Refusal =
    Refusal::invalid("invalid_vehicle", "Invalid", "The vehicle is invalid");

const INVALID_SKU: Refusal = Refusal::invalid("invalid_sku", "Invalid", "The SKU is invalid");

const INVALID_SPU: Refusal = Refusal::invalid("invalid_spu", "Invalid", "The SPU is invalid");

const INVALID_PRODUCT: Refusal =
    Refusal::invalid("invalid_product", "Invalid", "The product is invalid");

const INVALID_QUALIFIERS: Refusal = Refusal::invalid(
    "invalid_qualifiers",
    "Invalid",
    "The qualifiers are invalid",
);

const GARAGE_FULL: Refusal = Refusal::conflict(
    "garage_full",
    "The garage is full",
    "A garage has at most 20 vehicles",
);

const INVALID_VEHICLE_COUNT: Refusal = Refusal::invalid(
    "invalid_vehicle_count",
    "Invalid query",
    "The query has too few or too many vehicles",
);

const INVALID_SKU_COUNT: Refusal = Refusal::invalid(
    "invalid_sku_count",
    "Invalid query",
    "The query has too few or too many SKUs",
);

const INVALID_AFTER: Refusal = Refusal::invalid(
    "invalid_after",
    "Invalid query",
    "`after` is not the `next` of an earlier page",
);

/// The query parameters of a verification or rebuild are invalid.
const INVALID_STEP: Refusal =
    Refusal::invalid("invalid_query", "Invalid", INVALID_QUERY.description);

impl Routes {
    /// The state of the public routes. Gateways sign the user.
    pub fn for_users(fitment: Option<Fitment>, users: UserReader) -> Arc<Self> {
        let users = Some(users);
        Arc::new(Self { fitment, users })
    }

    /// The state of the admin routes.
    pub fn for_operators(fitment: Option<Fitment>) -> Arc<Self> {
        let users = None;
        Arc::new(Self { fitment, users })
    }

    fn fitment(&self) -> Result<Fitment, Problem> {
        self.fitment.clone().ok_or_else(|| {
            let detail = "this origin has no vehicle fitment: start it with --fitment";
            FITMENT_OFF.because(detail)
        })
    }
}

impl FromRequestParts<Arc<Routes>> for Fitment {
    type Rejection = Problem;

    async fn from_request_parts(_: &mut Parts, routes: &Arc<Routes>) -> Result<Self, Problem> {
        routes.fitment()
    }
}

impl FromRequestParts<Arc<Routes>> for GarageRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, routes: &Arc<Routes>) -> Result<Self, Problem> {
        let fitment = routes.fitment()?;
        let users = routes
            .users
            .as_ref()
            .ok_or_else(|| NO_ROUTE.because("there is no such path"))?;
        let user = users(&parts.headers)?;
        Ok(Self { fitment, user })
    }
}

fn invalid(refusal: Refusal, detail: impl std::fmt::Display) -> Problem {
    refusal.because(detail.to_string())
}

fn read_vehicle(text: &str) -> Result<weir_fitment::VehicleId, Problem> {
    text.parse()
        .map_err(|error| invalid(INVALID_VEHICLE, format_args!("vehicle: {error}")))
}

fn read_sku(text: &str) -> Result<weir_fitment::Sku, Problem> {
    weir_fitment::Sku::new(text).map_err(|error| invalid(INVALID_SKU, format_args!("sku: {error}")))
}

fn unknown_vehicle() -> Problem {
    UNKNOWN_VEHICLE.because("vehicle not found")
}

fn unknown_sku() -> Problem {
    UNKNOWN_SKU.because("SKU not found")
}
