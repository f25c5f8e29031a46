//! The questions of clients, as gateways pass them on.

use axum::body::Bytes;
use axum::extract::FromRequest;
use axum::extract::{RawQuery, Request};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tracing::error;
use weir_fitment::check::{Browse, Check, CheckError};

use super::unknown_vehicle;
use crate::Fitment;
use crate::answer::AnswerError;
use weir_origin_core::http::Problem;

/// `POST /fitment/check`.
pub(super) async fn check(fitment: Fitment, request: Request) -> Result<Response, Problem> {
    let body = Bytes::from_request(request, &()).await;
    let body = body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => refused(&CheckError::TooLong),
        _ => Problem::invalid_body("the body could not be read"),
    })?;
    let check = Check::read(&body).map_err(|error| refused(&error))?;
    Ok(json(fitment.check(&check).await?))
}

/// `GET /fitment/skus?vehicle=&after=`.
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
    Problem::new(status, error.code(), "Invalid question", error.to_string())
}

/// The reason goes to the log, not to the client.
impl From<AnswerError> for Problem {
    fn from(error: AnswerError) -> Self {
        match error {
            AnswerError::TooMany => Self::overloaded(),
            AnswerError::Unavailable(error) => {
                error!(%error, "a question is not answered");
                let detail = "what fits is not known at the moment; please try again";
                Self::unavailable("fitment_unavailable", detail)
            }
        }
    }
}
