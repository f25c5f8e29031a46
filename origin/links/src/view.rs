//! Links as the API shows them.

use serde::Serialize;
use weir_link::code::{Code, DomainId};
use weir_link::domain::{Domain, Domains};
use weir_link::preview::Preview;
use weir_link::record::{Link, RedirectStatus};
use weir_link::target::{Flag, flag_of};

use super::request::{AppRequest, ParameterRequest, PreviewRequest, RuleRequest};
use super::state::{Standing, State};
use super::store::{Action, Past, StoredLink};

/// A link.
#[derive(Clone, Debug, Serialize)]
pub struct LinkView {
    /// Its domain.
    pub domain: DomainId,
    /// Its code.
    pub code: Code,
    /// What people click.
    pub url: String,
    /// What it says.
    #[serde(flatten)]
    pub says: Says,
    /// For people, to find it again.
    pub tags: Vec<String>,
    /// How often it was clicked, as far as that was counted.
    pub clicks: u64,
    /// When it was made, in milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// When it was last edited, or made.
    pub changed_at_ms: u64,
    /// When it ends if nobody clicks, as far as the cold store knows; null: never.
    pub expires_at_ms: Option<u64>,
    /// What becomes of whoever clicks it now.
    pub state: State,
    /// How many clicks it has left; null: as many as come.
    pub clicks_left: Option<u64>,
    /// What people should know of where it leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flag: Option<Flag>,
}

/// What a link says.
#[derive(Clone, Debug, Serialize)]
pub struct Says {
    /// 1, and one more with every edit.
    pub version: u32,
    /// Where it leads.
    pub target: String,
    /// The language of what is there; null: nobody has said.
    pub language: Option<String>,
    /// The status of its redirects.
    pub status: RedirectStatus,
    /// Whether the query string is passed on.
    pub pass_query: bool,
    /// Whether it is out of use for now.
    pub disabled: bool,
    /// How long it lives after its last click, in milliseconds; 0: for ever.
    pub life_ms: u64,
    /// How many clicks it has; null: as many as come.
    pub max_clicks: Option<u64>,
    /// When it ends whatever is clicked; null: never.
    pub ends_at_ms: Option<u64>,
    /// Apps that it wakes.
    pub apps: Vec<AppRequest>,
    /// Other targets for some clients.
    pub rules: Vec<RuleRequest>,
    /// Whether a password is asked for.
    pub protected: bool,
    /// Whether orders are counted that come of its clicks.
    pub conversion: bool,
    /// Where those go who come after its end; null: to its domain's page.
    pub ended_target: Option<String>,
    /// What programs that preview links are shown; null: the redirect.
    pub preview: Option<PreviewRequest>,
}

/// A link as it was from some instant on.
#[derive(Clone, Debug, Serialize)]
pub struct PastView {
    what: Action,
    at_ms: u64,
    #[serde(flatten)]
    says: Says,
    tags: Vec<String>,
}

impl From<Link> for Says {
    fn from(link: Link) -> Self {
        let app = |app: weir_link::record::App| AppRequest {
            platform: app.platform,
            url: app.url,
            fallback: app.fallback,
        };
        let parameter = |part: weir_link::record::Parameter| ParameterRequest {
            name: part.name,
            value: part.value,
        };
        let preview = |preview: Preview| PreviewRequest {
            title: preview.title,
            text: Some(preview.text).filter(|text| !text.is_empty()),
            image: Some(preview.image).filter(|image| !image.is_empty()),
        };
        let rule = |rule: weir_link::record::Rule| RuleRequest {
            platforms: rule.platforms,
            languages: rule.languages,
            countries: rule.countries.into_iter().map(String::from).collect(),
            query: rule.query.into_iter().map(parameter).collect(),
            percent: (rule.percent > 0).then_some(rule.percent),
            target: rule.target,
        };
        let unless_zero = |number: u64| (number > 0).then_some(number);
        Self {
            version: link.version,
            target: link.target,
            language: Some(link.language).filter(|language| !language.is_empty()),
            status: link.status,
            pass_query: link.pass_query,
            disabled: link.is_disabled,
            life_ms: link.life_ms,
            max_clicks: unless_zero(link.max_clicks),
            ends_at_ms: unless_zero(link.expires_at_ms),
            apps: link.apps.into_iter().map(app).collect(),
            rules: link.rules.into_iter().map(rule).collect(),
            protected: link.guard.is_some(),
            conversion: link.is_tracked,
            ended_target: Some(link.ended_target).filter(|target| !target.is_empty()),
            preview: link.preview.map(preview),
        }
    }
}

impl LinkView {
    /// A link as the store has it.
    pub fn of(stored: StoredLink, domains: &Domains, standing: Standing) -> Self {
        let domain = domains.by_id(stored.id.domain.as_str());
        Self::new(stored, domain, standing)
    }

    /// A link of `domain`; `None`: of one that is no longer configured, whose URL is not known.
    pub fn new(stored: StoredLink, domain: Option<&Domain>, standing: Standing) -> Self {
        let flag = flag_of(&stored.link);
        let url = domain.map(|domain| domain.url(&stored.id.code));
        Self {
            url: url.unwrap_or_default(),
            domain: stored.id.domain,
            code: stored.id.code,
            says: stored.link.into(),
            tags: stored.tags,
            clicks: stored.clicks,
            created_at_ms: stored.created_at_ms,
            changed_at_ms: stored.changed_at_ms,
            expires_at_ms: stored.expires_at_ms,
            state: standing.state,
            clicks_left: standing.clicks_left,
            flag,
        }
    }
}

impl From<Past> for PastView {
    fn from(past: Past) -> Self {
        Self {
            what: past.action,
            at_ms: past.at_ms,
            says: past.link.into(),
            tags: past.tags,
        }
    }
}
