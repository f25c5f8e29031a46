//! One HTTP stream.

use std::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::{Action, BufferType};
use weir_engine::Engine;

use crate::worker::{Flow, Worker};

/// One HTTP stream: forwards callbacks to the worker.
///
/// Only filters with `proxy_on_request_body` and `proxy_on_request_trailers` among their callbacks receive bodies, and
/// from Envoy only with `allow_on_headers_stop_iteration`. Without it a request that is paused at its head gets no
/// further callback. Such a filter must read the body of each request that it pauses.
pub(crate) struct Stream<E: Engine> {
    id: u32,
    worker: Rc<RefCell<Worker<E>>>,
    /// Whether the engine needs the stream's end.
    is_open: bool,
    /// The maximum body size in bytes, while the engine waits for the body.
    reads: Option<usize>,
    /// The action for parts of the request that the engine did not request: the same as for the previous part.
    action: Action,
}

impl<E: Engine> Stream<E> {
    pub(crate) fn new(id: u32, worker: Rc<RefCell<Worker<E>>>) -> Self {
        Self {
            id,
            worker,
            is_open: false,
            reads: None,
            action: Action::Continue,
        }
    }

    fn follow(&mut self, flow: Flow) -> Action {
        let (action, is_open) = match flow {
            Flow::Waits | Flow::Reads { .. } => (Action::Pause, true),
            Flow::Answered => (Action::Pause, false),
            Flow::GoesOn { is_over } => (Action::Continue, !is_over),
        };
        self.is_open = is_open;
        self.action = action;
        action
    }

    /// Passes the requested body to the engine.
    fn deliver(&mut self, body: Option<&[u8]>) -> Action {
        self.reads = None;
        let flow = self.worker.borrow_mut().on_body(self.id, body);
        self.follow(flow)
    }

    fn deliver_buffered(&mut self, bytes_max: usize) -> Action {
        let buffer = BufferType::HttpRequestBody;
        // One byte more than the maximum shows whether the body is too long.
        let most = bytes_max.saturating_add(1);
        let body = hostcalls::get_buffer(buffer, 0, most).ok().flatten();
        let body = body.unwrap_or_default();
        self.deliver((body.len() <= bytes_max).then_some(&body))
    }
}

impl<E: Engine> Context for Stream<E> {}

impl<E: Engine> HttpContext for Stream<E> {
    fn on_http_request_headers(&mut self, _num_headers: usize, end_of_stream: bool) -> Action {
        let flow = self.worker.borrow_mut().on_request(self.id);
        let action = self.follow(flow);
        match flow {
            Flow::Reads { .. } if end_of_stream => self.deliver(Some(&[])),
            Flow::Reads { bytes_max } => {
                self.reads = Some(bytes_max);
                action
            }
            _ => action,
        }
    }

    fn on_http_request_body(&mut self, body_size: usize, end_of_stream: bool) -> Action {
        match self.reads {
            Some(bytes_max) if body_size > bytes_max => self.deliver(None),
            Some(bytes_max) if end_of_stream => self.deliver_buffered(bytes_max),
            _ => self.action,
        }
    }

    fn on_http_request_trailers(&mut self, _num_trailers: usize) -> Action {
        match self.reads {
            Some(bytes_max) => self.deliver_buffered(bytes_max),
            None => self.action,
        }
    }

    fn on_http_response_headers(&mut self, _num_headers: usize, _end_of_stream: bool) -> Action {
        self.worker.borrow_mut().on_response(self.id);
        Action::Continue
    }
}

impl<E: Engine> Drop for Stream<E> {
    fn drop(&mut self) {
        if self.is_open {
            self.worker.borrow_mut().on_closed(self.id);
        }
    }
}
