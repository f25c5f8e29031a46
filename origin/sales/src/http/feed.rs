//! What edges read of sales.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response};
use tracing::error;
use weir_sale::feed::{FRESH_MS, SaleList};
use weir_sale::redis::catalogue;
use weir_sale::sale::Catalogue;

use crate::Sales;
use weir_origin_core::http::{Edges, Problem, document_ms};

/// The sales of an origin that has edges.
#[derive(Clone, Debug)]
pub(super) struct Feeds {
    pub(super) sales: Sales,
    pub(super) edges: Edges,
    /// See [`SaleList::stock_in_objects`].
    pub(super) stock_in_objects: Option<String>,
}

/// `GET /edge/v1/feed/sold-out`: the catalogue as gateways have it, from the one place that all origins write. Without Redis
/// there is none, and what edges know ends in seconds: they refuse nobody whom gateways would not.
pub(super) async fn sold_out(
    State(feeds): State<Feeds>,
    headers: HeaderMap,
) -> Result<Response<Body>, Problem> {
    let at_ms = document_ms();
    let json = feeds.sales.ledger().published().await?;
    let json = json.ok_or_else(|| {
        Problem::unavailable(
            "no_catalogue",
            "no sale was published yet; please try again",
        )
    })?;
    let catalogue = catalogue::read(&json).map_err(|error| {
        error!(%error, "Redis holds what is no catalogue");
        Problem::redis()
    })?;
    // Edges sign no claims.
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
