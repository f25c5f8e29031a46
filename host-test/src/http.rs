//! HTTP streams: what passes the filter, how the filter changes it, and how the stream ends.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the host, and must stop the test"
)]

use std::collections::{HashMap, VecDeque};
use std::fmt;

use crate::abi::{Bytes, Headers, MapType, u32_of};
use crate::process::Process;
use crate::world::{ContextId, Cost, Direction, Owner, StreamId, VmUid};

/// The received part of a request or a response.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// Headers, including pseudo-headers such as `:path` and `:status`.
    pub headers: Headers,
    /// The body so far.
    pub body: Vec<u8>,
    /// Trailers; usually empty.
    pub trailers: Headers,
    /// Whether the end has arrived.
    pub complete: bool,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("headers", &self.headers)
            .field("body", &Bytes(&self.body))
            .field("trailers", &self.trailers)
            .field("complete", &self.complete)
            .finish()
    }
}

impl Message {
    /// `:status` as a number, or 0 if it is missing or invalid.
    pub fn status(&self) -> u16 {
        let status = self.headers.text(":status");
        status.and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    /// The body as text, with replacement characters for invalid UTF-8.
    pub fn body_text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A reply to the client from the filter, or from the host on its behalf.
#[derive(Clone, PartialEq, Eq)]
pub struct LocalReply {
    /// The HTTP status.
    pub status: u16,
    /// The headers that the client gets: `:status`, Envoy's headers for a body, and the filter's own, after the
    /// filter's own response callbacks.
    pub headers: Headers,
    /// The body.
    pub body: Vec<u8>,
    /// The gRPC status, if the filter set one.
    pub grpc_status: Option<u32>,
    /// Envoy's "response code details"; `wasm_fail_stream` for a dead VM.
    pub details: String,
}

impl fmt::Debug for LocalReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalReply")
            .field("status", &self.status)
            .field("headers", &self.headers)
            .field("body", &Bytes(&self.body))
            .field("grpc_status", &self.grpc_status)
            .field("details", &self.details)
            .finish()
    }
}

impl LocalReply {
    /// Builds the headers like Envoy.
    pub(crate) fn new(
        status: u32,
        extra: Headers,
        body: Vec<u8>,
        grpc_status: i32,
        details: String,
    ) -> Self {
        let mut headers = Headers::new();
        headers.add(":status", status.to_string());
        for (name, value) in extra.iter() {
            headers.add(name, value);
        }
        if !body.is_empty() {
            headers.set("content-length", body.len().to_string());
            if headers.get("content-type").is_none() {
                headers.add("content-type", "text/plain");
            }
        }
        Self {
            status: u16::try_from(status).unwrap_or(0),
            headers,
            body,
            grpc_status: u32::try_from(grpc_status).ok(),
            details,
        }
    }

    fn vm_failed() -> Self {
        let details = "wasm_fail_stream".to_owned();
        Self::new(503, Headers::new(), Vec::new(), -1, details)
    }

    /// The body as text, with replacement characters for invalid UTF-8.
    pub fn body_text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The first value of a header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.text(name)
    }
}

/// The state of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamState {
    /// The filter pauses the request.
    Paused,
    /// The filter passed the request; this is the part that the upstream has.
    Continued(Message),
    /// The filter pauses the response.
    ResponsePaused,
    /// The client has the upstream's response, with the filter's changes.
    Responded(Message),
    /// The client has a reply from the filter, or Envoy's 503 for a dead VM.
    Replied(LocalReply),
    /// Paused in a VM that has died: nothing happens until a timeout of the route or the client.
    Hung,
    /// Reset without a complete response: by the filter, or because it replied after the response had started.
    Reset,
    /// The client has disconnected.
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Headers,
    Body,
    Trailers,
}

#[derive(Debug)]
pub(crate) enum Frame {
    Headers { end: bool },
    Body { bytes: Vec<u8>, end: bool },
    Trailers,
}

impl Frame {
    fn at(&self) -> At {
        match self {
            Self::Headers { .. } => At::Headers,
            Self::Body { .. } => At::Body,
            Self::Trailers => At::Trailers,
        }
    }
}

/// One direction of a stream.
#[derive(Debug, Default)]
pub(crate) struct Half {
    /// Frames that have arrived and were not passed to the filter.
    pub frames: VecDeque<Frame>,
    paused: Option<At>,
    headers: Headers,
    body: Vec<u8>,
    trailers: Headers,
    /// The parts that the filter may access. Envoy hides each after it has passed.
    sees: Option<At>,
    sees_headers: bool,
    /// The headers were shown to the filter and have not passed.
    holds_headers: bool,
    /// A pause at the headers only holds the headers: later frames are still shown to the filter.
    shows_body_to_held: bool,
    started: bool,
    /// The last frame was shown to the filter.
    ended: bool,
    pub passed: Message,
}

impl Half {
    pub fn visible_body(&mut self) -> Option<&mut Vec<u8>> {
        let held = self.paused == Some(At::Body);
        (held || self.sees == Some(At::Body)).then_some(&mut self.body)
    }

    pub fn push_headers(&mut self, headers: Headers, end: bool) {
        self.headers = headers;
        self.frames.push_back(Frame::Headers { end });
    }

    pub fn push_trailers(&mut self, trailers: Headers) {
        self.trailers = trailers;
        self.frames.push_back(Frame::Trailers);
    }

    /// The next frame's position and its callback's arguments after the context id.
    fn take_next(&mut self) -> Option<(At, Vec<u32>)> {
        let is_shown_more = match self.paused {
            Some(At::Headers) => self.shows_body_to_held,
            Some(At::Trailers) => false,
            Some(At::Body) | None => true,
        };
        if !is_shown_more {
            return None;
        }
        let frame = self.frames.pop_front()?;
        let at = frame.at();
        self.started = true;
        self.sees = Some(at);
        self.sees_headers |= at == At::Headers;
        self.holds_headers |= at == At::Headers;
        let args = match frame {
            Frame::Headers { end } => {
                self.ended = end;
                vec![u32_of(self.headers.len()), u32::from(end)]
            }
            Frame::Body { bytes, end } => {
                self.body.extend(bytes);
                self.ended = end;
                vec![u32_of(self.body.len()), u32::from(end)]
            }
            Frame::Trailers => {
                self.ended = true;
                vec![u32_of(self.trailers.len())]
            }
        };
        Some((at, args))
    }

    fn pause(&mut self, at: At) {
        self.paused = Some(at);
    }

    /// Passes everything up to `at`.
    fn pass(&mut self, at: At) {
        self.paused = None;
        self.sees = None;
        self.sees_headers = false;
        // They may have been held until now.
        if std::mem::take(&mut self.holds_headers) {
            self.passed.headers = self.headers.clone();
        }
        match at {
            At::Headers => {}
            At::Body => self.passed.body.append(&mut self.body),
            At::Trailers => {
                self.passed.body.append(&mut self.body);
                self.passed.trailers = self.trailers.clone();
            }
        }
        self.passed.complete = self.ended;
    }
}

/// How a stream ended without a complete response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Answered,
    Reset,
    Gone,
}

/// The host's side of one HTTP stream.
pub(crate) struct HttpStream {
    pub vm: VmUid,
    pub context: ContextId,
    pub request: Half,
    pub response: Half,
    pub replied: Option<LocalReply>,
    /// The filter has called `proxy_send_local_response` for it.
    pub answer_queued: bool,
    pub end: Option<End>,
    /// `proxy_on_log` is running: headers are readable again.
    logging: bool,
    pub properties: HashMap<Vec<u8>, Vec<u8>>,
    pub cost: Cost,
}

impl HttpStream {
    fn half(&mut self, direction: Direction) -> &mut Half {
        match direction {
            Direction::Request => &mut self.request,
            Direction::Response => &mut self.response,
        }
    }

    pub fn readable(&self, map: MapType) -> Option<&Headers> {
        let (request, response) = (&self.request, &self.response);
        match map {
            MapType::RequestHeaders => {
                (request.sees_headers || self.logging).then_some(&request.headers)
            }
            MapType::ResponseHeaders => {
                let logged = self.logging && response.started;
                (response.sees_headers || logged).then_some(&response.headers)
            }
            MapType::RequestTrailers => {
                (request.sees == Some(At::Trailers)).then_some(&request.trailers)
            }
            MapType::ResponseTrailers => {
                let logged = self.logging && response.started;
                (response.sees == Some(At::Trailers) || logged).then_some(&response.trailers)
            }
            _ => None,
        }
    }

    pub fn writable(&mut self, map: MapType) -> Option<&mut Headers> {
        let (request, response) = (&mut self.request, &mut self.response);
        match map {
            MapType::RequestHeaders if request.sees_headers => Some(&mut request.headers),
            MapType::ResponseHeaders if response.sees_headers => Some(&mut response.headers),
            MapType::RequestTrailers if request.sees == Some(At::Trailers) => {
                Some(&mut request.trailers)
            }
            MapType::ResponseTrailers if response.sees == Some(At::Trailers) => {
                Some(&mut response.trailers)
            }
            _ => None,
        }
    }

    /// The status of the response, after its head has been sent to the client.
    pub fn response_code(&self) -> Option<u16> {
        let passed = &self.response.passed;
        passed.headers.get(":status").map(|_| passed.status())
    }

    /// The state for tests; `alive` is the VM's.
    pub fn state(&self, alive: bool) -> StreamState {
        match self.end {
            Some(End::Gone) => return StreamState::Gone,
            Some(End::Reset) => return StreamState::Reset,
            Some(End::Answered) | None => {}
        }
        let paused = if alive { None } else { Some(StreamState::Hung) };
        if self.response.paused.is_some() {
            return paused.unwrap_or(StreamState::ResponsePaused);
        }
        if let Some(reply) = &self.replied {
            return StreamState::Replied(reply.clone());
        }
        if self.response.passed.complete {
            return StreamState::Responded(self.response.passed.clone());
        }
        if self.request.paused.is_some() {
            return paused.unwrap_or(StreamState::Paused);
        }
        StreamState::Continued(self.request.passed.clone())
    }
}

fn callback_name(direction: Direction, at: At) -> &'static str {
    match (direction, at) {
        (Direction::Request, At::Headers) => "proxy_on_request_headers",
        (Direction::Request, At::Body) => "proxy_on_request_body",
        (Direction::Request, At::Trailers) => "proxy_on_request_trailers",
        (Direction::Response, At::Headers) => "proxy_on_response_headers",
        (Direction::Response, At::Body) => "proxy_on_response_body",
        (Direction::Response, At::Trailers) => "proxy_on_response_trailers",
    }
}

impl Process {
    /// A new, empty stream in `vm`.
    pub(crate) fn open_stream(
        &self,
        vm: VmUid,
        root: ContextId,
        properties: HashMap<Vec<u8>, Vec<u8>>,
    ) -> StreamId {
        let (id, context) = {
            let world = &mut *self.world.borrow_mut();
            let id = world.streams.len();
            let state = world.vm(vm);
            let context = state.add_context(Owner::Http(id), Some(root));
            let half = |shows_body_to_held| Half {
                shows_body_to_held,
                ..Half::default()
            };
            let shows_body_to_held = state.shows_body_to_held;
            world.streams.push(HttpStream {
                vm,
                context,
                request: half(shows_body_to_held),
                response: half(shows_body_to_held),
                replied: None,
                answer_queued: false,
                end: None,
                logging: false,
                properties,
                cost: Cost::default(),
            });
            (id, context)
        };
        if self
            .stream_callback(id, "proxy_on_context_create", &[context, root])
            .is_none()
        {
            self.fail_stream(id);
        }
        id
    }

    /// The callback's result; `None` if the VM is dead and the policy does not ignore that.
    fn stream_callback(&self, id: StreamId, name: &'static str, args: &[u32]) -> Option<u32> {
        let (vm, context) = {
            let world = self.world.borrow();
            (world.streams[id].vm, world.streams[id].context)
        };
        let result = self.callback(vm, context, name, args);
        result.ok().or_else(|| self.fails_open(vm).then_some(0))
    }

    /// Passes arrived frames to the filter until it pauses.
    pub(crate) fn pump(&self, id: StreamId, direction: Direction) {
        while let Some((at, args)) = self.next_frame(id, direction) {
            let result = self.stream_callback(id, callback_name(direction, at), &args);
            let Some(result) = result else {
                return self.fail_stream(id);
            };
            let mut world = self.world.borrow_mut();
            let stream = &mut world.streams[id];
            // The callback answered or ended the stream.
            let replied = direction == Direction::Request && stream.replied.is_some();
            if stream.end.is_some() || replied {
                return;
            }
            let half = stream.half(direction);
            if result == 0 {
                half.pass(at);
            } else {
                half.pause(at);
            }
        }
        self.finish_if_answered(id);
    }

    fn next_frame(&self, id: StreamId, direction: Direction) -> Option<(At, Vec<u32>)> {
        let mut world = self.world.borrow_mut();
        let stream = &mut world.streams[id];
        let replied = direction == Direction::Request && stream.replied.is_some();
        if stream.end.is_some() || replied {
            return None;
        }
        let context = stream.context;
        let (at, mut args) = stream.half(direction).take_next()?;
        args.insert(0, context);
        Some((at, args))
    }

    fn finish_if_answered(&self, id: StreamId) {
        let answered = self.world.borrow().streams[id].response.passed.complete;
        if answered {
            self.publish_reply(id);
            self.end_stream(id, End::Answered);
        }
    }

    /// Sends a local reply, with the changes of the filter's own response callbacks.
    fn publish_reply(&self, id: StreamId) {
        let mut world = self.world.borrow_mut();
        let stream = &mut world.streams[id];
        if let Some(reply) = &mut stream.replied {
            let passed = &stream.response.passed;
            reply.headers = passed.headers.clone();
            reply.body = passed.body.clone();
            reply.status = passed.status();
        }
    }

    /// `proxy_continue_stream`. It has no effect on a stream that is not paused yet: a filter that resumes and *then*
    /// returns "pause" hangs, as in Envoy.
    pub(crate) fn resume(&self, id: StreamId, direction: Direction) {
        {
            let mut world = self.world.borrow_mut();
            let stream = &mut world.streams[id];
            if stream.end.is_some() {
                return;
            }
            // Envoy hides the request's parts in both directions.
            stream.request.sees = None;
            stream.request.sees_headers = false;
            let half = stream.half(direction);
            if let Some(at) = half.paused {
                half.pass(at);
            }
        }
        self.pump(id, direction);
    }

    /// `proxy_send_local_response`: the reply passes the filter's response callbacks, unless a response has started. If
    /// the client has part of that already, the stream is reset.
    pub(crate) fn reply(&self, id: StreamId, reply: LocalReply) {
        let (started, sent) = {
            let world = self.world.borrow();
            let stream = &world.streams[id];
            if stream.end.is_some() {
                return;
            }
            let response = &stream.response;
            (response.started, !response.passed.headers.is_empty())
        };
        if sent {
            return self.reset(id);
        }
        if started {
            return self.reply_directly(id, reply);
        }
        {
            let mut world = self.world.borrow_mut();
            let stream = &mut world.streams[id];
            stream.request.frames.clear();
            stream.request.paused = None;
            let (headers, body) = (reply.headers.clone(), reply.body.clone());
            stream.response.push_headers(headers, body.is_empty());
            if !body.is_empty() {
                let frame = Frame::Body {
                    bytes: body,
                    end: true,
                };
                stream.response.frames.push_back(frame);
            }
            stream.replied = Some(reply);
        }
        self.pump(id, Direction::Response);
    }

    fn reply_directly(&self, id: StreamId, reply: LocalReply) {
        {
            let mut world = self.world.borrow_mut();
            let stream = &mut world.streams[id];
            if stream.end.is_some() {
                return;
            }
            stream.request.paused = None;
            let response = &mut stream.response;
            response.paused = None;
            response.frames.clear();
            response.headers = reply.headers.clone();
            stream.replied = Some(reply);
        }
        self.end_stream(id, End::Answered);
    }

    /// The VM is dead: Envoy answers 503, or resets a response that has started.
    fn fail_stream(&self, id: StreamId) {
        let sent = !self.world.borrow().streams[id]
            .response
            .passed
            .headers
            .is_empty();
        if sent {
            self.reset(id);
        } else {
            self.reply_directly(id, LocalReply::vm_failed());
        }
    }

    pub(crate) fn reset(&self, id: StreamId) {
        self.end_stream(id, End::Reset);
    }

    /// Envoy's order: log, done, delete. Only the log has access to headers again.
    pub(crate) fn end_stream(&self, id: StreamId, end: End) {
        let (vm, context) = {
            let mut world = self.world.borrow_mut();
            let stream = &mut world.streams[id];
            if stream.end.is_some() {
                return;
            }
            stream.end = Some(end);
            stream.logging = true;
            (stream.vm, stream.context)
        };
        self.stream_callback(id, "proxy_on_log", &[context]);
        self.world.borrow_mut().streams[id].logging = false;
        self.stream_callback(id, "proxy_on_done", &[context]);
        self.stream_callback(id, "proxy_on_delete", &[context]);
        self.world.borrow_mut().vm(vm).contexts.remove(&context);
    }
}
