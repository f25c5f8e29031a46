//! The admin's routes of a link's clicks.

use axum::Json;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use weir_link::code::LinkId;

use super::links::{NamedLink, found};
use crate::clock::now_ms;
use crate::http::Problem;
use crate::links::Links;
use crate::links::report::{Range, Report};
use crate::links::stats::Span;

/// Which clicks; `domain` belongs to the link's name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatsQuery {
    #[serde(rename = "domain")]
    _domain: Option<String>,
    by: Option<By>,
    from_ms: Option<u64>,
    to_ms: Option<u64>,
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

async fn report(
    links: &Links,
    id: &LinkId,
    asked: Result<Query<StatsQuery>, QueryRejection>,
) -> Result<Report, Problem> {
    let Query(asked) = asked.map_err(|error| Problem::invalid_query(error.body_text()))?;
    let span = match asked.by {
        Some(By::Hour) => Span::Hour,
        Some(By::Day) | None => Span::Day,
    };
    let range = Range::new(span, asked.from_ms, asked.to_ms, now_ms());
    let range = range.map_err(|error| Problem::invalid_query(error.to_string()))?;
    let link = found(links, id).await?;
    let report = Report::read(links.store(), id, link.created_at_ms, range);
    Ok(report.await?)
}
