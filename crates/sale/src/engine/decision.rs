//! Plain results of decisions at the checkout, which the gate carries out.

use alloc::string::String;

use crate::admission::Rejection;
use crate::redis::challenge_spend::Spend;
use crate::verdict::Verdict;
use serde::Serialize;
use weir_engine::{Answer, Fetch};

use crate::engine::metrics::ChallengeOutcome;

/// A challenge as a client gets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChallengeOffer {
    /// To be sent with a counter behind it.
    ProofOfWork {
        /// The challenge.
        text: String,
        /// With how many zero bits the hash must begin.
        bits: u8,
        /// Until when it counts, in milliseconds since the Unix epoch.
        expires_at_ms: u64,
    },
    /// To be shown by the page.
    Captcha {
        /// The public key.
        site_key: String,
    },
}

/// What comes next for a shopper who asks for an order token.
#[derive(Clone, Debug)]
pub(crate) enum CheckoutStep {
    /// The shopper gets a token.
    Grant {
        /// The answer with the token.
        answer: Answer,
        /// What was decided, if the sale is in shadow: there everybody gets a token.
        in_shadow: Option<Verdict>,
    },
    /// The shopper gets a challenge.
    Challenge(ChallengeOffer),
    /// Redis is asked which token a solution leads to, of a challenge of as many bits as the sale wants.
    Spend(Spend, u8),
    /// A captcha's provider is asked.
    AskProvider(Fetch),
    /// The shopper gets no token.
    Refuse(Rejection),
}

/// What was decided on a shopper.
#[derive(Clone, Debug)]
pub(crate) struct CheckoutDecision {
    /// What comes next.
    pub(crate) step: CheckoutStep,
    /// What is counted of a challenge, if there was one.
    pub(crate) challenge: Option<ChallengeOutcome>,
}

impl From<CheckoutStep> for CheckoutDecision {
    fn from(step: CheckoutStep) -> Self {
        Self {
            step,
            challenge: None,
        }
    }
}
