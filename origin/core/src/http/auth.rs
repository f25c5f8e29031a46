//! The admin's bearer token.

use std::fmt;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use subtle::ConstantTimeEq;

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

    /// The token itself, to derive what ends with it.
    pub fn secret(&self) -> &[u8] {
        &self.0
    }
}

/// The token is too short to be safe; it has so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("has {0} bytes, needs at least {ADMIN_TOKEN_LEN_MIN}")]
pub struct TokenTooShort(usize);

/// The token or key that a request shows: `authorization: Bearer <token>`.
pub fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then_some(token)
}
