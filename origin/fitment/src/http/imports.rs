//! The routes of imports: a file in, what becomes of it out.

use axum::Json;
use axum::body::Body;
use axum::extract::Path;
use axum::http::StatusCode;
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tracing::error;

use super::invalid;
use crate::Fitment;
use crate::import::Spec;
use crate::store::Import;
use weir_origin_core::http::{Problem, ReadQuery};

/// The longest file: what is larger comes in several.
const FILE_LEN_MAX: u64 = 16 << 30;

/// Imports and errors of an answer.
const PAGE: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct What {
    kind: String,
    #[serde(default)]
    format: String,
    #[serde(default)]
    mode: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Before {
    before: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct From {
    #[serde(default)]
    from: u64,
}

/// `POST /fitment/imports?kind=&format=&mode=`: the body is the file. It is on disk, whole, before the answer.
pub(super) async fn upload(
    fitment: Fitment,
    ReadQuery(what): ReadQuery<What>,
    body: Body,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let spec = Spec::read(&what.kind, &what.format, &what.mode);
    let spec = spec.map_err(|detail| invalid("invalid_import", detail))?;
    let (name, path) = fitment.new_spool_file();
    let noted = match spool(&path, body).await {
        Ok(size) => fitment
            .new_import(spec, name, size)
            .await
            .map_err(Problem::from),
        Err(problem) => Err(problem),
    };
    match noted {
        Ok(id) => Ok((StatusCode::ACCEPTED, Json(json!({ "id": id })))),
        Err(problem) => {
            // Nobody knows of it: without its row it is only a file.
            let _ = tokio::fs::remove_file(&path).await;
            Err(problem)
        }
    }
}

async fn spool(path: &std::path::Path, mut body: Body) -> Result<u64, Problem> {
    let full = |error: std::io::Error| {
        error!(%error, path = %path.display(), "an import is not kept");
        Problem::unavailable(
            "import_not_kept",
            "the file could not be kept; is the disk full?",
        )
    };
    let mut file = tokio::fs::File::create_new(path).await.map_err(full)?;
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|_| Problem::invalid_body("the file broke off; nothing is imported"))?;
        let Ok(bytes) = frame.into_data() else {
            continue;
        };
        size += bytes.len() as u64;
        if size > FILE_LEN_MAX {
            let detail = format!("a file may have {FILE_LEN_MAX} bytes");
            return Err(Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "body_too_long",
                "Too large",
                detail,
            ));
        }
        file.write_all(&bytes).await.map_err(full)?;
    }
    file.flush().await.map_err(full)?;
    file.sync_all().await.map_err(full)?;
    Ok(size)
}

/// `GET /fitment/imports?before=`: the latest.
pub(super) async fn list(
    fitment: Fitment,
    ReadQuery(wanted): ReadQuery<Before>,
) -> Result<Json<Value>, Problem> {
    let before = wanted.before.unwrap_or(i64::MAX as u64);
    let imports = fitment.store().imports(before, PAGE).await?;
    Ok(Json(json!({ "imports": imports })))
}

/// `GET /fitment/imports/{id}`.
pub(super) async fn one(fitment: Fitment, Path(id): Path<String>) -> Result<Json<Import>, Problem> {
    find(&fitment, &id).await.map(Json)
}

/// `DELETE /fitment/imports/{id}`: gives up one that has not ended.
pub(super) async fn give_up(
    fitment: Fitment,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let import = find(&fitment, &id).await?;
    if fitment.give_up_import(import.id).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    let detail = "the import has ended; it cannot be given up";
    Err(Problem::new(
        StatusCode::CONFLICT,
        "import_ended",
        "Ended",
        detail,
    ))
}

/// `GET /fitment/imports/{id}/errors?from=`.
pub(super) async fn errors(
    fitment: Fitment,
    Path(id): Path<String>,
    ReadQuery(wanted): ReadQuery<From>,
) -> Result<Json<Value>, Problem> {
    let import = find(&fitment, &id).await?;
    let errors = fitment
        .store()
        .import_errors(import.id, wanted.from, PAGE)
        .await?;
    Ok(Json(
        json!({ "count": import.progress.errors, "errors": errors }),
    ))
}

async fn find(fitment: &Fitment, id: &str) -> Result<Import, Problem> {
    let unknown = || {
        Problem::not_found(
            "unknown_import",
            "Unknown import",
            "there is no such import",
        )
    };
    let id = id.parse().map_err(|_| unknown())?;
    fitment.store().import(id).await?.ok_or_else(unknown)
}
