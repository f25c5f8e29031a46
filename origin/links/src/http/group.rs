//! The admin routes for the clicks on many links, and for folders.

use axum::Json;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::refusals::UNKNOWN_DOMAIN;
use super::stats::{SeriesStep, range};
use super::within::CallerFilter;
use crate::Links;
use crate::group::{GroupReport, GroupReportView, LinkGroup};
use crate::model::labels::LabelFilter;
use crate::store::Folder;
use weir_origin_core::http::{Problem, ReadQuery};

/// Selects clicks on many links.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct GroupQuery {
    /// Only links of this domain.
    domain: Option<String>,
    /// Only links in this folder: the 5,000 newest.
    folder: Option<String>,
    /// Only links with this tag, instead of a folder: the 5,000 newest.
    tag: Option<String>,
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

/// The folders of links.
#[derive(Serialize, ToSchema)]
#[schema(as = LinkFolders)]
pub(super) struct Folders {
    /// Folders with at least one link, by name, up to 500.
    folders: Vec<Folder>,
}

/// The links that a request names, restricted to those that the caller may see.
pub(super) fn group_of(
    links: &Links,
    within: &CallerFilter,
    domain: Option<String>,
    folder: Option<String>,
    tag: Option<String>,
) -> Result<LinkGroup, Problem> {
    let label = match (folder, tag) {
        (Some(_), Some(_)) => {
            return Err(Problem::invalid_query("folder, tag: name only one of them"));
        }
        (Some(folder), None) => Some(LabelFilter::Folder(folder)),
        (None, tag) => tag.map(LabelFilter::Tag),
    };
    let existing = links.domains();
    if domain
        .as_ref()
        .is_some_and(|id| existing.domains.by_id(id).is_none())
    {
        return Err(UNKNOWN_DOMAIN.into());
    }
    within.group(domain, label)
}

/// Get click statistics of all links, or of a folder or tag
///
/// Visitors are distinct per day for all links. With a folder or tag, the visitors of each link add up.
#[utoipa::path(
    get,
    path = "/link-stats",
    operation_id = "getLinkGroupStats",
    params(GroupQuery),
    responses((status = 200, description = "The clicks", body = GroupReportView<'static>)),
)]
pub(super) async fn stats(
    links: Links,
    within: CallerFilter,
    ReadQuery(query): ReadQuery<GroupQuery>,
) -> Result<Response, Problem> {
    let range = range(query.by, query.from_ms, query.to_ms, query.tz.as_deref())?;
    let group = group_of(&links, &within, query.domain, query.folder, query.tag)?;
    let existing = links.domains();
    let report = GroupReport::read(links.store(), &existing.domains, &group, range);
    Ok(Json(report.await?.view()).into_response())
}

/// List folders, with their number of links
#[utoipa::path(
    get,
    path = "/link-folders",
    operation_id = "listLinkFolders",
    responses((status = 200, description = "The folders", body = Folders)),
)]
pub(super) async fn folders(links: Links, within: CallerFilter) -> Result<Json<Folders>, Problem> {
    let group = within.group(None, None)?;
    let folders = links.store().folders(group.domains.as_deref()).await?;
    Ok(Json(Folders { folders }))
}
