//! Parses the head of an HTTP/1.1 request if every parser reads it in the same way.
//!
//! The fast path and Envoy's HTTP stack must find the same request in the bytes. The fast path therefore answers only
//! canonical heads. It tracks a request only if its end is certain.

use std::borrow::Cow;

/// The longest request head that is parsed, in bytes.
const HEAD_BYTES_MAX: usize = 8 * 1024;

/// The most request headers that are parsed.
const HEADERS_MAX: usize = 64;

/// The longest body length, in digits.
const LENGTH_DIGITS_MAX: usize = 7;

/// The classification of the received bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Received<'b> {
    /// A canonical request without a body.
    Plain(Head<'b>),
    /// A complete request that only the HTTP stack may read.
    Whole {
        /// The length of head and body, in bytes.
        length: usize,
        /// Whether its method is `HEAD`, so that its response has no body.
        is_head: bool,
    },
    /// The end of the request is uncertain.
    Unclear,
}

/// A canonical request.
#[derive(Debug, PartialEq, Eq)]
pub struct Head<'b> {
    /// The length of the head, in bytes.
    pub length: usize,
    /// `GET` or `POST`.
    pub method: &'b str,
    /// The target: a path, and a query if there is one.
    pub path: &'b str,
    /// The `host` header.
    pub host: &'b [u8],
    /// The other headers, with names in lower case.
    pub headers: Vec<Header<'b>>,
}

/// A header's name, in lower case, and its value.
pub type Header<'b> = (Cow<'b, str>, &'b [u8]);

/// Parses the first request of `bytes`.
pub fn read(bytes: &[u8]) -> Received<'_> {
    let Some(head) = whole_head(bytes) else {
        return Received::Unclear;
    };
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        _ => return Received::Unclear,
    }
    let (Some(method), Some(path), Some(1)) = (request.method, request.path, request.version)
    else {
        return Received::Unclear;
    };
    let mut headers: Vec<Header<'_>> = request.headers.iter().map(in_lower_case).collect();
    let Some(framing) = Framing::of(&headers) else {
        return Received::Unclear;
    };
    let length = head.len() + framing.body_length;
    let has_body = framing.body_length > 0;
    let is_head = method == "HEAD";
    match method {
        "GET" | "HEAD" | "DELETE" | "OPTIONS" if has_body => return Received::Unclear,
        "GET" | "HEAD" | "DELETE" | "OPTIONS" | "POST" | "PUT" | "PATCH" => {}
        _ => return Received::Unclear,
    }
    if bytes.len() < length {
        return Received::Unclear;
    }
    let is_plain = matches!(method, "GET" | "POST") && !has_body && is_plain_path(path);
    if !is_plain || !is_plain_host(framing.host) || !framing.is_plain {
        return Received::Whole { length, is_head };
    }
    headers.retain(|(name, _)| name != "host");
    Received::Plain(Head {
        length,
        method,
        path,
        host: framing.host,
        headers,
    })
}

/// Allocates only for a name with capital letters.
fn in_lower_case<'b>(header: &httparse::Header<'b>) -> Header<'b> {
    let name = match header.name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(header.name.to_ascii_lowercase()),
        false => Cow::Borrowed(header.name),
    };
    (name, header.value)
}

/// The bytes of the first head, if it is complete, within the limit, printable ASCII, and its lines end in CRLF.
fn whole_head(bytes: &[u8]) -> Option<&[u8]> {
    let within = bytes.get(..HEAD_BYTES_MAX.min(bytes.len()))?;
    // A parser may skip leading empty lines.
    if !within.first()?.is_ascii_uppercase() {
        return None;
    }
    let mut before = 0;
    let mut line_length = 0;
    for (at, byte) in within.iter().enumerate() {
        let is_right = match (before, byte) {
            (b'\r', byte) => *byte == b'\n',
            (_, b'\n') => false,
            (_, byte) => matches!(byte, b'\r' | b' '..=b'~'),
        };
        if !is_right {
            return None;
        }
        match byte {
            b'\n' if line_length == 0 => return within.get(..=at),
            b'\n' => line_length = 0,
            b'\r' => {}
            _ => line_length += 1,
        }
        before = *byte;
    }
    None
}

/// The connection and body framing that the headers define.
struct Framing<'b> {
    host: &'b [u8],
    body_length: usize,
    /// Whether no header is significant to the HTTP stack itself.
    is_plain: bool,
}

impl<'b> Framing<'b> {
    /// `None` if the request's end or the connection's state after it is ambiguous.
    fn of(headers: &[Header<'b>]) -> Option<Self> {
        let (mut host, mut length, mut is_plain) = (None, None, true);
        let mut has_cookie = false;
        for (name, value) in headers {
            let value = *value;
            // Servers disagree on underscores and on all characters except letters, digits and hyphens.
            let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            if !name.bytes().all(is_usual) {
                return None;
            }
            match &**name {
                "host" if host.is_none() => host = Some(value),
                "content-length" if length.is_none() => length = Some(number(value)?),
                "connection" if value.eq_ignore_ascii_case(b"keep-alive") => {}
                "host" | "content-length" | "connection" | "transfer-encoding" | "expect"
                | "upgrade" | "te" | "trailer" | "keep-alive" | "proxy-connection"
                | "http2-settings" => return None,
                // Envoy joins several cookies in its own way.
                "cookie" => is_plain &= !std::mem::replace(&mut has_cookie, true),
                // Envoy turns answers to gRPC clients into gRPC statuses.
                "content-type" => is_plain &= !value.starts_with(b"application/grpc"),
                name => {
                    let is_envoys = name.starts_with("x-envoy-") || name == "x-forwarded-proto";
                    is_plain &= !is_envoys;
                }
            }
        }
        Some(Self {
            host: host?,
            body_length: length.unwrap_or(0),
            is_plain,
        })
    }
}

/// A length that consists only of digits.
fn number(value: &[u8]) -> Option<usize> {
    let is_number =
        (1..=LENGTH_DIGITS_MAX).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    let text = str::from_utf8(value).ok().filter(|_| is_number)?;
    text.parse().ok()
}

/// Whether a target is a path with only one spelling.
fn is_plain_path(target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    let mut segments = path.split('/').skip(1);
    let is_plain = |segment: &str| !matches!(segment, "." | "..");
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    path.starts_with('/')
        && !path.contains("//")
        && path.bytes().all(is_usual)
        && segments.all(is_plain)
        && !target.contains(['#', '\\'])
}

/// Whether a host is a name or an address, with an optional port.
fn is_plain_host(host: &[u8]) -> bool {
    let is_usual =
        |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.:[]".contains(byte);
    !host.is_empty() && host.iter().all(is_usual)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str =
        "POST /sales/s-1/orders?a=%20 HTTP/1.1\r\nHost: a.example\r\nX-User-Id: u1\r\n\r\n";

    #[test]
    fn plain_request_is_parsed_completely() {
        let Received::Plain(head) = read(PLAIN.as_bytes()) else {
            panic!("it is plain");
        };
        assert_eq!(head.length, PLAIN.len());
        assert_eq!(
            (head.method, head.path),
            ("POST", "/sales/s-1/orders?a=%20")
        );
        assert_eq!(head.host, b"a.example");
        assert_eq!(head.headers, [("x-user-id".into(), b"u1".as_slice())]);
    }

    #[test]
    fn pipelined_request_stays_in_the_buffer() {
        let two = [PLAIN, "GET / HTTP/1.1\r\n"].concat();
        let Received::Plain(head) = read(two.as_bytes()) else {
            panic!("it is plain");
        };
        assert_eq!(head.length, PLAIN.len());
    }

    /// Each of these is ambiguous or significant to the HTTP stack itself.
    #[test]
    fn ambiguous_request_is_unclear() {
        let edited = |from: &str, to: &str| {
            assert!(PLAIN.contains(from), "{from}");
            PLAIN.replacen(from, to, 1)
        };
        let header =
            |line: &str| edited("X-User-Id: u1\r\n", &format!("X-User-Id: u1\r\n{line}\r\n"));
        let cases = [
            PLAIN[..PLAIN.len() - 1].to_owned(),
            edited("\r\nHost", "\nHost"),
            edited("a.example\r\n", "a.example\r\n b\r\n"),
            edited("HTTP/1.1", "HTTP/1.0"),
            edited("HTTP/1.1", "HTTP/2.0"),
            edited("POST", "\r\nPOST"),
            edited("POST", "CONNECT"),
            edited("POST", "BREW"),
            edited("u1", "u\u{e9}"),
            edited("u1", "u\t1"),
            edited("X-User-Id", "X_User_Id"),
            edited("X-User-Id:", "X-User-Id :"),
            edited("Host: a.example\r\n", ""),
            header("Host: b.example"),
            header("Content-Length: 0\r\nContent-Length: 0"),
            header("Content-Length: +0"),
            header("Content-Length: 0, 0"),
            header("Content-Length: 1"),
            header("Transfer-Encoding: chunked"),
            header("Connection: close"),
            header("Connection: keep-alive, upgrade"),
            header("Expect: 100-continue"),
            header("Upgrade: h2c"),
            header(&format!("A: {}", "a".repeat(HEAD_BYTES_MAX))),
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
            String::new(),
        ];
        for case in cases {
            assert_eq!(read(case.as_bytes()), Received::Unclear, "{case:?}");
        }
    }

    /// The ends of these are certain, but only the HTTP stack may handle them.
    #[test]
    fn non_plain_request_is_complete() {
        let cases = [
            ("/a%2fb", ""),
            ("//a", ""),
            ("/a/../b", ""),
            ("/a/.", ""),
            ("/a;b", ""),
            ("http://a.example/", ""),
            ("*", ""),
            ("/", "x-envoy-original-path: /b\r\n"),
            ("/", "x-forwarded-proto: https\r\n"),
            ("/", "cookie: a=b\r\ncookie: c=d\r\n"),
            ("/", "content-type: application/grpc+proto\r\n"),
        ];
        for (path, header) in cases {
            let text = format!("GET {path} HTTP/1.1\r\nhost: a\r\n{header}\r\n");
            let (length, is_head) = (text.len(), false);
            assert_eq!(
                read(text.as_bytes()),
                Received::Whole { length, is_head },
                "{text:?}"
            );
        }
        let text = "HEAD / HTTP/1.1\r\nhost: a\r\n\r\n";
        let (length, is_head) = (text.len(), true);
        assert_eq!(read(text.as_bytes()), Received::Whole { length, is_head });
        let text = "PUT / HTTP/1.1\r\nhost: A\r\ncontent-length: 3\r\n\r\nabcGET";
        let (length, is_head) = (text.len() - 3, false);
        assert_eq!(read(text.as_bytes()), Received::Whole { length, is_head });
    }
}
