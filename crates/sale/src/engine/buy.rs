//! A request to buy, up to its claim.

use alloc::borrow::Cow;
use alloc::string::String;

use crate::admission::{Admission, Rejection, admit, admit_attempt};
use crate::idempotency::{AttemptTag, IdempotencyKey};
use crate::sale::{Phase, Sale, SaleState};
use crate::token::TokenError;
use crate::verdict::Verdict;
use weir_base::headers;
use weir_base::language::{ACCEPT_LANGUAGE, Language};
use weir_base::shared_data::SharedData;
use weir_engine::Request;

use crate::engine::answers::language_of;
use crate::engine::checkout::Checkout;
use crate::engine::claims::ClaimSigner;
use crate::engine::identify::read_user;
use crate::engine::job::{Buyer, ClaimJob};
use crate::engine::limits::Limits;
use crate::engine::report::SaleMark;
use crate::engine::sales::Sales;

/// What decisions on requests to buy read.
#[derive(Debug)]
pub(crate) struct PurchasePolicy<'a, D> {
    pub(crate) user_header: &'a str,
    pub(crate) sales: &'a Sales,
    pub(crate) signer: &'a ClaimSigner,
    /// `None`: this gateway has no keys for order tokens.
    pub(crate) checkout: Option<&'a Checkout>,
    pub(crate) limits: &'a Limits<D>,
}

/// What was decided on a request to buy.
#[derive(Debug)]
pub(crate) struct PurchaseDecision {
    pub(crate) buyer: Buyer,
    /// The claim that Redis is to be asked for.
    pub(crate) claim: Result<ClaimJob, PurchaseError>,
}

/// Why a request to buy leads to no claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PurchaseError {
    Rejected(Rejection),
    /// Its order token does not count.
    Token(TokenError),
}

impl From<Rejection> for PurchaseError {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}

impl From<Verdict> for PurchaseError {
    fn from(verdict: Verdict) -> Self {
        Self::Rejected(verdict.into())
    }
}

impl PurchaseError {
    pub(crate) fn rejection(self) -> Rejection {
        match self {
            Self::Rejected(rejection) => rejection,
            Self::Token(_) => Verdict::InvalidToken.into(),
        }
    }
}

/// The headers of a request to buy.
struct PurchaseHeaders<'a> {
    user: Option<Cow<'a, [u8]>>,
    attempt: Option<Cow<'a, [u8]>>,
    token: Option<Cow<'a, [u8]>>,
    quantity: Option<Cow<'a, [u8]>>,
    language: Language,
}

impl<'a> PurchaseHeaders<'a> {
    /// Reads them in one pass: most of what a request costs before its claim is looking for headers.
    fn read(request: &'a dyn Request, user_header: &str) -> Self {
        let names = [
            user_header,
            headers::IDEMPOTENCY_KEY,
            headers::ORDER_TOKEN,
            headers::QUANTITY,
            ACCEPT_LANGUAGE,
        ];
        let [user, attempt, token, quantity, language] = request.headers().get_each(names);
        Self {
            user,
            attempt,
            token,
            quantity,
            language: language.map_or_else(Language::default, |tags| Language::accepted(&tags)),
        }
    }
}

impl<D: SharedData + Clone> PurchasePolicy<'_, D> {
    /// Decides on a request to buy from `sale`. `mark` is how operators know the sale.
    pub(crate) fn decide(
        &self,
        sale: &[u8],
        mark: SaleMark,
        request: &dyn Request,
        now_ms: u64,
    ) -> PurchaseDecision {
        let found = self.sales.find(sale);
        let is_shadow = self.sales.is_shadow(&found);
        let mark = mark.filter(|_| found.is_ok());
        let (language, claim) = match found {
            Ok((switch, sale)) => {
                let headers = PurchaseHeaders::read(request, self.user_header);
                let language = headers.language;
                (language, self.admit(switch, sale, headers, request, now_ms))
            }
            Err(rejection) => (language_of(request), Err(rejection.into())),
        };
        // A request that is answered here does not need to know.
        let goes_on = is_shadow || claim.is_ok();
        let buyer = Buyer {
            is_shadow,
            sale: mark,
            poses_as_gateway: goes_on && request.headers().pose_as_gateway(),
            language,
        };
        PurchaseDecision { buyer, claim }
    }

    /// The chain up to the claim.
    fn admit(
        &self,
        switch: SaleState,
        sale: &Sale,
        headers: PurchaseHeaders<'_>,
        request: &dyn Request,
        now_ms: u64,
    ) -> Result<ClaimJob, PurchaseError> {
        let user = read_user(headers.user)?;
        let attempt = headers.attempt.as_deref().map(read_attempt).transpose()?;
        let quantity = headers.quantity.as_deref().map_or(Ok(1), read_quantity)?;
        let admission = match attempt {
            None => admit(switch, sale, &user, self.sales.memory(), now_ms),
            Some(_) => admit_attempt(switch, sale, &user, now_ms),
        };
        let (shard, checks) = match admission {
            Admission::Reject(rejection) => return Err(rejection.into()),
            Admission::Empty => return Err(self.sales.without_units(sale, now_ms).into()),
            Admission::Claim { shard, checks } => (shard, checks),
        };
        // An earlier attempt may have been granted under another cap: Redis decides.
        if quantity > sale.user_cap && attempt.is_none() {
            return Err(Verdict::CapReached.into());
        }
        self.signer.check()?;
        if sale.token {
            // Without keys nothing can be known of a token: the log says so with every new catalogue.
            let checkout = self.checkout.ok_or(Verdict::Unavailable)?;
            let checked = checkout.check_token(&sale.id, &user, headers.token.as_deref(), now_ms);
            checked.map_err(PurchaseError::Token)?;
        }
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
            buyer: Buyer::default(),
        })
    }
}

/// A path of a route, if it has a query to be left out: that is all of it that an origin may refuse to read.
pub(crate) fn without_query(path: &[u8]) -> Option<String> {
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
