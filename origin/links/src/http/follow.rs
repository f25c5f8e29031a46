//! Answers requests for links that gateways and Redis do not have.

use std::time::Duration;

use axum::Form;
use axum::body::Body;
use axum::extract::Path;
use axum::extract::rejection::FormRejection;
use axum::http::{HeaderMap, Method as HttpMethod, Response, StatusCode, Uri, header};
use axum::response::IntoResponse;
use serde::Deserialize;
use tracing::{error, warn};
use weir_base::agent::{PREFETCH_HEADERS, is_prefetch};
use weir_base::headers::{LINK, LINK_UNKNOWN};
use weir_link::answer::{Answer, InactiveReason, Method, Reply, Visit, answer, ended};
use weir_link::cache::LinkName;
use weir_link::click::{client_address, referer_of};
use weir_link::code::{Code, LinkId};
use weir_link::domain::{Domain, Domains};
use weir_link::password::{Refusal, form_page};
use weir_link::record::Link;
use weir_link::redis::document;
use weir_link::redis::link_read::Purpose;
use weir_link::routes::{LINK_FOLLOW, link_purpose};
use weir_link::rule::point_of;
use weir_link::site::{File, unavailable, unknown};

use crate::Links;
use crate::cold::{Clicker, ColdError, ColdLink, ColdLinks};
use crate::password::{Password, PasswordOutcome};
use weir_origin_core::http::{PUBLIC_LIMIT, Problem, RETRY_AFTER_S};

/// Maximum length of a password form, in bytes: percent-encoding triples the length.
pub(super) const FORM_LEN_MAX: usize = 1_024;

/// Time limit of a lookup for a client: shorter than the request timeout, so that a slow lookup answers with the
/// domain's page.
const VISIT_LIMIT: Duration = PUBLIC_LIMIT.saturating_sub(Duration::from_millis(500));

/// `GET` and `HEAD /l/{code}`: answers the link with this code under the host's domain, like a gateway, and writes it
/// to Redis. It also serves the domain's files. Browsers show the answer, so an unknown or failing link gives the
/// domain's page. A link with a password gives the password page.
async fn answer_get(
    links: Links,
    method: HttpMethod,
    uri: Uri,
    headers: HeaderMap,
) -> Response<Body> {
    let existing = links.domains();
    let (domain, id) = match named(&existing.domains, &uri, &headers) {
        Ok(named) => named,
        Err(answer) => return *answer,
    };
    let client = Client::from_headers(&headers);
    let requested = client.visit(&links, &id, &uri, &method);
    let purpose = match requested.is_click() {
        true => Purpose::Click(ColdLinks::new_click()),
        false => Purpose::Look,
    };
    let found = match visit_in_time(&links, &id, purpose).await {
        Ok(Some(found)) => found,
        Ok(None) => return no_link(Some(domain), &headers),
        Err(TargetUnavailable) => {
            if let Some(click) = purpose.click() {
                links.cold().give_back(&id, click);
            }
            return sent(no_target(domain, &headers));
        }
    };
    let tag = match found.link.is_tracked && requested.is_click() {
        true => links.click_tag(&id),
        false => None,
    };
    let visit = Visit {
        left_ms: found.left_ms,
        click_tag: tag.as_deref(),
        ..requested
    };
    let answer = decide(&found, &visit);
    if let (Some(click), false) = (purpose.click(), answer.leads_on()) {
        links.cold().give_back(&id, click);
    }
    if visit.is_counted() && answer.leads_on() {
        links.cold().count_click(&id, &client.clicker(&visit));
    }
    sent(answer.reply(domain, visit.accept_language))
}

/// Redirect to the home page of the host's domain
///
/// Gateways send requests here that they cannot answer themselves.
#[utoipa::path(
    get,
    path = "/l/",
    operation_id = "followHome",
    responses(
        (status = 302, description = "Redirect to the target", headers(("Location" = String))),
        (status = 404, description = "There is no such link: x-weir-link is `unknown`", body = String, content_type = "text/html"),
    ),
)]
pub(super) async fn home(
    links: Links,
    method: HttpMethod,
    uri: Uri,
    headers: HeaderMap,
) -> Response<Body> {
    answer_get(links, method, uri, headers).await
}

/// Follow a link of the host's domain
///
/// Gateways send requests here that they cannot answer themselves.
#[utoipa::path(
    get,
    path = "/l/{*code}",
    operation_id = "followLink",
    params(("code" = String, Path, description = "The link's code, in any spelling that the domain permits.", max_length = 385)),
    responses(
        (status = 200, description = "A page that opens an app or asks for a password; for `robots.txt` and `apple-app-site-association`, the file", body = String, content_type = "text/html"),
        (status = 204, description = "For `favicon.ico`: no content"),
        (status = 301, description = "Redirect to the target", headers(("Location" = String))),
        (status = 302, description = "Redirect to the target", headers(("Location" = String))),
        (status = 307, description = "Redirect to the target", headers(("Location" = String))),
        (status = 308, description = "Redirect to the target", headers(("Location" = String))),
        (status = 404, description = "There is no such link: x-weir-link is `unknown`", body = String, content_type = "text/html"),
        (status = 410, description = "The link has expired, is disabled, or has reached its click limit", body = String, content_type = "text/html"),
        (status = 503, description = "The domain's page for outages", body = String, content_type = "text/html", headers(("Retry-After" = u64))),
    ),
)]
pub(super) async fn follow(
    links: Links,
    method: HttpMethod,
    uri: Uri,
    headers: HeaderMap,
) -> Response<Body> {
    answer_get(links, method, uri, headers).await
}

/// Get a domain's app file
///
/// The file lists the apps that may open the domain's links.
#[utoipa::path(
    get,
    path = "/l/.well-known/{file}",
    operation_id = "getAppAssociation",
    params(FileParam),
    responses(
        (status = 200, description = "The file", body = AppAssociation),
        (status = 404, description = "There is no such link: x-weir-link is `unknown`", body = String, content_type = "text/html"),
    ),
)]
pub(super) async fn file(
    links: Links,
    method: HttpMethod,
    uri: Uri,
    headers: HeaderMap,
) -> Response<Body> {
    answer_get(links, method, uri, headers).await
}

/// Form of a password-protected link.
#[derive(Deserialize, utoipa::ToSchema)]
#[schema(as = LinkPassword)]
pub(super) struct PasswordForm {
    /// The password.
    #[schema(max_length = 128)]
    password: String,
}

/// Follow a password-protected link
///
/// Receives the form of the password page. Limits for wrong passwords in 15 minutes: 10 per address, 1,000 per link.
#[utoipa::path(
    post,
    path = "/l/{*code}",
    operation_id = "unlockLink",
    params(("code" = String, Path, description = "The link's code, in any spelling that the domain permits.", max_length = 385)),
    request_body(content = PasswordForm, content_type = "application/x-www-form-urlencoded"),
    responses(
        (status = 200, description = "A page that opens an app", body = String, content_type = "text/html"),
        (status = 302, description = "Redirect to the target for expired links", headers(("Location" = String))),
        (status = 303, description = "Redirect to the target", headers(("Location" = String))),
        (status = 307, description = "Redirect to the target: the link has no password", headers(("Location" = String))),
        (status = 308, description = "Redirect to the target: the link has no password", headers(("Location" = String))),
        (status = 403, description = "The page again: wrong password", body = String, content_type = "text/html"),
        (status = 404, description = "There is no such link: x-weir-link is `unknown`", body = String, content_type = "text/html"),
        (status = 405, description = "The link has no password, and does not redirect POST"),
        (status = 410, description = "The link has expired or is disabled", body = String, content_type = "text/html"),
        (status = 429, description = "The page again: too many attempts", body = String, content_type = "text/html", headers(("Retry-After" = u64))),
        (status = 503, description = "The page again: too many concurrent attempts, or the link cannot be looked up", body = String, content_type = "text/html", headers(("Retry-After" = u64))),
    ),
)]
pub(super) async fn unlock(
    links: Links,
    uri: Uri,
    headers: HeaderMap,
    entered: Result<Form<PasswordForm>, FormRejection>,
) -> Response<Body> {
    let existing = links.domains();
    let (domain, id) = match named(&existing.domains, &uri, &headers) {
        Ok(named) => named,
        Err(answer) => return *answer,
    };
    let found = match visit_in_time(&links, &id, Purpose::Look).await {
        Ok(Some(found)) => found,
        Ok(None) => return no_link(Some(domain), &headers),
        Err(TargetUnavailable) => return sent(no_target(domain, &headers)),
    };
    let client = Client::from_headers(&headers);
    let visit = Visit {
        left_ms: found.left_ms,
        ..client.visit(&links, &id, &uri, &HttpMethod::POST)
    };
    let language = match decide(&found, &visit) {
        Answer::Guarded(language) => language,
        other => return sent(other.reply(domain, visit.accept_language)),
    };
    let guard = found.link.guard.as_ref();
    let Some(guard) = guard.filter(|guard| guard.hash().is_some()) else {
        // Only Redis and another origin's log have it; the cold store has it soon.
        return sent(no_target(domain, &headers));
    };
    let password = entered
        .ok()
        .and_then(|Form(entered)| Password::new(entered.password).ok());
    let Some(password) = password else {
        return sent(form_page(language, Some(Refusal::Wrong)));
    };
    let address = client_address(client.nearest);
    let attempted = links.passwords().try_one(&id, address, guard, password);
    let refusal = match attempted.await {
        PasswordOutcome::Right => return let_in(&links, &id, found, &visit, &client, domain),
        PasswordOutcome::Wrong => Refusal::Wrong,
        PasswordOutcome::TooMany { wait_ms } => Refusal::TooMany {
            wait_s: wait_ms.div_ceil(1_000),
        },
        PasswordOutcome::Busy => Refusal::Busy {
            wait_s: RETRY_AFTER_S,
        },
    };
    sent(form_page(language, Some(refusal)))
}

/// Redirects visitors with the right password.
fn let_in(
    links: &Links,
    id: &LinkId,
    found: ColdLink,
    requested: &Visit<'_>,
    client: &Client<'_>,
    domain: &Domain,
) -> Response<Body> {
    let open = Link {
        guard: None,
        ..found.link
    };
    let tag = match open.is_tracked {
        true => links.click_tag(id),
        false => None,
    };
    let visit = Visit {
        method: Method::Get,
        click_tag: tag.as_deref(),
        ..*requested
    };
    let answer = answer(&open, &visit);
    if answer.leads_on() {
        links.cold().count_click(id, &client.clicker(&visit));
    }
    let mut reply = answer.reply(domain, visit.accept_language);
    // Regardless of the link's redirect status, use one that does not resend the password and is not cached.
    if (300..400).contains(&reply.status) {
        reply.status = StatusCode::SEE_OTHER.as_u16();
        reply.headers.retain(|(name, _)| *name != "cache-control");
        reply.headers.push(("cache-control", "no-store".into()));
        reply
            .headers
            .push(("referrer-policy", "no-referrer".into()));
    }
    sent(reply)
}

/// The link in a request, with its domain; or an error answer.
fn named<'a>(
    domains: &'a Domains,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(&'a Domain, LinkId), Box<Response<Body>>> {
    let host = headers
        .get(header::HOST)
        .map_or(&b""[..], |value| value.as_bytes());
    let domain = domains.by_host(&String::from_utf8_lossy(host));
    let domain = domain.ok_or_else(|| Box::new(no_link(None, headers)))?;
    // The code exactly as the client wrote it.
    let path = uri.path().get(LINK_FOLLOW.len() - 1..).unwrap_or_default();
    if let Some(file) = File::at(path.as_bytes()) {
        let reply = file.reply(domain);
        let answer = reply.map_or_else(|| no_link(Some(domain), headers), sent);
        return Err(Box::new(answer));
    }
    let path = path.strip_prefix('/').unwrap_or_default();
    let code = domain.codes.read(path.as_bytes());
    let code = code.and_then(|code| Code::new(code).ok());
    let code = code.ok_or_else(|| Box::new(no_link(Some(domain), headers)))?;
    let domain_id = domain.id.clone();
    Ok((
        domain,
        LinkId {
            domain: domain_id,
            code,
        },
    ))
}

/// Client data in a request.
struct Client<'a> {
    headers: &'a HeaderMap,
    /// The address added by our own gateway. Earlier addresses may be forged by the client.
    nearest: &'a [u8],
}

impl<'a> Client<'a> {
    fn from_headers(headers: &'a HeaderMap) -> Self {
        let forwarded = field(headers, header::HeaderName::from_static("x-forwarded-for"));
        let nearest = forwarded.rsplit(|byte| *byte == b',').next();
        Self {
            headers,
            nearest: nearest.unwrap_or_default().trim_ascii(),
        }
    }

    fn visit(&self, links: &Links, id: &LinkId, uri: &'a Uri, method: &HttpMethod) -> Visit<'a> {
        let user_agent = field(self.headers, header::USER_AGENT);
        Visit {
            method: Method::read(method.as_str().as_bytes()),
            is_prefetch: is_prefetched(self.headers),
            query: uri.query().unwrap_or_default().as_bytes(),
            user_agent,
            accept_language: accept_language(self.headers),
            country: links.country(self.headers),
            point: point_of(LinkName::from(id).as_bytes(), self.nearest, user_agent),
            now_ms: links.now_ms(),
            click_tag: None,
            left_ms: None,
        }
    }

    fn clicker(&self, visit: &Visit<'a>) -> Clicker<'a> {
        Clicker {
            address: client_address(self.nearest),
            user_agent: visit.user_agent,
            referer: referer_of(field(self.headers, header::REFERER), visit.query),
            accept_language: visit.accept_language,
        }
    }
}

fn no_target<'a>(domain: &'a Domain, headers: &HeaderMap) -> Reply<'a> {
    unavailable(domain, accept_language(headers), RETRY_AFTER_S)
}

fn accept_language(headers: &HeaderMap) -> &[u8] {
    field(headers, header::ACCEPT_LANGUAGE)
}

fn field(headers: &HeaderMap, name: header::HeaderName) -> &[u8] {
    headers.get(name).map_or(&b""[..], |value| value.as_bytes())
}

/// Selects a file.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
struct FileParam {
    /// The name of the file.
    #[param(inline)]
    #[expect(dead_code, reason = "describes a parameter")]
    file: AppFile,
}

/// App files of a domain.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes a parameter")]
enum AppFile {
    #[schema(rename = "apple-app-site-association")]
    Apple,
    #[schema(rename = "assetlinks.json")]
    Android,
}

/// Content of apple-app-site-association or assetlinks.json, as set by an operator.
#[derive(utoipa::ToSchema)]
struct AppAssociation(#[expect(dead_code, reason = "describes a body")] serde_json::Value);

/// Query of a gateway: see [`link_purpose`].
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct RecordQuery {
    /// Purpose: a lookup, a renewal, or a counted click.
    #[param(rename = "for", inline)]
    #[expect(dead_code, reason = "describes a parameter")]
    purpose: RecordPurpose,
    /// Click id: repeated requests for a click use only one of the link's clicks.
    #[expect(dead_code, reason = "describes a parameter")]
    click: Option<String>,
}

/// Purpose of a lookup.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "describes a parameter")]
enum RecordPurpose {
    Look,
    Renew,
    Click,
}

/// The target is unavailable. The log contains the reason.
struct TargetUnavailable;

async fn visit_in_time(
    links: &Links,
    id: &LinkId,
    purpose: Purpose,
) -> Result<Option<ColdLink>, TargetUnavailable> {
    let visit = links.cold().visit(id, purpose);
    match tokio::time::timeout(VISIT_LIMIT, visit).await {
        Ok(visited) => visited.map_err(|failure| {
            no_answer(failure);
            TargetUnavailable
        }),
        Err(_elapsed) => {
            warn!(link = %id, "lookup timed out after {VISIT_LIMIT:?}");
            Err(TargetUnavailable)
        }
    }
}

/// Look up a link that is not in Redis; only for gateways
#[utoipa::path(
    get,
    path = "/link-records/{domain}/{code}",
    operation_id = "getLinkRecord",
    params(
        ("domain" = String, Path, description = "The domain of the link; the default unless given."),
        ("code" = String, Path, description = "The code of the link, its slashes escaped.", min_length = 3, max_length = 32),
        RecordQuery,
    ),
    responses(
        (status = 200, description = "Remaining lifetime in milliseconds and remaining clicks, - for none; the next line is the record", body = String, content_type = "application/octet-stream"),
        (status = 404, description = "No such link", headers(("x-weir-link" = String))),
    ),
)]
pub(super) async fn record(
    links: Links,
    Path((domain, code)): Path<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response<Body>, Problem> {
    let Ok(id) = format!("{domain}/{code}").parse::<LinkId>() else {
        return Ok(no_link(None, &headers));
    };
    let purpose = link_purpose(uri.query().unwrap_or_default());
    let purpose = purpose
        .ok_or_else(|| Problem::invalid_query("for: look, renew, or click with its name"))?;
    let found = links.cold().visit(&id, purpose).await.map_err(no_answer)?;
    let Some(found) = found else {
        return Ok(no_link(None, &headers));
    };
    Ok(Response::new(document::write(&found.to_read()).into()))
}

fn is_prefetched(headers: &HeaderMap) -> bool {
    let values = PREFETCH_HEADERS.iter();
    let mut values = values.flat_map(|name| headers.get_all(*name));
    values.any(|value| is_prefetch(value.as_bytes()))
}

fn decide<'a>(found: &'a ColdLink, visit: &Visit<'_>) -> Answer<'a> {
    match found.is_used_up() {
        true => ended(&found.link, InactiveReason::UsedUp),
        false => answer(&found.link, visit),
    }
}

/// Gateways cache this answer for a while.
fn no_link(domain: Option<&Domain>, headers: &HeaderMap) -> Response<Body> {
    let mut response = sent(unknown(domain, accept_language(headers)));
    let value = header::HeaderValue::from_static(LINK_UNKNOWN);
    response.headers_mut().insert(LINK, value);
    response
}

fn sent(reply: Reply<'_>) -> Response<Body> {
    let mut response = Response::builder().status(reply.status);
    for (name, value) in &reply.headers {
        response = response.header(*name, value.as_ref());
    }
    let response = response.body(Body::from(reply.body.into_owned()));
    // A checked target is visible ASCII, so the header is always valid.
    response.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

fn no_answer(failure: ColdError) -> Problem {
    match failure {
        ColdError::Store(error) => error.into(),
        ColdError::Redis(error) => error.into(),
        ColdError::NotAsked => Problem::redis(),
        ColdError::Record(error) => {
            error!(%error, "invalid link record in Redis");
            Problem::redis()
        }
    }
}
