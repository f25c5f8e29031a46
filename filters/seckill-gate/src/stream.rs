//! One HTTP stream.

use std::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::{Action, Status};
use weir_core::headers;
use weir_core::verdict::Verdict;
use weir_filter_kit::host::now_ms;
use weir_filter_kit::http::{RequestHeaders, response_header, set_response_header};

use crate::NAME;
use crate::fate::{Fate, Outcome};
use crate::gate::Gate;
use crate::route::Errand;

pub(crate) struct Stream {
    id: u32,
    gate: Rc<RefCell<Gate>>,
    /// Of a request that buys.
    outcome: Option<Outcome>,
}

impl Stream {
    pub(crate) fn new(id: u32, gate: Rc<RefCell<Gate>>) -> Self {
        Self {
            id,
            gate,
            outcome: None,
        }
    }
}

impl Stream {
    /// Adds to the origin's response what only the gate knows.
    fn complete_response(&self, verdict: Verdict, status: &[u8]) -> Result<(), Status> {
        set_response_header(headers::VERDICT, verdict.word())?;
        // The origin or the way to it failed: the claim is still held, and a retry gets the same.
        let is_unknown = matches!(status, b"502" | b"503" | b"504");
        if is_unknown && response_header("retry-after").is_none() {
            set_response_header("retry-after", &self.gate.borrow().retry_after())?;
        }
        Ok(())
    }
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _num_headers: usize, _end_of_stream: bool) -> Action {
        let headers = RequestHeaders::read();
        let method = headers.get(":method").unwrap_or_default();
        let path = headers.get(":path").unwrap_or_default();
        let mut gate = self.gate.borrow_mut();
        match gate.errand(&method, &path) {
            Some(Errand::Buy(sale)) => {
                let outcome = gate.decide(self.id, sale, &headers, now_ms());
                let goes_on = outcome.get() == Some(Fate::Shadowed);
                self.outcome = Some(outcome);
                if goes_on {
                    Action::Continue
                } else {
                    Action::Pause
                }
            }
            Some(Errand::Checkout(sale)) => {
                gate.check_out(sale, &headers, now_ms());
                Action::Pause
            }
            Some(Errand::Status(sale)) => {
                gate.tell_status(sale, now_ms());
                Action::Pause
            }
            None => {
                gate.identify(&path, &headers);
                Action::Continue
            }
        }
    }

    fn on_http_response_headers(&mut self, _num_headers: usize, _end_of_stream: bool) -> Action {
        let fate = self.outcome.as_ref().and_then(|outcome| outcome.get());
        // The gate's own answers are whole already, and of a sale in shadow nothing is to be seen.
        if let Some(Fate::Passed { verdict, pass }) = fate {
            let status = response_header(":status").unwrap_or_default();
            if let Err(error) = self.complete_response(verdict, &status) {
                log::warn!("{NAME}: a response goes without its verdict: {error:?}");
            }
            // Only once: there may be informational responses before the real one.
            self.outcome = None;
            let mut gate = self.gate.borrow_mut();
            gate.overload.origin_answered(pass, &status, now_ms());
        }
        Action::Continue
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Some(outcome) = &self.outcome else { return };
        match outcome.get() {
            None => self.gate.borrow_mut().forget(self.id),
            Some(Fate::Passed { .. }) => self.gate.borrow_mut().overload.origin_left(),
            Some(Fate::Answered | Fate::Shadowed) => {}
        }
    }
}
