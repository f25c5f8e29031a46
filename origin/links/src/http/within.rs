//! The scope of a key: all links, or only those of some domains or with some tags.

use axum::RequestPartsExt;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::links::{not_found, unknown_link};
use crate::Links;
use crate::group::LinkGroup;
use crate::model::labels::LabelFilter;
use crate::model::request::LinkRequest;
use crate::shared::SharedReport;
use crate::store::StoredLink;
use weir_link::code::LinkId;
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
        self.0.may_domain(link.id.domain.as_str()) && self.0.may_tags(&link.labels.tags)
    }

    /// Refuses a link that the caller may not see: for the caller it does not exist.
    pub(super) async fn check_named(&self, links: &Links, id: &LinkId) -> Result<(), Problem> {
        if !self.is_narrow() {
            return Ok(());
        }
        let link = links.finder().find(id).await.map_err(not_found)?;
        self.has(&link).then_some(()).ok_or_else(unknown_link)
    }

    /// The owner of the caller's shared reports and templates: its tenant, or empty for the platform.
    pub(super) fn owner(&self) -> &str {
        self.tenant().map_or("", |tenant| tenant.name.as_str())
    }

    /// The links with a label in a domain, restricted to those that the caller may see.
    pub(super) fn group(
        &self,
        domain: Option<String>,
        label: Option<LabelFilter>,
    ) -> Result<LinkGroup, Problem> {
        if !self.has_label(label.as_ref()) {
            return Err(not_within("tag: must be a tag of the key"));
        }
        let domains = match domain {
            Some(id) if !self.has_domain(&id) => {
                return Err(not_within("domain: the key is restricted to other domains"));
            }
            Some(id) => Some(vec![id]),
            None => {
                let domains = self.0.domains();
                domains.map(|all| all.into_iter().map(str::to_owned).collect())
            }
        };
        Ok(LinkGroup { domains, label })
    }

    /// Whether the caller may see all links with this label, in its domains.
    fn has_label(&self, label: Option<&LabelFilter>) -> bool {
        match label {
            Some(LabelFilter::Tag(tag)) => self.0.may_tags(&[tag]),
            _ => self.0.may_tags::<&str>(&[]),
        }
    }

    /// Whether the caller may see and revoke a shared report.
    pub(super) fn has_report(&self, report: &SharedReport) -> bool {
        let group = &report.group;
        let may_domains = match &group.domains {
            Some(domains) => domains.iter().all(|id| self.has_domain(id)),
            None => self.0.domains().is_none(),
        };
        may_domains && self.has_label(group.label.as_ref())
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
