//! The admin token, a bearer token.

use std::fmt;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use subtle::ConstantTimeEq;

/// Minimum length of the admin token in bytes: 32 hexadecimal digits are 128 bits.
pub const ADMIN_TOKEN_LEN_MIN: usize = 32;

/// The bearer token of the admin routes.
#[derive(Clone)]
pub struct AdminToken(Arc<[u8]>);

/// Omits the token, which must not appear in logs.
impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken(…)")
    }
}

impl AdminToken {
    /// Creates a token.
    ///
    /// # Errors
    /// When `token` has fewer than [`ADMIN_TOKEN_LEN_MIN`] bytes.
    pub fn new(token: &str) -> Result<Self, TokenTooShort> {
        if token.len() < ADMIN_TOKEN_LEN_MIN {
            return Err(TokenTooShort(token.len()));
        }
        Ok(Self(token.as_bytes().into()))
    }

    /// Whether `presented` is the token. Runs in constant time, except that it reveals a difference in length.
    pub fn is(&self, presented: &[u8]) -> bool {
        self.0.ct_eq(presented).into()
    }

    /// The token itself, as a secret for proofs that expire with it.
    pub fn secret(&self) -> &[u8] {
        &self.0
    }
}

/// The token is too short to be secure. The value is its length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("has {0} bytes, needs at least {ADMIN_TOKEN_LEN_MIN}")]
pub struct TokenTooShort(usize);

/// The bearer token or key of a request: `authorization: Bearer <token>`.
pub fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then_some(token)
}
