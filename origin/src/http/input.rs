//! What requests carry, read into types, with a problem for what cannot be.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::Problem;

/// A JSON body. The content type is not asked for: there is only one thing it could be.
pub(crate) struct JsonBody<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|rejection| unread_body(&rejection))?;
        read_json(&body).map(Self)
    }
}

/// What a query string says.
pub(crate) struct ReadQuery<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for ReadQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(read)) => Ok(Self(read)),
            Err(rejection) => Err(Problem::invalid_query(rejection.body_text())),
        }
    }
}

/// The whole body as JSON.
pub(crate) fn read_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| Problem::invalid_body(describe(&error)))?;
    json.end()
        .map_err(|error| Problem::invalid_body(error.to_string()))?;
    Ok(value)
}

/// The error, after the path of the field that it is about.
pub(crate) fn describe(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    match error.path().to_string().as_str() {
        // The body as a whole.
        "." => error.inner().to_string(),
        path => format!("{path}: {}", error.inner()),
    }
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
    Problem::invalid_body("the body could not be read")
}
