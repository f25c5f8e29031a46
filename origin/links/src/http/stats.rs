//! The admin routes of click statistics.

use axum::Json;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use weir_link::code::LinkId;

use super::CodeParam;
use super::links::{NamedLink, found};
use crate::Links;
use crate::crosstab::{Crosstab, Filter};
use crate::model::stats::Span;
use crate::model::zone::Zone;
use crate::report::{Range, Report, ReportView};
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::{Problem, ReadQuery};

/// Selects clicks; `domain` selects the link.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct StatsQuery {
    /// The domain's id. Default: the first domain.
    #[serde(rename = "domain")]
    #[param(pattern = "^[a-z0-9-]{1,16}$")]
    _domain: Option<String>,
    /// Resolution of the series: hours (at most 744) or UTC days (at most 400).
    #[param(inline, default = "day")]
    by: Option<SeriesStep>,
    /// Time in the first hour or day. Default: 24 hours or 30 days ago.
    from_ms: Option<u64>,
    /// Time after the last hour or day. Default: now.
    to_ms: Option<u64>,
    /// Time zone of the days, such as `Europe/Berlin`; only for the last 90 days.
    #[param(default = "UTC")]
    tz: Option<String>,
}

/// Filters for a cross-tab.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct CrosstabQuery {
    /// The domain's id. Default: the first domain.
    #[serde(rename = "domain")]
    #[param(pattern = "^[a-z0-9-]{1,16}$")]
    _domain: Option<String>,
    /// Resolution of the series: hours (at most 744) or UTC days (at most 400).
    #[param(inline, default = "day")]
    by: Option<SeriesStep>,
    /// Time in the first hour or day. Default: 24 hours or 30 days ago.
    from_ms: Option<u64>,
    /// Time after the last hour or day. Default: now.
    to_ms: Option<u64>,
    /// Time zone of the days, such as `Europe/Berlin`; only for the last 90 days.
    #[param(default = "UTC")]
    tz: Option<String>,
    /// Two-letter country code, or `unknown`.
    country: Option<String>,
    /// Device type: `desktop`, `mobile`, `tablet` or `script`.
    device: Option<String>,
    /// Referrer host, `direct` or `qr`.
    referrer: Option<String>,
}

/// Resolution of a series.
#[derive(Clone, Copy, Debug, Deserialize, utoipa::ToSchema)]
#[schema(as = LinkSeries)]
#[serde(rename_all = "snake_case")]
pub(super) enum SeriesStep {
    Hour,
    Day,
}

/// Get click statistics of a link
///
/// Clicks, visitors and their origin, by hour or day.
#[utoipa::path(
    get,
    path = "/links/{code}/stats",
    operation_id = "getLinkStats",
    params(CodeParam, StatsQuery),
    responses((status = 200, description = "The clicks", body = ReportView<'static>)),
)]
pub(super) async fn stats(
    links: Links,
    NamedLink(id): NamedLink,
    ReadQuery(query): ReadQuery<StatsQuery>,
) -> Result<Response, Problem> {
    let report = report(&links, &id, &query).await?;
    Ok(Json(report.view()).into_response())
}

/// Get the click series of a link as CSV
#[utoipa::path(
    get,
    path = "/links/{code}/stats.csv",
    operation_id = "getLinkStatsCsv",
    params(CodeParam, StatsQuery),
    responses((status = 200, description = "CSV (RFC 4180); no cell starts a formula", body = String, content_type = "text/csv")),
)]
pub(super) async fn csv(
    links: Links,
    NamedLink(id): NamedLink,
    ReadQuery(query): ReadQuery<StatsQuery>,
) -> Result<Response, Problem> {
    let report = report(&links, &id, &query).await?;
    let LinkId { domain, code } = id;
    // Codes and dates contain no other character that needs escaping.
    let code = code.as_str().replace('/', "-");
    let file = format!("attachment; filename=\"{domain}-{code}.csv\"");
    let headers = [
        (
            header::CONTENT_TYPE,
            "text/csv; charset=utf-8; header=present",
        ),
        (header::CONTENT_DISPOSITION, &file),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok((headers, report.csv()).into_response())
}

impl StatsQuery {
    /// The requested time range.
    pub(super) fn range(&self) -> Result<Range, Problem> {
        range(self.by, self.from_ms, self.to_ms, self.tz.as_deref())
    }
}

async fn report(links: &Links, id: &LinkId, query: &StatsQuery) -> Result<Report, Problem> {
    let range = query.range()?;
    let link = found(links, id).await?;
    let report = Report::read(links.store(), id, link.created_at_ms, range);
    Ok(report.await?)
}

pub(super) fn range(
    by: Option<SeriesStep>,
    from_ms: Option<u64>,
    to_ms: Option<u64>,
    zone: Option<&str>,
) -> Result<Range, Problem> {
    let span = match by {
        Some(SeriesStep::Hour) => Span::Hour,
        Some(SeriesStep::Day) | None => Span::Day,
    };
    let unknown = || Problem::invalid_query("tz: is not a time zone such as Europe/Berlin");
    let zone = zone.map(|name| Zone::by_name(name).ok_or_else(unknown));
    let zone = zone.transpose()?.flatten();
    let range = Range::new(span, from_ms, to_ms, now_ms(), zone);
    range.map_err(|error| Problem::invalid_query(error.to_string()))
}

/// Get a cross-tab of a link's clicks by country, device and referrer
///
/// Each list applies the filters of the other two. Covers the last 31 days.
#[utoipa::path(
    get,
    path = "/links/{code}/crosstab",
    operation_id = "getLinkCrosstab",
    params(CodeParam, CrosstabQuery),
    responses((status = 200, description = "Clicks", body = Crosstab)),
)]
pub(super) async fn crosstab(
    links: Links,
    NamedLink(id): NamedLink,
    ReadQuery(query): ReadQuery<CrosstabQuery>,
) -> Result<Json<Crosstab>, Problem> {
    let range = range(query.by, query.from_ms, query.to_ms, query.tz.as_deref())?;
    if Crosstab::is_too_old(&range, now_ms()) {
        let detail = "from_ms: cross-tabs are only available for the last 31 days";
        return Err(Problem::invalid_query(detail));
    }
    let filter = Filter {
        country: query.country,
        device: query.device,
        referrer: query.referrer,
    };
    let link = found(&links, &id).await?;
    let crosstab = Crosstab::read(links.store(), &id, link.created_at_ms, &range, filter);
    Ok(Json(crosstab.await?))
}
