//! Links from a file: an export of Weir's own, or of another shortener.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use serde::Deserialize;

use super::links::{not_found, not_made};
use super::within::Within;
use crate::Links;
use crate::import::format::Format;
use crate::import::rows::FIRST_LINE;
use crate::import::{ImportError, Order, Report};
use weir_origin_core::http::{Problem, ReadQuery};

/// The largest file, in bytes. Larger ones come in parts, as `weir-origin links import` sends them.
pub(super) const BODY_LEN_MAX: usize = 8 * 1024 * 1024;

/// How a file is taken over.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ImportQuery {
    format: Format,
    domain: Option<String>,
    life_days: Option<u32>,
    tag: Option<String>,
    first_line: Option<u64>,
    #[serde(default)]
    dry_run: bool,
}

/// `POST /link-imports?format=`: the body is the file. It may come again: what is there is left as it is.
pub(super) async fn import(
    links: Links,
    within: Within,
    ReadQuery(query): ReadQuery<ImportQuery>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Report>, Problem> {
    let file = body.map_err(|rejection| unread(&rejection))?;
    if let Some(id) = &query.domain
        && (links.domains().domains.by_id(id).is_none() || !within.has_domain(id))
    {
        return Err(Problem::invalid_query(
            "domain: is none of the configured ones",
        ));
    }
    let least = match query.format {
        Format::Ndjson => 1,
        _ => FIRST_LINE,
    };
    let order = Order {
        format: query.format,
        domain: query.domain,
        life_days: query.life_days,
        tag: query.tag,
        first_line: query.first_line.unwrap_or(least).max(least),
        is_dry_run: query.dry_run,
        tenant: within.tenant().cloned(),
        narrow_key: within.narrow_key(),
    };
    let imported = links.importer().import(&order, &file).await;
    imported.map(Json).map_err(|failure| match failure {
        ImportError::File(error) => {
            Problem::unprocessable("invalid_import", "Not such a file", error.to_string())
        }
        ImportError::Create(error) => not_made(error),
        ImportError::Store(error) => error.into(),
        ImportError::Find(error) => not_found(error),
    })
}

fn unread(rejection: &BytesRejection) -> Problem {
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            "Body too large",
            format!(
                "a file has up to {BODY_LEN_MAX} bytes: send it in parts, as `weir-origin links import` does"
            ),
        ),
        _ => Problem::invalid_body("the body could not be read"),
    }
}
