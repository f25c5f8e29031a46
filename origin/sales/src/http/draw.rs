//! Public routes of draws.

use axum::Json;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_base::id::SaleId;

use super::SalePath;
use super::refusals::{DRAW_OPEN, NO_DRAW};
use crate::Sales;
use crate::model::draw_order::{ALGORITHM, is_ticket};
use crate::store::StoredDraw;
use weir_origin_core::http::{Problem, ReadQuery, page_len};

/// Default number of tickets per page, and its maximum.
const LIMIT_DEFAULT: usize = 1_000;
const LIMIT_MAX: usize = 10_000;

/// Public data of a draw.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Draw)]
pub(super) struct DrawView {
    /// The sale's id.
    #[schema(value_type = String)]
    sale: SaleId,
    /// Algorithm: `weir-draw-1`.
    algorithm: &'static str,
    /// SHA-256 of the seed, in hex; public from the beginning.
    commitment: String,
    /// Number of winners.
    winners: u64,
    /// Closing time of the list, in milliseconds since the Unix epoch; null: the list is open.
    #[schema(required)]
    closed_at_ms: Option<u64>,
    /// Number of entries; null: the list is open.
    #[schema(required)]
    entries: Option<u64>,
    /// SHA-256 of the sorted tickets, each ended by a line feed, in hex; null: the list is open.
    #[schema(required)]
    list_sha256: Option<String>,
    /// Time of the draw, in milliseconds since the Unix epoch; null: not drawn yet.
    #[schema(required)]
    drawn_at_ms: Option<u64>,
    /// The seed; null before the winners are stored.
    #[schema(required)]
    seed: Option<String>,
}

impl From<StoredDraw> for DrawView {
    fn from(draw: StoredDraw) -> Self {
        let (entries, list_sha256) = draw.list.unzip();
        Self {
            sale: draw.sale,
            algorithm: ALGORITHM,
            seed: draw.drawn_at_ms.map(|_| draw.seed.reveal()),
            commitment: draw.commitment,
            winners: draw.winners,
            closed_at_ms: draw.closed_at_ms,
            entries,
            list_sha256,
            drawn_at_ms: draw.drawn_at_ms,
        }
    }
}

/// Selects a page of tickets.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Page {
    /// The last ticket of the previous page.
    #[serde(default)]
    #[param(required = false)]
    after: String,
    /// Maximum number of entries.
    #[param(minimum = 1, maximum = 10_000, default = 1000)]
    limit: Option<usize>,
}

/// Get a draw's public data
///
/// The commitment is public from the beginning, the hash of the list when reservations have ended, and the seed after the
/// draw. `weir-origin check-draw` verifies it.
#[utoipa::path(
    get,
    path = "/sales/{id}/draw",
    operation_id = "getDraw",
    params(("id" = String, Path, description = "The sale's id.")),
    responses((status = 200, description = "The draw", body = DrawView)),
)]
pub(super) async fn get(
    State(sales): State<Sales>,
    SalePath(id): SalePath,
) -> Result<Json<DrawView>, Problem> {
    let draw = sales.orders.sql(sales.store.draws().draw(&id)).await?;
    draw.map(|draw| Json(draw.into())).ok_or_else(no_draw)
}

/// List the tickets of a draw
///
/// Returns the sorted tickets of a closed list, one per line. A page shorter than its limit is the last.
#[utoipa::path(
    get,
    path = "/sales/{id}/draw/entries",
    operation_id = "listDrawEntries",
    params(("id" = String, Path, description = "The sale's id."), Page),
    responses((status = 200, description = "The tickets", body = String, content_type = "text/plain")),
)]
pub(super) async fn entries(
    State(sales): State<Sales>,
    SalePath(id): SalePath,
    ReadQuery(page): ReadQuery<Page>,
) -> Result<Response, Problem> {
    let limit = page_len(page.limit, LIMIT_MAX)?.unwrap_or(LIMIT_DEFAULT);
    if !page.after.is_empty() && !is_ticket(&page.after) {
        return Err(Problem::invalid_query("after: must be a ticket"));
    }
    let draw = sales.orders.sql(sales.store.draws().draw(&id)).await?;
    if draw.ok_or_else(no_draw)?.list.is_none() {
        let detail = "reservations are still open, so the list is not final";
        return Err(DRAW_OPEN.because(detail));
    }
    let tickets = sales.store.draws().draw_tickets(&id, &page.after, limit);
    let mut text = sales.orders.sql(tickets).await?.join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    let headers = [
        (CONTENT_TYPE, "text/plain; charset=utf-8"),
        (CACHE_CONTROL, "public, max-age=60"),
    ];
    Ok((headers, text).into_response())
}

fn no_draw() -> Problem {
    let detail = "there is no such sale, or it has no draw";
    NO_DRAW.because(detail)
}
