//! Serializes an answer into the bytes that Envoy's HTTP stack writes for the same answer of the HTTP filter.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_engine::Answer;

/// Serializes `answer` at the time `now_ms`, in milliseconds since the Unix epoch.
pub fn bytes(answer: &Answer, server: &str, now_ms: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256 + answer.body.len());
    let status = answer.status;
    bytes.extend(format!("HTTP/1.1 {status} {}\r\n", reason(status)).bytes());
    for (name, value) in answer.headers.iter() {
        line(&mut bytes, name, value);
    }
    let length = answer.body.len().to_string();
    // Envoy's codec adds the length of an empty body, and its connection manager that of other bodies. Their positions
    // differ.
    if !answer.body.is_empty() {
        line(&mut bytes, b"content-length", length.as_bytes());
    }
    with_date(now_ms, |date| line(&mut bytes, b"date", date.as_bytes()));
    line(&mut bytes, b"server", server.as_bytes());
    if answer.body.is_empty() && !matches!(status, 204 | 304) {
        line(&mut bytes, b"content-length", length.as_bytes());
    }
    bytes.extend(b"\r\n");
    bytes.extend(&answer.body);
    bytes
}

/// The answer of Envoy's HTTP stack to bytes that are not a valid request, before it closes the connection.
pub fn bad_request(server: &str, now_ms: u64) -> Vec<u8> {
    let mut bytes =
        b"HTTP/1.1 400 Bad Request\r\ncontent-length: 11\r\ncontent-type: text/plain\r\n".to_vec();
    with_date(now_ms, |date| line(&mut bytes, b"date", date.as_bytes()));
    line(&mut bytes, b"server", server.as_bytes());
    bytes.extend(b"connection: close\r\n\r\nBad Request");
    bytes
}

fn line(bytes: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    bytes.extend(name);
    bytes.extend(b": ");
    bytes.extend(value);
    bytes.extend(b"\r\n");
}

/// Calls `write` with the date, which is formatted at most once per second.
fn with_date(now_ms: u64, write: impl FnOnce(&str)) {
    thread_local! {
        static LAST: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
    }
    let second = now_ms / 1_000;
    LAST.with_borrow_mut(|(at, date)| {
        if *at != second || date.is_empty() {
            let time: SystemTime = UNIX_EPOCH + Duration::from_secs(second);
            (*at, *date) = (second, httpdate::fmt_http_date(time));
        }
        write(date);
    });
}

/// The reason phrase as Envoy writes it.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Payload Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Entity",
        423 => "Locked",
        424 => "Failed Dependency",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        506 => "Variant Also Negotiates",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        510 => "Not Extended",
        511 => "Network Authentication Required",
        _ => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_encoded_as_envoy_encodes_it() {
        let answer = Answer::new(409, &[("x-weir-verdict", "sold_out")], "gone");
        let text = String::from_utf8(bytes(&answer, "envoy", 784_111_777_000)).unwrap();
        assert_eq!(
            text,
            "HTTP/1.1 409 Conflict\r\nx-weir-verdict: sold_out\r\ncontent-length: 4\r\n\
             date: Sun, 06 Nov 1994 08:49:37 GMT\r\nserver: envoy\r\n\r\ngone"
        );
        let empty = Answer::new(302, &[("location", "/a")], "");
        let text = String::from_utf8(bytes(&empty, "envoy", 784_111_778_000)).unwrap();
        assert!(text.ends_with("08:49:38 GMT\r\nserver: envoy\r\ncontent-length: 0\r\n\r\n"));
    }
}
