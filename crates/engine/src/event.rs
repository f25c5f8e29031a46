//! What happens to an engine.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use crate::effect::{BatchId, FetchId};
use crate::headers::Headers;
use crate::redis::Reply;

/// A stream: one HTTP request and its response. The host chooses the number; no two open streams of one engine share it.
pub type StreamId = u32;

/// What happens to an engine. Times are in milliseconds since the Unix epoch.
pub enum Event<'a> {
    /// The head of a request has come. Unless the effects answer it or let it go on, it waits.
    Request {
        /// Its stream.
        stream: StreamId,
        /// What can be known of it now, and not later.
        request: &'a dyn Request,
    },
    /// The body of a request for which the engine has asked is there. Unless the effects answer the request or let it go on,
    /// it waits.
    Body {
        /// Its stream.
        stream: StreamId,
        /// The body; `None` if it is longer than the engine wants.
        body: Option<&'a [u8]>,
        /// The time.
        now_ms: u64,
    },
    /// The head of the response to a request that went on is about to go to the client.
    Response {
        /// Its stream.
        stream: StreamId,
    },
    /// A stream has ended, or its client has gone. Nothing more happens to it. A host need not tell of a stream that the
    /// effects of its request's own event have answered or let go.
    Closed {
        /// The stream.
        stream: StreamId,
        /// How it ended.
        end: &'a dyn StreamEnd,
    },
    /// Effects for a stream could not be applied: it is gone. Its [`Event::Closed`] may have come before, or may
    /// follow.
    Undelivered {
        /// The stream.
        stream: StreamId,
        /// The time.
        now_ms: u64,
    },
    /// A tick, or the turn that an [`Effect::Wake`](crate::Effect::Wake) asked for.
    Tick {
        /// The time.
        now_ms: u64,
    },
    /// A call to Redis has ended.
    RedisReply {
        /// The call.
        batch: BatchId,
        /// The replies as Redis wrote them, or why there are none.
        reply: Reply,
        /// The time.
        now_ms: u64,
    },
    /// The host could not send a call to Redis: nothing has run, and nothing more is heard of it. It comes right after the
    /// effects that held the call.
    NotSent {
        /// The call.
        batch: BatchId,
    },
    /// A call that was to go at once has to wait for a turn: nothing has run. As [`Event::NotSent`].
    Deferred {
        /// The call.
        batch: BatchId,
    },
    /// An HTTP request of the engine's own has ended.
    FetchDone {
        /// The request.
        fetch: FetchId,
        /// The response; `None` if there is none.
        response: Option<FetchResponse>,
        /// The time.
        now_ms: u64,
    },
}

/// The head of a request. An engine reads what it needs; what it does not read costs the host nothing.
pub trait Request {
    /// All headers.
    fn headers(&self) -> &Headers;

    /// The value of one header, by its name in lower case. Several of one name are one, with commas between.
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>>;

    /// Where the connection comes from, as `address:port`; empty if nobody knows.
    fn peer_address(&self) -> Vec<u8>;

    /// The time.
    fn now_ms(&self) -> u64;

    /// The name of the route by which the host will send it, as it has chosen by now. `None` if that has no name, if there is
    /// no route, and on hosts that do not [tell](crate::setup::Host::tells_routes).
    fn route_name(&self) -> Option<Vec<u8>> {
        None
    }
}

/// How a stream ended. As [`Request`], it costs what is read of it.
pub trait StreamEnd {
    /// The status that its client got, if it got one.
    fn response_status(&self) -> Option<u16>;

    /// The time.
    fn now_ms(&self) -> u64;
}

/// The response to an HTTP request of the engine's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchResponse {
    /// The status.
    pub status: u16,
    /// The headers whose values are text, without pseudo-headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl FetchResponse {
    /// The first value of the header `name`, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }
}

/// A request of which everything is known: for hosts that have it all, and for tests.
#[derive(Clone, Debug, Default)]
pub struct PlainRequest {
    /// Its headers.
    pub headers: Headers,
    /// As [`Request::peer_address`].
    pub peer_address: Vec<u8>,
    /// As [`Request::now_ms`].
    pub now_ms: u64,
}

impl Request for PlainRequest {
    fn headers(&self) -> &Headers {
        &self.headers
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.headers.get(name)
    }

    fn peer_address(&self) -> Vec<u8> {
        self.peer_address.clone()
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }
}

/// The end of a stream of which everything is known: as [`PlainRequest`].
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainEnd {
    /// As [`StreamEnd::response_status`].
    pub response_status: Option<u16>,
    /// As [`StreamEnd::now_ms`].
    pub now_ms: u64,
}

impl StreamEnd for PlainEnd {
    fn response_status(&self) -> Option<u16> {
        self.response_status
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn of_a_response_the_first_header_of_a_name_counts() {
        let header = |name: &str, value: &str| (name.into(), value.into());
        let response = FetchResponse {
            status: 200,
            headers: vec![header("a", "1"), header("b", "2"), header("b", "3")],
            body: vec![],
        };
        assert_eq!(response.header("b"), Some("2"));
        assert_eq!(response.header("c"), None);
    }

    #[test]
    fn what_is_known_of_a_plain_request_and_its_end_is_told() {
        let request = PlainRequest {
            headers: Headers::new(&[("a", "1")]),
            peer_address: b"192.0.2.1:5".to_vec(),
            now_ms: 7,
        };
        assert_eq!(request.headers().iter().count(), 1);
        assert_eq!(request.header("a").as_deref(), Some(&b"1"[..]));
        assert_eq!(request.header("b"), None);
        assert_eq!(request.peer_address(), b"192.0.2.1:5");
        assert_eq!(Request::now_ms(&request), 7);
        let end = PlainEnd {
            response_status: Some(201),
            now_ms: 8,
        };
        assert_eq!(
            (end.response_status(), StreamEnd::now_ms(&end)),
            (Some(201), 8)
        );
    }
}
