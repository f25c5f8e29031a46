//! The origin's answer, passed on.

use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, MapType};
use weir_base::headers::{LINK, LINK_UNKNOWN};
use weir_link::answer::{Answer, Method};

use crate::answer::{send, send_raw};

/// What the origin says.
#[derive(Debug)]
pub(crate) enum Answered {
    /// There is no such link.
    Unknown,
    /// This, to whoever asked.
    Response(Response),
    /// Nothing, or of its own trouble.
    Failed,
}

#[derive(Debug)]
pub(crate) struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
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

/// Reads the response to a look-up, from within the callback that tells of it. The numbers are the callback's.
pub(crate) fn read(num_headers: usize, body_size: usize) -> Answered {
    if num_headers == 0 {
        return Answered::Failed;
    }
    let headers = hostcalls::get_map_bytes(MapType::HttpCallResponseHeaders).unwrap_or_default();
    let headers = headers
        .into_iter()
        .filter_map(|(name, value)| Some((name, String::from_utf8(value).ok()?)));
    let headers: Vec<(String, String)> = headers.collect();
    let find = |wanted: &str| headers.iter().find(|(name, _)| name == wanted);
    if find(LINK).is_some_and(|(_, value)| value == LINK_UNKNOWN) {
        return Answered::Unknown;
    }
    let status = find(":status").and_then(|(_, status)| status.parse().ok());
    match status {
        Some(status @ 200..500) => Answered::Response(Response {
            status,
            headers,
            body: read_body(body_size),
        }),
        _ => Answered::Failed,
    }
}

fn read_body(size: usize) -> Vec<u8> {
    let body = hostcalls::get_buffer(BufferType::HttpCallResponseBody, 0, size);
    body.ok().flatten().unwrap_or_default()
}

impl Response {
    /// Sends it to the client of the effective context's stream. The origin was asked with GET, so what does not
    /// keep the method of another request must not be told to it.
    pub(crate) fn send(&self, method: Method) {
        if method == Method::Other && (200..304).contains(&self.status) {
            return send(Answer::NotAllowed.reply());
        }
        let is_passed_on = |name: &str| !name.starts_with(':') && !NOT_PASSED_ON.contains(&name);
        let headers: Vec<_> = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .filter(|(name, _)| is_passed_on(name))
            .collect();
        send_raw(self.status, &headers, &self.body);
    }
}
