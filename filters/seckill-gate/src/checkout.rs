//! Order tokens: given at the checkout, asked for when somebody buys.

use serde::Serialize;
use weir_base::headers;
use weir_base::id::UserId;
use weir_filter_kit::http::{RequestHeaders, prepare_json};
use weir_sale::admission::{Rejection, admit_to_checkout};
use weir_sale::sale::{Sale, SaleState};
use weir_sale::token;
use weir_sale::verdict::Verdict;

use crate::config::TokenSettings;
use crate::gate::{Gate, log_unsent};

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

impl Gate {
    /// Gives the effective context's stream a token for `sale`, or says why not.
    pub(crate) fn check_out(&mut self, sale: &[u8], request: &RequestHeaders, now_ms: u64) {
        self.note_request();
        let minted = self
            .find(sale)
            .and_then(|(switch, sale)| self.mint(switch, sale, &self.user(request), now_ms));
        let sent = match minted {
            Ok(minted) => {
                let word = Verdict::TokenMinted.word();
                prepare_json(200, vec![(headers::VERDICT, word)], &minted).send()
            }
            Err(rejection) => {
                self.metrics.request(rejection.verdict);
                self.answers.reject(rejection, None)
            }
        };
        log_unsent(sent);
    }

    /// A token. Of a sale in shadow everybody gets one, and what was decided is only counted: nobody
    /// but the gate could answer.
    fn mint(
        &self,
        switch: SaleState,
        sale: &Sale,
        user: &[u8],
        now_ms: u64,
    ) -> Result<Minted, Rejection> {
        let user = UserId::new(user).map_err(|_| Verdict::InvalidUser)?;
        let settings = self.config.token.as_ref().ok_or(Verdict::Unavailable)?;
        let decided = admit_to_checkout(switch, sale, &user, &self.memory, now_ms)
            .and_then(|()| self.limits.check(&user, now_ms));
        let verdict = decided.map_or_else(|no| no.verdict, |()| Verdict::TokenMinted);
        if switch == SaleState::Shadow {
            self.metrics.shadow(verdict);
        } else {
            decided?;
            self.metrics.request(verdict);
        }
        Ok(Minted::new(settings, sale, &user, now_ms))
    }

    /// Whether `request` brings the token that `sale` wants, if it wants one.
    pub(crate) fn check_token(
        &self,
        sale: &Sale,
        user: &UserId,
        request: &RequestHeaders,
        now_ms: u64,
    ) -> Result<(), Rejection> {
        if !sale.token {
            return Ok(());
        }
        // Without keys nothing can be known of a token: the log says so with every new catalogue.
        let settings = self.config.token.as_ref().ok_or(Verdict::Unavailable)?;
        let token = request.get(headers::ORDER_TOKEN).unwrap_or_default();
        token::check(
            &settings.keys,
            &token,
            &sale.id,
            user,
            now_ms,
            settings.ages,
        )
        .map_err(|reason| {
            self.metrics.token_refused(reason);
            Verdict::InvalidToken.into()
        })
    }
}
