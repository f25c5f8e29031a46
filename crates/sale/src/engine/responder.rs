//! Counts decisions, and answers most requests.

use crate::admission::Rejection;
use crate::claim::ClaimId;
use crate::verdict::Verdict;
use weir_base::headers;
use weir_engine::metrics::Counters;
use weir_engine::{BatchId, Effects, StreamId};

use crate::engine::answers::Answers;
use crate::engine::config::CheckedConfig;
use crate::engine::job::Buyer;
use crate::engine::metrics::Metrics;
use crate::engine::report::{Report, SaleMark};

/// Counts decisions, and answers requests that do not continue.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) answers: Answers,
    requests: Counters<Verdict>,
    shadow: Counters<Verdict>,
    /// Counts decisions for operators, if configured.
    pub(crate) report: Option<Report>,
}

impl Responder {
    pub(crate) fn new(config: &CheckedConfig, metrics: &Metrics) -> Self {
        Self {
            answers: Answers::new(config.retry_after_s, config.static_page.clone()),
            requests: metrics.requests.clone(),
            shadow: metrics.shadow.clone(),
            report: config.report_to().map(Report::new),
        }
    }

    /// The mark of a sale id, if reports are enabled.
    pub(crate) fn mark(&self, sale: &[u8]) -> SaleMark {
        self.report.as_ref().map(|_| Report::mark(sale))
    }

    /// Whether the ended call `batch` was a report. Nothing depends on its result.
    pub(crate) fn is_report(&mut self, batch: BatchId) -> bool {
        let report = self.report.as_mut();
        report.is_some_and(|report| report.completed(batch))
    }

    /// Counts a decision. `is_shadow`: the request continues in any case.
    pub(crate) fn count(&mut self, sale: SaleMark, is_shadow: bool, verdict: Verdict) {
        match is_shadow {
            true => self.shadow.increment(verdict),
            false => self.requests.increment(verdict),
        }
        if let (Some(report), Some(sale)) = (&mut self.report, sale) {
            report.count(sale, is_shadow, verdict);
        }
    }

    /// Answers a request. A dry-run request is only counted, and continues without a claim. `order` is the user's
    /// existing order.
    pub(crate) fn reject(
        &mut self,
        stream: StreamId,
        buyer: Buyer,
        rejection: Rejection,
        order: Option<&ClaimId>,
        effects: &mut Effects,
    ) {
        self.count(buyer.sale, buyer.is_shadow, rejection.verdict);
        if !buyer.is_shadow {
            let answer = self.answers.reject(rejection, buyer.reader, order);
            return effects.respond(stream, answer);
        }
        if buyer.poses_as_gateway {
            effects.remove_gateway_headers(stream);
        }
        effects.add_header(stream, headers::SHADOW, rejection.verdict.label().into());
        effects.go_on(stream);
    }
}
