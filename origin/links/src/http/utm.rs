//! The admin routes of UTM templates.

use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::refusals::{INVALID_TEMPLATE, TOO_MANY_ITEMS, UNKNOWN_TEMPLATE};
use super::within::CallerFilter;
use crate::Links;
use crate::model::labels::TAG_LEN_MAX;
use crate::model::utm::{UTM_LEN_MAX, Utm};
use crate::store::{TeamItem, TeamKind};
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::{Problem, TypedBody};

/// A template of UTM parameters.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = LinkUtmTemplate)]
pub(super) struct UtmTemplate {
    /// Its name.
    name: String,
    /// Its parameters.
    utm: Utm,
}

/// Templates of UTM parameters.
#[derive(Serialize, ToSchema)]
#[schema(as = LinkUtmTemplates)]
pub(super) struct UtmTemplates {
    /// The templates, newest first, up to 200.
    templates: Vec<UtmTemplate>,
}

/// List UTM templates
#[utoipa::path(
    get,
    path = "/link-utm-templates",
    operation_id = "listLinkUtmTemplates",
    responses((status = 200, description = "The templates", body = UtmTemplates)),
)]
pub(super) async fn list(
    links: Links,
    within: CallerFilter,
) -> Result<Json<UtmTemplates>, Problem> {
    let items = links
        .store()
        .team()
        .list(TeamKind::Utm, Some(within.owner()));
    let template = |item: TeamItem| {
        let utm = serde_json::from_str(&item.body).ok()?;
        let name = item.name;
        Some(UtmTemplate { name, utm })
    };
    let templates = items.await?.into_iter().filter_map(template).collect();
    Ok(Json(UtmTemplates { templates }))
}

/// Create or replace a UTM template
#[utoipa::path(
    put,
    path = "/link-utm-templates/{name}",
    operation_id = "putLinkUtmTemplate",
    params(("name" = String, Path, description = "The template's name.", min_length = 1, max_length = 64)),
    request_body = Utm,
    responses((status = 204, description = "Stored")),
)]
pub(super) async fn put(
    links: Links,
    within: CallerFilter,
    Path(name): Path<String>,
    TypedBody(utm): TypedBody<Utm>,
) -> Result<StatusCode, Problem> {
    let len = name.chars().count();
    if !(1..=TAG_LEN_MAX).contains(&len) || name.chars().any(char::is_control) {
        let detail = format!(
            "name: must have 1 to {TAG_LEN_MAX} characters, none of them a control character"
        );
        return Err(INVALID_TEMPLATE.because(detail));
    }
    if let Err(field) = utm.compose("https://target.example/") {
        let detail =
            format!("{field}: must be 1 to {UTM_LEN_MAX} characters without control characters");
        return Err(INVALID_TEMPLATE.because(detail));
    }
    let item = TeamItem {
        name,
        owner: within.owner().to_owned(),
        // Strings only, so the encoding cannot fail.
        body: serde_json::to_string(&utm).unwrap_or_default(),
        created_at_ms: now_ms(),
    };
    let stored = links.store().team().put(TeamKind::Utm, &item);
    match stored.await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(TOO_MANY_ITEMS.into()),
    }
}

/// Delete a UTM template
#[utoipa::path(
    delete,
    path = "/link-utm-templates/{name}",
    operation_id = "deleteLinkUtmTemplate",
    params(("name" = String, Path, description = "The template's name.", max_length = 64)),
    responses((status = 204, description = "Deleted")),
)]
pub(super) async fn delete(
    links: Links,
    within: CallerFilter,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let team = links.store().team();
    match team.delete(TeamKind::Utm, within.owner(), &name).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(UNKNOWN_TEMPLATE.into()),
    }
}
