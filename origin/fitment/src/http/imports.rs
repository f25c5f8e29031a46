//! The routes of imports: upload, progress, errors and cancellation.

use axum::Json;
use axum::body::Body;
use axum::extract::Path;
use axum::http::StatusCode;
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tracing::error;
use utoipa::ToSchema;
use utoipa::openapi::Object;

use super::invalid;
use crate::Fitment;
use crate::import::{Format, Spec};
use crate::store::{Import, ImportError};
use weir_origin_core::api::words;
use weir_origin_core::http::{Problem, ReadQuery, Refusal};

/// Maximum file length. Split larger files.
const FILE_LEN_MAX: u64 = 16 << 30;

/// Number of imports or errors on a page.
const PAGE: usize = 100;

/// Content of a file, and how to apply it.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ImportParameters {
    /// Content of the file.
    #[param(schema_with = kinds)]
    kind: String,
    /// Format of the file.
    #[serde(default)]
    #[param(required = false, schema_with = formats)]
    format: String,
    /// Whether existing relations of the file's SKUs are kept (`merge`) or replaced (`replace`).
    #[serde(default)]
    #[param(required = false, schema_with = modes)]
    mode: String,
    /// Whether to refuse records with qualifiers that would be dropped.
    #[serde(default)]
    #[param(required = false)]
    strict: bool,
}

/// Selects a page.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ImportPageQuery {
    /// Only imports with a smaller id.
    before: Option<u64>,
}

/// Selects a page.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ImportOffsetQuery {
    /// The number of the first error of the page, from 0.
    #[serde(default)]
    #[param(required = false)]
    from: u64,
}

/// Selects an import.
#[derive(utoipa::IntoParams)]
#[into_params(names("id"), parameter_in = Path)]
pub(super) struct ImportParam(
    /// The id of the import.
    #[expect(dead_code, reason = "describes a parameter")]
    String,
);

/// A new import.
#[derive(Serialize, ToSchema)]
#[schema(as = NewImport)]
pub(super) struct NewImportView {
    /// Its id.
    id: u64,
}

/// A page of imports.
#[derive(Serialize, ToSchema)]
#[schema(as = Imports)]
pub(super) struct ImportsView {
    /// The imports of this page.
    imports: Vec<Import>,
}

/// A page of errors in a file.
#[derive(Serialize, ToSchema)]
#[schema(as = ImportErrors)]
pub(super) struct ImportErrorsView {
    /// Number of errors.
    count: u64,
    /// The errors of this page.
    errors: Vec<ImportError>,
}

/// The file could not be stored.
pub(super) const IMPORT_NOT_KEPT: Refusal =
    Refusal::unavailable("import_not_kept", "The file could not be stored on disk");

/// The parameters of the import are invalid.
pub(super) const INVALID_IMPORT: Refusal =
    Refusal::invalid("invalid_import", "Invalid", "The file cannot be imported");

/// The file exceeds the maximum length.
pub(super) const FILE_TOO_LONG: Refusal = Refusal::new(
    StatusCode::PAYLOAD_TOO_LARGE,
    "body_too_long",
    "Too large",
    "The body is longer than this route accepts",
);

/// The import does not exist.
pub(super) const UNKNOWN_IMPORT: Refusal = Refusal::not_found(
    "unknown_import",
    "Unknown import",
    "There is no such import",
);

/// The import has already ended.
pub(super) const IMPORT_ENDED: Refusal =
    Refusal::conflict("import_ended", "Ended", "The import has ended");

fn kinds() -> Object {
    words(
        "Content of the file.",
        ["vehicles", "products", "relations"],
    )
}

fn formats() -> Object {
    words(
        "Format of the file.",
        Format::ALL.iter().map(|one| one.label()),
    )
}

fn modes() -> Object {
    words(
        "Whether existing relations of the file's SKUs are kept (`merge`) or replaced (`replace`).",
        ["merge", "replace"],
    )
}

/// Import the file in the body
///
/// The answer comes when the file is on disk. The import then runs in the background, and applies all of it or nothing.
#[utoipa::path(
    post,
    path = "/fitment/imports",
    operation_id = "createImport",
    params(ImportParameters),
    request_body(content = String, content_type = "application/octet-stream"),
    responses((status = 202, description = "It waits", body = NewImportView)),
)]
pub(super) async fn upload(
    fitment: Fitment,
    ReadQuery(query): ReadQuery<ImportParameters>,
    body: Body,
) -> Result<(StatusCode, Json<NewImportView>), Problem> {
    let spec = Spec::read(&query.kind, &query.format, &query.mode, query.strict);
    let spec = spec.map_err(|detail| invalid(INVALID_IMPORT, detail))?;
    let (name, path) = fitment.new_spool_file();
    let recorded = match spool(&path, body).await {
        Ok(size) => fitment
            .new_import(spec, name, size)
            .await
            .map_err(Problem::from),
        Err(problem) => Err(problem),
    };
    match recorded {
        Ok(id) => Ok((StatusCode::ACCEPTED, Json(NewImportView { id }))),
        Err(problem) => {
            // Without its row in SQL the file is unused, so remove it.
            let _ = tokio::fs::remove_file(&path).await;
            Err(problem)
        }
    }
}

async fn spool(path: &std::path::Path, mut body: Body) -> Result<u64, Problem> {
    let full = |error: std::io::Error| {
        error!(%error, path = %path.display(), "cannot store an import file");
        IMPORT_NOT_KEPT.because("cannot store the file; check the disk space")
    };
    let mut file = tokio::fs::File::create_new(path).await.map_err(full)?;
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| {
            Problem::invalid_body("the upload was interrupted; nothing is imported")
        })?;
        let Ok(bytes) = frame.into_data() else {
            continue;
        };
        size += bytes.len() as u64;
        if size > FILE_LEN_MAX {
            let detail = format!("the file is larger than {FILE_LEN_MAX} bytes");
            return Err(FILE_TOO_LONG.because(detail));
        }
        file.write_all(&bytes).await.map_err(full)?;
    }
    file.flush().await.map_err(full)?;
    file.sync_all().await.map_err(full)?;
    Ok(size)
}

/// List imports, newest first
///
/// `before` is the smallest id of the previous page.
#[utoipa::path(
    get,
    path = "/fitment/imports",
    operation_id = "listImports",
    params(ImportPageQuery),
    responses((status = 200, description = "The imports", body = ImportsView)),
)]
pub(super) async fn list(
    fitment: Fitment,
    ReadQuery(requested): ReadQuery<ImportPageQuery>,
) -> Result<Json<ImportsView>, Problem> {
    let before = requested.before.unwrap_or(i64::MAX as u64);
    let imports = fitment.store().import_jobs().imports(before, PAGE).await?;
    Ok(Json(ImportsView { imports }))
}

/// Get the progress of an import
#[utoipa::path(
    get,
    path = "/fitment/imports/{id}",
    operation_id = "getImport",
    params(ImportParam),
    responses((status = 200, description = "The import", body = Import)),
)]
pub(super) async fn one(fitment: Fitment, Path(id): Path<String>) -> Result<Json<Import>, Problem> {
    find(&fitment, &id).await.map(Json)
}

/// Cancel a running import; nothing of it is applied
#[utoipa::path(
    delete,
    path = "/fitment/imports/{id}",
    operation_id = "giveUpImport",
    params(ImportParam),
    responses((status = 204, description = "The import is cancelled")),
)]
pub(super) async fn give_up(
    fitment: Fitment,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let import = find(&fitment, &id).await?;
    if fitment.give_up_import(import.id).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    let detail = "the import has ended and cannot be cancelled";
    Err(IMPORT_ENDED.because(detail))
}

/// List the errors of an import, by line
///
/// Pages of 100, up to 1,000 errors.
#[utoipa::path(
    get,
    path = "/fitment/imports/{id}/errors",
    operation_id = "listImportErrors",
    params(ImportParam, ImportOffsetQuery),
    responses((status = 200, description = "The errors", body = ImportErrorsView)),
)]
pub(super) async fn errors(
    fitment: Fitment,
    Path(id): Path<String>,
    ReadQuery(requested): ReadQuery<ImportOffsetQuery>,
) -> Result<Json<ImportErrorsView>, Problem> {
    let import = find(&fitment, &id).await?;
    let errors = fitment
        .store()
        .import_jobs()
        .import_errors(import.id, requested.from, PAGE)
        .await?;
    Ok(Json(ImportErrorsView {
        count: import.progress.errors,
        errors,
    }))
}

async fn find(fitment: &Fitment, id: &str) -> Result<Import, Problem> {
    let unknown = || UNKNOWN_IMPORT.because("import not found");
    let id = id.parse().map_err(|_| unknown())?;
    fitment
        .store()
        .import_jobs()
        .import(id)
        .await?
        .ok_or_else(unknown)
}
