//! Fitment queries of clients, forwarded by gateways.

use axum::body::Bytes;
use axum::extract::FromRequest;
use axum::extract::{RawQuery, Request};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tracing::error;
use utoipa::ToSchema;
use utoipa::openapi::schema::{Array, ArrayBuilder, ObjectBuilder, Type};
use weir_fitment::check::{Browse, Check, CheckError};

use super::{UNAVAILABLE, unknown_vehicle};
use crate::Fitment;
use crate::answer::AnswerError;
use weir_origin_core::http::Problem;

/// A query: which parts fit which vehicles.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a body")]
struct FitmentCheck {
    /// The vehicles, by 1 to 7 digits.
    #[schema(schema_with = vehicles)]
    vehicles: Vec<String>,
    /// The SKUs, optionally with their SPUs.
    #[schema(min_items = 1, max_items = 200)]
    skus: Vec<FitmentCheckPart>,
}

fn vehicles() -> Array {
    let vehicle = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some("^[0-9]{1,7}$"));
    ArrayBuilder::new()
        .items(vehicle)
        .min_items(Some(1))
        .max_items(Some(5))
        .description(Some("The vehicles, by 1 to 7 digits."))
        .build()
}

/// A SKU, or a SKU with its SPU.
#[derive(ToSchema, Deserialize)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes a body")]
enum FitmentCheckPart {
    Sku(String),
    WithSpu(FitmentCheckSku),
}

/// A SKU with its SPU.
#[derive(ToSchema, Deserialize)]
#[expect(dead_code, reason = "describes a body")]
struct FitmentCheckSku {
    /// The SKU.
    sku: String,
    /// The SPU.
    #[schema(nullable = false)]
    spu: Option<String>,
}

/// The answers.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a body, which gateways write, too")]
struct FitmentAnswers {
    /// The vehicles.
    vehicles: Vec<String>,
    /// The SKUs.
    skus: Vec<FitmentAnswersSku>,
}

/// The answers for a SKU.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a body, which gateways write, too")]
struct FitmentAnswersSku {
    /// The SKU.
    sku: String,
    /// One answer per vehicle, in order.
    answers: Vec<FitmentAnswer>,
}

/// Whether a part fits a vehicle.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "describes a body, which gateways write, too")]
enum FitmentAnswer {
    Fits,
    DoesNot,
    Unknown,
}

/// A page of parts.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a body, which gateways write, too")]
struct FitmentPage {
    /// The number of the vehicle.
    vehicle: String,
    /// The SKUs.
    skus: Vec<String>,
    /// Start of the next page; absent: this is the last page.
    #[schema(nullable = false)]
    next: Option<String>,
}

/// Selects parts.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes parameters, which gateways read, too")]
struct PartsQuery {
    /// Seven digits.
    vehicle: String,
    /// The `next` of the previous page.
    after: Option<String>,
}

/// Check which parts fit which vehicles
///
/// Checks up to 1,000 pairs. Unknown fitment is never answered as "does not fit". Gateways send queries here that Redis
/// cannot answer.
#[utoipa::path(
    post,
    path = "/fitment/check",
    operation_id = "checkFitment",
    request_body = FitmentCheck,
    responses((status = 200, description = "The answer for each pair, in the order of the query", body = FitmentAnswers)),
)]
pub(super) async fn check(fitment: Fitment, request: Request) -> Result<Response, Problem> {
    let body = Bytes::from_request(request, &()).await;
    let body = body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => refused(&CheckError::TooLong),
        _ => Problem::invalid_body("cannot read the body"),
    })?;
    let check = Check::read(&body).map_err(|error| refused(&error))?;
    Ok(json(fitment.check(&check).await?))
}

/// List the parts that fit a vehicle
#[utoipa::path(
    get,
    path = "/fitment/skus",
    operation_id = "listFittingSkus",
    params(PartsQuery),
    responses((status = 200, description = "A page of parts", body = FitmentPage)),
)]
pub(super) async fn skus(fitment: Fitment, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let browse = Browse::read(&query.unwrap_or_default()).map_err(|error| refused(&error))?;
    let page = fitment.browse(&browse).await?;
    page.map(json).ok_or_else(unknown_vehicle)
}

fn json(body: Vec<u8>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, body).into_response()
}

fn refused(error: &CheckError) -> Problem {
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
    Problem::new(status, error.code(), "Invalid query", error.to_string())
}

/// The log contains the reason; the client does not receive it.
impl From<AnswerError> for Problem {
    fn from(error: AnswerError) -> Self {
        match error {
            AnswerError::TooMany => Self::overloaded(),
            AnswerError::Unavailable(error) => {
                error!(%error, "cannot answer a fitment query");
                UNAVAILABLE.because("fitment is temporarily unavailable; please try again")
            }
        }
    }
}
