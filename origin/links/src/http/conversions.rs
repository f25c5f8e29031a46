//! Orders attributed to a link's clicks.

use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;

use super::CodeParam;
use super::links::{NamedLink, found};
use super::refusals::CONVERSIONS_OFF;
use super::stats::StatsQuery;
use crate::Links;
use crate::conversions::Conversions;
use weir_origin_core::http::{Problem, ReadQuery};

/// Orders attributed to a link's clicks, in their current state.
#[derive(Serialize, ToSchema)]
#[schema(as = LinkConversions)]
pub(super) struct ConversionsView {
    /// Start of the order period, in milliseconds since the Unix epoch.
    from_ms: u64,
    /// Before when.
    to_ms: u64,
    /// Time zone of the days.
    tz: String,
    #[serde(flatten)]
    found: Conversions,
}

/// Get orders attributed to a link's clicks
#[utoipa::path(
    get,
    path = "/links/{code}/conversions",
    operation_id = "getLinkConversions",
    params(CodeParam, StatsQuery),
    responses((status = 200, description = "The current numbers", body = ConversionsView)),
)]
pub(super) async fn get(
    links: Links,
    NamedLink(id): NamedLink,
    ReadQuery(query): ReadQuery<StatsQuery>,
) -> Result<Json<ConversionsView>, Problem> {
    let range = query.range()?;
    found(&links, &id).await?;
    let Some(orders) = links.conversions() else {
        let detail =
            "click ids are not enabled: set WEIR_LINK_CLICK_SECRET here and at the gateways";
        return Err(CONVERSIONS_OFF.because(detail));
    };
    let (from_ms, until_ms) = (range.from_ms(), range.until_ms());
    let found = orders.of_link(&id, from_ms, until_ms).await?;
    Ok(Json(ConversionsView {
        from_ms,
        to_ms: until_ms,
        tz: range.zone().to_owned(),
        found,
    }))
}
