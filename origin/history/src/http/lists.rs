//! The routes of lists.

use axum::Json;
use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tracing::warn;
use weir_history::list::Place;
use weir_history::{Owner, Sku, VIEWS_MAX};

use super::{Asked, invalid_query, invalid_sku};
use crate::join::JoinError;
use crate::read::{Item, Page};
use crate::remove::{DELETED_MAX, RemoveError, Removed};
use weir_origin_core::http::{JsonBody, Problem};

/// Items of a page unless the query says otherwise.
const LIMIT: usize = 50;

/// Which part of a list is asked for. The admin's query also names whose.
#[derive(Deserialize)]
struct Wanted {
    limit: Option<usize>,
    before: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteBody {
    skus: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JoinBody {
    visitor: String,
}

/// An item as clients see it.
#[derive(Serialize)]
struct ItemView {
    sku: String,
    viewed_at_ms: u64,
    #[serde(flatten)]
    product: crate::products::Product,
}

/// A page as clients see it.
#[derive(Serialize)]
struct PageView {
    items: Vec<ItemView>,
    complete: bool,
    /// What `before` is to be for the next page; absent: this is the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl From<Page> for PageView {
    fn from(page: Page) -> Self {
        let last = page.items.last().filter(|_| page.has_more);
        let next = last.map(|Item { seen, .. }| format!("{},{}", seen.at_ms, seen.sku));
        let view = |item: Item| ItemView {
            sku: item.seen.sku.to_string(),
            viewed_at_ms: item.seen.at_ms,
            product: item.product,
        };
        Self {
            items: page.items.into_iter().map(view).collect(),
            complete: page.is_complete,
            next,
        }
    }
}

/// `GET /history?limit=&before=`.
pub(super) async fn list(asked: Asked, uri: Uri) -> Result<Response, Problem> {
    let wanted = axum::extract::Query::<Wanted>::try_from_uri(&uri);
    let wanted = wanted.map_err(|error| invalid_query(error.body_text()))?.0;
    let limit = wanted.limit.unwrap_or(LIMIT);
    if !(1..=VIEWS_MAX).contains(&limit) {
        return Err(invalid_query(format!("limit: must be 1 to {VIEWS_MAX}")));
    }
    let read = |text: &String| {
        let refused = || invalid_query("before: must be <ms> or <ms>,<sku>".to_owned());
        Place::read(text).ok_or_else(refused)
    };
    let place = wanted.before.as_ref().map(read).transpose()?;
    let page = asked.history.list(&asked.owner, limit, place.as_ref());
    Ok(private(Json(PageView::from(page.await?))))
}

/// `GET /history/count`.
pub(super) async fn count(asked: Asked) -> Result<Response, Problem> {
    let count = asked.history.count(&asked.owner).await?;
    let body = json!({ "count": count.count, "complete": count.is_complete });
    Ok(private(Json(body)))
}

/// `DELETE /history/{sku}`.
pub(super) async fn delete_one(
    asked: Asked,
    Path(sku): Path<String>,
) -> Result<StatusCode, Problem> {
    let sku = Sku::new(sku).map_err(invalid_sku)?;
    removed(asked.history.delete(&asked.owner, &[sku]).await)
}

/// `POST /history/delete`.
pub(super) async fn delete_many(
    asked: Asked,
    JsonBody(body): JsonBody<DeleteBody>,
) -> Result<StatusCode, Problem> {
    if !(1..=DELETED_MAX).contains(&body.skus.len()) {
        let detail = format!("skus: must be 1 to {DELETED_MAX}");
        return Err(Problem::unprocessable("invalid_sku", "Invalid SKU", detail));
    }
    let skus = body.skus.into_iter().map(Sku::new);
    let skus = skus.collect::<Result<Vec<_>, _>>().map_err(invalid_sku)?;
    removed(asked.history.delete(&asked.owner, &skus).await)
}

/// `DELETE /history`.
pub(super) async fn clear(asked: Asked) -> Result<StatusCode, Problem> {
    removed(asked.history.clear(&asked.owner).await)
}

/// `POST /history/join`: a guest's views become the user's.
pub(super) async fn join(
    asked: Asked,
    JsonBody(body): JsonBody<JoinBody>,
) -> Result<Response, Problem> {
    let guest = Owner::guest(&body.visitor).map_err(|error| {
        let detail = format!("visitor: {error}");
        Problem::unprocessable("invalid_visitor", "Invalid visitor", detail)
    })?;
    let joined = asked.history.join(&guest, &asked.owner).await;
    let joined = joined.map_err(not_joined)?;
    let body = json!({ "joined": joined.views, "complete": joined.is_complete });
    Ok(Json(body).into_response())
}

/// The reason goes to the log, not to the client.
fn not_joined(error: JoinError) -> Problem {
    match error {
        JoinError::Unavailable(error) => error.into(),
        JoinError::Fold(error) => {
            warn!(%error, "a guest's views are not the user's yet");
            let detail = "the views are not joined yet; please try again";
            Problem::unavailable("history_unavailable", detail)
        }
    }
}

/// 204: it is done. 202: it is done for good, and Redis follows when it answers again.
fn removed(removed: Result<Removed, RemoveError>) -> Result<StatusCode, Problem> {
    match removed {
        Ok(Removed::Now) => Ok(StatusCode::NO_CONTENT),
        Ok(Removed::Soon) => Ok(StatusCode::ACCEPTED),
        Err(error @ RemoveError::TooMany) => {
            let detail = error.to_string();
            Err(Problem::conflict("too_many_deletions", "Too many", detail))
        }
        Err(RemoveError::Unavailable(error)) => Err(error.into()),
    }
}

/// A list is one person's: no cache on the way keeps it.
fn private(body: impl IntoResponse) -> Response {
    let mut response = body.into_response();
    let no_store = HeaderValue::from_static("private, no-store");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, no_store);
    response
}
