//! A test's handle of an HTTP request.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the host, and must stop the test"
)]

use std::collections::HashMap;
use std::rc::Rc;

use crate::abi::Headers;
use crate::calls::property::path_of;
use crate::http::{End, Frame, LocalReply, Message, StreamState};
use crate::process::Process;
use crate::world::{Cost, Direction, SlotId, StreamId};

/// A request under construction. Create one with [`Host::request`](crate::Host::request).
///
/// The default is `GET / HTTP/1.1` to `localhost`, with `:scheme` `http`.
#[must_use = "a request does nothing until it is sent"]
pub struct RequestBuilder {
    pub(crate) process: Rc<Process>,
    pub(crate) slot: SlotId,
    pub(crate) headers: Headers,
    pub(crate) chunks: Vec<Vec<u8>>,
    pub(crate) trailers: Headers,
    pub(crate) properties: HashMap<Vec<u8>, Vec<u8>>,
}

impl RequestBuilder {
    pub(crate) fn new(process: Rc<Process>, slot: SlotId) -> Self {
        let pseudo = [
            (":method", "GET"),
            (":path", "/"),
            (":authority", "localhost"),
            (":scheme", "http"),
        ];
        Self {
            process,
            slot,
            headers: pseudo.into_iter().collect(),
            chunks: Vec::new(),
            trailers: Headers::new(),
            properties: HashMap::new(),
        }
    }

    /// Sets `:method`.
    pub fn method(mut self, method: &str) -> Self {
        self.headers.set(":method", method);
        self
    }

    /// Sets `:path`, including the query.
    pub fn path(mut self, path: impl AsRef<[u8]>) -> Self {
        self.headers.set(":path", path);
        self
    }

    /// Adds a header; a name with a leading colon replaces the pseudo-header. Values are bytes and may be invalid
    /// UTF-8.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        if name.starts_with(':') {
            self.headers.set(name, value);
        } else {
            self.headers.add(name, value);
        }
        self
    }

    /// Removes a header or pseudo-header.
    pub fn without(mut self, name: &str) -> Self {
        self.headers.remove(name);
        self
    }

    /// Adds a piece of the body. Each piece reaches the filter separately.
    pub fn body(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.chunks.push(bytes.into());
        self
    }

    /// Adds a trailer.
    pub fn trailer(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.trailers.add(name, value);
        self
    }

    /// Sets a property of this request for `proxy_get_property`, for example `.property(&["source", "address"],
    /// "10.0.0.1:5000")`. Numbers are 8 bytes, little-endian, as in Envoy.
    pub fn property(mut self, path: &[&str], value: impl AsRef<[u8]>) -> Self {
        self.properties
            .insert(path_of(path), value.as_ref().to_vec());
        self
    }

    /// Sends the whole request. Events that follow wait for [`Host::run_until_idle`](crate::Host::run_until_idle),
    /// [`turn`](crate::Host::turn) or [`advance`](crate::Host::advance).
    pub fn send(self) -> Stream {
        self.start(true)
    }

    /// Sends the request so far and leaves it open for [`Stream::send_body`] and [`Stream::send_trailers`].
    pub fn send_unfinished(self) -> Stream {
        self.start(false)
    }

    fn start(self, finish: bool) -> Stream {
        let (vm, root) = self.process.vm_for_stream(self.slot);
        let id = self.process.open_stream(vm, root, self.properties);
        {
            let mut world = self.process.world.borrow_mut();
            let request = &mut world.streams[id].request;
            let trailers = !self.trailers.is_empty();
            let last = self
                .chunks
                .len()
                .checked_sub(1)
                .filter(|_| finish && !trailers);
            let bare = self.chunks.is_empty() && !trailers;
            request.push_headers(self.headers, finish && bare);
            for (i, bytes) in self.chunks.into_iter().enumerate() {
                let end = last == Some(i);
                request.frames.push_back(Frame::Body { bytes, end });
            }
            if trailers {
                request.push_trailers(self.trailers);
            }
        }
        self.process.pump(id, Direction::Request);
        Stream {
            process: self.process,
            id,
        }
    }
}

/// A handle of a sent request.
///
/// Dropping it has no effect: the client stays connected until [`disconnect`](Stream::disconnect).
#[derive(Clone)]
pub struct Stream {
    process: Rc<Process>,
    id: StreamId,
}

impl Stream {
    /// The current state.
    pub fn state(&self) -> StreamState {
        let world = self.process.world.borrow();
        let stream = &world.streams[self.id];
        stream.state(world.alive(stream.vm))
    }

    /// The reply to the client from the filter (or, for a dead VM, from the host).
    pub fn reply(&self) -> Option<LocalReply> {
        match self.state() {
            StreamState::Replied(reply) => Some(reply),
            _ => None,
        }
    }

    /// The status that the client received, of a local reply or of the upstream's response.
    pub fn status(&self) -> Option<u16> {
        match self.state() {
            StreamState::Replied(reply) => Some(reply.status),
            StreamState::Responded(response) => Some(response.status()),
            _ => None,
        }
    }

    /// Whether the filter pauses the request.
    pub fn is_paused(&self) -> bool {
        self.state() == StreamState::Paused
    }

    /// Whether the request has passed without a response yet.
    pub fn is_continued(&self) -> bool {
        matches!(self.state(), StreamState::Continued(_))
    }

    /// The part of the request that the upstream received, regardless of later events.
    pub fn upstream_request(&self) -> Message {
        self.process.world.borrow().streams[self.id]
            .request
            .passed
            .clone()
    }

    /// Sends more of the body; `end` closes the request.
    pub fn send_body(&self, bytes: impl Into<Vec<u8>>, end: bool) {
        let bytes = bytes.into();
        self.feed(Direction::Request, Frame::Body { bytes, end });
    }

    /// Sends trailers, which close the request.
    pub fn send_trailers(&self, trailers: Headers) {
        let mut world = self.process.world.borrow_mut();
        world.streams[self.id].request.push_trailers(trailers);
        drop(world);
        self.process.pump(self.id, Direction::Request);
    }

    /// Sends a whole response from the upstream: its status, headers and body.
    ///
    /// # Panics
    /// If the request has not passed to the upstream: there is no response without it.
    pub fn respond<'a>(
        &self,
        status: u16,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
        body: impl Into<Vec<u8>>,
    ) {
        let body = body.into();
        self.respond_headers(status, headers, body.is_empty());
        if !body.is_empty() {
            self.respond_body(body, true);
        }
    }

    /// Sends the head of a response; `end` if nothing follows.
    ///
    /// # Panics
    /// See [`respond`](Self::respond).
    pub fn respond_headers<'a>(
        &self,
        status: u16,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
        end: bool,
    ) {
        let state = self.state();
        let passed = matches!(state, StreamState::Continued(_));
        assert!(
            passed,
            "no response is possible: the request is in state {state:?}"
        );
        let mut all = Headers::new();
        all.add(":status", status.to_string());
        for (name, value) in headers {
            all.add(name, value);
        }
        let mut world = self.process.world.borrow_mut();
        world.streams[self.id].response.push_headers(all, end);
        drop(world);
        self.process.pump(self.id, Direction::Response);
    }

    /// Sends a piece of the response's body.
    pub fn respond_body(&self, bytes: impl Into<Vec<u8>>, end: bool) {
        let bytes = bytes.into();
        self.feed(Direction::Response, Frame::Body { bytes, end });
    }

    /// Sends trailers of the response, which close it.
    pub fn respond_trailers(&self, trailers: Headers) {
        let mut world = self.process.world.borrow_mut();
        world.streams[self.id].response.push_trailers(trailers);
        drop(world);
        self.process.pump(self.id, Direction::Response);
    }

    fn feed(&self, direction: Direction, frame: Frame) {
        {
            let mut world = self.process.world.borrow_mut();
            let stream = &mut world.streams[self.id];
            match direction {
                Direction::Request => stream.request.frames.push_back(frame),
                Direction::Response => stream.response.frames.push_back(frame),
            }
        }
        self.process.pump(self.id, direction);
    }

    /// Disconnects the client. The filter gets log, done and delete. A call in flight continues, because Envoy ties
    /// calls to the root context. Has no effect after the stream's end.
    pub fn disconnect(&self) {
        self.process.end_stream(self.id, End::Gone);
    }

    /// The cost of the stream's callbacks so far. Callbacks of the root context (a batch, a tick) count only for the
    /// [host](crate::Host::cost).
    pub fn cost(&self) -> Cost {
        self.process.world.borrow().streams[self.id].cost.clone()
    }

    /// The value of a property of this stream, set by the test or by the filter.
    pub fn property(&self, path: &[&str]) -> Option<Vec<u8>> {
        let world = self.process.world.borrow();
        world.streams[self.id]
            .properties
            .get(&path_of(path))
            .cloned()
    }

    /// The id of the stream's context in the filter.
    pub fn context_id(&self) -> u32 {
        self.process.world.borrow().streams[self.id].context
    }
}
