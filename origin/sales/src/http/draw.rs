//! What anybody may see of a draw, before and after it.

use axum::Json;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use weir_base::id::SaleId;

use super::SalePath;
use crate::Sales;
use crate::draw::order::{ALGORITHM, is_ticket};
use crate::store::StoredDraw;
use weir_origin_core::http::{Problem, ReadQuery, page_len};

/// The tickets of a page, unless the query says so, and at most.
const LIMIT_DEFAULT: usize = 1_000;
const LIMIT_MAX: usize = 10_000;

/// A draw, as anybody may see it.
#[derive(Debug, Serialize)]
pub(super) struct DrawView {
    sale: SaleId,
    algorithm: &'static str,
    commitment: String,
    winners: u64,
    closed_at_ms: Option<u64>,
    entries: Option<u64>,
    list_sha256: Option<String>,
    drawn_at_ms: Option<u64>,
    /// null until the winners are written down.
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

/// Which page of tickets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    /// The last ticket of an earlier page.
    #[serde(default)]
    after: String,
    limit: Option<usize>,
}

/// `GET /sales/{id}/draw`: for anybody.
pub(super) async fn get(
    State(sales): State<Sales>,
    SalePath(id): SalePath,
) -> Result<Json<DrawView>, Problem> {
    let draw = sales.orders.sql(sales.store.draw(&id)).await?;
    draw.map(|draw| Json(draw.into())).ok_or_else(no_draw)
}

/// `GET /sales/{id}/draw/entries`: the sorted tickets, one a line, once nobody enters or leaves.
pub(super) async fn entries(
    State(sales): State<Sales>,
    SalePath(id): SalePath,
    ReadQuery(page): ReadQuery<Page>,
) -> Result<Response, Problem> {
    let limit = page_len(page.limit, LIMIT_MAX)?.unwrap_or(LIMIT_DEFAULT);
    if !page.after.is_empty() && !is_ticket(&page.after) {
        return Err(Problem::invalid_query("after: is no ticket"));
    }
    let draw = sales.orders.sql(sales.store.draw(&id)).await?;
    if draw.ok_or_else(no_draw)?.list.is_none() {
        let detail = "reservations have not ended: the list is not closed";
        return Err(Problem::conflict("draw_open", "Too early", detail));
    }
    let tickets = sales.store.draw_tickets(&id, &page.after, limit);
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
    let detail = "there is no such sale, or it draws nobody";
    Problem::not_found("no_draw", "No draw", detail)
}
