//! One HTTP stream.

use std::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;
use weir_filter_kit::host::now_ms;
use weir_filter_kit::http::set_response_header;

use crate::NAME;
use crate::evaluation::{Passed, RequestState, StateHandle};
use crate::limiter::Limiter;

pub(crate) struct Stream {
    id: u32,
    limiter: Rc<RefCell<Limiter>>,
    /// From the request's headers on.
    held: Option<StateHandle>,
}

impl Stream {
    pub(crate) fn new(id: u32, limiter: Rc<RefCell<Limiter>>) -> Self {
        Self {
            id,
            limiter,
            held: None,
        }
    }
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _num_headers: usize, _end_of_stream: bool) -> Action {
        let held = self.limiter.borrow_mut().decide(self.id, now_ms());
        let is_passed = match &held {
            StateHandle::Owned(outcome) => matches!(outcome, RequestState::Passed(_)),
            StateHandle::Shared(outcome) => matches!(*outcome.borrow(), RequestState::Passed(_)),
        };
        self.held = Some(held);
        match is_passed {
            true => Action::Continue,
            false => Action::Pause,
        }
    }

    fn on_http_response_headers(&mut self, _num_headers: usize, _end_of_stream: bool) -> Action {
        // Where there is something to say, the outcome is shared.
        if let Some(StateHandle::Shared(outcome)) = &self.held
            && let RequestState::Passed(passed) = &*outcome.borrow()
        {
            add_headers(passed);
        }
        Action::Continue
    }
}

fn add_headers(passed: &Passed) {
    for (name, value) in &passed.headers {
        if let Err(status) = set_response_header(name, value) {
            log::warn!("{NAME}: a response goes without its {name}: {status:?}");
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let outcome = match self.held.take() {
            None => return,
            Some(StateHandle::Owned(outcome)) => outcome,
            Some(StateHandle::Shared(outcome)) => outcome.take(),
        };
        match outcome {
            RequestState::Waiting => self.limiter.borrow_mut().forget(self.id),
            RequestState::Passed(passed) if passed.is_over() => {}
            RequestState::Passed(passed) => self.limiter.borrow_mut().ended(passed, now_ms()),
            RequestState::Answered => {}
        }
    }
}
