//! The HTTP heads: reading a call's, writing a response's.

/// The most bytes of a call's head. Envoy's is some 200; 8 KiB leaves room for whatever headers
/// tracing adds.
pub(crate) const HEAD_LEN_MAX: usize = 8 * 1024;

const HEADERS_MAX: usize = 64;

/// What a call's head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The head's own length, up to and with the empty line.
    pub length: usize,
    /// The body's length.
    pub body_length: usize,
}

/// Reads the head at the start of `input`: `None` if it is not there whole yet.
///
/// # Errors
/// Says why the call is refused.
pub(crate) fn read(input: &[u8]) -> Result<Option<Head>, &'static str> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(input) {
        Ok(httparse::Status::Complete(length)) if length <= HEAD_LEN_MAX => length,
        Ok(httparse::Status::Partial) if input.len() <= HEAD_LEN_MAX => return Ok(None),
        Ok(_) => return Err("the head is too long"),
        Err(_) => return Err("the head is not HTTP/1.1"),
    };
    if request.method != Some("POST") {
        return Err("the method must be POST");
    }
    let body_length = body_length(request.headers)?;
    Ok(Some(Head {
        length,
        body_length,
    }))
}

fn body_length(headers: &[httparse::Header<'_>]) -> Result<usize, &'static str> {
    let named = |name: &'static str| {
        move |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case(name)
    };
    if headers
        .iter()
        .any(|header| named("transfer-encoding")(&header))
    {
        return Err("the body must not be chunked");
    }
    let mut lengths = headers.iter().filter(named("content-length"));
    let (Some(length), None) = (lengths.next(), lengths.next()) else {
        return Err("there must be one content-length");
    };
    if !length.value.iter().all(u8::is_ascii_digit) {
        return Err("the content-length is not a number");
    }
    std::str::from_utf8(length.value)
        .ok()
        .and_then(|digits| digits.parse().ok())
        .ok_or("the content-length is not a number")
}

/// The response to a call that went well: a head, then the replies.
pub(crate) fn success(replies: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
        replies.len()
    );
    [head.as_bytes(), replies].concat()
}

/// The response to a call that did not: the caller closes the connection after it. `reason` begins with a letter:
/// callers take what reads as replies for replies.
pub(crate) fn error(status: &str, reason: &str) -> Vec<u8> {
    let length = reason.len() + 1;
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{reason}\n"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_once_it_is_whole() {
        let head = b"POST / HTTP/1.1\r\nHost: weir_redis\r\nContent-Length: 14\r\n\r\n";
        for cut in 0..head.len() {
            assert_eq!(read(&head[..cut]), Ok(None), "cut at {cut}");
        }
        let expected = Head {
            length: head.len(),
            body_length: 14,
        };
        assert_eq!(read(head), Ok(Some(expected)));
        assert_eq!(
            read(&[head, b"*1\r\n".as_slice()].concat()),
            Ok(Some(expected))
        );
    }

    #[test]
    fn whatever_could_be_read_in_two_ways_is_refused() {
        let refused = |head: &str| read(head.as_bytes()).unwrap_err();
        assert_eq!(refused("GET / HTTP/1.1\r\n\r\n"), "the method must be POST");
        assert_eq!(
            refused("POST / HTTP/1.1\r\n\r\n"),
            "there must be one content-length"
        );
        let two = "POST / HTTP/1.1\r\ncontent-length: 1\r\nContent-Length: 1\r\n\r\n";
        assert_eq!(refused(two), "there must be one content-length");
        let chunked = "POST / HTTP/1.1\r\ncontent-length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(refused(chunked), "the body must not be chunked");
        for length in ["+1", "-1", "1x", "", "99999999999999999999999"] {
            let head = format!("POST / HTTP/1.1\r\ncontent-length: {length}\r\n\r\n");
            assert_eq!(
                refused(&head),
                "the content-length is not a number",
                "{length}"
            );
        }
        assert_eq!(refused("*1\r\n$4\r\nPING\r\n"), "the head is not HTTP/1.1");
        let long = format!("POST / HTTP/1.1\r\nx: {}", "y".repeat(HEAD_LEN_MAX));
        assert_eq!(refused(&long), "the head is too long");
    }
}
