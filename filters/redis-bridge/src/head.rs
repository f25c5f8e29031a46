//! HTTP heads: parses a caller's, and writes a response's.

/// Maximum bytes of a caller's head. Envoy's has about 200; 8 KiB leaves room for tracing headers.
pub(crate) const HEAD_LEN_MAX: usize = 8 * 1024;

const HEADERS_MAX: usize = 64;

/// The head of a stream's response; chunks follow it.
pub(crate) const STREAM: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ntransfer-encoding: chunked\r\n\r\n";

const NOT_CHUNKED: &str = "the body must be chunked: only gRPC streams can call the bridge";

/// Parses the head at the start of `input`, which must open a stream, and returns its length including the empty line.
/// `None` if it is incomplete.
///
/// # Errors
/// Why the stream is refused.
pub(crate) fn read(input: &[u8]) -> Result<Option<usize>, &'static str> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(input) {
        Ok(httparse::Status::Complete(length)) if length <= HEAD_LEN_MAX => length,
        Ok(httparse::Status::Partial) if input.len() <= HEAD_LEN_MAX => return Ok(None),
        Ok(_) => return Err("the head is too long"),
        Err(_) => return Err("the head is not HTTP/1.1"),
    };
    // HTTP/1.0 has no chunks.
    if request.version != Some(1) {
        return Err("the head is not HTTP/1.1");
    }
    if request.method != Some("POST") {
        return Err("the method must be POST");
    }
    check_chunked(request.headers)?;
    Ok(Some(length))
}

/// Checks that chunks unambiguously delimit the body.
fn check_chunked(headers: &[httparse::Header<'_>]) -> Result<(), &'static str> {
    let named = |name: &'static str| {
        move |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case(name)
    };
    if headers
        .iter()
        .any(|header| named("content-length")(&header))
    {
        return Err(NOT_CHUNKED);
    }
    let mut encodings = headers.iter().filter(named("transfer-encoding"));
    match (encodings.next(), encodings.next()) {
        (Some(one), None) if one.value.eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(NOT_CHUNKED),
    }
}

/// The response to a head that opens no stream: the caller closes the connection after it.
pub(crate) fn error(reason: &str) -> Vec<u8> {
    let length = reason.len() + 1;
    format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{reason}\n"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "POST / HTTP/1.1\r\nHost: weir_redis\r\nTransfer-Encoding: Chunked\r\n\r\n";

    #[test]
    fn request_head_is_read_once_complete() {
        for cut in 0..HEAD.len() {
            assert_eq!(read(&HEAD.as_bytes()[..cut]), Ok(None), "cut at {cut}");
        }
        assert_eq!(read(HEAD.as_bytes()), Ok(Some(HEAD.len())));
        let more = format!("{HEAD}5\r\n");
        assert_eq!(read(more.as_bytes()), Ok(Some(HEAD.len())));
    }

    #[test]
    fn ambiguous_request_head_is_refused() {
        let refused = |head: &str| read(head.as_bytes()).unwrap_err();
        assert_eq!(refused("GET / HTTP/1.1\r\n\r\n"), "the method must be POST");
        for headers in [
            "",
            "content-length: 1\r\n",
            "content-length: 1\r\ntransfer-encoding: chunked\r\n",
            "transfer-encoding: chunked\r\nContent-Length: 0\r\n",
            "transfer-encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "transfer-encoding: gzip\r\n",
            "transfer-encoding: gzip, chunked\r\n",
            "transfer-encoding: chunked, chunked\r\n",
            "transfer-encoding:\r\n",
            "transfer-encodings: chunked\r\n",
        ] {
            let head = format!("POST / HTTP/1.1\r\n{headers}\r\n");
            assert_eq!(refused(&head), NOT_CHUNKED, "{headers}");
        }
        assert_eq!(refused("*1\r\n$4\r\nPING\r\n"), "the head is not HTTP/1.1");
        let old = HEAD.replace("HTTP/1.1", "HTTP/1.0");
        assert_eq!(refused(&old), "the head is not HTTP/1.1");
        let long = format!("POST / HTTP/1.1\r\nx: {}", "y".repeat(HEAD_LEN_MAX));
        assert_eq!(refused(&long), "the head is too long");
    }
}
