//! The routes of shared reports: for the team that shares them, and for people without a key.

use std::fmt::Write as _;
use std::sync::LazyLock;

use axum::Json;
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_link::page::escaped;

use super::group::group_of;
use super::links::{found, unknown_link};
use super::refusals::{INVALID_REPORT, TOO_MANY_ITEMS, TOO_MANY_READS, UNKNOWN_REPORT};
use super::within::CallerFilter;
use crate::Links;
use crate::group::{GroupReport, LinkGroup};
use crate::model::labels::{LabelFilter, TITLE_LEN_MAX};
use crate::model::stats::{Breakdown, PartCount, Point};
use crate::model::zone::Zone;
use crate::shared::{DAYS_MAX, ReportToken, SharedRead, SharedReport};
use crate::store::{TeamItem, TeamKind};
use weir_link::code::{DomainId, LinkId};
use weir_origin_core::clock::{now_ms, utc};
use weir_origin_core::http::files::HTML;
use weir_origin_core::http::{Problem, TypedBody};

const STYLE: &str = include_str!("report.css");

/// The policy of the page: only its own style, no script, no external resources.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = STANDARD.encode(digest(&SHA256, STYLE.as_bytes()));
    format!(
        "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
});

/// Rows of a table on the page.
const ROWS_MAX: usize = 20;

/// Default number of days.
const DAYS: u32 = 30;

/// A new shared report: about a link, a folder, a tag, or all links.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewLinkReport)]
pub(super) struct NewReport {
    /// Title of the page.
    #[schema(min_length = 1, max_length = 200)]
    title: String,
    /// The domain of the link, or of all links.
    #[schema(nullable = false)]
    domain: Option<String>,
    /// A link.
    #[schema(nullable = false)]
    code: Option<String>,
    /// A folder.
    #[schema(nullable = false)]
    folder: Option<String>,
    /// A tag.
    #[schema(nullable = false)]
    tag: Option<String>,
    /// Number of days up to today. Default: 30.
    #[schema(nullable = false, minimum = 1, maximum = 90)]
    days: Option<u32>,
    /// Time zone of the days. Default: UTC.
    #[schema(nullable = false)]
    tz: Option<String>,
    /// When it ends, in milliseconds since the Unix epoch. Default: never.
    #[schema(nullable = false)]
    expires_at_ms: Option<u64>,
}

/// A shared report.
#[derive(Serialize, ToSchema)]
#[schema(as = LinkReport)]
pub(super) struct ReportItem {
    /// Its id, for revoking it.
    id: String,
    /// Title of the page.
    title: String,
    /// The domain; null: all.
    #[schema(required)]
    domain: Option<String>,
    /// Its link; null: many links.
    #[schema(required)]
    code: Option<String>,
    /// Its folder; null: none.
    #[schema(required)]
    folder: Option<String>,
    /// Its tag; null: none.
    #[schema(required)]
    tag: Option<String>,
    /// Number of days up to today.
    days: u32,
    /// Time zone of the days.
    tz: String,
    /// Creation time, in milliseconds since the Unix epoch.
    created_at_ms: u64,
    /// When it ends; null: never.
    #[schema(required)]
    expires_at_ms: Option<u64>,
}

/// A new shared report. Its path is shown only here.
#[derive(Serialize, ToSchema)]
#[schema(as = CreatedLinkReport)]
pub(super) struct CreatedReport {
    /// The page's path on the public port, with the token.
    path: String,
    #[serde(flatten)]
    report: ReportItem,
}

/// Shared reports.
#[derive(Serialize, ToSchema)]
#[schema(as = LinkReports)]
pub(super) struct Reports {
    /// The reports, newest first, up to 200.
    reports: Vec<ReportItem>,
}

impl ReportItem {
    fn new(item: &TeamItem, report: SharedReport) -> Self {
        let (folder, tag) = match report.group.label {
            Some(LabelFilter::Folder(name)) => (Some(name), None),
            Some(LabelFilter::Tag(tag)) => (None, Some(tag)),
            _ => (None, None),
        };
        let link = report.link.as_ref();
        let domains = report.group.domains.unwrap_or_default();
        let first = domains.first().filter(|_| domains.len() == 1);
        Self {
            id: item.name.clone(),
            domain: link.map(|id| id.domain.to_string()).or(first.cloned()),
            code: link.map(|id| id.code.to_string()),
            title: report.title,
            folder,
            tag,
            days: report.days,
            tz: report.tz,
            created_at_ms: item.created_at_ms,
            expires_at_ms: report.expires_at_ms,
        }
    }
}

/// List shared reports
#[utoipa::path(
    get,
    path = "/link-reports",
    operation_id = "listLinkReports",
    responses((status = 200, description = "The reports", body = Reports)),
)]
pub(super) async fn list(links: Links, within: CallerFilter) -> Result<Json<Reports>, Problem> {
    // The platform also sees and revokes the reports of tenants.
    let owner = within.tenant().map(|tenant| tenant.name.as_str());
    let items = links.store().team().list(TeamKind::Report, owner);
    let read = |item: &TeamItem| {
        let report = SharedReport::parse(item).filter(|report| within.has_report(report))?;
        Some(ReportItem::new(item, report))
    };
    let reports = items.await?.iter().filter_map(read).collect();
    Ok(Json(Reports { reports }))
}

/// Share a report without a key
///
/// Anyone with its address can read it until it ends or is revoked.
#[utoipa::path(
    post,
    path = "/link-reports",
    operation_id = "createLinkReport",
    request_body = NewReport,
    responses((status = 201, description = "The address, shown only once", body = CreatedReport)),
)]
pub(super) async fn create(
    links: Links,
    within: CallerFilter,
    TypedBody(new): TypedBody<NewReport>,
) -> Result<Response, Problem> {
    let report = requested(&links, &within, new).await?;
    let token = ReportToken::generate().ok_or_else(Problem::overloaded)?;
    let item = TeamItem {
        name: token.id,
        owner: within.owner().to_owned(),
        // Strings and numbers only, so the encoding cannot fail.
        body: serde_json::to_string(&report).unwrap_or_default(),
        created_at_ms: now_ms(),
    };
    let team = links.store().team();
    if !team.put(TeamKind::Report, &item).await? {
        return Err(TOO_MANY_ITEMS.into());
    }
    let path = format!("/shared-reports/{}", token.token);
    let report = ReportItem::new(&item, report);
    let headers = [(header::CACHE_CONTROL, "no-store")];
    let created = Json(CreatedReport { path, report });
    Ok((StatusCode::CREATED, headers, created).into_response())
}

async fn requested(
    links: &Links,
    within: &CallerFilter,
    new: NewReport,
) -> Result<SharedReport, Problem> {
    let invalid = |detail: &str| INVALID_REPORT.because(detail.to_owned());
    let title = new.title.trim();
    let len = title.chars().count();
    if !(1..=TITLE_LEN_MAX).contains(&len) || title.chars().any(char::is_control) {
        return Err(invalid(
            "title: must have 1 to 200 characters, none of them a control character",
        ));
    }
    let days = new.days.unwrap_or(DAYS);
    if !(1..=DAYS_MAX).contains(&days) {
        return Err(invalid("days: must be 1 to 90"));
    }
    let tz = new.tz.unwrap_or_else(|| "UTC".to_owned());
    if Zone::by_name(&tz).is_none() {
        return Err(invalid("tz: is not a time zone such as Europe/Berlin"));
    }
    if new.expires_at_ms.is_some_and(|end_ms| end_ms <= now_ms()) {
        return Err(invalid("expires_at_ms: must be in the future"));
    }
    let (link, group) = match new.code {
        Some(_) if new.folder.is_some() || new.tag.is_some() => {
            return Err(invalid("code, folder, tag: name only one of them"));
        }
        Some(code) => {
            let existing = links.domains();
            let domain = match new.domain {
                Some(id) => DomainId::new(id).map_err(|_| unknown_link())?,
                None => existing.domains.default_domain().id.clone(),
            };
            let code = existing.domains.read_code(&domain, code.as_bytes());
            let code = code.ok_or_else(unknown_link)?;
            let id = LinkId { domain, code };
            within.check_named(links, &id).await?;
            found(links, &id).await?;
            let domains = Some(vec![id.domain.to_string()]);
            let label = None;
            (Some(id), LinkGroup { domains, label })
        }
        None => {
            let group = group_of(links, within, new.domain, new.folder, new.tag)?;
            (None, group)
        }
    };
    Ok(SharedReport {
        title: title.to_owned(),
        link,
        group,
        days,
        tz,
        expires_at_ms: new.expires_at_ms,
    })
}

/// Revoke a shared report
#[utoipa::path(
    delete,
    path = "/link-reports/{id}",
    operation_id = "deleteLinkReport",
    params(("id" = String, Path, description = "The report's id.", min_length = 64, max_length = 64)),
    responses((status = 204, description = "Revoked: its address no longer works")),
)]
pub(super) async fn delete(
    links: Links,
    within: CallerFilter,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let team = links.store().team();
    let item = team.get(TeamKind::Report, &id).await?;
    let is_own = |item: &TeamItem| {
        let report = SharedReport::parse(item);
        let is_owner = within.tenant().is_none() || item.owner == within.owner();
        is_owner && report.is_some_and(|report| within.has_report(&report))
    };
    let item = item.filter(is_own).ok_or(UNKNOWN_REPORT)?;
    match team.delete(TeamKind::Report, &item.owner, &id).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(UNKNOWN_REPORT.into()),
    }
}

/// Read a shared report, without a key
///
/// The counts are up to a minute old.
#[utoipa::path(
    get,
    path = "/shared-reports/{token}",
    operation_id = "readSharedLinkReport",
    params(("token" = String, Path, description = "The token in the address.", max_length = 64)),
    responses((status = 200, description = "A page", body = String, content_type = "text/html")),
)]
pub(super) async fn read(links: Links, Path(token): Path<String>) -> Result<Response, Problem> {
    let existing = links.domains();
    let shared = links.shared_reports();
    let read = shared.read(links.store(), &existing.domains, &token, now_ms());
    let (report, counts) = match read.await? {
        SharedRead::Found(report, counts) => (report, counts),
        SharedRead::Unknown => return Err(UNKNOWN_REPORT.into()),
        SharedRead::TooMany => {
            return Err(Problem::from(TOO_MANY_READS).retry_after(60));
        }
    };
    let safe = [
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    let page = [
        (header::CONTENT_TYPE, HTML),
        (header::CONTENT_SECURITY_POLICY, POLICY.as_str()),
    ];
    Ok((safe, page, html(&report, &counts)).into_response())
}

fn html(shared: &SharedReport, counts: &GroupReport) -> String {
    let (title, report) = (escaped(&shared.title), counts.report());
    let range = &report.range;
    let [from, to] = [range.from_ms(), range.until_ms() - 1].map(day);
    let tile =
        |name: &str, number: u64| format!("<div><dt>{name}</dt><dd>{}</dd></div>", grouped(number));
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"robots\" content=\"noindex, nofollow\"><title>{title}</title><style>{STYLE}</style>\
         <main><h1>{title}</h1><p class=\"hint\">{from} to {to}, {zone}</p><dl>{clicks}{visitors}{scans}</dl>{chart}",
        zone = escaped(range.zone()),
        clicks = tile("Clicks", report.clicks),
        visitors = tile("Visitors", report.uniques.visitors),
        scans = tile("Scans", report.scans()),
        chart = chart(&report.series),
    );
    let links = counts.links().iter().filter(|link| link.clicks > 0);
    let links = links.map(|link| {
        let name = link.title.as_deref().unwrap_or_default();
        let url = link
            .url
            .trim_start_matches("https://")
            .trim_start_matches("http://");
        let target = link.target.as_deref().unwrap_or_default();
        let name = format!(
            "<b>{}</b><br>{}<br><span class=\"hint\">{}</span>",
            escaped(if name.is_empty() { url } else { name }),
            if name.is_empty() {
                String::new()
            } else {
                escaped(url)
            },
            escaped(target),
        );
        (name, link.clicks)
    });
    page += &table("Links", links);
    let parts = |part| {
        report
            .parts
            .get(&part)
            .map(Vec::as_slice)
            .unwrap_or_default()
    };
    for (title, counts) in [
        ("Countries", counts.countries()),
        ("Devices", parts(Breakdown::Device)),
        ("Referrers", parts(Breakdown::Referrer)),
        ("Browsers", parts(Breakdown::Browser)),
        ("Languages", parts(Breakdown::Language)),
    ] {
        let row = |count: &PartCount| (escaped(&count.value), count.clicks);
        page += &table(title, counts.iter().map(row));
    }
    page + "</main></html>"
}

fn table(title: &str, rows: impl Iterator<Item = (String, u64)>) -> String {
    let rows: Vec<_> = rows.take(ROWS_MAX).collect();
    let most = rows.iter().map(|(_, clicks)| *clicks).max().unwrap_or(0);
    if most == 0 {
        return String::new();
    }
    let row = |(name, clicks): &(String, u64)| {
        format!(
            "<tr><th scope=\"row\">{name}</th><td><meter aria-hidden=\"true\" min=\"0\" max=\"{most}\" value=\"{clicks}\"></meter></td>\
             <td>{}</td></tr>",
            grouped(*clicks)
        )
    };
    let rows: String = rows.iter().map(row).collect();
    format!("<section><h2>{title}</h2><table>{rows}</table></section>")
}

/// The days as bars, with their numbers as titles.
fn chart(series: &[Point]) -> String {
    let most = series
        .iter()
        .map(|point| point.clicks)
        .max()
        .unwrap_or(0)
        .max(1);
    let width = series.len() * 10;
    let mut bars = String::new();
    for (at, point) in series.iter().enumerate() {
        let height = point.clicks * 100 / most;
        let _ = write!(
            bars,
            "<rect x=\"{x}\" y=\"{y}\" width=\"8\" height=\"{height}\"><title>{day}: {clicks}</title></rect>",
            x = at * 10 + 1,
            y = 100 - height,
            day = day(point.at_ms),
            clicks = grouped(point.clicks),
        );
    }
    format!(
        "<svg viewBox=\"0 0 {width} 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"Clicks per day\">{bars}</svg>"
    )
}

/// The date of a time, in UTC.
fn day(at_ms: u64) -> String {
    utc(at_ms).chars().take(10).collect()
}

/// A number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn table_without_clicks_is_left_out() {
        assert_eq!(table("x", std::iter::once(("a".to_owned(), 0))), "");
        assert!(
            table("x", std::iter::once(("a".to_owned(), 1))).contains("<th scope=\"row\">a</th>")
        );
    }
}
