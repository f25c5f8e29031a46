//! One HTTP stream.

use std::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;
use weir_filter_kit::host::now_ms;

use crate::links::{Decision, Links};

pub(crate) struct Stream {
    id: u32,
    links: Rc<RefCell<Links>>,
    /// Whether it had to wait.
    has_waited: bool,
}

impl Stream {
    pub(crate) fn new(id: u32, links: Rc<RefCell<Links>>) -> Self {
        Self {
            id,
            links,
            has_waited: false,
        }
    }
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _num_headers: usize, _end_of_stream: bool) -> Action {
        let decision = self.links.borrow_mut().decide(self.id, now_ms());
        self.has_waited = decision == Decision::Waiting;
        match decision {
            Decision::Passed => Action::Continue,
            Decision::Answered | Decision::Waiting => Action::Pause,
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.has_waited {
            self.links.borrow_mut().forget(self.id);
        }
    }
}
