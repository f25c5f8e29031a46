//! Order tokens: minted at the checkout, checked when somebody buys.

use alloc::string::String;
use alloc::vec;

use crate::admission::{Rejection, admit_to_checkout};
use crate::challenge::Challenge;
use crate::sale::{Sale, SaleState};
use crate::token::{self, TokenError};
use crate::verdict::Verdict;
use serde::Serialize;
use weir_base::headers::{self, SOLUTION};
use weir_base::id::{SaleId, UserId};
use weir_base::language::Language;
use weir_base::shared_data::SharedData;
use weir_engine::event::FetchResponse;
use weir_engine::{Answer, FetchId, Request, StreamId};

use crate::engine::answers::language_of;
use crate::engine::captcha::Captchas;
use crate::engine::challenge::ProofOfWork;
use crate::engine::claims::ClaimSigner;
use crate::engine::config::{Checked, TokenSettings};
use crate::engine::decision::{CheckoutDecision, CheckoutStep};
use crate::engine::identify::read_user;
use crate::engine::job::{Shopper, SpendJob};
use crate::engine::limits::Limits;
use crate::engine::metrics::ChallengeOutcome;
use crate::engine::sales::Sales;

/// The checkout's good answer.
#[derive(Debug, Serialize)]
struct Minted {
    token: String,
    /// From when on it counts, in milliseconds since the Unix epoch.
    usable_at_ms: u64,
    /// Until when it counts.
    expires_at_ms: u64,
    /// The gateway's time: clients' clocks are off.
    now_ms: u64,
}

/// Decides who gets order tokens, and which count.
#[derive(Debug)]
pub(crate) struct Checkout {
    settings: TokenSettings,
    user_header: String,
    /// Shoppers who wait for a captcha's provider, if there is one.
    captchas: Option<Captchas>,
}

impl Checkout {
    /// The checkout of a gateway that has keys for tokens.
    pub(crate) fn new(config: &Checked) -> Option<Self> {
        Some(Self {
            settings: config.token.clone()?,
            user_header: config.user_header.clone(),
            captchas: config.captcha.clone().map(Captchas::new),
        })
    }

    /// Decides on a request for a token of `sale`.
    ///
    /// # Errors
    /// The answer to a request that gets neither a token nor a challenge.
    pub(crate) fn admit<D: SharedData + Clone>(
        &self,
        sales: &Sales,
        signer: &ClaimSigner,
        limits: &Limits<D>,
        sale: &[u8],
        request: &dyn Request,
        now_ms: u64,
    ) -> Result<(Shopper, CheckoutDecision), Rejection> {
        let (switch, sale) = sales.find(sale)?;
        let user = read_user(request.headers().get(&self.user_header))?;
        let if_empty = sales.without_units(sale, now_ms);
        let decided = admit_to_checkout(switch, sale, &user, sales.memory(), if_empty, now_ms)
            .and_then(|()| signer.check())
            .and_then(|()| limits.check(&user, request, now_ms));
        let decision: CheckoutDecision = match switch {
            SaleState::Shadow => {
                let verdict = shadow_verdict(sale, decided);
                self.grant(&sale.id, &user, now_ms, now_ms, Some(verdict))
                    .into()
            }
            _ => {
                decided?;
                self.challenge(sale, &user, request, now_ms)?
            }
        };
        let language = match decision.step {
            // An answer with a token is the same in every language.
            CheckoutStep::Grant { .. } => Language::default(),
            _ => language_of(request),
        };
        let sale = sale.id.clone();
        let shopper = Shopper {
            sale,
            user,
            language,
        };
        Ok((shopper, decision))
    }

    /// What comes before a token of `sale`, if anything does.
    fn challenge(
        &self,
        sale: &Sale,
        user: &UserId,
        request: &dyn Request,
        now_ms: u64,
    ) -> Result<CheckoutDecision, Rejection> {
        match sale.challenge {
            None => Ok(self.grant(&sale.id, user, now_ms, now_ms, None).into()),
            Some(Challenge::ProofOfWork { bits }) => {
                let work = self.proof_of_work(&sale.id, user, bits, now_ms);
                Ok(work.decide(request.header(SOLUTION).as_deref()))
            }
            Some(Challenge::Captcha {}) => {
                // Without a provider nothing can be known: the log says so with every new catalogue.
                let captchas = self.captchas.as_ref().ok_or(Verdict::Unavailable)?;
                captchas.decide(request)
            }
        }
    }

    fn proof_of_work<'a>(
        &'a self,
        sale: &'a SaleId,
        user: &'a UserId,
        bits: u8,
        now_ms: u64,
    ) -> ProofOfWork<'a> {
        ProofOfWork {
            keys: &self.settings.keys,
            sale,
            user,
            bits,
            now_ms,
        }
    }

    /// A token of `at_ms`.
    fn grant(
        &self,
        sale: &SaleId,
        user: &UserId,
        at_ms: u64,
        now_ms: u64,
        in_shadow: Option<Verdict>,
    ) -> CheckoutStep {
        let TokenSettings { keys, ages } = &self.settings;
        let minted = Minted {
            token: token::mint(keys, sale, user, at_ms),
            usable_at_ms: at_ms.saturating_add(ages.min_ms),
            expires_at_ms: at_ms.saturating_add(ages.max_ms),
            now_ms,
        };
        let headers = vec![(headers::VERDICT, Verdict::TokenMinted.word())];
        let answer = Answer::json(200, headers, &minted).because("weir_token_minted");
        CheckoutStep::Grant { answer, in_shadow }
    }

    /// Redis has said when the token of a solution was minted: now, or before.
    pub(crate) fn spent(&self, job: &SpendJob, minted_at_ms: u64, now_ms: u64) -> CheckoutDecision {
        let Shopper { sale, user, .. } = &job.shopper;
        let outcome = match minted_at_ms == job.spend.now_ms {
            true => ChallengeOutcome::Solved,
            false => ChallengeOutcome::Again,
        };
        // A token may count for less time than a challenge: one that is over is of no use.
        let is_over = now_ms.saturating_sub(minted_at_ms) > self.settings.ages.max_ms;
        let step = match is_over {
            true => {
                let work = self.proof_of_work(sale, user, job.bits, now_ms);
                CheckoutStep::Challenge(work.offer())
            }
            false => self.grant(sale, user, minted_at_ms, now_ms, None),
        };
        CheckoutDecision {
            step,
            challenge: Some(outcome),
        }
    }

    /// A shopper waits for the provider's answer to `fetch`.
    pub(crate) fn wait(&mut self, fetch: FetchId, stream: StreamId, shopper: Shopper) {
        if let Some(captchas) = &mut self.captchas {
            captchas.wait(fetch, stream, shopper);
        }
    }

    /// The stream has ended.
    pub(crate) fn forget(&mut self, stream: StreamId) {
        if let Some(captchas) = &mut self.captchas {
            captchas.forget(stream);
        }
    }

    /// The captcha's provider has answered, or has not. Returns what comes next for the shopper who waits for that.
    pub(crate) fn fetched(
        &mut self,
        fetch: FetchId,
        response: Option<&FetchResponse>,
        now_ms: u64,
    ) -> Option<(StreamId, Shopper, CheckoutDecision)> {
        let captchas = self.captchas.as_mut()?;
        let result = captchas.fetched(fetch, response)?;
        let Shopper { sale, user, .. } = &result.shopper;
        let grant = || self.grant(sale, user, now_ms, now_ms, None);
        let decision = CheckoutDecision {
            step: result.refusal.unwrap_or_else(grant),
            challenge: Some(result.outcome),
        };
        Some((result.stream, result.shopper, decision))
    }

    /// Whether `token` is the one that `sale` wants of `user`.
    ///
    /// # Errors
    /// Why it does not count.
    pub(crate) fn check_token(
        &self,
        sale: &SaleId,
        user: &UserId,
        token: Option<&[u8]>,
        now_ms: u64,
    ) -> Result<(), TokenError> {
        let TokenSettings { keys, ages } = &self.settings;
        let token = token.unwrap_or_default();
        token::check(keys, token, sale, user, now_ms, *ages)
    }
}

/// What would become of a request if `sale` were not in shadow.
fn shadow_verdict(sale: &Sale, decided: Result<(), Rejection>) -> Verdict {
    match decided {
        Err(rejection) => rejection.verdict,
        Ok(()) if sale.challenge.is_some() => Verdict::ChallengeRequired,
        Ok(()) => Verdict::TokenMinted,
    }
}
