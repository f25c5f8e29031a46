//! The admin's routes of a link's clicks.

use axum::Json;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use weir_link::code::LinkId;

use super::links::{NamedLink, found};
use crate::Links;
use crate::cross::{Cross, Filter};
use crate::report::{Range, Report};
use crate::stats::Span;
use crate::zone::Zone;
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::{Problem, ReadQuery};

/// Which clicks; `domain` belongs to the link's name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatsQuery {
    #[serde(rename = "domain")]
    _domain: Option<String>,
    by: Option<By>,
    from_ms: Option<u64>,
    to_ms: Option<u64>,
    tz: Option<String>,
}

/// Which clicks, by more than one thing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CrossQuery {
    #[serde(rename = "domain")]
    _domain: Option<String>,
    by: Option<By>,
    from_ms: Option<u64>,
    to_ms: Option<u64>,
    tz: Option<String>,
    country: Option<String>,
    device: Option<String>,
    referrer: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum By {
    Hour,
    Day,
}

/// `GET /links/{code}/stats`.
pub(super) async fn stats(
    links: Links,
    NamedLink(id): NamedLink,
    asked: Result<Query<StatsQuery>, QueryRejection>,
) -> Result<Json<Report>, Problem> {
    report(&links, &id, asked).await.map(Json)
}

/// `GET /links/{code}/stats.csv`: the same as a table.
pub(super) async fn csv(
    links: Links,
    NamedLink(id): NamedLink,
    asked: Result<Query<StatsQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let report = report(&links, &id, asked).await?;
    let LinkId { domain, code } = id;
    // Neither has a character that would have to be escaped.
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

/// Which time is asked for.
pub(super) fn range_of(asked: Result<Query<StatsQuery>, QueryRejection>) -> Result<Range, Problem> {
    let Query(asked) = asked.map_err(|error| Problem::invalid_query(error.body_text()))?;
    range(asked.by, asked.from_ms, asked.to_ms, asked.tz.as_deref())
}

async fn report(
    links: &Links,
    id: &LinkId,
    asked: Result<Query<StatsQuery>, QueryRejection>,
) -> Result<Report, Problem> {
    let range = range_of(asked)?;
    let link = found(links, id).await?;
    let report = Report::read(links.store(), id, link.created_at_ms, range);
    Ok(report.await?)
}

fn range(
    by: Option<By>,
    from_ms: Option<u64>,
    to_ms: Option<u64>,
    zone: Option<&str>,
) -> Result<Range, Problem> {
    let span = match by {
        Some(By::Hour) => Span::Hour,
        Some(By::Day) | None => Span::Day,
    };
    let unknown = || Problem::invalid_query("tz: is no time zone such as Europe/Berlin");
    let zone = zone.map(|name| Zone::of(name).ok_or_else(unknown));
    let zone = zone.transpose()?.flatten();
    let range = Range::new(span, from_ms, to_ms, now_ms(), zone);
    range.map_err(|error| Problem::invalid_query(error.to_string()))
}

/// `GET /links/{code}/cross`: clicks by country, device and referrer at once.
pub(super) async fn cross(
    links: Links,
    NamedLink(id): NamedLink,
    ReadQuery(asked): ReadQuery<CrossQuery>,
) -> Result<Json<Cross>, Problem> {
    let range = range(asked.by, asked.from_ms, asked.to_ms, asked.tz.as_deref())?;
    if Cross::is_too_old(&range, now_ms()) {
        let detail = "from_ms: clicks are told by more than one thing for the last 31 days";
        return Err(Problem::invalid_query(detail));
    }
    let filter = Filter {
        country: asked.country,
        device: asked.device,
        referrer: asked.referrer,
    };
    let link = found(&links, &id).await?;
    let cross = Cross::read(links.store(), &id, link.created_at_ms, &range, filter);
    Ok(Json(cross.await?))
}
