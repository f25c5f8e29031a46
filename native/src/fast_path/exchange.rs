//! Finds the end of a response of the HTTP stack, after which the fast path may read the connection again.

/// The longest response header section that is parsed.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The most response headers that are parsed.
const HEADERS_MAX: usize = 128;

/// The longest chunk size line.
const SIZE_BYTES_MAX: usize = 32;

/// The progress of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More bytes follow.
    More,
    /// The response is complete, and nothing follows it.
    Done,
    /// The end of the response is uncertain.
    Lost,
}

/// One response.
#[derive(Debug)]
pub struct Exchange {
    is_head: bool,
    part: ResponsePart,
    /// The incomplete header section or line.
    line: Vec<u8>,
}

/// The next part of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponsePart {
    Head,
    /// This many bytes of the body.
    Body(u64),
    Size,
    /// This many bytes of a chunk, including its line end.
    Chunk(u64),
    /// The empty line after the last chunk.
    End,
    Lost,
}

/// The framing that a header section announces.
enum Following {
    Nothing,
    ResponsePart(ResponsePart),
}

impl Exchange {
    /// The response to a request. `is_head`: the method was `HEAD`, so it has no body.
    pub fn new(is_head: bool) -> Self {
        Self {
            is_head,
            part: ResponsePart::Head,
            line: Vec::new(),
        }
    }

    /// Reads more bytes of the response.
    pub fn sent(&mut self, mut bytes: &[u8]) -> Progress {
        while !bytes.is_empty() {
            let (rest, has_ended) = match self.part {
                ResponsePart::Head => self.read_head(bytes),
                ResponsePart::Body(remaining) => self.skip(bytes, remaining, ResponsePart::Body),
                ResponsePart::Chunk(remaining) => self.skip(bytes, remaining, ResponsePart::Chunk),
                ResponsePart::Size => self.read_size(bytes),
                ResponsePart::End => self.read_end(bytes),
                ResponsePart::Lost => return Progress::Lost,
            };
            if has_ended {
                // Bytes after the end do not belong to this response.
                return match rest.is_empty() {
                    true => Progress::Done,
                    false => self.lost(),
                };
            }
            bytes = rest;
        }
        match self.part {
            ResponsePart::Lost => Progress::Lost,
            _ => Progress::More,
        }
    }

    fn lost(&mut self) -> Progress {
        self.part = ResponsePart::Lost;
        Progress::Lost
    }

    /// Adds bytes to the line up to `end`. Returns the rest once the line is complete.
    fn take_line<'b>(&mut self, bytes: &'b [u8], end: &[u8], max: usize) -> Option<&'b [u8]> {
        for (at, byte) in bytes.iter().enumerate() {
            self.line.push(*byte);
            if self.line.ends_with(end) {
                return bytes.get(at + 1..);
            }
            if self.line.len() > max {
                self.part = ResponsePart::Lost;
                return None;
            }
        }
        None
    }

    fn read_head<'b>(&mut self, bytes: &'b [u8]) -> (&'b [u8], bool) {
        let Some(rest) = self.take_line(bytes, b"\r\n\r\n", HEAD_BYTES_MAX) else {
            return (&[], false);
        };
        let head = std::mem::take(&mut self.line);
        match following(&head, self.is_head) {
            Some(Following::Nothing) => (rest, true),
            Some(Following::ResponsePart(part)) => {
                self.part = part;
                (rest, false)
            }
            None => {
                self.part = ResponsePart::Lost;
                (rest, false)
            }
        }
    }

    fn skip<'b>(
        &mut self,
        bytes: &'b [u8],
        remaining: u64,
        part: fn(u64) -> ResponsePart,
    ) -> (&'b [u8], bool) {
        let count = usize::try_from(remaining)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let remaining = remaining - count as u64;
        let is_body = matches!(self.part, ResponsePart::Body(_));
        self.part = match remaining {
            0 if !is_body => ResponsePart::Size,
            remaining => part(remaining),
        };
        (
            bytes.get(count..).unwrap_or_default(),
            is_body && remaining == 0,
        )
    }

    fn read_size<'b>(&mut self, bytes: &'b [u8]) -> (&'b [u8], bool) {
        let Some(rest) = self.take_line(bytes, b"\r\n", SIZE_BYTES_MAX) else {
            return (&[], false);
        };
        let line = std::mem::take(&mut self.line);
        self.part = match httparse::parse_chunk_size(&line) {
            Ok(httparse::Status::Complete((_, 0))) => ResponsePart::End,
            Ok(httparse::Status::Complete((_, size))) => {
                ResponsePart::Chunk(size.saturating_add(2))
            }
            _ => ResponsePart::Lost,
        };
        (rest, false)
    }

    fn read_end<'b>(&mut self, bytes: &'b [u8]) -> (&'b [u8], bool) {
        let Some(rest) = self.take_line(bytes, b"\r\n", SIZE_BYTES_MAX) else {
            return (&[], false);
        };
        let line = std::mem::take(&mut self.line);
        let is_end = line == b"\r\n";
        if !is_end {
            self.part = ResponsePart::Lost;
        }
        (rest, is_end)
    }
}

/// The body framing of a header section. `None` if it is ambiguous, or if the connection ends with the response.
fn following(head: &[u8], is_head: bool) -> Option<Following> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let length = response.parse(head).ok()?;
    if length != httparse::Status::Complete(head.len()) {
        return None;
    }
    let values = |name: &'static str| {
        let headers = response.headers.iter();
        headers.filter(move |header| header.name.eq_ignore_ascii_case(name))
    };
    if values("connection").next().is_some() {
        return None;
    }
    let status = response.code?;
    match status {
        101 => return None,
        100..200 => return Some(Following::ResponsePart(ResponsePart::Head)),
        204 | 304 => return Some(Following::Nothing),
        _ if is_head => return Some(Following::Nothing),
        _ => {}
    }
    let is_chunked =
        values("transfer-encoding").any(|it| it.value.eq_ignore_ascii_case(b"chunked"));
    if is_chunked {
        return Some(Following::ResponsePart(ResponsePart::Size));
    }
    let length = values("content-length").next()?;
    let length: u64 = str::from_utf8(length.value).ok()?.parse().ok()?;
    Some(match length {
        0 => Following::Nothing,
        length => Following::ResponsePart(ResponsePart::Body(length)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result for a response, checked to be the same for one write and for single bytes.
    fn end(is_head: bool, text: &str) -> Progress {
        let whole = Exchange::new(is_head).sent(text.as_bytes());
        let mut exchange = Exchange::new(is_head);
        let mut last = Progress::More;
        for byte in text.as_bytes() {
            let next = exchange.sent(std::slice::from_ref(byte));
            // Bytes after the end are visible only in the same write.
            last = match (last, next) {
                (Progress::Done, _) => Progress::Lost,
                (_, next) => next,
            };
        }
        assert_eq!(last, whole, "{text:?}");
        whole
    }

    #[test]
    fn response_end_is_found() {
        let cases = [
            (
                false,
                "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc",
                Progress::Done,
            ),
            (
                false,
                "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
                Progress::Done,
            ),
            (false, "HTTP/1.1 204 No Content\r\n\r\n", Progress::Done),
            (
                true,
                "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n",
                Progress::Done,
            ),
            (
                false,
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n",
                Progress::Done,
            ),
            (
                false,
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na",
                Progress::Done,
            ),
            (
                false,
                "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab",
                Progress::More,
            ),
            (
                false,
                "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n",
                Progress::More,
            ),
        ];
        for (is_head, text, expected) in cases {
            assert_eq!(end(is_head, text), expected, "{text:?}");
        }
    }

    #[test]
    fn response_with_an_ambiguous_end_is_lost() {
        let cases = [
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1\r\n\r\na",
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\na: b\r\n\r\n",
            "nothing of HTTP\r\n\r\n",
        ];
        for text in cases {
            assert_eq!(end(false, text), Progress::Lost, "{text:?}");
        }
    }
}
