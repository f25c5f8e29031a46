//! Events that a host sends to an engine.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use crate::effect::{BatchId, FetchId};
use crate::headers::Headers;
use crate::redis::Reply;

/// The id of a stream: one HTTP request and its response. The host chooses it; open streams of one engine have distinct
/// ids.
pub type StreamId = u32;

/// An event. Times are in milliseconds since the Unix epoch.
pub enum Event<'a> {
    /// The head of a request has arrived. The request waits until an effect answers it or lets it continue.
    Request {
        /// Its stream.
        stream: StreamId,
        /// The request; it can be read only during this event.
        request: &'a dyn Request,
    },
    /// The body that the engine requested is complete. The request waits until an effect answers it or lets it
    /// continue.
    Body {
        /// Its stream.
        stream: StreamId,
        /// The body; `None` if it is longer than the requested maximum.
        body: Option<&'a [u8]>,
        /// The time.
        now_ms: u64,
    },
    /// The response head to a continued request is about to be sent to the client.
    Response {
        /// Its stream.
        stream: StreamId,
    },
    /// A stream has ended, or its client has disconnected. No event follows for it. A host may omit this event if the
    /// effects of the request's own event have answered the stream or finished with it.
    Closed {
        /// The stream.
        stream: StreamId,
        /// How it ended.
        end: &'a dyn StreamEnd,
    },
    /// The host could not apply effects for a stream, because it has ended. Its [`Event::Closed`] may come before or
    /// after.
    Undelivered {
        /// The stream.
        stream: StreamId,
        /// The time.
        now_ms: u64,
    },
    /// A tick, or the turn requested by an [`Effect::Wake`](crate::Effect::Wake).
    Tick {
        /// The time.
        now_ms: u64,
    },
    /// A call to Redis has ended.
    RedisReply {
        /// The call.
        batch: BatchId,
        /// The replies as bytes, or the failure.
        reply: Reply,
        /// The time.
        now_ms: u64,
    },
    /// The host could not send a call to Redis: nothing has run, and no event follows for it. It comes directly after
    /// the effects with the call.
    NotSent {
        /// The call.
        batch: BatchId,
    },
    /// An `at_once` call must wait for a turn: nothing has run. Like [`Event::NotSent`].
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

/// The head of a request. Engines read only the parts that they need, so the host need not copy the rest.
pub trait Request {
    /// All headers.
    fn headers(&self) -> &Headers;

    /// The value of one header, by its name in lower case. Several headers of one name are joined with commas.
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>>;

    /// The address of the connection's peer as `address:port`; empty if unknown.
    fn peer_address(&self) -> Vec<u8>;

    /// The time.
    fn now_ms(&self) -> u64;

    /// The name of the route that the host has selected. `None` if there is no route, if it has no name, and on hosts
    /// that do not [provide](crate::setup::Host::tells_routes) it.
    fn route_name(&self) -> Option<Vec<u8>> {
        None
    }
}

/// How a stream ended. Like [`Request`], engines read only the parts that they need.
pub trait StreamEnd {
    /// The status of the response to the client, if one was sent.
    fn response_status(&self) -> Option<u16>;

    /// The time.
    fn now_ms(&self) -> u64;
}

/// The response to an HTTP request of the engine's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchResponse {
    /// The status.
    pub status: u16,
    /// The headers with text values, without pseudo-headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl FetchResponse {
    /// The first value of the header `name`, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(existing, _)| existing == name)
            .map(|(_, value)| value.as_str())
    }
}

/// A request with all values in memory, for hosts and tests.
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

/// The end of a stream with all values in memory, like [`PlainRequest`].
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
    fn first_response_header_of_a_name_is_used() {
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
    fn plain_request_and_its_end_expose_their_fields() {
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
