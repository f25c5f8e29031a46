//! Extractors that parse requests into types, and report invalid input as problems.

use std::fmt::Display;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use utoipa::ToSchema;

use super::refusal::BODY_TOO_LARGE;
use super::{Problem, ValidationError, shape};
use crate::api::schemas::Use;

/// A JSON body, validated by the schema of its type. The content type is ignored, because each route accepts only one
/// format.
pub struct TypedBody<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + ToSchema> FromRequest<S> for TypedBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let usage = match *request.method() {
            Method::PATCH => Use::Patch,
            _ => Use::Request,
        };
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|rejection| unread_body(&rejection))?;
        read_json(&body, |body| shape::errors_in::<T>(body, usage)).map(Self)
    }
}

/// Parses a JSON body. Reports all errors that the type's schema finds.
///
/// # Errors
/// When the body is invalid.
pub fn read_typed<T: DeserializeOwned + ToSchema>(body: &[u8]) -> Result<T, Problem> {
    read_json(body, |body| shape::errors_in::<T>(body, Use::Request))
}

/// Like [`read_typed`], for parsed JSON.
///
/// # Errors
/// When the value is invalid.
pub fn read_typed_value<T: DeserializeOwned + ToSchema>(value: &Value) -> Result<T, Problem> {
    let read = serde_path_to_error::deserialize(value);
    read.map_err(|error| invalid_body(&error, shape::errors_in::<T>(value, Use::Request)))
}

/// The query string as a type.
pub struct ReadQuery<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for ReadQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(read)) => Ok(Self(read)),
            Err(rejection) => Err(Problem::invalid_query(rejection.body_text())),
        }
    }
}

/// Validates the page size of a query, if it has one.
///
/// # Errors
/// When it is not 1 to `max`.
pub fn page_len<N>(limit: Option<N>, max: N) -> Result<Option<N>, Problem>
where
    N: Copy + Display + From<u8> + PartialOrd,
{
    match limit {
        Some(limit) if !(N::from(1)..=max).contains(&limit) => {
            Err(Problem::invalid_query(format!("limit: must be 1 to {max}")))
        }
        limit => Ok(limit),
    }
}

/// Members that a body shares with other types: `#[serde(flatten, deserialize_with = "shared_members")]`. A plain
/// `flatten` loses the name of the invalid member. The type, not the body, refuses unknown members.
///
/// # Errors
/// When a member is invalid; the error contains its path.
pub fn shared_members<'de, D, T>(members: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let members = serde_json::Map::deserialize(members)?;
    let read = serde_path_to_error::deserialize(Value::Object(members));
    read.map_err(|error| D::Error::custom(describe(&error)))
}

fn read_json<T: DeserializeOwned>(
    body: &[u8],
    validation_errors: impl FnOnce(&Value) -> Vec<ValidationError>,
) -> Result<T, Problem> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        // A body that is not JSON has no members to report.
        let body = serde_json::from_slice::<Value>(body);
        invalid_body(
            &error,
            body.as_ref().map(validation_errors).unwrap_or_default(),
        )
    })?;
    json.end()
        .map_err(|error| Problem::invalid_body(error.to_string()))?;
    Ok(value)
}

/// The first error as the detail; all of them in `errors` if there are more.
fn invalid_body(
    error: &serde_path_to_error::Error<serde_json::Error>,
    validation_errors: Vec<ValidationError>,
) -> Problem {
    let detail = describe(error);
    let detail = match validation_errors.len() {
        0 | 1 => detail,
        count => format!("{detail}; {count} mistakes in total, see `errors`"),
    };
    Problem::invalid_body(detail).with_validation_errors(validation_errors)
}

/// The error, prefixed with the path of its field.
fn describe(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    match error.path().to_string().as_str() {
        // The error concerns the whole body, or the body ended before a member's name.
        "." | "?" => error.inner().to_string(),
        path => format!("{path}: {}", error.inner()),
    }
}

/// The body is too large or incomplete.
fn unread_body(rejection: &BytesRejection) -> Problem {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        let limit = super::BODY_LEN_MAX;
        return BODY_TOO_LARGE.because(format!("the body is longer than {limit} bytes"));
    }
    Problem::invalid_body("cannot read the body")
}
