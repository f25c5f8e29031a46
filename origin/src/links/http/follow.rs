//! Answers links that neither a gateway nor Redis knows.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderMap, Method as HttpMethod, Response, StatusCode, Uri, header};
use axum::response::IntoResponse;
use tracing::{error, warn};
use weir_base::agent::{PREFETCH_HEADERS, is_prefetch};
use weir_base::headers::{LINK, LINK_UNKNOWN};
use weir_link::answer::{Answer, Gone, Method, Reply, Visit, answer, ended};
use weir_link::cache::LinkName;
use weir_link::click::{client_address, referer_of};
use weir_link::code::{Code, LinkId};
use weir_link::domain::Domain;
use weir_link::rule::point_of;
use weir_link::site::{File, unavailable, unknown};
use weir_scripts::documents;
use weir_scripts::link_read::Purpose;
use weir_scripts::routes::{LINK_FOLLOW, link_purpose};

use crate::http::{PUBLIC_LIMIT, Problem, RETRY_AFTER_S};
use crate::links::Links;
use crate::links::cold::{Clicker, ColdError, ColdLinks, Found};

/// How long a link that a client follows may be looked up: shorter than any request may take, so that the answer is the
/// domain's page.
const VISIT_LIMIT: Duration = PUBLIC_LIMIT.saturating_sub(Duration::from_millis(500));

/// `GET` and `HEAD /l/{code}`: the link of this code under the domain that the host names, answered as a
/// gateway would, and put into Redis; or one of the domain's files. A browser shows what comes: where nobody can say where the
/// link leads, that is the domain's page, too.
pub(super) async fn follow(
    links: Links,
    method: HttpMethod,
    uri: Uri,
    headers: HeaderMap,
) -> Response<Body> {
    let field = |name| headers.get(name).map_or(&b""[..], |value| value.as_bytes());
    let host = String::from_utf8_lossy(field(header::HOST));
    let known = links.domains();
    let Some(domain) = known.domains.by_host(&host) else {
        return no_link(None);
    };
    // As the client has spelt it.
    let path = uri.path().get(LINK_FOLLOW.len() - 1..).unwrap_or_default();
    if let Some(file) = File::at(path.as_bytes()) {
        let reply = file.reply(domain);
        return reply.map_or_else(|| no_link(Some(domain)), sent);
    }
    let Ok(code) = Code::new(path.strip_prefix('/').unwrap_or_default()) else {
        return no_link(Some(domain));
    };
    let id = LinkId {
        domain: domain.id.clone(),
        code,
    };
    let forwarded = field(header::HeaderName::from_static("x-forwarded-for"));
    // The last one is what our own gateway has added; what is before it a client may have made up.
    let nearest = forwarded.rsplit(|byte| *byte == b',').next();
    let nearest = nearest.unwrap_or_default().trim_ascii();
    let asked = Visit {
        method: Method::read(method.as_str().as_bytes()),
        is_prefetch: is_prefetched(&headers),
        query: uri.query().unwrap_or_default().as_bytes(),
        user_agent: field(header::USER_AGENT),
        accept_language: field(header::ACCEPT_LANGUAGE),
        country: links.country(&headers),
        point: point_of(
            LinkName::from(&id).as_bytes(),
            nearest,
            field(header::USER_AGENT),
        ),
        now_ms: links.now_ms(),
        left_ms: None,
    };
    let purpose = match asked.is_click() {
        true => Purpose::Click(ColdLinks::new_click()),
        false => Purpose::Look,
    };
    let found = match visit_in_time(&links, &id, purpose).await {
        Ok(Some(found)) => found,
        Ok(None) => return no_link(Some(domain)),
        Err(Unanswered) => {
            if let Some(click) = purpose.click() {
                links.cold().give_back(&id, click);
            }
            return sent(unavailable(domain, RETRY_AFTER_S));
        }
    };
    let visit = Visit {
        left_ms: found.left_ms,
        ..asked
    };
    let answer = decide(&found, &visit);
    if let (Some(click), false) = (purpose.click(), answer.leads_on()) {
        links.cold().give_back(&id, click);
    }
    if visit.is_counted() && answer.leads_on() {
        let clicker = Clicker {
            address: client_address(nearest),
            user_agent: visit.user_agent,
            referer: referer_of(field(header::REFERER), visit.query),
            accept_language: visit.accept_language,
        };
        links.cold().count_click(&id, &clicker);
    }
    sent(answer.reply(domain))
}

/// Nobody can say where the link leads. Why is in the log.
struct Unanswered;

async fn visit_in_time(
    links: &Links,
    id: &LinkId,
    purpose: Purpose,
) -> Result<Option<Found>, Unanswered> {
    let visit = links.cold().visit(id, purpose);
    match tokio::time::timeout(VISIT_LIMIT, visit).await {
        Ok(visited) => visited.map_err(|failure| {
            no_answer(failure);
            Unanswered
        }),
        Err(_elapsed) => {
            warn!(link = %id, "not looked up within {VISIT_LIMIT:?}");
            Err(Unanswered)
        }
    }
}

/// `GET /link-records/{domain}/{code}`: what a gateway is told of a link that Redis does not know: see
/// [`weir_scripts::documents::link`].
pub(super) async fn record(
    links: Links,
    Path((domain, code)): Path<(String, String)>,
    uri: Uri,
) -> Result<Response<Body>, Problem> {
    let Ok(id) = format!("{domain}/{code}").parse::<LinkId>() else {
        return Ok(no_link(None));
    };
    let purpose = link_purpose(uri.query().unwrap_or_default());
    let purpose = purpose
        .ok_or_else(|| Problem::invalid_query("for: look, renew, or click with its name"))?;
    let found = links.cold().visit(&id, purpose).await.map_err(no_answer)?;
    let Some(found) = found else {
        return Ok(no_link(None));
    };
    Ok(Response::new(
        documents::link::write(&found.to_read()).into(),
    ))
}

fn is_prefetched(headers: &HeaderMap) -> bool {
    let values = PREFETCH_HEADERS.iter();
    let mut values = values.flat_map(|name| headers.get_all(*name));
    values.any(|value| is_prefetch(value.as_bytes()))
}

fn decide<'a>(found: &'a Found, visit: &Visit<'_>) -> Answer<'a> {
    match found.is_used_up() {
        true => ended(&found.link, Gone::UsedUp),
        false => answer(&found.link, visit),
    }
}

/// What a gateway remembers for a while.
fn no_link(domain: Option<&Domain>) -> Response<Body> {
    let mut response = sent(unknown(domain));
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
    // A target has been checked to be visible ASCII: there is no header that could be refused.
    response.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

fn no_answer(failure: ColdError) -> Problem {
    match failure {
        ColdError::Store(error) => error.into(),
        ColdError::Redis(error) => error.into(),
        ColdError::NotAsked => Problem::redis(),
        ColdError::Record(error) => {
            error!(%error, "Redis holds what is no record");
            Problem::redis()
        }
    }
}
