//! Shared code for hosts of edges, except their sockets, stores and clocks.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use weir_engine::answer::Refusal;
use weir_engine::event::PlainRequest;
use weir_engine::{Answer, Headers};

use crate::edge::{Pairs, Variable, to_http};

/// The environment variable with the configuration: see [`crate::config`].
pub const CONFIG: &str = "WEIR_EDGE_CONFIG";

/// Timeout of a feed request, in milliseconds: a client waits for it.
pub const FEED_TIMEOUT_MS: u64 = 1_000;

/// Maximum documents read for one request. The next request continues.
pub const FEEDS_MAX: usize = 8;

/// The header with the client's host for the gateway: a platform's HTTP client may set `host` itself.
pub const FORWARDED_HOST: &str = "x-forwarded-host";

/// Headers of a gateway's response that belong to the connection between edge and gateway.
pub const OF_CONNECTION: [&str; 3] = ["connection", "keep-alive", "transfer-encoding"];

/// The servers behind an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstreams {
    /// The base URL of feeds: scheme and host, without a path.
    pub origin: String,
    /// The base URL for passed requests.
    pub gateway: String,
    /// The header, in lower case, in which the platform sends the client's address.
    pub client_header: Option<String>,
}

impl Upstreams {
    /// Reads `WEIR_EDGE_ORIGIN`, `WEIR_EDGE_GATEWAY` and `WEIR_EDGE_CLIENT_HEADER`.
    ///
    /// # Errors
    /// If a variable is invalid, with its name.
    pub fn read(variable: &Variable) -> Result<Self, String> {
        let header = text(variable, "WEIR_EDGE_CLIENT_HEADER").ok();
        Ok(Self {
            origin: place(variable, "WEIR_EDGE_ORIGIN")?,
            gateway: place(variable, "WEIR_EDGE_GATEWAY")?,
            client_header: header.map(|name| name.to_ascii_lowercase()),
        })
    }
}

/// A required variable.
///
/// # Errors
/// If it is missing, with its name.
pub fn text(variable: &Variable, name: &str) -> Result<String, String> {
    let value = variable(name).ok_or_else(|| format!("{name} is not set"))?;
    String::from_utf8(value).map_err(|_| format!("{name} is not UTF-8"))
}

fn place(variable: &Variable, name: &str) -> Result<String, String> {
    let url = text(variable, name)?;
    let is_web = url.starts_with("http://") || url.starts_with("https://");
    match is_web {
        true => Ok(url.trim_end_matches('/').to_owned()),
        false => Err(format!("{name} must start with http:// or https://")),
    }
}

/// A request from a host.
pub struct Incoming<'a> {
    /// The method.
    pub method: &'a str,
    /// The path, with its query.
    pub path: &'a str,
    /// The client's host, if it is not in a header.
    pub authority: Option<&'a [u8]>,
    /// The client's address, if the platform supplies it.
    pub client: Option<&'a [u8]>,
    /// As [`Upstreams::client_header`].
    pub client_header: Option<&'a str>,
    /// The time, in milliseconds since the Unix epoch.
    pub now_ms: u64,
}

impl Incoming<'_> {
    /// The request for engines. Names in `headers` are in lower case.
    pub fn request<'h>(&self, headers: impl Iterator<Item = (&'h str, &'h [u8])>) -> PlainRequest {
        let headers: Vec<(&str, &[u8])> = headers.collect();
        let find = |requested: &str| {
            let mut named = headers.iter().filter(|(name, _)| *name == requested);
            named.next().map(|(_, value)| *value)
        };
        let authority = self.authority.or_else(|| find("host"));
        let mut all: Vec<(&str, &[u8])> = Vec::from([
            (":method", self.method.as_bytes()),
            (":path", self.path.as_bytes()),
            (":authority", authority.unwrap_or_default()),
        ]);
        // The platform's own headers are not from the client.
        let is_clients = |name: &str| name != "host" && Some(name) != self.client_header;
        all.extend(headers.iter().filter(|(name, _)| is_clients(name)));
        let client = self.client.or_else(|| find(self.client_header?));
        PlainRequest {
            headers: Headers::new(&all),
            peer_address: client.unwrap_or_default().to_vec(),
            now_ms: self.now_ms,
        }
    }
}

/// The HTTP response for a request with this method.
pub fn answered(answer: &Answer, method: &str) -> (u16, Pairs, Vec<u8>) {
    let (status, headers, mut body) = to_http(answer);
    if method == "HEAD" {
        body.clear();
    }
    (status, headers, body)
}

/// The answer if the gateway does not respond.
pub fn no_gateway() -> Answer {
    let message = "the gateway did not answer; please try again";
    unavailable("unavailable", message)
}

/// The answer of an edge with an invalid configuration.
pub fn misconfigured() -> Answer {
    unavailable("misconfigured", "this edge is not configured")
}

/// The answer of an edge that sells from objects, if the origin's stock is elsewhere.
pub(crate) fn stock_is_elsewhere() -> Answer {
    let message = "this edge sells from objects, but the origin keeps its stock in Redis: see `stock_in_objects` in docs/edge.md";
    unavailable("misconfigured", message)
}

/// The answer of an edge that counts clicks in objects, if the origin does not.
pub(crate) fn click_limits_are_elsewhere() -> Answer {
    let message = "this edge counts clicks in objects, but the origin counts them in Redis: see `click_limits_in_objects` in docs/edge.md";
    unavailable("misconfigured", message)
}

fn unavailable(error: &str, message: &str) -> Answer {
    let refusal = Refusal {
        status: 503,
        error,
        message,
        order: None,
    };
    Answer::refusal(Vec::from([("retry-after", "1")]), &refusal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use weir_engine::Request;

    fn variables(gateway: &'static str) -> Box<Variable> {
        Box::new(move |name| {
            let value = match name {
                "WEIR_EDGE_ORIGIN" => "https://origin.example/",
                "WEIR_EDGE_GATEWAY" => gateway,
                "WEIR_EDGE_CLIENT_HEADER" => "X-Real-IP",
                _ => return None,
            };
            Some(value.as_bytes().to_vec())
        })
    }

    #[test]
    fn upstream_addresses_must_be_urls() {
        let upstreams = Upstreams::read(&*variables("http://gateway.example")).unwrap();
        assert_eq!(upstreams.origin, "https://origin.example");
        assert_eq!(upstreams.client_header.as_deref(), Some("x-real-ip"));
        let refused = Upstreams::read(&*variables("gateway.example")).unwrap_err();
        assert!(refused.starts_with("WEIR_EDGE_GATEWAY"), "{refused}");
        let nothing: &Variable = &|_| None;
        assert!(Upstreams::read(nothing).is_err());
    }

    #[test]
    fn client_cannot_set_its_address_or_forwarded_host() {
        let incoming = Incoming {
            method: "GET",
            path: "/a",
            authority: None,
            client: None,
            client_header: Some("x-real-ip"),
            now_ms: 7,
        };
        let headers: [(&str, &[u8]); 3] = [
            ("host", b"s.example"),
            ("x-real-ip", b"192.0.2.1"),
            ("a", b"1"),
        ];
        let request = incoming.request(headers.iter().copied());
        assert_eq!(request.peer_address(), b"192.0.2.1");
        assert_eq!(
            request.header(":authority").as_deref(),
            Some(&b"s.example"[..])
        );
        assert_eq!(request.header("x-real-ip"), None);
        assert_eq!(request.header("a").as_deref(), Some(&b"1"[..]));
    }
}
