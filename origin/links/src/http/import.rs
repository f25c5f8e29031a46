//! Imports links from a file: an export of Weir, or of another shortener.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use serde::Deserialize;

use super::links::{not_found, not_made};
use super::within::CallerFilter;
use crate::Links;
use crate::import::format::Format;
use crate::import::rows::FIRST_LINE;
use crate::import::{ImportError, Order, Report};
use weir_origin_core::http::refusal::{BODY_TOO_LARGE, INVALID_BODY};
use weir_origin_core::http::{Problem, ReadQuery, Refusal};

/// Maximum file length, in bytes. `weir-origin links import` sends larger files in parts.
pub(super) const BODY_LEN_MAX: usize = 8 * 1024 * 1024;

/// Reasons to refuse a file.
pub(super) const REFUSALS: &[Refusal] = &[INVALID_BODY, INVALID_IMPORT];

const INVALID_IMPORT: Refusal = Refusal::invalid(
    "invalid_import",
    "Invalid file",
    "The file cannot be imported",
);

/// Options of an import.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ImportQuery {
    /// Format of the file; `csv` and `ndjson` are Weir's own.
    #[param(inline)]
    format: Format,
    /// Domain for links of unknown hosts. Default: the first domain.
    domain: Option<String>,
    /// Lifetime in days for rows without one. Default: 0 (never expires); in Weir's own exports, the domain's default.
    life_days: Option<u32>,
    /// Tag added to every link.
    tag: Option<String>,
    /// If the body is a part of a file: line number of its first row after the header.
    #[param(minimum = 1)]
    first_line: Option<u64>,
    /// Only report what the import would do.
    #[serde(default)]
    #[param(required = false, default = false)]
    dry_run: bool,
}

/// Import links from an export of Weir, Bitly, Shlink, Dub or YOURLS
///
/// The body is the file. Links keep their codes. You can import a file again, completely or in part: existing links with
/// the same target stay unchanged. The answer lists each refused row with its line and reason; all other rows are
/// imported.
#[utoipa::path(
    post,
    path = super::IMPORTS,
    operation_id = "importLinks",
    params(ImportQuery),
    request_body(content = String, content_type = "text/csv"),
    responses((status = 200, description = "The file was read to its end", body = Report)),
)]
pub(super) async fn import(
    links: Links,
    within: CallerFilter,
    ReadQuery(query): ReadQuery<ImportQuery>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Report>, Problem> {
    let file = body.map_err(|rejection| unread(&rejection))?;
    if let Some(id) = &query.domain
        && (links.domains().domains.by_id(id).is_none() || !within.has_domain(id))
    {
        return Err(Problem::invalid_query("domain: is not a configured domain"));
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
        ImportError::File(error) => INVALID_IMPORT.because(error.to_string()),
        ImportError::Create(error) => not_made(error),
        ImportError::Store(error) => error.into(),
        ImportError::Find(error) => not_found(error),
    })
}

fn unread(rejection: &BytesRejection) -> Problem {
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => BODY_TOO_LARGE.because(format!(
            "the file is larger than {BODY_LEN_MAX} bytes: split it, or use `weir-origin links import`"
        )),
        _ => Problem::invalid_body("cannot read the body"),
    }
}
