//! Order tokens: minted at the checkout, checked when somebody buys.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;

use serde::Serialize;
use weir_base::headers;
use weir_base::id::UserId;
use weir_base::shared_data::SharedData;
use weir_engine::{Answer, Effects, Request, StreamId};
use weir_sale::admission::{Rejection, admit_to_checkout};
use weir_sale::sale::{Sale, SaleState};
use weir_sale::token;
use weir_sale::verdict::Verdict;

use crate::answers::language_of;
use crate::config::TokenSettings;
use crate::gate::Gate;

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

impl Minted {
    fn new(settings: &TokenSettings, sale: &Sale, user: &UserId, now_ms: u64) -> Self {
        Self {
            token: token::mint(&settings.keys, &sale.id, user, now_ms),
            usable_at_ms: now_ms.saturating_add(settings.ages.min_ms),
            expires_at_ms: now_ms.saturating_add(settings.ages.max_ms),
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
        let minted = self
            .find(sale)
            .and_then(|(switch, sale)| self.mint(switch, sale, request, now_ms));
        let answer = match minted {
            Ok(minted) => {
                let word = Verdict::TokenMinted.word();
                let headers = vec![(headers::VERDICT, word)];
                Arc::new(Answer::json(200, headers, &minted).because("weir_token_minted"))
            }
            Err(rejection) => {
                self.metrics.requests.increment(rejection.verdict);
                self.answers.reject(rejection, language_of(request), None)
            }
        };
        effects.respond(stream, answer);
    }

    /// A token. Of a sale in shadow everybody gets one, and what was decided is only counted: nobody but the gate could
    /// answer.
    fn mint(
        &self,
        switch: SaleState,
        sale: &Sale,
        request: &dyn Request,
        now_ms: u64,
    ) -> Result<Minted, Rejection> {
        let user = self.user(request)?;
        let settings = self.config.token.as_ref().ok_or(Verdict::Unavailable)?;
        let if_empty = self.without_units(sale, now_ms);
        let decided = admit_to_checkout(switch, sale, &user, &self.memory, if_empty, now_ms)
            .and_then(|()| self.check_signer())
            .and_then(|()| self.limits.check(&user, request, now_ms));
        let verdict = decided.map_or_else(|no| no.verdict, |()| Verdict::TokenMinted);
        if switch == SaleState::Shadow {
            self.metrics.shadow.increment(verdict);
        } else {
            decided?;
            self.metrics.requests.increment(verdict);
        }
        Ok(Minted::new(settings, sale, &user, now_ms))
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
