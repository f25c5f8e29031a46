//! One HTTP stream.

use std::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::{Action, BufferType};
use weir_engine::Engine;

use crate::worker::{Flow, Worker};

/// One HTTP stream: it only passes callbacks on.
///
/// Bodies come only to filters that name `proxy_on_request_body` and `proxy_on_request_trailers` among their callbacks, and
/// from Envoy only with `allow_on_headers_stop_iteration`: without it a request that is held back at its head gets no
/// further callback. Such a filter must read the body of each request that it holds back.
pub(crate) struct Stream<E: Engine> {
    id: u32,
    worker: Rc<RefCell<Worker<E>>>,
    /// Whether the engine is to be told of its end.
    is_open: bool,
    /// The engine waits for the body, of at most so many bytes.
    reads: Option<usize>,
    /// What a part of the request that the engine did not ask for does: as the one before it.
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

    /// Gives the engine the body that it waits for.
    fn deliver(&mut self, body: Option<&[u8]>) -> Action {
        self.reads = None;
        let flow = self.worker.borrow_mut().on_body(self.id, body);
        self.follow(flow)
    }

    fn deliver_buffered(&mut self, bytes_max: usize) -> Action {
        let buffer = BufferType::HttpRequestBody;
        // One byte more than is wanted tells whether there are more.
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
