//! What requests carry, read into types, with a problem for what cannot be.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use weir_base::id::SaleId;

use crate::problem::Problem;

/// A JSON body. The content type is not asked for: there is only one thing it could be.
pub(super) struct JsonBody<T>(pub T);

/// The sale that the path names.
pub(super) struct SalePath(pub SaleId);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|rejection| unread_body(&rejection))?;
        let mut json = serde_json::Deserializer::from_slice(&body);
        let value = serde_path_to_error::deserialize(&mut json)
            .map_err(|error| invalid_body(describe(&error)))?;
        json.end()
            .map_err(|error| invalid_body(error.to_string()))?;
        Ok(Self(value))
    }
}

/// The error, after the path of the field that it is about.
pub(super) fn describe(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    match error.path().to_string().as_str() {
        // The body as a whole.
        "." => error.inner().to_string(),
        path => format!("{path}: {}", error.inner()),
    }
}

pub(super) fn invalid_body(detail: String) -> Problem {
    let status = StatusCode::BAD_REQUEST;
    Problem::new(status, "invalid_body", "Invalid body", detail)
}

/// A body that is too large, or broke off.
fn unread_body(rejection: &BytesRejection) -> Problem {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        let limit = super::BODY_LEN_MAX;
        return Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            "Body too large",
            format!("the body may have {limit} bytes"),
        );
    }
    invalid_body("the body could not be read".to_owned())
}

impl<S: Send + Sync> FromRequestParts<S> for SalePath {
    type Rejection = Problem;

    /// A name that no sale can have is one that no sale has.
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let unknown = || Problem::unknown_sale(StatusCode::NOT_FOUND);
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(id) = path.map_err(|_| unknown())?;
        SaleId::new(id).map(Self).map_err(|_| unknown())
    }
}
