//! One look-up at the origin: its request, as the client would have sent it, and its response, passed on.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use weir_base::headers::{LINK, LINK_UNKNOWN};
use weir_engine::Answer;
use weir_engine::event::FetchResponse;
use weir_link::answer::Method;
use weir_link::click::client_address;
use weir_scripts::routes::link_lookup;

use crate::visitor::Visitor;

/// The origin's answer to a look-up.
#[derive(Debug)]
pub(crate) enum Found {
    /// There is no such link.
    Unknown,
    /// There is: this is for the client.
    Response(FetchResponse),
    /// There is no answer, or an error of the origin's own.
    Failed,
}

/// Of one connection, or Envoy's own: not passed on.
const NOT_PASSED_ON: [&str; 9] = [
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "server",
    "transfer-encoding",
    "upgrade",
    "x-envoy-upstream-service-time",
    LINK,
];

impl From<Option<FetchResponse>> for Found {
    fn from(response: Option<FetchResponse>) -> Self {
        match response {
            Some(response) if response.header(LINK) == Some(LINK_UNKNOWN) => Self::Unknown,
            Some(response) if (200..500).contains(&response.status) => Self::Response(response),
            _ => Self::Failed,
        }
    }
}

/// The headers of a look-up for `visitor`. The origin is asked with GET for every method that follows a link.
pub(crate) fn lookup_headers(visitor: &Visitor) -> Vec<(&'static str, String)> {
    let fields = visitor.fields();
    let method = if fields.is_click() { "GET" } else { "HEAD" };
    let mut headers = Vec::from([
        (":method", method.to_owned()),
        (":path", link_lookup(&visible(fields.path))),
        (":authority", visible(fields.host)),
    ]);
    let described = [
        ("user-agent", fields.user_agent),
        ("referer", fields.referer),
        ("accept-language", fields.accept_language),
    ];
    for (name, value) in described {
        if !value.is_empty() {
            headers.push((name, readable(value)));
        }
    }
    if let Some(address) = client_address(&visitor.address) {
        headers.push(("x-forwarded-for", address.to_string()));
    }
    headers
}

/// The origin's response, for a client that has asked with `method`. `None` if it would change the method: the origin was
/// asked with GET.
pub(crate) fn relayed(response: FetchResponse, method: Method) -> Option<Answer> {
    if method == Method::Other && (200..304).contains(&response.status) {
        return None;
    }
    let headers = response.headers.iter();
    let headers: Vec<_> = headers
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .filter(|(name, _)| !name.starts_with(':') && !NOT_PASSED_ON.contains(name))
        .collect();
    Some(Answer::new(response.status, &headers, response.body))
}

/// As it may stand in a path: everything but visible ASCII is percent-encoded.
fn visible(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte.is_ascii_graphic() {
            true => text.push(char::from(*byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// As it may stand in a header: a question mark for everything but ASCII text.
fn readable(bytes: &[u8]) -> String {
    let is_text = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    let text = bytes
        .iter()
        .map(|byte| if is_text(*byte) { *byte } else { b'?' });
    text.map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn response(status: u16, headers: &[(&str, &str)]) -> FetchResponse {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        FetchResponse {
            status,
            headers: headers.iter().map(owned).collect(),
            body: vec![],
        }
    }

    #[test]
    fn only_the_origins_word_makes_a_link_unknown_and_its_errors_tell_nothing() {
        let found = |response| Found::from(response);
        let unknown = response(404, &[(LINK, LINK_UNKNOWN)]);
        assert!(matches!(found(Some(unknown)), Found::Unknown));
        for status in [200, 302, 404, 410, 499] {
            let is_response = matches!(found(Some(response(status, &[]))), Found::Response(_));
            assert!(is_response, "{status}");
        }
        for status in [100, 199, 500, 503] {
            let is_failed = matches!(found(Some(response(status, &[]))), Found::Failed);
            assert!(is_failed, "{status}");
        }
        assert!(matches!(found(None), Found::Failed));
    }

    #[test]
    fn a_response_is_passed_on_without_what_belongs_to_its_connection() {
        let headers = [("location", "/x"), ("server", "envoy"), (LINK, "known")];
        let relay = |status, method| relayed(response(status, &headers), method);
        let answer = relay(302, Method::Get).unwrap();
        let names: Vec<_> = answer.headers.iter().map(|(name, _)| name).collect();
        assert_eq!((answer.status, names), (302, vec![b"location".as_slice()]));
        assert!(relay(302, Method::Other).is_none());
        assert!(relay(307, Method::Other).is_some());
    }
}
