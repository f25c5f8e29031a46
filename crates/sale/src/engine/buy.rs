//! A request to buy, up to its claim.

use alloc::string::String;

use crate::admission::{Admission, Rejection, admit, admit_attempt};
use crate::claim::ClaimId;
use crate::idempotency::{AttemptTag, IdempotencyKey};
use crate::sale::{Phase, Sale, SaleState};
use crate::verdict::Verdict;
use weir_base::accept::ACCEPT;
use weir_base::headers;
use weir_base::language::ACCEPT_LANGUAGE;
use weir_base::shared_data::SharedData;
use weir_engine::{Effects, Request, StreamId};

use crate::engine::answers::{read_reader, reader_of};
use crate::engine::gate::{Gate, StreamState, read_user};
use crate::engine::job::{Buyer, ClaimJob, Job};
use crate::engine::report::SaleMark;

impl<D: SharedData + Clone> Gate<D> {
    /// Decides on a request to buy from `sale`: it is answered, waits, or goes on because the sale is in shadow.
    pub(crate) fn buy(
        &mut self,
        stream: StreamId,
        sale: &[u8],
        path: &[u8],
        request: &dyn Request,
        effects: &mut Effects,
    ) {
        let now_ms = request.now_ms();
        let found = self.find(sale);
        let is_shadow = self.is_shadow(&found);
        let mut buyer = Buyer {
            is_shadow,
            // Of a request that is answered here nobody wants to know.
            poses_as_gateway: is_shadow && request.headers().pose_as_gateway(),
            sale: self.mark(sale).filter(|_| found.is_ok()),
            ..Buyer::default()
        };
        let job = match found {
            Ok((switch, sale)) => self.admit(switch, sale, request, &mut buyer, now_ms),
            Err(rejection) => {
                buyer.reader = reader_of(request);
                Err(rejection)
            }
        };
        let job = job.and_then(|job| {
            let pass = Some(self.overload.enter(now_ms)?);
            let path = without_query(path);
            Ok(Job::Claim(ClaimJob { pass, path, ..job }))
        });
        let waits = job.and_then(|job| {
            let enqueued = self.pump.enqueue(stream, job, now_ms, effects);
            enqueued.map_err(|_full| Verdict::Overloaded.into())
        });
        match waits {
            Ok(()) => {
                self.streams.insert(stream, StreamState::Waiting);
            }
            Err(rejection) => self.reject(stream, buyer, rejection, None, effects),
        }
    }

    /// Whether a request for what was found goes on whatever is decided. With all sales in shadow, one for a sale that
    /// nobody knows does, too.
    fn is_shadow(&self, found: &Result<(SaleState, &Sale), Rejection>) -> bool {
        let switch = match found {
            Ok((switch, _)) => Some(*switch),
            Err(_) => self.switch(),
        };
        switch == Some(SaleState::Shadow)
    }

    /// The chain up to the claim. It tells who reads the answer besides: looking for that by itself would cost as much again.
    fn admit(
        &self,
        switch: SaleState,
        sale: &Sale,
        request: &dyn Request,
        buyer: &mut Buyer,
        now_ms: u64,
    ) -> Result<ClaimJob, Rejection> {
        // In one pass: most of what a request costs before its claim is looking for headers.
        let names = [
            self.config.user_header.as_str(),
            headers::IDEMPOTENCY_KEY,
            headers::ORDER_TOKEN,
            headers::QUANTITY,
            ACCEPT_LANGUAGE,
            ACCEPT,
        ];
        let [user, attempt, token, quantity, language, accept] = request.headers().get_each(names);
        buyer.reader = read_reader(language.as_deref(), accept.as_deref());
        let user = read_user(user)?;
        let attempt = attempt.as_deref().map(read_attempt).transpose()?;
        let quantity = quantity.as_deref().map_or(Ok(1), read_quantity)?;
        let admission = match attempt {
            None => admit(switch, sale, &user, &self.memory, now_ms),
            Some(_) => admit_attempt(switch, sale, &user, now_ms),
        };
        match admission {
            Admission::Reject(rejection) => Err(rejection),
            Admission::Empty => Err(self.without_units(sale, now_ms).into()),
            // An attempt of before may have been granted under another cap: Redis tells.
            Admission::Claim { .. } if quantity > sale.user_cap && attempt.is_none() => {
                Err(Verdict::CapReached.into())
            }
            Admission::Claim { shard, checks } => {
                self.check_signer()?;
                self.check_token(sale, &user, token.as_deref(), now_ms)?;
                self.limits.check(&user, request, now_ms)?;
                Ok(ClaimJob {
                    sale: sale.id.clone(),
                    shard,
                    user,
                    user_cap: sale.user_cap,
                    // More is refused all the same, and Redis has few different numbers to answer.
                    quantity: quantity.min(sale.user_cap.saturating_add(1)),
                    is_too_many: false,
                    shards: sale.shards,
                    rebalances: 0,
                    checks,
                    path: None,
                    attempt,
                    refusal: (sale.phase(now_ms) == Phase::Ended).then_some(Verdict::Ended),
                    pass: None,
                    buyer: Buyer {
                        poses_as_gateway: request.headers().pose_as_gateway(),
                        ..*buyer
                    },
                })
            }
        }
    }

    /// Answers a request. One for a sale in shadow is only counted, and goes on without a claim.
    pub(crate) fn reject(
        &mut self,
        stream: StreamId,
        buyer: Buyer,
        rejection: impl Into<Rejection>,
        order: Option<&ClaimId>,
        effects: &mut Effects,
    ) {
        let rejection = rejection.into();
        self.count(buyer, rejection.verdict);
        if !buyer.is_shadow {
            let answer = self.answers.reject(rejection, buyer.reader, order);
            return effects.respond(stream, answer);
        }
        if buyer.poses_as_gateway {
            effects.remove_gateway_headers(stream);
        }
        effects.add_header(stream, headers::SHADOW, rejection.verdict.word().into());
        effects.go_on(stream);
    }

    pub(crate) fn count(&mut self, buyer: Buyer, verdict: Verdict) {
        self.count_for(buyer.sale, buyer.is_shadow, verdict);
    }

    /// Counts a decision. `is_shadow`: the request goes on all the same.
    pub(crate) fn count_for(&mut self, sale: SaleMark, is_shadow: bool, verdict: Verdict) {
        match is_shadow {
            true => self.metrics.shadow.increment(verdict),
            false => self.metrics.requests.increment(verdict),
        }
        if let (Some(report), Some(sale)) = (&mut self.report, sale) {
            report.count(sale, is_shadow, verdict);
        }
    }
}

/// A path of a route, if it has a query to be left out: that is all of it that an origin may refuse to read.
fn without_query(path: &[u8]) -> Option<String> {
    let end = path.iter().position(|&byte| byte == b'?')?;
    String::from_utf8(path.get(..end)?.to_vec()).ok()
}

/// How many units a client wants: a decimal number from 1 on, without a sign or leading zeros.
fn read_quantity(text: &[u8]) -> Result<u32, Rejection> {
    let text = core::str::from_utf8(text).ok();
    let is_number =
        |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let quantity = text.filter(is_number).and_then(|text| text.parse().ok());
    quantity.ok_or_else(|| Verdict::InvalidQuantity.into())
}

/// The attempt that a client names.
fn read_attempt(key: &[u8]) -> Result<AttemptTag, Rejection> {
    let key = IdempotencyKey::read(key).map_err(|_| Verdict::InvalidIdempotencyKey)?;
    Ok(key.tag())
}
