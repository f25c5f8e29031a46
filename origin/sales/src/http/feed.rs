//! The feed of sales for edges.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response};
use tracing::error;
use weir_sale::feed::{FRESH_MS, SaleList};
use weir_sale::redis::catalogue;
use weir_sale::sale::Catalogue;

use super::refusals::NO_CATALOGUE;
use crate::Sales;
use weir_origin_core::http::{EdgeHeaders, Edges, Problem, document_ms};

/// State of the feed's handler.
#[derive(Clone, Debug)]
pub(super) struct Feeds {
    pub(super) sales: Sales,
    pub(super) edges: Edges,
    /// See [`SaleList::stock_in_objects`].
    pub(super) stock_in_objects: Option<String>,
}

/// Get the catalogue with sold-out sales marked, signed, for edges
///
/// The answer is valid for a few seconds.
#[utoipa::path(
    get,
    path = weir_base::feed::routes::SOLD_OUT,
    operation_id = "getSoldOutFeed",
    params(EdgeHeaders),
    responses(
        (status = 200, description = "A document: one line with its signature, and one line of JSON", body = String, content_type = "application/vnd.weir.feed", headers(("etag" = String))),
        (status = 304, description = "Not changed since If-None-Match"),
    ),
)]
pub(super) async fn sold_out(
    State(feeds): State<Feeds>,
    headers: HeaderMap,
) -> Result<Response<Body>, Problem> {
    let at_ms = document_ms();
    let json = feeds.sales.ledger().published().await?;
    let json = json
        .ok_or_else(|| NO_CATALOGUE.because("no sale has been published yet; please try again"))?;
    let catalogue = catalogue::read(&json).map_err(|error| {
        error!(%error, "invalid catalogue in Redis");
        Problem::redis()
    })?;
    // Edges do not sign claims.
    let catalogue = Catalogue {
        claim_keys: Vec::new(),
        ..catalogue
    };
    let list = SaleList {
        fresh_ms: FRESH_MS,
        catalogue,
        stock_in_objects: feeds.stock_in_objects.clone(),
    };
    let version = list.catalogue.version.to_string();
    feeds.edges.publish(&list, at_ms, &version, &headers)
}
