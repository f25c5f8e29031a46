//! Parses the origin's response to a lookup.

use crate::redis::document;
use crate::redis::link_read::Read;
use weir_base::headers::{LINK, LINK_UNKNOWN};
use weir_engine::event::FetchResponse;

/// The origin's response to a lookup.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OriginReply {
    /// The link does not exist.
    Unknown,
    /// The link exists; this is the reply that Redis would give.
    Link(Read),
    /// No response, or a server error.
    Failed,
}

impl From<Option<FetchResponse>> for OriginReply {
    fn from(response: Option<FetchResponse>) -> Self {
        match response {
            Some(response) if response.header(LINK) == Some(LINK_UNKNOWN) => Self::Unknown,
            Some(response) if response.status == 200 => {
                document::read(&response.body).map_or(Self::Failed, Self::Link)
            }
            _ => Self::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;
    use alloc::vec;

    fn response(status: u16, body: &[u8], is_unknown: bool) -> Option<FetchResponse> {
        let header = (LINK.to_owned(), LINK_UNKNOWN.to_owned());
        Some(FetchResponse {
            status,
            headers: is_unknown.then_some(header).into_iter().collect(),
            body: body.to_vec(),
        })
    }

    #[test]
    fn only_explicit_origin_answer_makes_a_link_unknown() {
        assert_eq!(
            OriginReply::from(response(404, b"", true)),
            OriginReply::Unknown
        );
        for status in [100, 302, 404, 410, 500, 503] {
            assert_eq!(
                OriginReply::from(response(status, b"- -\nx", false)),
                OriginReply::Failed
            );
        }
        assert_eq!(OriginReply::from(None), OriginReply::Failed);
        assert_eq!(
            OriginReply::from(response(200, b"a page", false)),
            OriginReply::Failed
        );
        let read = Read {
            record: vec![b'x'],
            left_ms: None,
            clicks_left: Some(2),
        };
        assert_eq!(
            OriginReply::from(response(200, b"- 2\nx", false)),
            OriginReply::Link(read)
        );
    }
}
