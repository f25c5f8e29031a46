//! Refusals of routes, as answers and as entries of the OpenAPI document.

use std::borrow::Cow;

use axum::http::StatusCode;

use super::Problem;

/// A kind of refusal. Handlers answer with [`Refusal::because`]; the route's declaration adds it to the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: StatusCode,
    /// Machine-readable code.
    pub code: &'static str,
    /// Short title.
    pub title: &'static str,
    /// Description of the code in the document.
    pub description: &'static str,
}

/// 404: no route has this path.
pub const NO_ROUTE: Refusal = Refusal::not_found("no_route", "Not found", "There is no such path");

/// 405: the path has no such method.
pub const NO_METHOD: Refusal = Refusal::new(
    StatusCode::METHOD_NOT_ALLOWED,
    "no_method",
    "Method not allowed",
    "This path does not support this method",
);

/// 401: the key is missing or unknown.
pub const UNAUTHORIZED: Refusal = Refusal::new(
    StatusCode::UNAUTHORIZED,
    "unauthorized",
    "Unauthorized",
    "The key, or the edge assertion, is missing or invalid",
);

/// 403: the key lacks the permission.
pub const FORBIDDEN: Refusal = Refusal::new(
    StatusCode::FORBIDDEN,
    "forbidden",
    "Forbidden",
    "The key does not permit this operation on this object",
);

/// 503: the database did not answer.
pub const SQL_UNAVAILABLE: Refusal =
    Refusal::unavailable("sql_unavailable", "The database did not answer");

/// 503: too many calls are waiting for SQL.
pub const OVERLOADED: Refusal = Refusal::unavailable(
    "overloaded",
    "Too many requests are waiting; nothing was done",
);

/// 503: the route did not answer within its time limit.
pub const TIMEOUT: Refusal = Refusal::unavailable("timeout", "Timeout; the outcome is unknown");

/// 503: Redis did not answer.
pub const REDIS_UNAVAILABLE: Refusal =
    Refusal::unavailable("redis_unavailable", "Redis did not answer");

/// 400: the body cannot be parsed.
pub const INVALID_BODY: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "invalid_body",
    "Invalid body",
    "The body cannot be read; `errors` lists all mistakes",
);

/// 400: the query string cannot be parsed.
pub const INVALID_QUERY: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "invalid_query",
    "Invalid query",
    "The query cannot be read, or a value in it is out of range",
);

/// 413: the body exceeds the route's limit.
pub const BODY_TOO_LARGE: Refusal = Refusal::new(
    StatusCode::PAYLOAD_TOO_LARGE,
    "body_too_large",
    "Body too large",
    "The body is larger than this route accepts",
);

/// 403: no gateway of this origin has authenticated this user.
pub const USER_INVALID: Refusal = Refusal::new(
    StatusCode::FORBIDDEN,
    "user_invalid",
    "Invalid user",
    "The user is not signed by a known gateway",
);

/// 401: no user is authenticated.
pub const USER_MISSING: Refusal = Refusal::new(
    StatusCode::UNAUTHORIZED,
    "user_missing",
    "No user",
    "The request has no user signed by a gateway",
);

impl Refusal {
    /// Creates a refusal.
    pub const fn new(
        status: StatusCode,
        code: &'static str,
        title: &'static str,
        description: &'static str,
    ) -> Self {
        Self {
            status,
            code,
            title,
            description,
        }
    }

    /// Creates a 404.
    pub const fn not_found(
        code: &'static str,
        title: &'static str,
        description: &'static str,
    ) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, title, description)
    }

    /// Creates a 409.
    pub const fn conflict(
        code: &'static str,
        title: &'static str,
        description: &'static str,
    ) -> Self {
        Self::new(StatusCode::CONFLICT, code, title, description)
    }

    /// Creates a 422.
    pub const fn invalid(
        code: &'static str,
        title: &'static str,
        description: &'static str,
    ) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, title, description)
    }

    /// Creates a 503 that the client may retry after one second.
    pub const fn unavailable(code: &'static str, description: &'static str) -> Self {
        let title = "Temporarily unavailable";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, title, description)
    }

    /// Returns the problem with the detail of this occurrence.
    pub fn because(&self, detail: impl Into<Cow<'static, str>>) -> Problem {
        let problem = Problem::new(self.status, self.code, self.title, detail);
        match self.status {
            StatusCode::SERVICE_UNAVAILABLE => problem.retry(),
            _ => problem,
        }
    }
}
