//! One HTTP stream.

use std::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;
use weir_filter_kit::host::now_ms;
use weir_filter_kit::http::set_response_header;

use crate::NAME;
use crate::case::{Fate, Outcome};
use crate::limiter::Limiter;

pub(crate) struct Stream {
    id: u32,
    limiter: Rc<RefCell<Limiter>>,
    /// From the request's headers on.
    outcome: Option<Outcome>,
}

impl Stream {
    pub(crate) fn new(id: u32, limiter: Rc<RefCell<Limiter>>) -> Self {
        Self {
            id,
            limiter,
            outcome: None,
        }
    }
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _num_headers: usize, _end_of_stream: bool) -> Action {
        let outcome = self.limiter.borrow_mut().decide(self.id, now_ms());
        let is_passed = matches!(*outcome.borrow(), Fate::Passed(_));
        self.outcome = Some(outcome);
        match is_passed {
            true => Action::Continue,
            false => Action::Pause,
        }
    }

    fn on_http_response_headers(&mut self, _num_headers: usize, _end_of_stream: bool) -> Action {
        if let Some(outcome) = &self.outcome
            && let Fate::Passed(passed) = &*outcome.borrow()
        {
            for (name, value) in &passed.headers {
                if let Err(status) = set_response_header(name, value) {
                    log::warn!("{NAME}: a response goes without its {name}: {status:?}");
                }
            }
        }
        Action::Continue
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Some(outcome) = self.outcome.take() else {
            return;
        };
        let mut limiter = self.limiter.borrow_mut();
        match outcome.take() {
            Fate::Waiting => limiter.forget(self.id),
            Fate::Passed(passed) => limiter.ended(passed, now_ms()),
            Fate::Answered => {}
        }
    }
}
