//! `GET /public-sales`: the sales that a shop shows.

use axum::Json;
use axum::extract::State;
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_base::id::SaleId;

use crate::Sales;
use crate::listing::{ListFilter, PublicSale};
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::{Problem, ReadQuery, page_len};
use weir_origin_core::tenants::TenantName;

/// Default number of sales per page, and its maximum.
const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1_000;

/// The list is the same for everyone. A cache may serve it stale while it revalidates, and after an error.
const CACHED: HeaderValue =
    HeaderValue::from_static("public, max-age=2, stale-while-revalidate=10, stale-if-error=60");

/// Selects a page.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Page {
    /// The `next` of the previous page.
    after: Option<String>,
    /// Maximum number of entries.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
    /// Only sales of this tenant. Default: all.
    tenant: Option<String>,
    /// Only sales of this SKU.
    sku: Option<String>,
}

/// A page of sales.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PublicSales)]
pub(super) struct PageView {
    /// The sales of this page, earliest start first.
    sales: Vec<PublicSale>,
    /// `after` of the next page; null: this is the last page.
    #[schema(required)]
    next: Option<String>,
    /// The origin's time, for countdowns; client clocks can be wrong.
    now_ms: u64,
}

/// List the public sales
///
/// Pages of listed sales by start time, until an hour after their end. The answer is the same for everyone and cacheable;
/// the origin queries SQL at most once per second.
#[utoipa::path(
    get,
    path = "/public-sales",
    operation_id = "listPublicSales",
    params(Page),
    responses((status = 200, description = "A page", body = PageView)),
)]
pub(super) async fn list(
    State(sales): State<Sales>,
    ReadQuery(page): ReadQuery<Page>,
) -> Result<([(HeaderName, HeaderValue); 1], Json<PageView>), Problem> {
    let after = page.after.as_deref().map(parse_cursor).transpose()?;
    let after = after.as_ref().map(|(starts_at_ms, id)| (*starts_at_ms, id));
    let limit = page_len(page.limit, LIMIT_MAX)?.unwrap_or(LIMIT_DEFAULT);
    let now_ms = now_ms();
    let tenant = page.tenant.as_deref().map(tenant).transpose()?;
    let filter = ListFilter {
        tenant: tenant.as_ref(),
        sku: page.sku.as_deref(),
    };
    let displayed = sales.listing.page(filter, after, limit, now_ms).await?;
    let (list, has_more) = displayed;
    let next = list.last().filter(|_| has_more);
    let next = next.map(|last| format!("{}.{}", last.starts_at_ms, last.id));
    let page = PageView {
        sales: list,
        next,
        now_ms,
    };
    Ok(([(CACHE_CONTROL, CACHED)], Json(page)))
}

fn tenant(name: &str) -> Result<TenantName, Problem> {
    let detail = "tenant: must be 1 to 20 of a-z, 0-9 and single - inside";
    TenantName::new(name).ok_or_else(|| Problem::invalid_query(detail))
}

/// Parses a cursor: `<starts_at_ms>.<id>` of the previous page's last sale.
fn parse_cursor(after: &str) -> Result<(u64, SaleId), Problem> {
    let parts = after.split_once('.');
    let place = parts.and_then(|(at_ms, id)| Some((at_ms.parse().ok()?, SaleId::new(id).ok()?)));
    place.ok_or_else(|| Problem::invalid_query("after: must be the `next` of an earlier page"))
}
