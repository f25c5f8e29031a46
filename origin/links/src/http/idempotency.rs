//! `Idempotency-Key`: a request repeated with the same key gets the answer to the first one.
//!
//! Redis stores a hash of the key for a day, with a hash of the body, and the answer once it exists. If Redis loses its
//! data, the keys are lost too.

use std::future::Future;

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ring::digest::{SHA256, digest};
use tracing::warn;

use super::links::CreateReply;
use super::refusals::{IDEMPOTENCY_MISMATCH, IDEMPOTENCY_UNDER_WAY, INVALID_IDEMPOTENCY_KEY};
use crate::records::LinkRecords;
use weir_origin_core::http::Problem;
use weir_origin_core::tenants::TenantName;

const HEADER: &str = "idempotency-key";

/// Response header of a repeated answer.
const REPLAYED: &str = "idempotency-replayed";

/// Maximum length of a key, in bytes.
const KEY_LEN_MAX: usize = 255;

/// Lifetime of a stored answer, in milliseconds.
const KEPT_MS: u64 = 24 * 60 * 60 * 1000;

/// Lifetime of a key without an answer, in milliseconds: longer than any request takes. Afterwards its process must
/// have died, and the request may run again.
const UNDER_WAY_MS: u64 = 60_000;

/// Length of the body hash that precedes an answer, in bytes.
const HASH_LEN: usize = 32;

/// The key of a request, if any.
pub(super) fn key(headers: &HeaderMap) -> Result<Option<&[u8]>, Problem> {
    let Some(key) = headers.get(HEADER).map(HeaderValue::as_bytes) else {
        return Ok(None);
    };
    let is_visible = key.iter().all(|byte| (0x20..0x7f).contains(byte));
    if (1..=KEY_LEN_MAX).contains(&key.len()) && is_visible {
        return Ok(Some(key));
    }
    let detail = format!("Idempotency-Key: must be 1 to {KEY_LEN_MAX} visible characters");
    Err(INVALID_IDEMPOTENCY_KEY.because(detail))
}

/// Answers a request with `key` from a tenant or the platform: runs `make`, or returns the first request's answer.
pub(super) async fn once(
    records: &LinkRecords,
    tenant: Option<&TenantName>,
    key: &[u8],
    body: &[u8],
    make: impl Future<Output = Result<CreateReply, Problem>>,
) -> Result<Response, Problem> {
    // Keys cannot contain a zero byte, so keys of different tenants and the platform never collide.
    let whose = tenant.map_or_else(String::new, |tenant| format!("{tenant}\0"));
    let whole = digest(&SHA256, &[whose.as_bytes(), key].concat());
    let hash = whole.as_ref().first_chunk().copied().unwrap_or_default();
    let body_hash = digest(&SHA256, body);
    let held = records
        .idempotency(hash, body_hash.as_ref(), UNDER_WAY_MS)
        .await?;
    if let Some(held) = held {
        return replay(&held, body_hash.as_ref());
    }
    let created = make.await;
    let held = created
        .as_ref()
        .ok()
        .map(|created| record(created, body_hash.as_ref()));
    let held = held.as_deref().map(|held| (held, KEPT_MS));
    if let Err(error) = records.set_idempotency(hash, held).await {
        warn!(%error, "cannot store an answer for its Idempotency-Key");
    }
    created.map(IntoResponse::into_response)
}

/// Encodes an answer: the body hash, then status, location (may be empty) and JSON, separated by line breaks.
fn record(reply: &CreateReply, body_hash: &[u8]) -> Vec<u8> {
    let location = reply.location.as_deref().unwrap_or_default();
    let head = format!("{}\n{location}\n", reply.status.as_u16());
    [body_hash, head.as_bytes(), &reply.json].concat()
}

fn replay(held: &[u8], body_hash: &[u8]) -> Result<Response, Problem> {
    let (hash, rest) = held.split_at_checked(HASH_LEN).unwrap_or((body_hash, b""));
    if hash != body_hash {
        let detail = "this Idempotency-Key was used for another request";
        return Err(IDEMPOTENCY_MISMATCH.because(detail));
    }
    let Some(created) = answer(rest) else {
        let detail = "a request with this Idempotency-Key is in progress";
        return Err(IDEMPOTENCY_UNDER_WAY.because(detail).retry());
    };
    let mut response = created.into_response();
    let headers = response.headers_mut();
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    Ok(response)
}

fn answer(rest: &[u8]) -> Option<CreateReply> {
    let mut parts = rest.splitn(3, |byte| *byte == b'\n');
    let status = StatusCode::from_bytes(parts.next()?).ok()?;
    let location = str::from_utf8(parts.next()?).ok()?;
    Some(CreateReply {
        status,
        location: (!location.is_empty()).then(|| location.to_owned()),
        json: parts.next()?.to_vec(),
    })
}
