//! One HTTP stream.

use std::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;
use weir_engine::Engine;

use crate::worker::{Flow, Worker};

/// One HTTP stream: it only passes callbacks on.
pub(crate) struct Stream<E: Engine> {
    id: u32,
    worker: Rc<RefCell<Worker<E>>>,
    /// Whether the engine is to be told of its end.
    is_open: bool,
}

impl<E: Engine> Stream<E> {
    pub(crate) fn new(id: u32, worker: Rc<RefCell<Worker<E>>>) -> Self {
        Self {
            id,
            worker,
            is_open: false,
        }
    }
}

impl<E: Engine> Context for Stream<E> {}

impl<E: Engine> HttpContext for Stream<E> {
    fn on_http_request_headers(&mut self, _num_headers: usize, _end_of_stream: bool) -> Action {
        let flow = self.worker.borrow_mut().on_request(self.id);
        let (action, is_open) = match flow {
            Flow::Waits => (Action::Pause, true),
            Flow::Answered => (Action::Pause, false),
            Flow::GoesOn { is_over } => (Action::Continue, !is_over),
        };
        self.is_open = is_open;
        action
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
