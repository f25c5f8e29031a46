//! Streams all matching links as CSV or NDJSON.

use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::links::PageQuery;
use super::within::CallerFilter;
use crate::Links;
use crate::model::view::LinkView;
use crate::search::{Cursor, LinkQuery, search};
use weir_origin_core::http::csv::Csv;
use weir_origin_core::http::{ChunkSender, Problem, ReadQuery, streamed};
use weir_origin_core::sql::SqlError;

/// Number of links per page. At most two pages are in memory.
const PAGE: usize = 500;

/// All fields that [an import](crate::import) reads, and the link's state.
const COLUMNS: [&str; 25] = [
    "domain",
    "code",
    "url",
    "target",
    "tags",
    "clicks",
    "state",
    "created_at_ms",
    "expires_at_ms",
    "life_ms",
    "ends_at_ms",
    "clicks_left",
    "status",
    "pass_query",
    "language",
    "ended_target",
    "apps",
    "rules",
    "preview",
    "protected",
    "conversion",
    "title",
    "note",
    "folder",
    "external_id",
];

/// Format of the export.
#[derive(Clone, Copy)]
enum Format {
    Csv,
    Ndjson,
}

/// Export matching links as CSV, streamed
#[utoipa::path(
    get,
    path = "/links.csv",
    operation_id = "exportLinksCsv",
    params(PageQuery),
    responses((status = 200, description = "A table", body = String, content_type = "text/csv")),
)]
pub(super) async fn csv(
    links: Links,
    within: CallerFilter,
    ReadQuery(query): ReadQuery<PageQuery>,
) -> Result<Response, Problem> {
    export(links, within, &query, Format::Csv)
}

/// Export matching links as NDJSON, streamed
#[utoipa::path(
    get,
    path = "/links.ndjson",
    operation_id = "exportLinksNdjson",
    params(PageQuery),
    responses((status = 200, description = "One link per line", body = LinkView, content_type = "application/x-ndjson")),
)]
pub(super) async fn ndjson(
    links: Links,
    within: CallerFilter,
    ReadQuery(query): ReadQuery<PageQuery>,
) -> Result<Response, Problem> {
    export(links, within, &query, Format::Ndjson)
}

fn export(
    links: Links,
    within: CallerFilter,
    query: &PageQuery,
    format: Format,
) -> Result<Response, Problem> {
    let (requested, cursor) = (query.link_query(within), query.cursor()?);
    let body = streamed("link export", |sender| async move {
        send(&links, &requested, cursor, format, &sender).await
    });
    let kind = match format {
        Format::Csv => "text/csv; charset=utf-8",
        Format::Ndjson => "application/x-ndjson",
    };
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

/// Sends all pages; ends early when the client disconnects.
async fn send(
    links: &Links,
    query: &LinkQuery,
    cursor: Cursor,
    format: Format,
    to: &ChunkSender,
) -> Result<(), SqlError> {
    if let Format::Csv = format {
        let head = Csv::new(&COLUMNS).finish();
        if to.send(Ok(head.into())).await.is_err() {
            return Ok(());
        }
    }
    let mut next = Some(cursor);
    while let Some(cursor) = next {
        let page = search(links.store(), query, cursor, PAGE).await?;
        let standings = links.states().of(&page.links).await?;
        let existing = links.domains();
        let found = page.links.into_iter().zip(standings);
        let view = |(link, current)| LinkView::from_stored(link, &existing.domains, current);
        let lines: String = found.map(view).map(|link| line(&link, format)).collect();
        if !lines.is_empty() && to.send(Ok(lines.into())).await.is_err() {
            return Ok(());
        }
        next = page.next;
    }
    Ok(())
}

fn line(link: &LinkView, format: Format) -> String {
    match format {
        Format::Csv => row(link),
        // Strings, numbers and lists only, so the encoding cannot fail.
        Format::Ndjson => serde_json::to_string(link).unwrap_or_default() + "\n",
    }
}

fn row(link: &LinkView) -> String {
    let number = |number: Option<u64>| number.map_or(String::new(), |number| number.to_string());
    // Strings, numbers and lists only, so the encoding cannot fail.
    let list = |json: serde_json::Result<String>, is_empty: bool| match is_empty {
        true => String::new(),
        false => json.unwrap_or_default(),
    };
    let (latest, fields) = (&link.latest, &link.latest.fields);
    let tags = serde_json::to_string(&fields.tags).unwrap_or_default();
    let apps = list(serde_json::to_string(&fields.apps), fields.apps.is_empty());
    let rules = list(
        serde_json::to_string(&fields.rules),
        fields.rules.is_empty(),
    );
    let preview = list(
        serde_json::to_string(&fields.preview),
        fields.preview.is_none(),
    );
    let mut csv = Csv::default();
    csv.line(&[
        link.domain.as_str(),
        link.code.as_str(),
        &link.url,
        &fields.target,
        &tags,
        &link.clicks.to_string(),
        link.state.label(),
        &link.created_at_ms.to_string(),
        &number(link.expires_at_ms),
        &number(fields.life_ms),
        &number(fields.ends_at_ms),
        &number(link.clicks_left),
        &fields.status.unwrap_or_default().code().to_string(),
        &fields.pass_query.unwrap_or_default().to_string(),
        fields.language.as_deref().unwrap_or_default(),
        fields.ended_target.as_deref().unwrap_or_default(),
        &apps,
        &rules,
        &preview,
        &latest.protected.to_string(),
        &fields.conversion.unwrap_or_default().to_string(),
        fields.title.as_deref().unwrap_or_default(),
        fields.note.as_deref().unwrap_or_default(),
        fields.folder.as_deref().unwrap_or_default(),
        fields.external_id.as_deref().unwrap_or_default(),
    ]);
    csv.finish()
}
