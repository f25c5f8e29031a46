//! Answers links that neither a gateway nor Redis knows.

use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderMap, Method as HttpMethod, Response, StatusCode, Uri, header};
use axum::response::IntoResponse;
use tracing::error;
use weir_base::headers::{LINK, LINK_UNKNOWN};
use weir_link::answer::{Answer, Gone, Method, Reply, Visit, answer, unknown};
use weir_link::click::client_address;
use weir_link::code::{Code, LinkId};

use crate::http::Problem;
use crate::links::Links;
use crate::links::cold::{Clicker, ColdError, Found};

/// `GET` and `HEAD /l/{code}`: the link of this code under the domain that the host names, answered as a
/// gateway would, and put into Redis.
pub(super) async fn follow(
    links: Links,
    Path(code): Path<String>,
    method: HttpMethod,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response<Body>, Problem> {
    let field = |name| headers.get(name).map_or(&b""[..], |value| value.as_bytes());
    let host = String::from_utf8_lossy(field(header::HOST));
    let Some(domain) = links.domains().by_host(&host) else {
        return Ok(no_link(None));
    };
    let page = domain.not_found_page.as_deref();
    let Ok(code) = Code::new(code) else {
        return Ok(no_link(page));
    };
    let id = LinkId {
        domain: domain.id.clone(),
        code,
    };
    let method = Method::read(method.as_str().as_bytes());
    let visited = links.cold().visit(&id, method == Method::Get).await;
    let Some(found) = visited.map_err(no_answer)? else {
        return Ok(no_link(page));
    };
    let visit = Visit {
        method,
        query: uri.query().unwrap_or_default().as_bytes(),
        user_agent: field(header::USER_AGENT),
        accept_language: field(header::ACCEPT_LANGUAGE),
        now_ms: links.now_ms(),
        left_ms: found.left_ms,
    };
    let answer = decide(&found, &visit);
    if method == Method::Get && answer.leads_on() {
        let forwarded = field(header::HeaderName::from_static("x-forwarded-for"));
        // The last one is what our own gateway has added; what is before it a client may have made up.
        let nearest = forwarded.rsplit(|byte| *byte == b',').next();
        let clicker = Clicker {
            address: nearest.and_then(|address| client_address(address.trim_ascii())),
            user_agent: visit.user_agent,
            referer: field(header::REFERER),
            accept_language: visit.accept_language,
        };
        links.cold().count_click(&id, &clicker);
    }
    Ok(sent(answer.reply()))
}

fn decide<'a>(found: &'a Found, visit: &Visit<'_>) -> Answer<'a> {
    match found.is_used_up {
        true => Answer::Gone(Gone::UsedUp),
        false => answer(&found.link, visit),
    }
}

/// What a gateway remembers for a while.
fn no_link(page: Option<&str>) -> Response<Body> {
    let mut response = sent(unknown(page));
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
        ColdError::Record(error) => {
            error!(%error, "Redis holds what is no record");
            Problem::redis()
        }
    }
}
