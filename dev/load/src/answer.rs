//! Finds the end of a response that may arrive in pieces.

use crate::ask::FullAnswer;
use anyhow::{Context, Result, anyhow, bail};

/// More headers than any tested server sends.
const HEADERS_MAX: usize = 32;

/// A complete response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The length of head and body, in bytes.
    pub(crate) length: usize,
    /// Whether the server closes the connection after it.
    pub(crate) closes: bool,
}

/// The response at the start of `bytes`; `None` if it is incomplete.
///
/// # Errors
/// It is not HTTP, or its body length is unknown. Compared responses always have a length.
pub(crate) fn read(bytes: &[u8]) -> Result<Option<Answer>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(bytes);
    let parsed = parsed.map_err(|error| anyhow!("not HTTP: {error}"))?;
    let httparse::Status::Complete(head) = parsed else {
        return Ok(None);
    };
    let status = response.code.context("answer without a status")?;
    let (mut body, mut closes) = (None, response.version == Some(0));
    for header in response.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            body = Some(number(header.value)?);
        } else if header.name.eq_ignore_ascii_case("connection") {
            closes = header.value.eq_ignore_ascii_case(b"close");
        }
    }
    let body = match (body, status) {
        (Some(length), _) => length,
        (None, 204 | 304) => 0,
        (None, _) => bail!("answer ({status}) without content-length"),
    };
    let length = head + body;
    Ok((bytes.len() >= length).then_some(Answer {
        status,
        length,
        closes,
    }))
}

/// Parses a response that must fill `bytes` exactly.
pub(crate) fn whole(bytes: &[u8]) -> Result<FullAnswer> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(bytes);
    let parsed = parsed.map_err(|error| anyhow!("not HTTP: {error}"))?;
    let httparse::Status::Complete(head) = parsed else {
        bail!("the head is incomplete");
    };
    let header = |header: &httparse::Header<'_>| {
        let value = String::from_utf8_lossy(header.value).into_owned();
        (header.name.to_ascii_lowercase(), value)
    };
    let mut headers: Vec<_> = response.headers.iter().map(header).collect();
    headers.sort();
    Ok(FullAnswer {
        status: response.code.context("answer without a status")?,
        headers,
        body: bytes.get(head..).unwrap_or_default().to_vec(),
    })
}

fn number(value: &[u8]) -> Result<usize> {
    let text = std::str::from_utf8(value).context("content-length is not text")?;
    text.trim()
        .parse()
        .context("content-length is not a number")
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &[u8] = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 5\r\nx: y\r\n\r\nhello";

    #[test]
    fn answer_is_complete_with_its_last_byte() {
        for cut in 0..WHOLE.len() {
            assert_eq!(read(&WHOLE[..cut]).unwrap(), None, "{cut}");
        }
        let more = [WHOLE, b"HTTP/1.1 200"].concat();
        let answer = read(&more).unwrap().unwrap();
        assert_eq!((answer.status, answer.length), (403, WHOLE.len()));
        assert!(!answer.closes);
    }

    #[test]
    fn answer_is_read_with_its_headers_and_body() {
        let answer = whole(WHOLE).unwrap();
        assert_eq!(
            (answer.status, answer.body.as_slice()),
            (403, b"hello".as_slice())
        );
        assert_eq!(
            answer.headers[0],
            ("content-length".to_owned(), "5".to_owned())
        );
    }

    #[test]
    fn close_is_detected_and_answer_without_length_is_refused() {
        let closing = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        assert!(read(closing).unwrap().unwrap().closes);
        assert!(read(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
        assert!(read(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap().is_some());
        assert!(read(b"+PONG\r\n").is_err());
    }
}
