//! The routes of domains.

use axum::Json;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;
use tracing::warn;
use weir_link::domain::Domain;

use super::links::if_match;
use super::within::Within;
use crate::Links;
use crate::domains::ChangeError;
use crate::store::StoredDomains;
use weir_origin_core::http::{JsonBody, Problem};

/// The longest body: all domains, with their pages, files and lists.
pub(super) const BODY_LEN_MAX: usize = 16 << 20;

/// All domains, as `GET` tells and `PUT` takes them; also what a file of `--links` is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AllDomains {
    /// Told by `GET`; `PUT` goes by `If-Match`.
    #[serde(default)]
    #[expect(dead_code, reason = "what GET has told may be given back as it is")]
    version: Option<u64>,
    domains: Vec<Domain>,
}

/// `GET /link-domains`: all that the key is about, the default first.
pub(super) async fn list(links: Links, within: Within) -> Response {
    with_all(&links.domains(), |domain| {
        within.has_domain(domain.id.as_str())
    })
}

/// `PUT /link-domains`: these in place of all, as from a file.
pub(super) async fn replace_all(
    links: Links,
    headers: HeaderMap,
    JsonBody(body): JsonBody<AllDomains>,
) -> Result<Response, Problem> {
    let before = links.domains();
    let is_kept = |domain: &&Domain| body.domains.iter().any(|one| one.id == domain.id);
    for gone in before.domains.iter().filter(|domain| !is_kept(domain)) {
        if links.store().has_links(&gone.id).await? {
            return Err(not_changed(ChangeError::HasLinks));
        }
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

/// `GET /link-domains/{id}`.
pub(super) async fn get(
    links: Links,
    within: Within,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let stored = links.domains();
    let domain = stored.domains.by_id(&id);
    let domain = domain.filter(|_| within.has_domain(&id));
    let domain = domain.ok_or_else(unknown)?;
    Ok(with_etag(&stored, Json(domain)))
}

/// `PUT /link-domains/{id}`: makes or replaces one. A new one comes after all others.
pub(super) async fn put(
    links: Links,
    Path(id): Path<String>,
    headers: HeaderMap,
    JsonBody(domain): JsonBody<Domain>,
) -> Result<Response, Problem> {
    if domain.id.as_str() != id {
        let detail = "id: is not the one in the path";
        return Err(Problem::unprocessable(
            "invalid_domain",
            "Invalid domain",
            detail,
        ));
    }
    let is_new = links.domains().domains.by_id(&id).is_none();
    let put = |all: &mut Vec<Domain>| {
        match all.iter_mut().find(|known| known.id == domain.id) {
            Some(known) => *known = domain.clone(),
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

/// `DELETE /link-domains/{id}`: only of a domain without links.
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

/// Gateways follow at once; if Redis does not answer, as soon as it does.
async fn publish(links: &Links) {
    if let Err(error) = links.publisher().publish_domains().await {
        warn!(%error, "Redis has not followed a change of domains; it will");
    }
}

fn with_all(stored: &StoredDomains, is_shown: impl Fn(&&Domain) -> bool) -> Response {
    let domains: Vec<&Domain> = stored.domains.iter().filter(is_shown).collect();
    let all = json!({ "version": stored.version, "domains": domains });
    with_etag(stored, Json(all))
}

fn with_etag(stored: &StoredDomains, body: impl IntoResponse) -> Response {
    let etag = format!("\"{}\"", stored.version);
    ([(header::ETAG, etag)], body).into_response()
}

fn unknown() -> Problem {
    Problem::not_found(
        "unknown_domain",
        "Unknown domain",
        "there is no such domain",
    )
}

fn not_changed(failure: ChangeError) -> Problem {
    let detail = failure.to_string();
    match failure {
        ChangeError::Invalid(_) => {
            Problem::unprocessable("invalid_domain", "Invalid domain", detail)
        }
        ChangeError::Version(_) => {
            let status = StatusCode::PRECONDITION_FAILED;
            Problem::new(status, "version_conflict", "Changed meanwhile", detail)
        }
        ChangeError::Unknown => unknown(),
        ChangeError::HasLinks => {
            Problem::conflict("domain_has_links", "The domain has links", detail)
        }
        ChangeError::Busy => Problem::unavailable("domains_busy", detail),
        ChangeError::Store(error) => error.into(),
    }
}
