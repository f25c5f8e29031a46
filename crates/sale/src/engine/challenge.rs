//! The proof of work that a checkout may want before it gives an order token.
//!
//! A shopper without a solution, or with one that does not count, gets the challenge. A solved challenge leads to one token,
//! at every gateway and however often it is sent: Redis notes when that token was minted, and the same shopper gets it
//! again. A lost answer costs nobody a second challenge.

use crate::challenge::{self, SKEW_MS};
use crate::redis::challenge_spend::Spend;
use weir_base::id::{SaleId, UserId};
use weir_base::key::KeyRing;

use crate::engine::decision::{ChallengeOffer, CheckoutDecision, CheckoutStep};
use crate::engine::metrics::ChallengeOutcome;

/// The work that a sale wants of one user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProofOfWork<'a> {
    /// With which challenges are signed.
    pub(crate) keys: &'a KeyRing,
    /// The sale.
    pub(crate) sale: &'a SaleId,
    /// The user.
    pub(crate) user: &'a UserId,
    /// How many zero bits the sale wants.
    pub(crate) bits: u8,
    /// The time.
    pub(crate) now_ms: u64,
}

impl ProofOfWork<'_> {
    /// A new challenge.
    pub(crate) fn offer(&self) -> ChallengeOffer {
        ChallengeOffer::ProofOfWork {
            text: challenge::ask(self.keys, self.sale, self.user, self.bits, self.now_ms),
            bits: self.bits,
            expires_at_ms: self.now_ms.saturating_add(challenge::VALID_MS),
        }
    }

    /// Decides on a request with this solution, if it has one.
    pub(crate) fn decide(&self, solution: Option<&[u8]>) -> CheckoutDecision {
        let (bits, now_ms) = (self.bits, self.now_ms);
        let checked = solution.map(|solution| {
            challenge::check(self.keys, solution, self.sale, self.user, bits, now_ms)
        });
        let outcome = match checked {
            Some(Ok(solved)) => {
                let left_ms = solved.expires_at_ms.saturating_sub(now_ms);
                let spend = Spend {
                    name: solved.name,
                    now_ms,
                    // Other gateways' clocks may be behind.
                    keep_ms: left_ms.saturating_add(SKEW_MS),
                };
                return CheckoutStep::Spend(spend, bits).into();
            }
            Some(Err(error)) => ChallengeOutcome::Failed(error),
            None => ChallengeOutcome::Asked,
        };
        CheckoutDecision {
            step: CheckoutStep::Challenge(self.offer()),
            challenge: Some(outcome),
        }
    }
}
