//! Decides on an order request, up to its claim.

use alloc::borrow::Cow;
use alloc::string::String;

use crate::admission::{Admission, Rejection, admit, admit_attempt, check_open};
use crate::idempotency::{AttemptTag, IdempotencyKey};
use crate::sale::{Phase, Sale, SaleState};
use crate::verdict::Verdict;
use weir_base::accept::ACCEPT;
use weir_base::headers;
use weir_base::language::ACCEPT_LANGUAGE;
use weir_base::shared_data::SharedData;
use weir_engine::Request;

use crate::engine::answers::{read_reader, reader_of};
use crate::engine::checkout::Checkout;
use crate::engine::config::CheckedConfig;
use crate::engine::identify::read_user;
use crate::engine::job::{Buyer, ClaimJob};
use crate::engine::limits::Limits;
use crate::engine::report::SaleMark;
use crate::engine::sales::Sales;

/// An order request and the inputs of its decision.
pub(crate) struct Purchase<'a, D> {
    pub(crate) config: &'a CheckedConfig,
    pub(crate) sales: &'a Sales,
    pub(crate) checkout: &'a Checkout,
    /// Rate limits; `None` before the host's HTTP stack.
    pub(crate) limits: Option<&'a Limits<D>>,
    pub(crate) request: &'a dyn Request,
    pub(crate) now_ms: u64,
}

impl<D: SharedData + Clone> Purchase<'_, D> {
    /// Decides whether the request leads to a claim of `sale`. Also returns the data for the answer. `mark` identifies
    /// the sale in reports.
    pub(crate) fn decide(
        &self,
        sale: &[u8],
        mark: SaleMark,
    ) -> (Buyer, Result<ClaimJob, Rejection>) {
        let headers = self.request.headers();
        let found = self.sales.find(sale);
        let (is_shadow, reader, claim) = match found {
            Ok((switch, sale)) => {
                // In one pass: header lookups are most of a request's cost before its claim.
                let names = [
                    self.config.user_header.as_str(),
                    headers::IDEMPOTENCY_KEY,
                    headers::ORDER_TOKEN,
                    headers::QUANTITY,
                    ACCEPT_LANGUAGE,
                    ACCEPT,
                ];
                let [user, attempt, token, quantity, language, accept] = headers.get_each(names);
                let reader = read_reader(language.as_deref(), accept.as_deref());
                let claim = self.admit(switch, sale, [user, attempt, token, quantity]);
                (switch == SaleState::Shadow, reader, claim)
            }
            // If all sales are in dry-run mode, a request for an unknown sale continues, too.
            Err(rejection) => {
                let is_shadow = self.sales.are_in_shadow();
                (is_shadow, reader_of(self.request), Err(rejection))
            }
        };
        let buyer = Buyer {
            is_shadow,
            // Unused for a request that is answered here.
            poses_as_gateway: (is_shadow || claim.is_ok()) && headers.pose_as_gateway(),
            sale: mark.filter(|_| found.is_ok()),
            reader,
        };
        (buyer, claim)
    }

    /// The refusal that applies to every user: an unknown sale, its switch, its window, or no units. `None` for a
    /// request with an idempotency key: Redis may know that attempt.
    pub(crate) fn refusal_of_all(&self, sale: &[u8], mark: SaleMark) -> Option<(Buyer, Rejection)> {
        let refusal = |sale: &Sale, switch| {
            check_open(switch, sale, self.now_ms)?;
            match self.sales.memory.is_empty(&sale.id) {
                true => Err(self.sales.without_units(sale, self.now_ms).into()),
                false => Ok(()),
            }
        };
        let found = self.sales.find(sale);
        let has_attempt = self.request.header(headers::IDEMPOTENCY_KEY).is_some();
        let (is_shadow, rejection) = match found {
            Ok(_) if has_attempt => return None,
            Ok((switch, sale)) => (switch == SaleState::Shadow, refusal(sale, switch).err()?),
            Err(rejection) => (self.sales.are_in_shadow(), rejection),
        };
        let buyer = Buyer {
            is_shadow,
            sale: mark.filter(|_| found.is_ok()),
            reader: reader_of(self.request),
            ..Buyer::default()
        };
        Some((buyer, rejection))
    }

    /// The admission chain up to the claim.
    fn admit(
        &self,
        switch: SaleState,
        sale: &Sale,
        [user, attempt, token, quantity]: [Option<Cow<'_, [u8]>>; 4],
    ) -> Result<ClaimJob, Rejection> {
        let now_ms = self.now_ms;
        let user = read_user(user)?;
        let attempt = attempt.as_deref().map(read_attempt).transpose()?;
        let quantity = quantity.as_deref().map_or(Ok(1), read_quantity)?;
        let admission = match attempt {
            None => admit(switch, sale, &user, &self.sales.memory, now_ms),
            Some(_) => admit_attempt(switch, sale, &user, now_ms),
        };
        match admission {
            Admission::Reject(rejection) => Err(rejection),
            Admission::Empty => Err(self.sales.without_units(sale, now_ms).into()),
            // An earlier attempt may have had a higher cap: Redis decides.
            Admission::Claim { .. } if quantity > sale.user_cap && attempt.is_none() => {
                Err(Verdict::CapReached.into())
            }
            Admission::Claim { shard, checks } => {
                self.sales.check_signer()?;
                let token = token.as_deref();
                self.checkout.check_token(sale, &user, token, now_ms)?;
                if let Some(limits) = self.limits {
                    limits.check(Some(&user), self.request, now_ms)?;
                }
                Ok(ClaimJob {
                    sale: sale.id.clone(),
                    shard,
                    user,
                    user_cap: sale.user_cap,
                    // Redis refuses larger quantities anyway, and clamping keeps the number of distinct quantities
                    // small.
                    quantity: quantity.min(sale.user_cap.saturating_add(1)),
                    is_too_many: false,
                    shards: sale.shards,
                    rebalances: 0,
                    checks,
                    path: None,
                    attempt,
                    refusal: (sale.phase(now_ms) == Phase::Ended).then_some(Verdict::Ended),
                    pass: None,
                    buyer: Buyer::default(),
                })
            }
        }
    }
}

/// The path without its query, if it has one: the origin might reject a request because of its query.
pub(crate) fn without_query(path: &[u8]) -> Option<String> {
    let end = path.iter().position(|&byte| byte == b'?')?;
    String::from_utf8(path.get(..end)?.to_vec()).ok()
}

/// Parses the number of units: a decimal number from 1 on, without a sign or leading zeros.
fn read_quantity(text: &[u8]) -> Result<u32, Rejection> {
    let text = core::str::from_utf8(text).ok();
    let is_number =
        |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let quantity = text.filter(is_number).and_then(|text| text.parse().ok());
    quantity.ok_or_else(|| Verdict::InvalidQuantity.into())
}

/// Parses the idempotency key.
fn read_attempt(key: &[u8]) -> Result<AttemptTag, Rejection> {
    let key = IdempotencyKey::read(key).map_err(|_| Verdict::InvalidIdempotencyKey)?;
    Ok(key.tag())
}
