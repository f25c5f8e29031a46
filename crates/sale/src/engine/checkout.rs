//! Order tokens: minted at the checkout, verified with each order.
//!
//! A sale may require a challenge first: a proof of work or a CAPTCHA. A shopper without a valid solution gets the
//! challenge. A solved proof of work leads to one token, at every gateway and for every retry. Redis stores when that
//! token was minted, and the same shopper gets it again. So a lost answer requires no second challenge.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use crate::admission::{Rejection, admit_to_checkout};
use crate::challenge::{self, Challenge, SKEW_MS};
use crate::redis::challenge_spend::SolutionSpend;
use crate::sale::{Sale, SaleState};
use crate::token::{self, TokenError};
use crate::verdict::Verdict;
use serde::Serialize;
use weir_base::headers::{self, SOLUTION};
use weir_base::id::{SaleId, UserId};
use weir_base::shared_data::SharedData;
use weir_engine::metrics::Counters;
use weir_engine::page::Reader;
use weir_engine::{Answer, Request};

use crate::engine::answers::reader_of;
use crate::engine::captcha::Captchas;
use crate::engine::config::{CheckedConfig, TokenSettings};
use crate::engine::identify::read_user;
use crate::engine::job::{Shopper, SpendJob};
use crate::engine::limits::Limits;
use crate::engine::metrics::{ChallengeOutcome, Metrics};
use crate::engine::sales::Sales;

/// The checkout's response with a token.
#[derive(Debug, Serialize)]
struct MintedToken {
    token: String,
    /// When it becomes valid, in milliseconds since the Unix epoch.
    usable_at_ms: u64,
    /// When it expires.
    expires_at_ms: u64,
    /// The gateway's time, because clients' clocks may be wrong.
    now_ms: u64,
}

/// A challenge for a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChallengeOffer {
    /// A proof of work; the solution is the text and a counter.
    ProofOfWork {
        /// The challenge.
        text: String,
        /// The number of leading zero bits in the hash.
        bits: u8,
        /// When it expires, in milliseconds since the Unix epoch.
        expires_at_ms: u64,
    },
    /// A CAPTCHA for the page to show.
    Captcha {
        /// The public key.
        site_key: String,
    },
}

impl ChallengeOffer {
    fn work(settings: &TokenSettings, sale: &SaleId, user: &UserId, bits: u8, now_ms: u64) -> Self {
        Self::ProofOfWork {
            text: challenge::ask(&settings.keys, sale, user, bits, now_ms),
            bits,
            expires_at_ms: now_ms.saturating_add(challenge::VALID_MS),
        }
    }
}

/// The next step for a request for an order token.
#[derive(Debug)]
pub(crate) enum CheckoutStep {
    /// Issue a token.
    Mint {
        /// The token's time.
        at_ms: u64,
        /// The actual decision, if the sale is in dry-run mode: there every shopper gets a token, because only the gate
        /// could answer.
        in_shadow: Option<Verdict>,
    },
    /// Send a challenge.
    Challenge(ChallengeOffer),
    /// Redis decides which token belongs to a solution. The number is the challenge's bits.
    Spend(SolutionSpend, u8),
    /// The CAPTCHA provider verifies a solution.
    CheckCaptcha {
        /// The captcha's response.
        solution: String,
        /// The client's address.
        address: Vec<u8>,
    },
    /// Refuse the token.
    Refuse(Rejection),
}

/// Issues and verifies order tokens.
#[derive(Debug)]
pub(crate) struct Checkout {
    config: Arc<CheckedConfig>,
    pub(crate) captchas: Captchas,
    challenges: Counters<ChallengeOutcome>,
    tokens_refused: Counters<TokenError>,
}

impl Checkout {
    pub(crate) fn new(config: Arc<CheckedConfig>, metrics: &Metrics) -> Self {
        Self {
            captchas: Captchas::new(config.captcha.clone(), metrics.challenges.clone()),
            challenges: metrics.challenges.clone(),
            tokens_refused: metrics.tokens_refused.clone(),
            config,
        }
    }

    /// Decides on a request for a token of `sale`.
    ///
    /// # Errors
    /// The rejection before any challenge.
    pub(crate) fn decide<D: SharedData + Clone>(
        &self,
        sales: &Sales,
        limits: &Limits<D>,
        sale: &[u8],
        request: &dyn Request,
        now_ms: u64,
    ) -> Result<(Shopper, CheckoutStep), Rejection> {
        let (switch, sale) = sales.find(sale)?;
        let user = read_user(request.headers().get(&self.config.user_header))?;
        let settings = self.settings()?;
        let if_empty = sales.without_units(sale, now_ms);
        let decided = admit_to_checkout(switch, sale, &user, &sales.memory, if_empty, now_ms)
            .and_then(|()| sales.check_signer())
            .and_then(|()| limits.check(Some(&user), request, now_ms));
        let step = match (switch, decided) {
            (SaleState::Shadow, decided) => CheckoutStep::Mint {
                at_ms: now_ms,
                in_shadow: Some(match decided {
                    Err(rejection) => rejection.verdict,
                    Ok(()) if sale.challenge.is_some() => Verdict::ChallengeRequired,
                    Ok(()) => Verdict::TokenMinted,
                }),
            },
            (_, Err(rejection)) => return Err(rejection),
            (_, Ok(())) => self.challenge(settings, sale, &user, request, now_ms),
        };
        let reader = match step {
            // A token is the same for all readers.
            CheckoutStep::Mint { .. } => Reader::default(),
            _ => reader_of(request),
        };
        let sale = sale.id.clone();
        Ok((Shopper { sale, user, reader }, step))
    }

    /// A gateway without keys has no checkout route.
    fn settings(&self) -> Result<&TokenSettings, Verdict> {
        self.config.token.as_ref().ok_or(Verdict::Unavailable)
    }

    /// The step before a token of `sale`, if a challenge is required.
    fn challenge(
        &self,
        settings: &TokenSettings,
        sale: &Sale,
        user: &UserId,
        request: &dyn Request,
        now_ms: u64,
    ) -> CheckoutStep {
        let bits = match sale.challenge {
            Some(Challenge::ProofOfWork { bits }) => bits,
            Some(Challenge::Captcha {}) => return self.captchas.decide(request),
            None => {
                return CheckoutStep::Mint {
                    at_ms: now_ms,
                    in_shadow: None,
                };
            }
        };
        let solution = request.header(SOLUTION);
        let checked = solution.map(|solution| {
            challenge::check(&settings.keys, &solution, &sale.id, user, bits, now_ms)
        });
        let outcome = match checked {
            Some(Ok(solved)) => {
                let left_ms = solved.expires_at_ms.saturating_sub(now_ms);
                let spend = SolutionSpend {
                    name: solved.name,
                    now_ms,
                    // Other gateways' clocks may be slow.
                    keep_ms: left_ms.saturating_add(SKEW_MS),
                };
                return CheckoutStep::Spend(spend, bits);
            }
            Some(Err(error)) => ChallengeOutcome::Failed(error),
            None => ChallengeOutcome::Asked,
        };
        self.challenges.increment(outcome);
        let offer = ChallengeOffer::work(settings, &sale.id, user, bits, now_ms);
        CheckoutStep::Challenge(offer)
    }

    /// Handles the time, from Redis, when the token of a solution was minted: now or earlier.
    pub(crate) fn spent(&self, job: &SpendJob, minted_at_ms: u64, now_ms: u64) -> CheckoutStep {
        let outcome = match minted_at_ms == job.spend.now_ms {
            true => ChallengeOutcome::Solved,
            false => ChallengeOutcome::Again,
        };
        self.challenges.increment(outcome);
        let Shopper { sale, user, .. } = &job.shopper;
        match &self.config.token {
            // A token may expire before its challenge; an expired one is useless.
            Some(settings) if now_ms.saturating_sub(minted_at_ms) > settings.ages.max_ms => {
                let offer = ChallengeOffer::work(settings, sale, user, job.bits, now_ms);
                CheckoutStep::Challenge(offer)
            }
            _ => CheckoutStep::Mint {
                at_ms: minted_at_ms,
                in_shadow: None,
            },
        }
    }

    /// The response with the shopper's token of `at_ms`.
    pub(crate) fn mint(
        &self,
        shopper: &Shopper,
        at_ms: u64,
        now_ms: u64,
    ) -> Result<Answer, Rejection> {
        let TokenSettings { keys, ages } = self.settings()?;
        let minted = MintedToken {
            token: token::mint(keys, &shopper.sale, &shopper.user, at_ms),
            usable_at_ms: at_ms.saturating_add(ages.min_ms),
            expires_at_ms: at_ms.saturating_add(ages.max_ms),
            now_ms,
        };
        let headers = vec![(headers::VERDICT, Verdict::TokenMinted.label())];
        Ok(Answer::json(200, headers, &minted).because("weir_token_minted"))
    }

    /// Checks `token` if `sale` requires one.
    pub(crate) fn check_token(
        &self,
        sale: &Sale,
        user: &UserId,
        token: Option<&[u8]>,
        now_ms: u64,
    ) -> Result<(), Rejection> {
        if !sale.token {
            return Ok(());
        }
        // Without keys no token can be verified; the gate logs this with every new catalogue.
        let TokenSettings { keys, ages } = self.settings()?;
        let token = token.unwrap_or_default();
        token::check(keys, token, &sale.id, user, now_ms, *ages).map_err(|reason| {
            self.tokens_refused.increment(reason);
            match reason {
                TokenError::TooYoung => Rejection {
                    verdict: Verdict::TokenTooYoung,
                    retry_after_ms: token::usable_in_ms(token, *ages, now_ms),
                },
                _ => Verdict::InvalidToken.into(),
            }
        })
    }
}
