//! The admin's bearer token.

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::config::AdminToken;
use crate::problem::Problem;

/// Lets a request pass that shows the token.
pub(super) async fn require_token(
    State(token): State<AdminToken>,
    request: Request,
    next: Next,
) -> Response {
    match shown(&request) {
        Some(shown) if token.is(shown) => next.run(request).await,
        _ => refusal().into_response(),
    }
}

/// The token that a request shows: `authorization: Bearer <token>`.
fn shown(request: &Request) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let value = request.headers().get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then_some(token)
}

fn refusal() -> Problem {
    let status = StatusCode::UNAUTHORIZED;
    let detail = "this needs the admin token: authorization: Bearer <WEIR_ADMIN_TOKEN>";
    Problem::new(status, "unauthorized", "Unauthorized", detail).challenge("Bearer")
}
