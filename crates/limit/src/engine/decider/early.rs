//! Refusals from memory, for hosts that decide before their HTTP stack.

use weir_base::shared_data::SharedData;
use weir_engine::Request;

use super::Decider;
use crate::engine::answer::RefusedRequest;
use crate::engine::evaluation::Evaluation;
use crate::engine::request::RuleRequest;
use crate::engine::ruleset::{Hits, RuleHits};

/// A decision that charges no rule.
#[derive(Debug)]
pub enum EarlyVerdict {
    /// The request is refused, and counted.
    Refused(RefusedRequest),
    /// No rule matches.
    NotConcerned,
    /// [`Decider::decide`] must decide. Nothing is counted.
    Undecided,
}

impl<D: SharedData> Decider<D> {
    /// Decides on a request if no rule has to be charged.
    pub fn decide_early(&mut self, request: &dyn Request, now_ms: u64) -> EarlyVerdict {
        let mut in_shadow = alloc::vec![];
        let request_of_rules = RuleRequest::new(request, self.config.user_header.as_deref());
        let hits = self.ruleset.hits(&request_of_rules, &mut in_shadow);
        if !in_shadow.is_empty() {
            return EarlyVerdict::Undecided;
        }
        match hits {
            Err(rule) => EarlyVerdict::Refused(self.deny(rule)),
            Ok(Hits::None) if !self.is_operator(request) => EarlyVerdict::NotConcerned,
            Ok(hits) => match self.known_refusal(hits.into_lists(), now_ms) {
                Some(refused) => EarlyVerdict::Refused(refused),
                None => EarlyVerdict::Undecided,
            },
        }
    }

    /// The refusal of a local rule, or a cached one of Redis if no other rule would be charged before it.
    fn known_refusal(&mut self, hits: RuleHits, now_ms: u64) -> Option<RefusedRequest> {
        let evaluation = Evaluation::new(&self.ruleset, hits, false);
        if evaluation.needs_redis() && !self.redis.as_ref()?.is_permitting() {
            return None;
        }
        let here = evaluation.ruleset.check_all(&evaluation.local, now_ms);
        if here.iter().any(|checked| !checked.check.is_allowed()) {
            return Some(self.limit(&evaluation, &here, now_ms));
        }
        let redis = self.redis.as_mut()?;
        if !here.is_empty() || redis.has_slice(&evaluation, now_ms) {
            return None;
        }
        let existing = redis.known_refusals(&evaluation, now_ms);
        (!existing.is_empty()).then(|| self.limit(&evaluation, &existing, now_ms))
    }
}
