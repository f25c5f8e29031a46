//! The routes of history lists.

use axum::Json;
use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tracing::warn;
use utoipa::ToSchema;
use utoipa::openapi::schema::{Array, ArrayBuilder, ObjectBuilder, Type};
use weir_history::list::ListCursor;
use weir_history::{Owner, Sku, VIEWS_MAX};

use super::refusals::{HISTORY_UNAVAILABLE, INVALID_SKU, INVALID_VISITOR, TOO_MANY_DELETIONS};
use super::{HistoryRequest, OwnerQuery, invalid_query, invalid_sku};
use crate::join::JoinError;
use crate::read::{Item, Page};
use crate::remove::{DELETED_MAX, RemovalTiming, RemoveError};
use weir_origin_core::http::{Problem, TypedBody};

/// Default number of items on a page.
const LIMIT: usize = 50;

/// Selects a part of a list. On the admin port, the query also selects the user or visitor.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListPageQuery {
    /// Maximum number of entries.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<usize>,
    /// Only views before `<ms>`, or after the item `<ms>,<sku>`: the `next` of the previous page.
    before: Option<String>,
}

/// Products to delete from a list.
#[derive(Deserialize, ToSchema)]
#[schema(as = HistoryDelete)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteBody {
    /// The SKUs.
    #[schema(schema_with = skus)]
    skus: Vec<String>,
}

fn skus() -> Array {
    let sku = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(64));
    ArrayBuilder::new()
        .items(sku)
        .min_items(Some(1))
        .max_items(Some(DELETED_MAX))
        .description(Some("The SKUs."))
        .build()
}

/// The guest whose views to merge.
#[derive(Deserialize, ToSchema)]
#[schema(as = HistoryJoin)]
#[serde(deny_unknown_fields)]
pub(super) struct JoinBody {
    /// The visitor id, from a cookie.
    #[schema(min_length = 1, max_length = 128)]
    visitor: String,
}

/// Number of products in a list.
#[derive(Serialize, ToSchema)]
#[schema(as = HistoryCount)]
struct CountView {
    /// The number.
    #[schema(maximum = 200)]
    count: u64,
    /// false: the cold store is unavailable, so the number may be too low.
    complete: bool,
}

/// Result of a merge.
#[derive(Serialize, ToSchema)]
#[schema(as = HistoryJoined)]
pub(super) struct JoinedView {
    /// Number of merged views.
    joined: usize,
    /// false: merge again later.
    complete: bool,
}

/// A viewed product.
#[derive(Serialize, ToSchema)]
#[schema(as = HistoryItem)]
struct ItemView {
    /// The SKU.
    #[schema(min_length = 1, max_length = 64)]
    sku: String,
    /// Time of the last view, in milliseconds since the Unix epoch.
    viewed_at_ms: u64,
    #[serde(flatten)]
    product: crate::model::products::Product,
}

/// A page of a list.
#[derive(Serialize, ToSchema)]
#[schema(as = HistoryPage)]
struct PageView {
    /// The products of this page, newest first.
    items: Vec<ItemView>,
    /// false: the cold store is unavailable, so products may be missing.
    complete: bool,
    /// `before` of the next page; absent: this is the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    next: Option<String>,
}

impl From<Page> for PageView {
    fn from(page: Page) -> Self {
        let last = page.items.last().filter(|_| page.has_more);
        let next = last.map(|Item { observed, .. }| format!("{},{}", observed.at_ms, observed.sku));
        let view = |item: Item| ItemView {
            sku: item.observed.sku.to_string(),
            viewed_at_ms: item.observed.at_ms,
            product: item.product,
        };
        Self {
            items: page.items.into_iter().map(view).collect(),
            complete: page.is_complete,
            next,
        }
    }
}

/// List recently viewed products, newest first
///
/// Pages of products that a user or visitor viewed last, each SPU once.
#[utoipa::path(
    get,
    path = "/history",
    operation_id = "listHistory",
    params(OwnerQuery, ListPageQuery),
    security(("user" = [], "userSignature" = [])),
    responses((status = 200, description = "A page", body = PageView)),
)]
pub(super) async fn list(request: HistoryRequest, uri: Uri) -> Result<Response, Problem> {
    let requested = axum::extract::Query::<ListPageQuery>::try_from_uri(&uri);
    let requested = requested
        .map_err(|error| invalid_query(error.body_text()))?
        .0;
    let limit = requested.limit.unwrap_or(LIMIT);
    if !(1..=VIEWS_MAX).contains(&limit) {
        return Err(invalid_query(format!("limit: must be 1 to {VIEWS_MAX}")));
    }
    let read = |text: &String| {
        let refused = || invalid_query("before: must be <ms> or <ms>,<sku>".to_owned());
        ListCursor::read(text).ok_or_else(refused)
    };
    let place = requested.before.as_ref().map(read).transpose()?;
    let page = request.history.list(&request.owner, limit, place.as_ref());
    Ok(private(Json(PageView::from(page.await?))))
}

/// Count the products in a list
#[utoipa::path(
    get,
    path = "/history/count",
    operation_id = "countHistory",
    params(OwnerQuery),
    security(("user" = [], "userSignature" = [])),
    responses((status = 200, description = "So many", body = CountView)),
)]
pub(super) async fn count(request: HistoryRequest) -> Result<Response, Problem> {
    let count = request.history.count(&request.owner).await?;
    Ok(private(Json(CountView {
        count: count.count,
        complete: count.is_complete,
    })))
}

/// Delete a product from a list
///
/// It stays deleted until it is viewed again. For a SKU that equals a path under /history, use POST /history/delete.
#[utoipa::path(
    delete,
    path = "/history/{sku}",
    operation_id = "deleteFromHistoryBySku",
    params(("sku" = String, Path, description = "The SKU.", min_length = 1, max_length = 64), OwnerQuery),
    security(("user" = [], "userSignature" = [])),
    responses(
        (status = 202, description = "Done; Redis is updated when it answers again"),
        (status = 204, description = "Done"),
    ),
)]
pub(super) async fn delete_one(
    request: HistoryRequest,
    Path(sku): Path<String>,
) -> Result<StatusCode, Problem> {
    let sku = Sku::new(sku).map_err(invalid_sku)?;
    removed(request.history.delete(&request.owner, &[sku]).await)
}

/// Delete up to 200 products from a list
///
/// They stay deleted until they are viewed again.
#[utoipa::path(
    post,
    path = "/history/delete",
    operation_id = "deleteFromHistory",
    params(OwnerQuery),
    request_body = DeleteBody,
    security(("user" = [], "userSignature" = [])),
    responses(
        (status = 202, description = "Done; Redis is updated when it answers again"),
        (status = 204, description = "Done"),
    ),
)]
pub(super) async fn delete_many(
    request: HistoryRequest,
    TypedBody(body): TypedBody<DeleteBody>,
) -> Result<StatusCode, Problem> {
    if !(1..=DELETED_MAX).contains(&body.skus.len()) {
        let detail = format!("skus: must be 1 to {DELETED_MAX}");
        return Err(INVALID_SKU.because(detail));
    }
    let skus = body.skus.into_iter().map(Sku::new);
    let skus = skus.collect::<Result<Vec<_>, _>>().map_err(invalid_sku)?;
    removed(request.history.delete(&request.owner, &skus).await)
}

/// Clear a list
///
/// Earlier views never come back.
#[utoipa::path(
    delete,
    path = "/history",
    operation_id = "clearHistory",
    params(OwnerQuery),
    security(("user" = [], "userSignature" = [])),
    responses(
        (status = 202, description = "Done; Redis is updated when it answers again"),
        (status = 204, description = "Done"),
    ),
)]
pub(super) async fn clear(request: HistoryRequest) -> Result<StatusCode, Problem> {
    removed(request.history.clear(&request.owner).await)
}

/// Merge a guest's views into the signed-in user's list
///
/// Repeating it changes nothing.
#[utoipa::path(
    post,
    path = "/history/join",
    operation_id = "joinHistory",
    params(OwnerQuery),
    request_body = JoinBody,
    security(("user" = [], "userSignature" = [])),
    responses((status = 200, description = "The result", body = JoinedView)),
)]
pub(super) async fn join(
    request: HistoryRequest,
    TypedBody(body): TypedBody<JoinBody>,
) -> Result<Json<JoinedView>, Problem> {
    let guest = Owner::guest(&body.visitor).map_err(|error| {
        let detail = format!("visitor: {error}");
        INVALID_VISITOR.because(detail)
    })?;
    let joined = request.history.join(&guest, &request.owner).await;
    let joined = joined.map_err(not_joined)?;
    Ok(Json(JoinedView {
        joined: joined.views,
        complete: joined.is_complete,
    }))
}

/// The log contains the reason; the client does not receive it.
fn not_joined(error: JoinError) -> Problem {
    match error {
        JoinError::Unavailable(error) => error.into(),
        JoinError::Fold(error) => {
            warn!(%error, "cannot merge a guest's views into the user's yet");
            let detail = "the views are not merged yet; please try again";
            HISTORY_UNAVAILABLE.because(detail)
        }
    }
}

/// 204: removed. 202: stored in SQL; Redis is updated when it is available again.
fn removed(removed: Result<RemovalTiming, RemoveError>) -> Result<StatusCode, Problem> {
    match removed {
        Ok(RemovalTiming::Now) => Ok(StatusCode::NO_CONTENT),
        Ok(RemovalTiming::Soon) => Ok(StatusCode::ACCEPTED),
        Err(error @ RemoveError::TooMany) => {
            let detail = error.to_string();
            Err(TOO_MANY_DELETIONS.because(detail))
        }
        Err(RemoveError::Unavailable(error)) => Err(error.into()),
    }
}

/// A list is personal, so no cache may store it.
fn private(body: impl IntoResponse) -> Response {
    let mut response = body.into_response();
    let no_store = HeaderValue::from_static("private, no-store");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, no_store);
    response
}
