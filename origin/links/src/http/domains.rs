//! The routes of domains.

use axum::Json;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tracing::warn;
use weir_link::domain::{Domain, DomainsConfig};

use super::links::if_match;
use super::refusals::{
    DOMAIN_HAS_LINKS, DOMAINS_BUSY, INVALID_DOMAIN, UNKNOWN_DOMAIN, VERSION_CONFLICT,
};
use super::within::CallerFilter;
use crate::Links;
use crate::domains::ChangeError;
use crate::store::StoredDomains;
use weir_origin_core::http::{Problem, TypedBody};

/// Maximum body length: all domains, with their pages, files and lists.
pub(super) const BODY_LEN_MAX: usize = 16 << 20;

/// List all link domains, default first, with their version as ETag
#[utoipa::path(
    get,
    path = "/link-domains",
    operation_id = "listLinkDomains",
    responses(
        (status = 200, description = "The current state", body = DomainsConfig, headers(("ETag" = String, description = "The version of all domains"))),
    ),
)]
pub(super) async fn list(links: Links, within: CallerFilter) -> Response {
    with_all(&links.domains(), |domain| {
        within.has_domain(domain.id.as_str())
    })
}

/// Replace all link domains, like a --links file
///
/// Domains that have links must be in the list.
#[utoipa::path(
    put,
    path = "/link-domains",
    operation_id = "setLinkDomains",
    params(("If-Match" = Option<String>, Header, description = "Version that the domains must have.")),
    request_body = DomainsConfig,
    responses(
        (status = 200, description = "The current state", body = DomainsConfig, headers(("ETag" = String, description = "The version of all domains"))),
    ),
)]
pub(super) async fn replace_all(
    links: Links,
    headers: HeaderMap,
    TypedBody(body): TypedBody<DomainsConfig>,
) -> Result<Response, Problem> {
    let before = links.domains();
    let is_kept = |domain: &&Domain| body.domains.iter().any(|one| one.id == domain.id);
    for removed in before.domains.iter().filter(|domain| !is_kept(domain)) {
        if links.store().has_links(&removed.id).await? {
            return Err(not_changed(ChangeError::HasLinks));
        }
    }
    for domain in &body.domains {
        let checked = links.shared_domains().check_case(domain).await;
        checked.map_err(not_changed)?;
    }
    let replace = |all: &mut Vec<Domain>| {
        all.clone_from(&body.domains);
        Ok(())
    };
    let version = if_match(&headers)?;
    let changed = links.shared_domains().change(version, replace).await;
    let stored = changed.map_err(not_changed)?;
    publish(&links).await;
    Ok(with_all(&stored, |_| true))
}

/// Get a link domain, with the version of all domains as ETag
#[utoipa::path(
    get,
    path = "/link-domains/{id}",
    operation_id = "getLinkDomain",
    params(("id" = String, Path, description = "The domain's id.", max_length = 16)),
    responses(
        (status = 200, description = "The current state", body = Domain, headers(("ETag" = String, description = "The version of all domains"))),
    ),
)]
pub(super) async fn get(
    links: Links,
    within: CallerFilter,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let stored = links.domains();
    let domain = stored.domains.by_id(&id);
    let domain = domain.filter(|_| within.has_domain(&id));
    let domain = domain.ok_or_else(unknown)?;
    Ok(with_etag(&stored, Json(domain)))
}

/// Create or replace a link domain; a new one is added at the end
#[utoipa::path(
    put,
    path = "/link-domains/{id}",
    operation_id = "setLinkDomain",
    params(
        ("id" = String, Path, description = "The domain's id.", max_length = 16),
        ("If-Match" = Option<String>, Header, description = "Version that the domains must have."),
    ),
    request_body = Domain,
    responses(
        (status = 200, description = "The current state", body = Domain, headers(("ETag" = String, description = "The version of all domains"))),
        (status = 201, description = "Created", body = Domain, headers(("ETag" = String, description = "The version of all domains"))),
    ),
)]
pub(super) async fn put(
    links: Links,
    Path(id): Path<String>,
    headers: HeaderMap,
    TypedBody(domain): TypedBody<Domain>,
) -> Result<Response, Problem> {
    if domain.id.as_str() != id {
        let detail = "id: must be the id in the path";
        return Err(INVALID_DOMAIN.because(detail));
    }
    let checked = links.shared_domains().check_case(&domain).await;
    checked.map_err(not_changed)?;
    let is_new = links.domains().domains.by_id(&id).is_none();
    let put = |all: &mut Vec<Domain>| {
        match all.iter_mut().find(|existing| existing.id == domain.id) {
            Some(existing) => *existing = domain.clone(),
            None => all.push(domain.clone()),
        }
        Ok(())
    };
    let changed = links
        .shared_domains()
        .change(if_match(&headers)?, put)
        .await;
    let stored = changed.map_err(not_changed)?;
    publish(&links).await;
    let status = match is_new {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    Ok((status, with_etag(&stored, Json(&domain))).into_response())
}

/// Delete a domain without links
#[utoipa::path(
    delete,
    path = "/link-domains/{id}",
    operation_id = "deleteLinkDomain",
    params(
        ("id" = String, Path, description = "The domain's id.", max_length = 16),
        ("If-Match" = Option<String>, Header, description = "Version that the domains must have."),
    ),
    responses((status = 204, description = "Deleted")),
)]
pub(super) async fn delete(
    links: Links,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let version = if_match(&headers)?;
    let removed = links.shared_domains().remove(version, &id).await;
    removed.map_err(not_changed)?;
    publish(&links).await;
    Ok(StatusCode::NO_CONTENT)
}

/// Publishes the domains to gateways now; if Redis is unavailable, a background job does it later.
async fn publish(links: &Links) {
    if let Err(error) = links.publisher().publish_domains().await {
        warn!(%error, "cannot write the changed domains to Redis; retrying");
    }
}

fn with_all(stored: &StoredDomains, is_shown: impl Fn(&&Domain) -> bool) -> Response {
    let all = DomainsConfig {
        version: stored.version,
        domains: stored.domains.iter().filter(is_shown).cloned().collect(),
    };
    with_etag(stored, Json(all))
}

fn with_etag(stored: &StoredDomains, body: impl IntoResponse) -> Response {
    let etag = format!("\"{}\"", stored.version);
    ([(header::ETAG, etag)], body).into_response()
}

fn unknown() -> Problem {
    UNKNOWN_DOMAIN.because("there is no such domain")
}

fn not_changed(failure: ChangeError) -> Problem {
    let detail = failure.to_string();
    match failure {
        ChangeError::Invalid(_) => INVALID_DOMAIN.because(detail),
        ChangeError::Version(_) => VERSION_CONFLICT.because(detail),
        ChangeError::Unknown => unknown(),
        ChangeError::HasLinks | ChangeError::Case(_) => DOMAIN_HAS_LINKS.because(detail),
        ChangeError::Busy => DOMAINS_BUSY.because(detail),
        ChangeError::Store(error) => error.into(),
    }
}
