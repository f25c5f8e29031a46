//! Order tokens: minted at the checkout, checked when somebody buys.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;

use crate::admission::{Rejection, admit_to_checkout};
use crate::redis::challenge_spend::Spend;
use crate::sale::{Sale, SaleState};
use crate::token;
use crate::verdict::Verdict;
use serde::Serialize;
use weir_base::headers;
use weir_base::id::UserId;
use weir_base::shared_data::SharedData;
use weir_engine::page::Reader;
use weir_engine::{Answer, Effects, Request, StreamId};

use crate::engine::answers::reader_of;
use crate::engine::challenge::Asked;
use crate::engine::config::TokenSettings;
use crate::engine::gate::Gate;
use crate::engine::job::Shopper;

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

/// What comes next for whoever asks for a token and may have one.
pub(crate) enum Next {
    /// It.
    Mint,
    /// A challenge, of which there is no solution yet.
    Ask(Asked),
    /// Which token a solution leads to, of a challenge of as many bits as the sale wants.
    Spend(Spend, u8),
    /// The word of a captcha's provider.
    CheckCaptcha(String),
}

impl Minted {
    fn new(settings: &TokenSettings, shopper: &Shopper, at_ms: u64, now_ms: u64) -> Self {
        Self {
            token: token::mint(&settings.keys, &shopper.sale, &shopper.user, at_ms),
            usable_at_ms: at_ms.saturating_add(settings.ages.min_ms),
            expires_at_ms: at_ms.saturating_add(settings.ages.max_ms),
            now_ms,
        }
    }
}

impl<D: SharedData + Clone> Gate<D> {
    /// Gives the stream a token for `sale`, or says why not.
    pub(crate) fn check_out(
        &mut self,
        stream: StreamId,
        sale: &[u8],
        request: &dyn Request,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let admitted = self
            .find(sale)
            .and_then(|(switch, sale)| self.admit_shopper(switch, sale, request, now_ms));
        let (shopper, next, in_shadow) = match admitted {
            Ok(admitted) => admitted,
            Err(rejection) => {
                let mark = self.mark(sale).filter(|_| self.find(sale).is_ok());
                self.count_for(mark, false, rejection.verdict);
                let answer = self.answers.reject(rejection, reader_of(request), None);
                return effects.respond(stream, answer);
            }
        };
        if let Some(verdict) = in_shadow {
            let mark = self.mark(sale);
            self.count_for(mark, true, verdict);
            return self.answer_minted(stream, &shopper, now_ms, now_ms, effects);
        }
        match next {
            Next::Mint => self.mint_for(stream, &shopper, now_ms, now_ms, effects),
            Next::Ask(asked) => {
                self.ask(stream, &asked, &told_in(shopper, request), effects);
            }
            Next::Spend(spend, bits) => {
                let shopper = told_in(shopper, request);
                self.spend(stream, shopper, (spend, bits), now_ms, effects);
            }
            Next::CheckCaptcha(solution) => {
                let shopper = told_in(shopper, request);
                let address = request.peer_address();
                self.check_captcha(stream, shopper, &solution, &address, effects);
            }
        }
    }

    /// Whether the request gets a token, and what comes before; or what was decided, if the sale is in shadow. Then everybody gets
    /// one, and that is only counted: nobody but the gate could answer.
    fn admit_shopper(
        &self,
        switch: SaleState,
        sale: &Sale,
        request: &dyn Request,
        now_ms: u64,
    ) -> Result<(Shopper, Next, Option<Verdict>), Rejection> {
        let user = self.user(request)?;
        let settings = self.config.token.as_ref().ok_or(Verdict::Unavailable)?;
        let if_empty = self.without_units(sale, now_ms);
        let decided = admit_to_checkout(switch, sale, &user, &self.memory, if_empty, now_ms)
            .and_then(|()| self.check_signer())
            .and_then(|()| self.limits.check(&user, request, now_ms));
        let in_shadow = (switch == SaleState::Shadow).then(|| match decided {
            Err(rejection) => rejection.verdict,
            Ok(()) if sale.challenge.is_some() => Verdict::ChallengeRequired,
            Ok(()) => Verdict::TokenMinted,
        });
        let next = match in_shadow {
            Some(_) => Next::Mint,
            None => {
                decided?;
                self.challenge(settings, sale, &user, request, now_ms)?
            }
        };
        let shopper = Shopper {
            sale: sale.id.clone(),
            user,
            reader: Reader::default(),
        };
        Ok((shopper, next, in_shadow))
    }

    /// The shopper gets a token of `at_ms`.
    pub(crate) fn mint_for(
        &mut self,
        stream: StreamId,
        shopper: &Shopper,
        at_ms: u64,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        self.count_shopper(shopper, Verdict::TokenMinted);
        self.answer_minted(stream, shopper, at_ms, now_ms, effects);
    }

    fn answer_minted(
        &mut self,
        stream: StreamId,
        shopper: &Shopper,
        at_ms: u64,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        // Nobody comes here without keys.
        let Some(settings) = &self.config.token else {
            return self.refuse_shopper(stream, shopper, Verdict::Unavailable.into(), effects);
        };
        let minted = Minted::new(settings, shopper, at_ms, now_ms);
        let headers = vec![(headers::VERDICT, Verdict::TokenMinted.word())];
        let answer = Answer::json(200, headers, &minted).because("weir_token_minted");
        effects.respond(stream, Arc::new(answer));
    }

    /// The shopper gets none.
    pub(crate) fn refuse_shopper(
        &mut self,
        stream: StreamId,
        shopper: &Shopper,
        rejection: Rejection,
        effects: &mut Effects,
    ) {
        self.count_shopper(shopper, rejection.verdict);
        let answer = self.answers.reject(rejection, shopper.reader, None);
        effects.respond(stream, answer);
    }

    pub(crate) fn count_shopper(&mut self, shopper: &Shopper, verdict: Verdict) {
        let mark = self.mark(shopper.sale.as_str().as_bytes());
        self.count_for(mark, false, verdict);
    }

    /// Whether `token` is the one that `sale` wants, if it wants one.
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
        // Without keys nothing can be known of a token: the log says so with every new catalogue.
        let settings = self.config.token.as_ref().ok_or(Verdict::Unavailable)?;
        token::check(
            &settings.keys,
            token.unwrap_or_default(),
            &sale.id,
            user,
            now_ms,
            settings.ages,
        )
        .map_err(|reason| {
            self.metrics.tokens_refused.increment(reason);
            Verdict::InvalidToken.into()
        })
    }
}

/// Who waits is told in the form that the request asks for.
fn told_in(shopper: Shopper, request: &dyn Request) -> Shopper {
    Shopper {
        reader: reader_of(request),
        ..shopper
    }
}
