//! Refusals and statuses that need only the catalogue, for hosts that answer before their HTTP stack.

use weir_base::shared_data::SharedData;
use weir_engine::{EarlyDecision, Request};

use crate::engine::buy::Purchase;
use crate::engine::gate::Gate;
use crate::engine::limits::Limits;
use crate::engine::route::RouteKind;

impl<D: SharedData + Clone> Gate<D> {
    /// See [`weir_engine::Engine::decide_early`]. Requests that may be granted, charge a limit or need a signature stay
    /// undecided.
    pub(crate) fn early_decision(
        &mut self,
        request: &dyn Request,
        trusts_user: bool,
    ) -> EarlyDecision {
        let headers = request.headers();
        if self.config.edges.stamped(request).is_some() || headers.pose_as_gateway() {
            return EarlyDecision::Undecided;
        }
        let method = headers.get(":method").unwrap_or_default();
        let path = headers.get(":path").unwrap_or_default();
        let Some(kind) = self.config.route_kind(&method, &path) else {
            return match self.identification.concerns(&path) {
                true => EarlyDecision::Undecided,
                false => EarlyDecision::NotConcerned,
            };
        };
        if self.sales.catalogue.is_none() {
            return EarlyDecision::Undecided;
        }
        match kind {
            RouteKind::Status(sale) => EarlyDecision::Answer(self.status(sale, request)),
            // The host has not selected its route yet.
            RouteKind::Buy(sale) if self.config.must_go_via(&method, &path).is_none() => {
                self.refuse_early(sale, request, trusts_user)
            }
            RouteKind::Buy(_) | RouteKind::Checkout(_) | RouteKind::NormalOrder => {
                EarlyDecision::Undecided
            }
        }
    }

    fn refuse_early(
        &mut self,
        sale: &[u8],
        request: &dyn Request,
        trusts_user: bool,
    ) -> EarlyDecision {
        let purchase = Purchase {
            config: &self.config,
            sales: &self.sales,
            checkout: &self.checkout,
            limits: None::<&Limits<D>>,
            request,
            now_ms: request.now_ms(),
        };
        let mark = self.responder.mark(sale);
        let refused = match trusts_user {
            true => match purchase.decide(sale, mark) {
                (buyer, Err(rejection)) => Some((buyer, rejection)),
                (_, Ok(_)) => None,
            },
            false => purchase.refusal_of_all(sale, mark),
        };
        let Some((buyer, rejection)) = refused else {
            return EarlyDecision::Undecided;
        };
        // After a 400, hosts close the connection in their HTTP stack.
        let is_malformed = rejection.verdict.status() == Some(400);
        if buyer.is_shadow || is_malformed {
            return EarlyDecision::Undecided;
        }
        self.responder.count(buyer.sale, false, rejection.verdict);
        let answers = &mut self.responder.answers;
        EarlyDecision::Answer(answers.reject(rejection, buyer.reader, None))
    }
}
