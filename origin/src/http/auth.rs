//! The admin's bearer token.

use std::fmt;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use super::Problem;

/// The least bytes of the admin's token: 32 hexadecimal digits are 128 bits.
pub const ADMIN_TOKEN_LEN_MIN: usize = 32;

/// The bearer token of the admin routes.
#[derive(Clone)]
pub struct AdminToken(Arc<[u8]>);

/// The token stays out of logs.
impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken(…)")
    }
}

impl AdminToken {
    /// Takes `token`.
    ///
    /// # Errors
    /// When it has fewer than [`ADMIN_TOKEN_LEN_MIN`] bytes.
    pub fn new(token: &str) -> Result<Self, TokenTooShort> {
        if token.len() < ADMIN_TOKEN_LEN_MIN {
            return Err(TokenTooShort(token.len()));
        }
        Ok(Self(token.as_bytes().into()))
    }

    /// Whether `shown` is the token. Takes the same time wherever they differ; only that the
    /// lengths do shows.
    pub fn is(&self, shown: &[u8]) -> bool {
        self.0.ct_eq(shown).into()
    }
}

/// The token is too short to be safe; it has so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("has {0} bytes, needs at least {ADMIN_TOKEN_LEN_MIN}")]
pub struct TokenTooShort(usize);

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
