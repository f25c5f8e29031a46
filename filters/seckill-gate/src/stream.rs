//! One HTTP stream.

use std::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;
use weir_filter_kit::host::now_ms;
use weir_filter_kit::http::RequestHeaders;

use crate::gate::Gate;
use crate::request_outcome::{OutcomeCell, RequestOutcome};
use crate::route::RouteKind;

pub(crate) struct Stream {
    id: u32,
    gate: Rc<RefCell<Gate>>,
    /// Of a request that buys.
    outcome: Option<OutcomeCell>,
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

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _num_headers: usize, _end_of_stream: bool) -> Action {
        let headers = RequestHeaders::read();
        let method = headers.get(":method").unwrap_or_default();
        let path = headers.get(":path").unwrap_or_default();
        let mut gate = self.gate.borrow_mut();
        match gate.route_kind(&method, &path) {
            Some(RouteKind::Buy(sale)) => {
                let outcome = gate.decide(self.id, sale, &headers, now_ms());
                let goes_on = outcome.get() == Some(RequestOutcome::Shadowed);
                self.outcome = Some(outcome);
                if goes_on {
                    Action::Continue
                } else {
                    Action::Pause
                }
            }
            Some(RouteKind::Checkout(sale)) => {
                gate.check_out(sale, &headers, now_ms());
                Action::Pause
            }
            Some(RouteKind::Status(sale)) => {
                gate.tell_status(sale, now_ms());
                Action::Pause
            }
            None => {
                gate.identify(&path, &headers);
                Action::Continue
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Some(outcome) = &self.outcome else { return };
        match outcome.get() {
            None => self.gate.borrow_mut().forget(self.id),
            Some(RequestOutcome::Passed(pass)) => {
                let overload = &mut self.gate.borrow_mut().overload;
                let count = overload.origin_is_done(pass);
                if count > 0
                    && let Some(status) = response_status()
                {
                    overload.origin_answered(pass, status, count, now_ms());
                }
            }
            Some(RequestOutcome::Answered | RequestOutcome::Shadowed) => {}
        }
    }
}

/// The status of the response that the effective context's client got, if it got one.
/// `None` if the client went before there was one.
fn response_status() -> Option<u64> {
    let status = hostcalls::get_property(vec!["response", "code"]).ok()??;
    let status = u64::from_le_bytes(status.try_into().ok()?);
    (status != 0).then_some(status)
}
