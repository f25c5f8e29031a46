//! What a checkout may want before it gives an order token: a proof of work, or a captcha.
//!
//! Whoever comes without a solution, or with one that does not count, is told the challenge. A solved proof of work leads to
//! one token, whichever gateway is asked and however often: Redis notes when that was minted, and whoever comes again gets the
//! same one, so a lost answer costs nobody a second challenge.

use alloc::string::{String, ToString};
use alloc::sync::Arc;

use crate::admission::Rejection;
use crate::challenge::{self, Challenge, SKEW_MS};
use crate::redis::challenge_spend::{self, Spend};
use crate::sale::Sale;
use crate::verdict::Verdict;
use serde::Serialize;
use weir_base::headers::{CAPTCHA, SOLUTION};
use weir_base::id::{SaleId, UserId};
use weir_base::shared_data::SharedData;
use weir_engine::pump::{Completed, Pending};
use weir_engine::redis::{Definite, Failure, Unknown};
use weir_engine::{Effects, Request, StreamId};

use crate::engine::captcha::CAPTCHA_LEN_MAX;
use crate::engine::checkout::Next;
use crate::engine::config::TokenSettings;
use crate::engine::gate::{Gate, StreamState};
use crate::engine::job::{Job, Shopper, SpendJob};
use crate::engine::metrics::ChallengeOutcome;

/// A challenge as a client is told it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Asked {
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

impl Asked {
    fn work(settings: &TokenSettings, sale: &SaleId, user: &UserId, bits: u8, now_ms: u64) -> Self {
        Self::ProofOfWork {
            text: challenge::ask(&settings.keys, sale, user, bits, now_ms),
            bits,
            expires_at_ms: now_ms.saturating_add(challenge::VALID_MS),
        }
    }
}

impl<D: SharedData + Clone> Gate<D> {
    /// What comes before a token of `sale`, if anything does.
    pub(crate) fn challenge(
        &self,
        settings: &TokenSettings,
        sale: &Sale,
        user: &UserId,
        request: &dyn Request,
        now_ms: u64,
    ) -> Result<Next, Rejection> {
        match sale.challenge {
            None => Ok(Next::Mint),
            Some(Challenge::ProofOfWork { bits }) => {
                Ok(self.proof_of_work(settings, sale, user, bits, request, now_ms))
            }
            Some(Challenge::Captcha {}) => self.captcha(request),
        }
    }

    fn proof_of_work(
        &self,
        settings: &TokenSettings,
        sale: &Sale,
        user: &UserId,
        bits: u8,
        request: &dyn Request,
        now_ms: u64,
    ) -> Next {
        let solution = request.header(SOLUTION);
        let checked = solution.map(|solution| {
            challenge::check(&settings.keys, &solution, &sale.id, user, bits, now_ms)
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
                return Next::Spend(spend, bits);
            }
            Some(Err(error)) => ChallengeOutcome::Failed(error),
            None => ChallengeOutcome::Asked,
        };
        self.metrics.challenges.increment(outcome);
        Next::Ask(Asked::work(settings, &sale.id, user, bits, now_ms))
    }

    fn captcha(&self, request: &dyn Request) -> Result<Next, Rejection> {
        // Without a provider nothing can be known: the log says so with every new catalogue.
        let captcha = self.config.captcha.as_ref().ok_or(Verdict::Unavailable)?;
        let solution = request.header(CAPTCHA);
        let outcome = match solution.as_deref().map(read_captcha) {
            Some(Some(solution)) => return Ok(Next::CheckCaptcha(solution)),
            Some(None) => ChallengeOutcome::CaptchaRefused,
            None => ChallengeOutcome::Asked,
        };
        self.metrics.challenges.increment(outcome);
        Ok(Next::Ask(Asked::Captcha {
            site_key: captcha.site_key.clone(),
        }))
    }

    /// The captcha's provider has said no: the page shows it again.
    pub(crate) fn ask_for_captcha(
        &mut self,
        stream: StreamId,
        shopper: &Shopper,
        effects: &mut Effects,
    ) {
        let captcha = self.config.captcha.as_ref();
        let site_key = captcha.map(|captcha| captcha.site_key.clone());
        let asked = Asked::Captcha {
            site_key: site_key.unwrap_or_default(),
        };
        self.ask(stream, &asked, shopper, effects);
    }

    /// Tells a client the challenge.
    pub(crate) fn ask(
        &mut self,
        stream: StreamId,
        asked: &Asked,
        shopper: &Shopper,
        effects: &mut Effects,
    ) {
        self.count_shopper(shopper, Verdict::ChallengeRequired);
        let answer = self.answers.ask(asked, shopper.reader.language);
        effects.respond(stream, Arc::new(answer));
    }

    // --- a proof of work

    /// Asks Redis which token the solution leads to.
    pub(crate) fn spend(
        &mut self,
        stream: StreamId,
        shopper: Shopper,
        (spend, bits): (Spend, u8),
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let waits = self.overload.ask_redis(now_ms).and_then(|pass| {
            let job = Job::Spend(SpendJob {
                shopper: shopper.clone(),
                spend,
                bits,
                pass: Some(pass),
            });
            let enqueued = self.pump.enqueue(stream, job, now_ms, effects);
            enqueued.map_err(|_full| Verdict::Overloaded.into())
        });
        match waits {
            Ok(()) => {
                self.streams.insert(stream, StreamState::Waiting);
            }
            Err(rejection) => self.refuse_shopper(stream, &shopper, rejection, effects),
        }
    }

    /// Redis has said when the tokens of solutions were minted, or has not.
    pub(crate) fn spends_completed(
        &mut self,
        call: Completed<Job>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let count = call.requests.len();
        let times = call.outcome.and_then(|value| {
            challenge_spend::parse(&value, count).map_err(|_| Unknown::Garbled.into())
        });
        match times {
            Ok(times) => {
                for (pending, minted_at_ms) in call.requests.into_iter().zip(times) {
                    self.spent(pending, minted_at_ms, now_ms, effects);
                }
            }
            Err(failure) => {
                self.noted(Err::<(), _>(failure.clone()), count, effects);
                for pending in call.requests {
                    self.not_spent(pending, &failure, now_ms, effects);
                }
            }
        }
    }

    fn spent(
        &mut self,
        pending: Pending<Job>,
        minted_at_ms: u64,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let Job::Spend(job) = pending.job else { return };
        self.overload.redis_answered(job.pass, true, now_ms);
        let outcome = match minted_at_ms == job.spend.now_ms {
            true => ChallengeOutcome::Solved,
            false => ChallengeOutcome::Again,
        };
        self.metrics.challenges.increment(outcome);
        let Some(stream) = pending.stream else { return };
        self.streams.remove(&stream);
        let SpendJob { shopper, bits, .. } = job;
        match &self.config.token {
            // A token may count for less time than a challenge: one that is over is of no use.
            Some(settings) if now_ms.saturating_sub(minted_at_ms) > settings.ages.max_ms => {
                let (sale, user) = (&shopper.sale, &shopper.user);
                let asked = Asked::work(settings, sale, user, bits, now_ms);
                self.ask(stream, &asked, &shopper, effects);
            }
            _ => self.mint_for(stream, &shopper, minted_at_ms, now_ms, effects),
        }
    }

    /// Nobody knows whether the solution has led to a token. Whoever comes again with it gets that, or the first.
    fn not_spent(
        &mut self,
        pending: Pending<Job>,
        failure: &Failure,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let Job::Spend(job) = pending.job else { return };
        self.overload.redis_answered(job.pass, false, now_ms);
        let verdict = match failure {
            Failure::Definite(Definite::Expired) => Verdict::Overloaded,
            _ => Verdict::Unavailable,
        };
        if let Some(stream) = pending.stream {
            self.streams.remove(&stream);
            self.refuse_shopper(stream, &job.shopper, verdict.into(), effects);
        }
    }
}

/// What a captcha has given a page, if it can be that.
fn read_captcha(value: &[u8]) -> Option<String> {
    let is_good =
        (1..=CAPTCHA_LEN_MAX).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic);
    let text = core::str::from_utf8(value).ok().filter(|_| is_good)?;
    Some(text.to_string())
}
