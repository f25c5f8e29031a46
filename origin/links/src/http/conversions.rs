//! Orders that came of a link's clicks.

use axum::Json;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use serde_json::{Value, json};

use super::links::{NamedLink, found};
use super::stats::{StatsQuery, range_of};
use crate::Links;
use weir_origin_core::http::Problem;

/// `GET /links/{code}/conversions`.
pub(super) async fn get(
    links: Links,
    NamedLink(id): NamedLink,
    asked: Result<Query<StatsQuery>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let range = range_of(asked)?;
    found(&links, &id).await?;
    let Some(orders) = links.conversions() else {
        let detail = "nothing names clicks here: set WEIR_LINK_CLICK_SECRET, at gateways too";
        return Err(Problem::not_found(
            "conversions_off",
            "No conversions",
            detail,
        ));
    };
    let (from_ms, until_ms) = (range.from_ms(), range.until_ms());
    let found = orders.of_link(&id, from_ms, until_ms).await?;
    Ok(Json(json!({
        "from_ms": from_ms, "to_ms": until_ms, "tz": range.zone(),
        "clicks": found.clicks, "orders": found.orders, "units": found.units,
        "paid_orders": found.paid_orders, "paid_units": found.paid_units, "revenue": found.revenue,
    })))
}
