//! The scope of a key: all links, or only those of some domains or with some tags.

use axum::RequestPartsExt;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::Links;
use crate::model::request::LinkRequest;
use crate::store::StoredLink;
use weir_origin_core::access::{Caller, over_limit};
use weir_origin_core::http::Problem;
use weir_origin_core::http::refusal::FORBIDDEN;
use weir_origin_core::tenants::Tenant;

/// The caller. A request without a key has access to no link.
pub(super) struct CallerFilter(Caller);

impl<S: Sync> FromRequestParts<S> for CallerFilter {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extract::<Caller>().await.map(Self)
    }
}

impl CallerFilter {
    /// Whether each link must be checked.
    pub(super) fn is_narrow(&self) -> bool {
        self.0.is_narrow()
    }

    /// The caller's key, if it is limited to some links.
    pub(super) fn narrow_key(self) -> Option<Caller> {
        Some(self.0).filter(Caller::is_narrow)
    }

    /// The caller's tenant, if any.
    pub(super) fn tenant(&self) -> Option<&Tenant> {
        self.0.tenant()
    }

    /// Reserves this number of links in the quota of the caller's tenant, if any.
    pub(super) async fn take(&self, links: &Links, count: u64) -> Result<(), Problem> {
        let Some(tenant) = self.tenant() else {
            return Ok(());
        };
        match links.quota().take(tenant, count).await? {
            Some(over) => Err(over_limit(over)),
            None => Ok(()),
        }
    }

    /// Refuses a key that is limited to some links.
    pub(super) fn check_all(&self) -> Result<(), Problem> {
        match self.is_narrow() {
            true => Err(not_within(
                "the key is restricted to some links, but this covers all",
            )),
            false => Ok(()),
        }
    }

    /// Whether the caller may see a domain.
    pub(super) fn has_domain(&self, id: &str) -> bool {
        self.0.may_domain(id)
    }

    /// Whether the caller may see a link.
    pub(super) fn has(&self, link: &StoredLink) -> bool {
        self.0.may_domain(link.id.domain.as_str()) && self.0.may_tags(&link.tags)
    }

    /// Checks that the caller may create a link in the requested domain, or else in `default`.
    pub(super) fn check_new(&self, request: &LinkRequest, default: &str) -> Result<(), Problem> {
        let domain = request.domain.as_deref().unwrap_or(default);
        if !self.0.may_domain(domain) {
            return Err(not_within("domain: the key is restricted to other domains"));
        }
        self.check_tags(&request.fields.tags)
    }

    /// Checks that the caller may give a link these tags.
    pub(super) fn check_tags(&self, tags: &[String]) -> Result<(), Problem> {
        match self.0.may_tags(tags) {
            true => Ok(()),
            false => Err(not_within("tags: must include a tag of the key")),
        }
    }
}

fn not_within(detail: &'static str) -> Problem {
    FORBIDDEN.because(detail)
}
