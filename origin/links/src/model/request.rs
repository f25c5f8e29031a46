//! Validates requests: a new link, or an edit.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use weir_link::agent::Language;
use weir_link::code::{Code, Length};
use weir_link::domain::{Domain, Domains, LIFE_DAYS_MAX};
use weir_link::preview::{PREVIEW_LEN_MAX, Preview};
use weir_link::record::{
    App, Country, Link, PARAMETER_LEN_MAX, PARAMETERS_MAX, Parameter, RECORD_LEN_MAX, Rule,
};
use weir_link::target::{Target, TargetError, check, check_page};
use weir_origin_core::http::shared_members;

use super::fields::{
    AppRequest, END_IN_REQUESTS, LinkFields, ParameterRequest, PreviewRequest, RuleRequest,
};
use super::labels::{Labels, NAME_LEN_MAX, NOTE_LEN_MAX, TAG_LEN_MAX, TAGS_MAX, TITLE_LEN_MAX};
use super::utm::{UTM_LEN_MAX, Utm};
use crate::password::Password;
use crate::store::StoredLink;

/// Maximum click limit of a link.
pub const MAX_CLICKS_MAX: u64 = 1_000_000_000_000;

/// Minimum life, in milliseconds: a shorter one would end before the first visit.
pub const LIFE_MS_MIN: u64 = 1_000;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// A new link.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[schema(as = NewLink)]
pub struct LinkRequest {
    /// UTM parameters for the target's query.
    #[schema(nullable = false)]
    pub utm: Option<Utm>,
    /// Its domain. Default: the first one.
    #[schema(nullable = false)]
    pub domain: Option<String>,
    /// Length of its generated code. Default: the domain's.
    #[schema(nullable = false, value_type = Option<u8>, minimum = 5, maximum = 8)]
    pub length: Option<Length>,
    /// Custom code: 3 to 32 of `0-9 A-Z a-z - _`, and other characters that the domain allows.
    #[schema(nullable = false, min_length = 1, max_length = 32)]
    pub code: Option<String>,
    /// Lifetime in days without a click; 0: never expires.
    #[schema(nullable = false, maximum = 3650)]
    pub life_days: Option<u32>,
    /// Password for visitors, up to 128 bytes. It excludes max_clicks and an Idempotency-Key, and is never shown again.
    #[schema(nullable = false, value_type = Option<String>, min_length = 1, max_length = 128, write_only)]
    pub password: Option<Password>,
    /// All other fields.
    #[serde(flatten, deserialize_with = "shared_members")]
    pub fields: LinkFields,
}

/// Changes of a link.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[schema(as = LinkChanges)]
pub struct EditRequest {
    /// UTM parameters for the target's query.
    #[schema(nullable = false)]
    pub utm: Option<Utm>,
    /// Lifetime in days without a click; 0: never expires.
    #[schema(nullable = false, maximum = 3650)]
    pub life_days: Option<u32>,
    /// Password for visitors; null: none.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 128, write_only)]
    pub password: Option<Option<Password>>,
    /// Whether the link is disabled.
    #[schema(nullable = false)]
    pub disabled: Option<bool>,
    /// The changed fields of [`LinkFields`].
    #[serde(flatten, deserialize_with = "named")]
    #[schema(value_type = LinkFields)]
    pub fields: Map<String, Value>,
}

/// Distinguishes null from a missing field.
fn nullable<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(from).map(Some)
}

/// Drops nulls of fields that always have a value: they count as missing.
fn named<'de, D: Deserializer<'de>>(from: D) -> Result<Map<String, Value>, D::Error> {
    let mut fields = Map::deserialize(from)?;
    let plain = LinkFields::plain().merged(&Map::new());
    fields.retain(|name, value| !value.is_null() || plain.get(name).is_none_or(Value::is_null));
    Ok(fields)
}

/// Why a request is refused: field, error code and description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct LinkFieldError {
    /// The field, such as `target` or `apps[1].url`.
    pub field: Cow<'static, str>,
    /// The error code, such as `target_scheme`; `invalid_link` if there is no specific code.
    pub word: &'static str,
    /// Description of the problem.
    pub problem: Cow<'static, str>,
}

/// A valid request.
#[derive(Clone, Debug)]
pub struct Draft<'a> {
    /// Its domain.
    pub domain: &'a Domain,
    /// A custom code, or the length of a generated one.
    pub name: Name,
    /// The link without its password.
    pub link: Link,
    /// The password for visitors.
    pub password: Option<Password>,
    /// The team's labels.
    pub labels: Labels,
}

/// Result of applying an edit to a link.
#[derive(Clone, Debug)]
pub struct AppliedEdit {
    /// The new link, still with the old version.
    pub link: Link,
    /// The new labels.
    pub labels: Labels,
}

/// How a link gets its code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// Generated with this length.
    Generated(Length),
    /// Custom.
    Custom(Code),
}

fn refused(
    field: impl Into<Cow<'static, str>>,
    problem: impl Into<Cow<'static, str>>,
) -> LinkFieldError {
    LinkFieldError {
        field: field.into(),
        word: "invalid_link",
        problem: problem.into(),
    }
}

fn bad_target(field: impl Into<Cow<'static, str>>, error: &TargetError) -> LinkFieldError {
    LinkFieldError {
        word: error.label(),
        ..refused(field, error.to_string())
    }
}

impl LinkRequest {
    /// Validates the request against these domains.
    ///
    /// # Errors
    /// Names the invalid field.
    pub fn draft(self, domains: &Domains, now_ms: u64) -> Result<Draft<'_>, LinkFieldError> {
        let domain = match &self.domain {
            None => domains.default_domain(),
            Some(id) => domains.by_id(id).ok_or_else(|| LinkFieldError {
                word: "unknown_domain",
                ..refused("domain", "is not a configured domain")
            })?,
        };
        let name = name(self.code, self.length, domain)?;
        let mut link = Link::to("");
        link.status = domain.status;
        link.pass_query = domain.pass_query;
        link.life_ms = match name {
            Name::Generated(length) => domain.generated_life_ms(length),
            Name::Custom(_) => domain.life_ms(),
        };
        let site = Site { domains, domain };
        let context = RequestContext {
            utm: self.utm.as_ref(),
            life_days: self.life_days,
            names: None,
            now_ms,
        };
        let labels = site.set(&mut link, self.fields, context)?;
        if self.password.is_some() && link.max_clicks > 0 {
            return Err(counts_and_guards());
        }
        Ok(Draft {
            domain,
            name,
            link,
            password: self.password,
            labels,
        })
    }
}

impl EditRequest {
    /// Whether the edit contains this field of [`LinkFields`].
    pub fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }

    /// Its fields in an otherwise default link, to check their types without the real link.
    pub fn sample(&self) -> Value {
        LinkFields::plain().merged(&self.fields)
    }

    /// Whether it only disables or enables the link.
    pub fn is_switch_only(&self) -> bool {
        let others = self.utm.is_some() || self.life_days.is_some() || self.password.is_some();
        self.disabled.is_some() && !others && self.fields.is_empty()
    }

    /// Applies the edit to `link`.
    ///
    /// # Errors
    /// Names the invalid field.
    pub fn apply(
        &self,
        before: &StoredLink,
        domains: &Domains,
        domain: &Domain,
        now_ms: u64,
    ) -> Result<AppliedEdit, LinkFieldError> {
        let mut link = before.link.clone();
        let fields = LinkFields::new(link.clone(), before.labels.clone());
        let fields = serde_json::from_value(fields.merged(&self.fields));
        let fields = fields.map_err(|error| refused("the link", error.to_string()))?;
        let context = RequestContext {
            utm: self.utm.as_ref(),
            life_days: self.life_days,
            names: Some(&self.fields),
            now_ms,
        };
        link.is_disabled = self.disabled.unwrap_or(link.is_disabled);
        let labels = Site { domains, domain }.set(&mut link, fields, context)?;
        Ok(AppliedEdit { link, labels })
    }
}

/// The request's data besides the field values.
struct RequestContext<'a> {
    utm: Option<&'a Utm>,
    life_days: Option<u32>,
    /// Names of the changed fields; `None`: all. Only these are validated, because an existing link may have values
    /// that would be refused today.
    names: Option<&'a Map<String, Value>>,
    now_ms: u64,
}

/// Refuses a link with both a password and a click limit.
///
/// # Errors
/// If the link has both.
pub fn check_guarded(link: &Link) -> Result<(), LinkFieldError> {
    match link.guard.is_some() && link.max_clicks > 0 {
        true => Err(counts_and_guards()),
        false => Ok(()),
    }
}

/// Gateways count clicks and the origin checks passwords, so click limits cannot count only successful attempts.
fn counts_and_guards() -> LinkFieldError {
    refused("password", "cannot be combined with max_clicks")
}

/// The location of a link, which restricts its targets.
struct Site<'a> {
    domains: &'a Domains,
    domain: &'a Domain,
}

impl Site<'_> {
    /// Sets the requested fields and returns the labels.
    fn set(
        &self,
        link: &mut Link,
        fields: LinkFields,
        context: RequestContext<'_>,
    ) -> Result<Labels, LinkFieldError> {
        let has = |name: &str| context.names.is_none_or(|names| names.contains_key(name));
        if has("target") || context.utm.is_some() {
            let target = with_utm(&fields.target, context.utm)?;
            link.target = self.target("target", &target)?.url;
        }
        let life_ms = fields.life_ms.filter(|_| has("life_ms"));
        link.life_ms = life(context.life_days, life_ms)?.unwrap_or(link.life_ms);
        if has("language") {
            link.language = fields.language.map_or(Ok(String::new()), language)?;
        }
        link.status = fields.status.unwrap_or(link.status);
        link.pass_query = fields.pass_query.unwrap_or(link.pass_query);
        link.is_tracked = fields.conversion.unwrap_or(link.is_tracked);
        if has("max_clicks") {
            link.max_clicks = fields.max_clicks.map_or(Ok(0), max_clicks)?;
        }
        if has(END_IN_REQUESTS) {
            let end = fields.ends_at_ms.map(|ms| end(ms, context.now_ms));
            link.expires_at_ms = end.transpose()?.unwrap_or(0);
        }
        if has("apps") {
            link.apps = self.apps(fields.apps)?;
        }
        if has("rules") {
            link.rules = self.rules(fields.rules)?;
        }
        if has("ended_target") {
            let page = fields.ended_target.map(|text| self.ended(&text));
            link.ended_target = page.transpose()?.unwrap_or_default();
        }
        if has("preview") {
            let preview = fields.preview.map(|preview| self.preview(preview));
            link.preview = preview.transpose()?;
        }
        check_size(link)?;
        let text = |field, text: Option<String>, len_max| match has(field) {
            true => label(field, text.unwrap_or_default(), len_max),
            false => Ok(text.unwrap_or_default()),
        };
        Ok(Labels {
            title: text("title", fields.title, TITLE_LEN_MAX)?,
            note: text("note", fields.note, NOTE_LEN_MAX)?,
            folder: text("folder", fields.folder, NAME_LEN_MAX)?,
            external_id: text("external_id", fields.external_id, NAME_LEN_MAX)?,
            tags: match has("tags") {
                true => tags(fields.tags)?,
                false => fields.tags,
            },
        })
    }

    fn target(
        &self,
        field: impl Into<Cow<'static, str>>,
        text: &str,
    ) -> Result<Target, LinkFieldError> {
        check(text, self.domains, self.domain).map_err(|error| bad_target(field, &error))
    }

    fn ended(&self, text: &str) -> Result<String, LinkFieldError> {
        let page = check_page(text, self.domains, self.domain);
        let page = page.map_err(|error| bad_target("ended_target", &error))?;
        Ok(page.url)
    }

    fn preview(&self, preview: PreviewRequest) -> Result<Preview, LinkFieldError> {
        let image = preview.image.map(|text| {
            let image = check_page(&text, self.domains, self.domain);
            image.map_err(|error| bad_target("preview.image", &error))
        });
        let (title, text) = (preview.title, preview.text.unwrap_or_default());
        if title.trim().is_empty() {
            return Err(refused("preview.title", "is empty"));
        }
        for (field, text) in [("preview.title", &title), ("preview.text", &text)] {
            if text.len() > PREVIEW_LEN_MAX {
                let problem = format!("has more than {PREVIEW_LEN_MAX} bytes");
                return Err(refused(field, problem));
            }
        }
        let image = image.transpose()?.map_or(String::new(), |image| image.url);
        Ok(Preview { title, text, image })
    }

    fn apps(&self, apps: Vec<AppRequest>) -> Result<Vec<App>, LinkFieldError> {
        let app = |(n, app): (usize, AppRequest)| {
            let fallback = app.fallback.map(|text| {
                let page = check_page(&text, self.domains, self.domain);
                page.map_err(|error| bad_target(format!("apps[{n}].fallback"), &error))
            });
            let fallback = fallback.transpose()?;
            let url = self.target(format!("apps[{n}].url"), &app.url)?;
            Ok(App {
                platform: app.platform,
                url: url.url,
                fallback: fallback.map(|page| page.url),
            })
        };
        apps.into_iter().enumerate().map(app).collect()
    }

    fn rules(&self, rules: Vec<RuleRequest>) -> Result<Vec<Rule>, LinkFieldError> {
        let rule = |(n, rule): (usize, RuleRequest)| {
            let language = |tag: String| {
                let existing = language(tag);
                existing.map_err(|error| refused(format!("rules[{n}].languages"), error.problem))
            };
            let country = |text: String| {
                let field = || format!("rules[{n}].countries");
                Country::try_from(text).map_err(|error| refused(field(), error.to_string()))
            };
            let target = self.target(format!("rules[{n}].target"), &rule.target)?;
            let countries = rule.countries.into_iter().map(country);
            let query = parameters(rule.query, n)?;
            Ok(Rule {
                platforms: rule.platforms,
                languages: rule
                    .languages
                    .into_iter()
                    .map(language)
                    .collect::<Result<_, _>>()?,
                countries: countries.collect::<Result<_, _>>()?,
                query,
                percent: percent(rule.percent, n)?,
                target: target.url,
            })
        };
        rules.into_iter().enumerate().map(rule).collect()
    }
}

fn with_utm<'a>(target: &'a str, utm: Option<&Utm>) -> Result<Cow<'a, str>, LinkFieldError> {
    let Some(utm) = utm else {
        return Ok(Cow::Borrowed(target));
    };
    let composed = utm.compose(target);
    composed.map_err(|field| {
        let problem = format!("must be 1 to {UTM_LEN_MAX} characters without control characters");
        refused(format!("utm.{field}"), problem)
    })
}

fn parameters(all: Vec<ParameterRequest>, n: usize) -> Result<Vec<Parameter>, LinkFieldError> {
    let is_sound = |part: &ParameterRequest| {
        let value = part.value.as_ref().map_or(0, String::len);
        !part.name.is_empty() && part.name.len().max(value) <= PARAMETER_LEN_MAX
    };
    if all.len() > PARAMETERS_MAX || !all.iter().all(is_sound) {
        let problem = format!(
            "must have at most {PARAMETERS_MAX} named parameters of at most {PARAMETER_LEN_MAX} bytes"
        );
        return Err(refused(format!("rules[{n}].query"), problem));
    }
    let parameter = |part: ParameterRequest| Parameter {
        name: part.name,
        value: part.value,
    };
    Ok(all.into_iter().map(parameter).collect())
}

fn percent(percent: Option<u8>, n: usize) -> Result<u8, LinkFieldError> {
    match percent {
        None => Ok(0),
        Some(percent @ 1..=99) => Ok(percent),
        Some(_) => Err(refused(format!("rules[{n}].percent"), "is 1 to 99")),
    }
}

/// A language tag in canonical form.
fn language(tag: String) -> Result<String, LinkFieldError> {
    let existing = Language::new(tag.as_bytes());
    let existing = existing.map(|language| language.as_str().to_owned());
    existing.ok_or_else(|| refused("language", "is not a language tag such as zh, zh-TW or en"))
}

fn check_size(link: &Link) -> Result<(), LinkFieldError> {
    link.check()
        .map_err(|error| refused("the link", error.to_string()))?;
    if link.is_plain() || link.encode().len() <= RECORD_LEN_MAX {
        return Ok(());
    }
    let problem = format!("is larger than {RECORD_LEN_MAX} bytes with its apps and rules");
    Err(refused("the link", problem))
}

fn name(
    code: Option<String>,
    length: Option<Length>,
    domain: &Domain,
) -> Result<Name, LinkFieldError> {
    match (code, length) {
        (None, length) => Ok(Name::Generated(length.unwrap_or(domain.length))),
        (Some(code), None) => {
            let code = domain.codes.choose(&code);
            let code = code.map_err(|error| refused("code", error.to_string()))?;
            Ok(Name::Custom(code))
        }
        (Some(_), Some(_)) => Err(refused("length", "is only for generated codes")),
    }
}

fn life(days: Option<u32>, ms: Option<u64>) -> Result<Option<u64>, LinkFieldError> {
    let (field, ms) = match (days, ms) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            return Err(refused(
                "life_ms",
                "and life_days are exclusive: set only one",
            ));
        }
        (Some(days), None) => ("life_days", u64::from(days).saturating_mul(DAY_MS)),
        (None, Some(ms)) => ("life_ms", ms),
    };
    let max_ms = u64::from(LIFE_DAYS_MAX).saturating_mul(DAY_MS);
    if ms != 0 && !(LIFE_MS_MIN..=max_ms).contains(&ms) {
        let problem = format!("must be 0 (never expires), or 1 s to {LIFE_DAYS_MAX} days");
        return Err(refused(field, problem));
    }
    Ok(Some(ms))
}

fn max_clicks(clicks: u64) -> Result<u64, LinkFieldError> {
    let is_sound = (1..=MAX_CLICKS_MAX).contains(&clicks);
    let problem = || refused("max_clicks", format!("must be 1 to {MAX_CLICKS_MAX}"));
    is_sound.then_some(clicks).ok_or_else(problem)
}

fn end(ms: u64, now_ms: u64) -> Result<u64, LinkFieldError> {
    let is_sound = ms > now_ms && i64::try_from(ms).is_ok();
    let problem = || refused("expires_at_ms", "must be in the future");
    is_sound.then_some(ms).ok_or_else(problem)
}

/// A label without surrounding blanks. Only a note may have several lines.
fn label(field: &'static str, text: String, len_max: usize) -> Result<String, LinkFieldError> {
    let text = text.trim();
    let is_allowed =
        |one: char| !one.is_control() || (field == "note" && matches!(one, '\n' | '\r' | '\t'));
    if text.chars().count() > len_max || !text.chars().all(is_allowed) {
        let problem = format!("must have at most {len_max} characters and no control characters");
        return Err(refused(field, problem));
    }
    Ok(text.to_owned())
}

fn tags(tags: Vec<String>) -> Result<Vec<String>, LinkFieldError> {
    if tags.len() > TAGS_MAX {
        return Err(refused("tags", format!("has more than {TAGS_MAX}")));
    }
    for (n, tag) in tags.iter().enumerate() {
        let len = tag.chars().count();
        if !(1..=TAG_LEN_MAX).contains(&len) || tag.chars().any(char::is_control) {
            let problem =
                format!("must be 1 to {TAG_LEN_MAX} characters without control characters");
            return Err(refused(format!("tags[{n}]"), problem));
        }
        if tags.iter().take(n).any(|earlier| earlier == tag) {
            return Err(refused(format!("tags[{n}]"), "already exists"));
        }
    }
    Ok(tags)
}
