//! Editable fields of a link: one struct for new links, edits and answers.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa::openapi::schema::{Array, ArrayBuilder, ObjectBuilder, Type};
use weir_link::preview::Preview;
use weir_link::record::{App, COUNTRIES_MAX, Link, Parameter, Platform, RedirectStatus, Rule};

use super::labels::{Labels, TAG_LEN_MAX, TAGS_MAX};

/// The name of [`LinkFields::ends_at_ms`] in answers.
const END_IN_ANSWERS: &str = "ends_at_ms";

/// The name of [`LinkFields::ends_at_ms`] in requests. Answers use this name for the end of an unclicked link.
pub const END_IN_REQUESTS: &str = "expires_at_ms";

/// Editable fields of a link. A request may omit the optional fields: a new link then gets the defaults.
///
/// Add a new field here, to [`Link`] or [`Labels`], and to the conversions between them: [`LinkFields::new`] and
/// [`LinkRequest::draft`](crate::model::request::LinkRequest::draft).
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkFields {
    /// Target URL.
    #[schema(max_length = 2048)]
    pub target: String,
    /// Language of the target; null: unknown.
    #[schema(default = json!(null))]
    pub language: Option<String>,
    /// Redirect status. Default: the domain's.
    #[schema(nullable = false, default = json!(null))]
    pub status: Option<RedirectStatus>,
    /// Whether to append the visitor's query string. Default: the domain's.
    #[schema(nullable = false, default = json!(null))]
    pub pass_query: Option<bool>,
    /// Lifetime after the last click, in milliseconds; 0: never expires. Default: the domain's.
    #[schema(nullable = false, default = json!(null))]
    pub life_ms: Option<u64>,
    /// Click limit; null: none.
    #[schema(minimum = 1, default = json!(null))]
    pub max_clicks: Option<u64>,
    /// Fixed expiry time, in milliseconds since the Unix epoch; null: none.
    #[serde(rename(serialize = "ends_at_ms", deserialize = "expires_at_ms"))]
    #[schema(default = json!(null), extensions(("x-name-in-requests" = json!("expires_at_ms"))))]
    pub ends_at_ms: Option<u64>,
    /// Apps that can open it, in order.
    #[serde(default)]
    #[schema(max_items = 8, default = json!([]))]
    pub apps: Vec<AppRequest>,
    /// Rules with other targets for some visitors.
    #[serde(default)]
    #[schema(max_items = 16, default = json!([]))]
    pub rules: Vec<RuleRequest>,
    /// Target after expiry; null: the domain's page.
    #[schema(default = json!(null))]
    pub ended_target: Option<String>,
    /// Preview for preview bots; null: the redirect.
    #[schema(default = json!(null))]
    pub preview: Option<PreviewRequest>,
    /// Whether to attribute orders to its clicks. Default: false.
    #[schema(nullable = false, default = false)]
    pub conversion: Option<bool>,
    /// Title for the team, without control characters; null: none.
    #[schema(max_length = 200, default = json!(null))]
    pub title: Option<String>,
    /// Note for the team; null: none.
    #[schema(max_length = 2000, default = json!(null))]
    pub note: Option<String>,
    /// Folder, such as a campaign; null: none.
    #[schema(max_length = 63, default = json!(null))]
    pub folder: Option<String>,
    /// Id in another system; null: none.
    #[schema(max_length = 63, default = json!(null))]
    pub external_id: Option<String>,
    /// Tags for searching.
    #[serde(default)]
    #[schema(schema_with = tags)]
    pub tags: Vec<String>,
}

/// An app of a link.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LinkApp)]
pub struct AppRequest {
    /// Platform.
    pub platform: Platform,
    /// An app scheme of the domain, or a universal link.
    pub url: String,
    /// Target for visitors without the app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub fallback: Option<String>,
}

/// A rule of a link.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LinkRule)]
pub struct RuleRequest {
    /// Platforms; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub platforms: Vec<Platform>,
    /// Preferred languages of visitors; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub languages: Vec<String>,
    /// Two-letter country codes; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(schema_with = countries)]
    pub countries: Vec<String>,
    /// Required query parameters; all must match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 8)]
    pub query: Vec<ParameterRequest>,
    /// Percentage of matching visitors; null: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 99)]
    pub percent: Option<u8>,
    /// Target URL.
    pub target: String,
}

/// A parameter of a query string.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LinkQuery)]
pub struct ParameterRequest {
    /// Its name.
    #[schema(min_length = 1, max_length = 128)]
    pub name: String,
    /// Its value; null: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 128)]
    pub value: Option<String>,
}

/// A preview of a link.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LinkPreview)]
pub struct PreviewRequest {
    /// The title.
    #[schema(min_length = 1, max_length = 2048)]
    pub title: String,
    /// A sentence or two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 2048)]
    pub text: Option<String>,
    /// URL of a picture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 2048)]
    pub image: Option<String>,
}

impl LinkFields {
    /// Creates the fields of a link, with a value wherever the link has one.
    pub fn new(link: Link, labels: Labels) -> Self {
        let unless_zero = |number: u64| (number > 0).then_some(number);
        Self {
            target: link.target,
            language: unless_empty(link.language),
            status: Some(link.status),
            pass_query: Some(link.pass_query),
            life_ms: Some(link.life_ms),
            max_clicks: unless_zero(link.max_clicks),
            ends_at_ms: unless_zero(link.expires_at_ms),
            apps: link.apps.into_iter().map(AppRequest::from).collect(),
            rules: link.rules.into_iter().map(RuleRequest::from).collect(),
            ended_target: unless_empty(link.ended_target),
            preview: link.preview.map(PreviewRequest::from),
            conversion: Some(link.is_tracked),
            title: unless_empty(labels.title),
            note: unless_empty(labels.note),
            folder: unless_empty(labels.folder),
            external_id: unless_empty(labels.external_id),
            tags: labels.tags,
        }
    }

    /// The fields of a link with only defaults. A field that is null here may be null in an edit.
    pub(crate) fn plain() -> Self {
        Self::new(Link::to(""), Labels::default())
    }

    /// These fields in request format, overridden by `changes`.
    pub(crate) fn merged(&self, changes: &Map<String, Value>) -> Value {
        let mut whole = json!(self);
        if let Some(members) = whole.as_object_mut() {
            let end = members.remove(END_IN_ANSWERS).unwrap_or_default();
            members.insert(END_IN_REQUESTS.to_owned(), end);
            members.extend(changes.clone());
        }
        whole
    }
}

fn tags() -> Array {
    let tag = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(TAG_LEN_MAX));
    ArrayBuilder::new()
        .items(tag)
        .max_items(Some(TAGS_MAX))
        .description(Some("Tags for searching."))
        .default(Some(json!([])))
        .build()
}

fn countries() -> Array {
    let country = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some("^[A-Za-z]{2}$"));
    ArrayBuilder::new()
        .items(country)
        .max_items(Some(COUNTRIES_MAX))
        .description(Some(
            "Two-letter country codes (ISO 3166-1); empty: all countries.",
        ))
        .build()
}

fn unless_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

impl From<App> for AppRequest {
    fn from(app: App) -> Self {
        Self {
            platform: app.platform,
            url: app.url,
            fallback: app.fallback,
        }
    }
}

impl From<Rule> for RuleRequest {
    fn from(rule: Rule) -> Self {
        let parameter = |part: Parameter| ParameterRequest {
            name: part.name,
            value: part.value,
        };
        Self {
            platforms: rule.platforms,
            languages: rule.languages,
            countries: rule.countries.into_iter().map(String::from).collect(),
            query: rule.query.into_iter().map(parameter).collect(),
            percent: (rule.percent > 0).then_some(rule.percent),
            target: rule.target,
        }
    }
}

impl From<Preview> for PreviewRequest {
    fn from(preview: Preview) -> Self {
        Self {
            title: preview.title,
            text: unless_empty(preview.text),
            image: unless_empty(preview.image),
        }
    }
}
