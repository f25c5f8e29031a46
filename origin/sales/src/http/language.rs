//! Translates problem messages for buyers into their language, as gateways do. `error` and `detail` stay unchanged.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{ACCEPT_LANGUAGE, CONTENT_LANGUAGE, CONTENT_LENGTH, VARY};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use serde_json::json;
use weir_base::language::Language;
use weir_sale::message::message;

use weir_origin_core::http::Problem;

/// Replaces the `message` of a problem by the client's preferred language, if a translation of its code exists.
pub(super) async fn localize(request: Request, next: Next) -> Response {
    let language = preferred_language(request.headers());
    let response = next.run(request).await;
    // English keeps the detail of this occurrence.
    let problem = response.extensions().get::<Problem>();
    let Some(problem) = problem.filter(|_| language != Language::English) else {
        return response;
    };
    let Some(reply) = message(problem.code, language) else {
        return response;
    };
    let mut body = json!(problem.body());
    if let Some(members) = body.as_object_mut() {
        members.insert("message".to_owned(), json!(reply));
    }
    with_message(response, &body, language)
}

/// All `accept-language` values of the request, which may repeat the header.
fn preferred_language(headers: &HeaderMap) -> Language {
    let values = headers.get_all(ACCEPT_LANGUAGE).iter();
    let all: Vec<&[u8]> = values.map(HeaderValue::as_bytes).collect();
    Language::accepted(&all.join(&b','))
}

/// Replaces the body of a response and sets its language.
fn with_message(response: Response, body: &serde_json::Value, language: Language) -> Response {
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(CONTENT_LENGTH);
    let language = HeaderValue::from_static(language.tag());
    parts.headers.insert(CONTENT_LANGUAGE, language);
    let varies = HeaderValue::from_static("accept-language");
    parts.headers.append(VARY, varies);
    Response::from_parts(parts, Body::from(body.to_string()))
}
