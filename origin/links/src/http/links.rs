//! The admin routes of links.

use std::fmt::Display;
use std::str::FromStr;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tracing::error;
use utoipa::ToSchema;
use weir_link::code::{DomainId, LinkId};

use super::refusals::{
    CODE_TAKEN, INVALID_IF_MATCH, INVALID_LINK, LINK_BUSY, LOG_UNAVAILABLE, NO_NUMBERS,
    UNKNOWN_LINK, VERSION_CONFLICT,
};
use super::within::CallerFilter;
use super::{Enabled, idempotency};
use crate::Links;
use crate::create::CreateError;
use crate::edit::{EditError, EditedLink};
use crate::find::FindError;
use crate::model::fields::LinkFields;
use crate::model::labels::LabelFilter;
use crate::model::request::{EditRequest, LinkFieldError, LinkRequest};
use crate::model::view::{LinkView, PastView};
use crate::search::{Cursor, LinkQuery, Page, search};
use weir_origin_core::http::{
    Problem, ProblemBody, ReadQuery, TypedBody, page_len, read_typed, read_typed_value,
};

/// Maximum body length of new links, in bytes: a thousand links with targets of 4 KB.
pub(super) const BODY_LEN_MAX: usize = 4 * 1024 * 1024;

/// Maximum number of links in one request.
const BATCH_MAX: usize = 1_000;

/// Maximum number of links with a password in one request: each hash takes a large part of a second.
const PASSWORDS_MAX: usize = 10;

/// Maximum number of links on a page.
const PAGE_MAX: usize = 200;

/// Default number of links on a page.
const PAGE: usize = 50;

/// The link in a path and its `?domain=`; default: the first domain. The caller is allowed to see it.
pub(super) struct NamedLink(pub LinkId);

/// Selects a link's domain.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct DomainQuery {
    /// The domain's id. Default: the first domain.
    domain: Option<String>,
}

impl FromRequestParts<Enabled> for NamedLink {
    type Rejection = Problem;

    /// An invalid code is answered like an unknown one.
    async fn from_request_parts(parts: &mut Parts, enabled: &Enabled) -> Result<Self, Problem> {
        let links = Links::from_request_parts(parts, enabled).await?;
        let code = Path::<String>::from_request_parts(parts, enabled).await;
        let named = Query::<DomainQuery>::from_request_parts(parts, enabled).await;
        let domain = match named.map_err(|_| unknown_link())?.0.domain {
            Some(id) => DomainId::new(id).map_err(|_| unknown_link())?,
            None => links.domains().domains.default_domain().id.clone(),
        };
        let code = code.map_err(|_| unknown_link())?.0;
        let code = links.domains().domains.read_code(&domain, code.as_bytes());
        let code = code.ok_or_else(unknown_link)?;
        let id = LinkId { domain, code };
        let within = CallerFilter::from_request_parts(parts, enabled).await?;
        within.check_named(&links, &id).await?;
        Ok(Self(id))
    }
}

/// Create a link, or a list of up to 1,000
///
/// The answer comes when the links are durable and in Redis. With an `Idempotency-Key`, repeating the request creates
/// nothing twice.
#[utoipa::path(
    post,
    path = "/links",
    operation_id = "createLinks",
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key, valid for a day.", max_length = 255),
    ),
    request_body = NewLinks,
    responses(
        (status = 201, description = "The link is created, or all links of the list", body = MadeLinks),
        (status = 207, description = "Some links of a list were refused: one answer per link, in order", body = LinkAnswers),
    ),
)]
pub(super) async fn create(
    links: Links,
    within: CallerFilter,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let Some(key) = idempotency::key(&headers)? else {
        return Ok(make(&links, &within, &body, false).await?.into_response());
    };
    let reply = make(&links, &within, &body, true);
    let tenant = within.tenant().map(|tenant| &tenant.name);
    idempotency::once(links.records(), tenant, key, &body, reply).await
}

/// The stored answer to a creation, also for repeated requests with the same key.
pub(super) struct CreateReply {
    pub(super) status: StatusCode,
    pub(super) location: Option<String>,
    pub(super) json: Vec<u8>,
}

impl IntoResponse for CreateReply {
    fn into_response(self) -> Response {
        let kind = HeaderValue::from_static("application/json");
        let mut response = (self.status, [(header::CONTENT_TYPE, kind)], self.json).into_response();
        if let Some(Ok(location)) = self.location.map(HeaderValue::try_from) {
            response.headers_mut().insert(header::LOCATION, location);
        }
        response
    }
}

async fn make(
    links: &Links,
    within: &CallerFilter,
    body: &[u8],
    is_kept: bool,
) -> Result<CreateReply, Problem> {
    if body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return made_all(links, within, body, is_kept).await;
    }
    let request: LinkRequest = read_typed(body)?;
    check_passwords(std::slice::from_ref(&request), is_kept)?;
    check_conversion(links, request.fields.conversion)?;
    let existing = links.domains();
    within.check_new(&request, existing.domains.default_domain().id.as_str())?;
    within.take(links, 1).await?;
    let link = links.creator().create(request).await.map_err(not_made)?;
    Ok(CreateReply {
        status: StatusCode::CREATED,
        location: Some(format!("/links/{}?domain={}", link.code, link.domain)),
        json: to_json(&MadeLinks::One(Box::new(link)))?,
    })
}

/// Creates a list of links, with one answer each, in order: a link or a problem. 201 if all were created, otherwise
/// 207.
async fn made_all(
    links: &Links,
    within: &CallerFilter,
    body: &[u8],
    is_kept: bool,
) -> Result<CreateReply, Problem> {
    let all: Vec<Value> =
        serde_json::from_slice(body).map_err(|error| Problem::invalid_body(error.to_string()))?;
    if !(1..=BATCH_MAX).contains(&all.len()) {
        let len = all.len();
        let detail = format!("the list has {len} links, must have 1 to {BATCH_MAX}");
        return Err(Problem::invalid_body(detail));
    }
    let existing = links.domains();
    let default = existing.domains.default_domain().id.as_str();
    let read = |value| {
        let request: LinkRequest = read_typed_value(value)?;
        within.check_new(&request, default)?;
        Ok(request)
    };
    let requests: Vec<Result<LinkRequest, Problem>> = all.iter().map(read).collect();
    let sound = requests.iter().filter_map(|request| request.as_ref().ok());
    let sound: Vec<LinkRequest> = sound.cloned().collect();
    check_passwords(&sound, is_kept)?;
    for request in &sound {
        check_conversion(links, request.fields.conversion)?;
    }
    // All or none: otherwise chance would decide which links fit into the quota.
    within.take(links, sound.len() as u64).await?;
    let created = links.creator().create_all(sound).await;
    let status = match requests.iter().all(Result::is_ok) && created.iter().all(Result::is_ok) {
        true => StatusCode::CREATED,
        false => StatusCode::MULTI_STATUS,
    };
    let mut created = created.into_iter();
    let mut answers = Vec::with_capacity(requests.len());
    for request in requests {
        answers.push(match request {
            Err(problem) => Item::Problem(Box::new(problem.body())),
            Ok(_) => match created.next() {
                Some(Ok(link)) => Item::Link(Box::new(link)),
                Some(Err(error)) => Item::Problem(Box::new(not_made(error).body())),
                None => return Err(Problem::overloaded()),
            },
        });
    }
    Ok(CreateReply {
        status,
        location: None,
        json: to_json(&MadeLinks::All(LinkAnswers(answers)))?,
    })
}

/// Refuses to attribute orders if click ids are not configured.
fn check_conversion(links: &Links, requested: Option<bool>) -> Result<(), Problem> {
    match requested == Some(true) && links.conversions().is_none() {
        true => {
            let detail = "conversion: click ids are not enabled: set WEIR_LINK_CLICK_SECRET here and at the gateways";
            Err(INVALID_LINK.because(detail))
        }
        false => Ok(()),
    }
}

/// Refuses passwords if hashing them would take too long, or if Redis would store the answer with the protected fields.
fn check_passwords(requests: &[LinkRequest], is_kept: bool) -> Result<(), Problem> {
    let guarded = requests.iter().filter(|request| request.password.is_some());
    match guarded.count() {
        0 => Ok(()),
        1.. if is_kept => {
            let detail =
                "password: cannot be combined with an Idempotency-Key; use a custom code instead";
            Err(Problem::invalid_body(detail))
        }
        count if count > PASSWORDS_MAX => {
            let detail =
                format!("password: at most {PASSWORDS_MAX} links of a request can have one");
            Err(Problem::invalid_body(detail))
        }
        _ => Ok(()),
    }
}

/// The outcome of one link of a list.
#[derive(Serialize, ToSchema)]
#[schema(as = MadeLinkOrProblem)]
#[serde(untagged)]
enum Item {
    Link(Box<LinkView>),
    Problem(Box<ProblemBody>),
}

/// Outcomes of a list, in order.
#[derive(Serialize, ToSchema)]
struct LinkAnswers(Vec<Item>);

/// A link, or a list of links.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum MadeLinks {
    One(Box<LinkView>),
    #[schema(value_type = Vec<LinkView>)]
    All(LinkAnswers),
}

/// One link, or a list of up to 1,000 links.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
#[expect(
    dead_code,
    reason = "describes a body; each link of a list is read by itself"
)]
enum NewLinks {
    One(Box<LinkRequest>),
    List(LinkList),
}

/// A list of new links.
#[derive(Deserialize, ToSchema)]
#[schema(as = NewLinkList, min_items = 1, max_items = 1000)]
#[expect(dead_code, reason = "describes a body")]
struct LinkList(Vec<LinkRequest>);

/// A page of links.
#[derive(Serialize, ToSchema)]
#[schema(as = Links)]
pub(super) struct LinkPage {
    /// The links of this page.
    links: Vec<LinkView>,
    /// `after` of the next page; null: this is the last page.
    #[schema(required)]
    next: Option<String>,
}

/// History of a link.
#[derive(Serialize, ToSchema)]
#[schema(as = LinkHistory)]
pub(super) struct History {
    /// Its versions, newest first.
    history: Vec<PastView>,
}

fn to_json(value: &impl Serialize) -> Result<Vec<u8>, Problem> {
    serde_json::to_vec(value).map_err(|error| {
        error!(%error, "a stored answer is not JSON");
        Problem::overloaded()
    })
}

/// Selects a page of links.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PageQuery {
    /// Search text in the code, a URL, a label or the preview title.
    q: Option<String>,
    /// Only links with this tag.
    tag: Option<String>,
    /// Only links in this folder.
    folder: Option<String>,
    /// Only links with this id in another system.
    external_id: Option<String>,
    /// Only links of this domain.
    domain: Option<String>,
    /// Search text in a target URL.
    target: Option<String>,
    /// Created at or after this time, in milliseconds since the Unix epoch.
    from_ms: Option<u64>,
    /// Created before this time.
    to_ms: Option<u64>,
    /// Sort order.
    #[serde(default)]
    #[param(required = false, inline, default = "created")]
    sort: Sort,
    /// The `next` of the previous page.
    after: Option<String>,
    /// Maximum number of links; an export has all.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<usize>,
}

/// Sort order.
#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[schema(as = LinkOrder)]
#[serde(rename_all = "snake_case")]
enum Sort {
    /// Newest first.
    #[default]
    Created,
    /// Most clicked first.
    Clicks,
    /// Only links without clicks, newest first.
    Unclicked,
}

impl PageQuery {
    pub(super) fn link_query(&self, within: CallerFilter) -> LinkQuery {
        let input = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let labels = [
            input(&self.external_id).map(LabelFilter::ExternalId),
            input(&self.folder).map(LabelFilter::Folder),
            input(&self.tag).map(LabelFilter::Tag),
        ];
        LinkQuery {
            text: input(&self.q),
            labels: labels.into_iter().flatten().collect(),
            domain: input(&self.domain),
            target: input(&self.target),
            from_ms: self.from_ms.unwrap_or(0),
            to_ms: self.to_ms,
            narrow_key: within.narrow_key(),
        }
    }

    /// The position where the page begins.
    pub(super) fn cursor(&self) -> Result<Cursor, Problem> {
        let first = match self.sort {
            Sort::Created => Cursor::Age(None),
            Sort::Clicks => Cursor::Clicks(None),
            Sort::Unclicked => Cursor::Unclicked(None),
        };
        let Some(after) = self.after.as_deref().filter(|after| !after.is_empty()) else {
            return Ok(first);
        };
        let after = Cursor::read_text(after);
        let is_of_order = |cursor: &Cursor| match self.sort {
            Sort::Created => matches!(cursor, Cursor::Age(_)),
            Sort::Clicks => !matches!(cursor, Cursor::Age(_)),
            Sort::Unclicked => matches!(cursor, Cursor::Unclicked(_)),
        };
        let detail = "after: must be the `next` of an earlier page with this sort order";
        let after = after.filter(is_of_order);
        after.ok_or_else(|| Problem::invalid_query(detail))
    }
}

/// Search links, newest or most clicked first, or only those without clicks
#[utoipa::path(
    get,
    path = "/links",
    operation_id = "listLinks",
    params(PageQuery),
    responses((status = 200, description = "A page", body = LinkPage)),
)]
pub(super) async fn list(
    links: Links,
    within: CallerFilter,
    ReadQuery(query): ReadQuery<PageQuery>,
) -> Result<Json<LinkPage>, Problem> {
    let limit = page_len(query.limit, PAGE_MAX)?.unwrap_or(PAGE);
    let requested = query.link_query(within);
    let found = search(links.store(), &requested, query.cursor()?, limit);
    let Page { links: found, next } = found.await?;
    let existing = links.domains();
    let standings = links.states().of(&found).await?;
    let found = found.into_iter().zip(standings);
    let view = |(link, current)| LinkView::from_stored(link, &existing.domains, current);
    Ok(Json(LinkPage {
        links: found.map(view).collect(),
        next: next.map(|cursor| cursor.write()),
    }))
}

/// Get a link, with its version as ETag
#[utoipa::path(
    get,
    path = "/links/{code}",
    operation_id = "getLink",
    params(("code" = String, Path, description = "The code of the link.", min_length = 3, max_length = 32), DomainQuery),
    responses((status = 200, description = "The link", body = LinkView)),
)]
pub(super) async fn get(links: Links, NamedLink(id): NamedLink) -> Result<Response, Problem> {
    Ok(with_etag(found(&links, &id).await?))
}

/// Finds a link, in the format of the API.
pub(super) async fn found(links: &Links, id: &LinkId) -> Result<LinkView, Problem> {
    let found = links.finder().find(id).await.map_err(not_found)?;
    let (current, existing) = (links.states().of_one(&found).await?, links.domains());
    Ok(LinkView::from_stored(found, &existing.domains, current))
}

/// Change a link; missing fields keep their values
///
/// With `If-Match`, changes only that version.
#[utoipa::path(
    patch,
    path = "/links/{code}",
    operation_id = "changeLink",
    params(
        ("code" = String, Path, description = "The code of the link.", min_length = 3, max_length = 32),
        ("If-Match" = Option<String>, Header, description = "Version, in quotes, that the link must have."),
        DomainQuery,
    ),
    request_body = EditRequest,
    responses(
        (status = 200, description = "Changed; gateways apply it within a second", body = LinkView),
        (status = 202, description = "Changed; gateways apply it when Redis answers again", body = LinkView),
    ),
)]
pub(super) async fn edit(
    links: Links,
    within: CallerFilter,
    NamedLink(id): NamedLink,
    headers: HeaderMap,
    TypedBody(request): TypedBody<EditRequest>,
) -> Result<Response, Problem> {
    let fields: LinkFields = read_typed_value(&request.sample())?;
    if request.has("tags") {
        within.check_tags(&fields.tags)?;
    }
    check_conversion(&links, fields.conversion)?;
    let version = if_match(&headers)?;
    let edited = links.editor().edit(&id, version, &request).await;
    let EditedLink { link, is_published } = edited.map_err(not_edited)?;
    let mut response = with_etag(link);
    *response.status_mut() = followed(is_published, StatusCode::OK);
    Ok(response)
}

/// Delete a link
///
/// Its code can be reused after a cooldown (`--links-quarantine-s`).
#[utoipa::path(
    delete,
    path = "/links/{code}",
    operation_id = "deleteLink",
    params(
        ("code" = String, Path, description = "The code of the link.", min_length = 3, max_length = 32),
        ("If-Match" = Option<String>, Header, description = "Version, in quotes, that the link must have."),
        DomainQuery,
    ),
    responses(
        (status = 202, description = "Deleted; gateways apply it when Redis answers again"),
        (status = 204, description = "Deleted"),
    ),
)]
pub(super) async fn delete(
    links: Links,
    NamedLink(id): NamedLink,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let deleted = links.editor().delete(&id, if_match(&headers)?).await;
    let is_published = deleted.map_err(not_edited)?;
    Ok(followed(is_published, StatusCode::NO_CONTENT))
}

/// Changes 200 and 204 to 202 if Redis does not have the change yet.
fn followed(is_published: bool, status: StatusCode) -> StatusCode {
    if is_published {
        status
    } else {
        StatusCode::ACCEPTED
    }
}

/// List a link's changes, newest first
#[utoipa::path(
    get,
    path = "/links/{code}/history",
    operation_id = "getLinkHistory",
    params(("code" = String, Path, description = "The code of the link.", min_length = 3, max_length = 32), DomainQuery),
    responses((status = 200, description = "The link's history", body = History)),
)]
pub(super) async fn history(
    links: Links,
    NamedLink(id): NamedLink,
) -> Result<Json<History>, Problem> {
    let mut past = links.store().history(&id).await?;
    if past.is_empty() {
        let created = links.finder().find(&id).await.map_err(not_found)?;
        past = vec![created.into()];
    }
    let history = past.into_iter().rev().map(Into::into).collect();
    Ok(Json(History { history }))
}

fn with_etag(link: LinkView) -> Response {
    let etag = format!("\"{}\"", link.latest.version);
    ([(header::ETAG, etag)], Json(link)).into_response()
}

/// The version in `If-Match`; `None` for `*` or without the header.
pub(super) fn if_match<V: FromStr>(headers: &HeaderMap) -> Result<Option<V>, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let digits = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    let version = digits.and_then(|digits| digits.parse().ok());
    version.map(Some).ok_or_else(|| {
        let detail = "If-Match: must be a version in quotes, such as \"3\"";
        INVALID_IF_MATCH.because(detail)
    })
}

pub(super) fn unknown_link() -> Problem {
    UNKNOWN_LINK.because("link not found")
}

fn refusal(refused: &LinkFieldError) -> Problem {
    Problem::unprocessable(refused.word, "Invalid link", refused.to_string())
}

pub(super) fn not_made(failure: CreateError) -> Problem {
    match failure {
        CreateError::Refused(refused) => refusal(&refused),
        CreateError::Busy(_) => Problem::overloaded(),
        CreateError::Taken => {
            let detail = "the code is already taken, or reserved";
            CODE_TAKEN.because(detail)
        }
        CreateError::Store(error) => error.into(),
        CreateError::Redis(error) => error.into(),
        CreateError::Log(error) => {
            error!(%error, "cannot create a link");
            LOG_UNAVAILABLE.because("the link could not be stored; please try again")
        }
        CreateError::NoNumber(error) => {
            error!(%error, "cannot create a link");
            NO_NUMBERS.because("no free code found; please try again")
        }
    }
}

pub(super) fn not_found(failure: FindError) -> Problem {
    match failure {
        FindError::Unknown => unknown_link(),
        FindError::NotYet => busy(&failure),
        FindError::Store(error) => error.into(),
        FindError::Redis(error) => error.into(),
    }
}

fn not_edited(failure: EditError) -> Problem {
    match failure {
        EditError::Find(failure) => not_found(failure),
        EditError::Refused(refused) => refusal(&refused),
        EditError::Hash(_) => Problem::overloaded(),
        EditError::Version(_) => VERSION_CONFLICT.because(failure.to_string()),
        EditError::Busy => busy(&failure),
        EditError::Store(error) => error.into(),
    }
}

fn busy(failure: &impl Display) -> Problem {
    LINK_BUSY.because(format!("{failure}; please try again"))
}
