//! Problem details (RFC 9457), with the members of gateways' own answers ([`weir_base::problem`]) and a title.

use std::borrow::Cow;

use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tracing::error;
use utoipa::ToSchema;
use weir_base::problem;

use super::refusal::{INVALID_BODY, INVALID_QUERY, OVERLOADED, REDIS_UNAVAILABLE, SQL_UNAVAILABLE};
use crate::redis::CallError;
use crate::sql::SqlError;
use crate::unavailable::Unavailable;

/// Default `retry-after`, in seconds. A broken connection to SQL or Redis usually recovers within it.
pub const RETRY_AFTER_S: u64 = 1;

/// A refusal: status, machine-readable code and detail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The HTTP status.
    pub status: StatusCode,
    /// Machine-readable code: the member `error`, and the end of `type`.
    pub code: &'static str,
    /// Short title, the same for every occurrence.
    pub title: &'static str,
    /// Description of this occurrence.
    pub detail: Cow<'static, str>,
    /// What the client may do next.
    pub remedy: Remedy,
    /// All errors in the request, if the detail does not contain them: the member `errors`.
    pub validation_errors: Vec<ValidationError>,
}

/// One error in a body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ValidationError {
    /// Location: a JSON Pointer (RFC 6901).
    pub pointer: String,
    /// Description of the error.
    pub detail: String,
}

/// Problem details (RFC 9457). `error` is one of the codes that the response lists; info.x-error-codes explains each
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody {
    /// urn:weir:problem: and the code
    #[serde(rename = "type")]
    uri: String,
    /// Short title of this kind of problem
    title: &'static str,
    /// The HTTP status
    status: u16,
    /// Description of this occurrence
    detail: Cow<'static, str>,
    /// Machine-readable code
    error: &'static str,
    /// The same as `detail`; answers from gateways also have `error` and `message`
    message: Cow<'static, str>,
    /// All errors in the request, if it is invalid
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<ValidationError>,
}

/// What the client may do after a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing, or what the detail describes.
    None,
    /// Retry after this many seconds: `retry-after`.
    Retry(u64),
    /// Authenticate with this scheme: `www-authenticate`.
    Authenticate(&'static str),
}

impl Problem {
    /// Creates a problem without a remedy.
    pub fn new(
        status: StatusCode,
        code: &'static str,
        title: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            status,
            code,
            title,
            detail: detail.into(),
            remedy: Remedy::None,
            validation_errors: Vec::new(),
        }
    }

    /// Adds all errors in the request.
    #[must_use]
    pub fn with_validation_errors(mut self, validation_errors: Vec<ValidationError>) -> Self {
        self.validation_errors = validation_errors;
        self
    }

    /// Allows a retry after one second.
    #[must_use]
    pub fn retry(self) -> Self {
        self.retry_after(RETRY_AFTER_S)
    }

    /// Allows a retry after `seconds`.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.remedy = Remedy::Retry(seconds);
        self
    }

    /// Names the authentication scheme to use.
    #[must_use]
    pub fn challenge(mut self, scheme: &'static str) -> Self {
        self.remedy = Remedy::Authenticate(scheme);
        self
    }

    /// 503: the service is unavailable, or the outcome is unknown. A retry is safe.
    pub fn unavailable(code: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        let title = "Temporarily unavailable";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, title, detail).retry()
    }

    /// 503: SQL did not answer. The cause is logged, not sent.
    pub fn sql() -> Self {
        SQL_UNAVAILABLE.because("the database did not answer; please try again")
    }

    /// 503: too many calls are waiting for SQL. Nothing was done.
    pub fn overloaded() -> Self {
        OVERLOADED.because("too many requests; please try again")
    }

    /// 503: Redis did not answer. The cause is logged, not sent.
    pub fn redis() -> Self {
        REDIS_UNAVAILABLE.because("Redis did not answer; please try again")
    }

    /// 409: the request conflicts with the current state.
    pub fn conflict(
        code: &'static str,
        title: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(StatusCode::CONFLICT, code, title, detail)
    }

    /// 404: the object does not exist.
    pub fn not_found(
        code: &'static str,
        title: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, title, detail)
    }

    /// 422: the request is well-formed but invalid.
    pub fn unprocessable(
        code: &'static str,
        title: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, title, detail)
    }

    /// 400: the body cannot be parsed.
    pub fn invalid_body(detail: impl Into<Cow<'static, str>>) -> Self {
        INVALID_BODY.because(detail)
    }

    /// 400: the query string is invalid.
    pub fn invalid_query(detail: impl Into<Cow<'static, str>>) -> Self {
        INVALID_QUERY.because(detail)
    }
}

/// Logs the cause instead of sending it.
impl From<SqlError> for Problem {
    fn from(error: SqlError) -> Self {
        error!(%error, "no answer from SQL");
        match error {
            SqlError::Overloaded => Self::overloaded(),
            SqlError::Sql(_) => Self::sql(),
        }
    }
}

impl From<Unavailable> for Problem {
    fn from(error: Unavailable) -> Self {
        match error {
            Unavailable::Sql(error) => error.into(),
            Unavailable::Redis(error) => error.into(),
        }
    }
}

/// Logs the cause instead of sending it.
impl From<CallError> for Problem {
    fn from(error: CallError) -> Self {
        error!(%error, "no answer from Redis");
        Self::redis()
    }
}

impl Problem {
    /// The problem as JSON.
    pub fn body(&self) -> ProblemBody {
        ProblemBody {
            uri: format!("{}{}", problem::TYPE_PREFIX, self.code),
            title: self.title,
            status: self.status.as_u16(),
            detail: self.detail.clone(),
            error: self.code,
            message: self.detail.clone(),
            errors: self.validation_errors.clone(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        let headers = response.headers_mut();
        let json = HeaderValue::from_static(problem::MEDIA_TYPE);
        headers.insert(header::CONTENT_TYPE, json);
        self.remedy.write(headers);
        // Layers read the problem from the response's extensions.
        response.extensions_mut().insert(self);
        response
    }
}

impl Remedy {
    fn write(self, headers: &mut HeaderMap) {
        match self {
            Self::None => {}
            Self::Retry(seconds) => {
                headers.insert(header::RETRY_AFTER, seconds.into());
            }
            Self::Authenticate(scheme) => {
                let scheme = HeaderValue::from_static(scheme);
                headers.insert(header::WWW_AUTHENTICATE, scheme);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use serde_json::{Value, json};

    #[tokio::test]
    async fn problem_response_follows_rfc_9457() {
        let response = Problem::sql().into_response();
        assert_eq!(response.status(), 503);
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json"
        );
        assert_eq!(response.headers()["retry-after"], "1");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(
            serde_json::from_slice::<Value>(&body).unwrap(),
            json!({
                "type": "urn:weir:problem:sql_unavailable",
                "title": "Temporarily unavailable",
                "status": 503,
                "detail": "the database did not answer; please try again",
                "error": "sql_unavailable",
                "message": "the database did not answer; please try again",
            })
        );
    }
}
