//! The gateway's answers: their words and statuses, each defined here once. Their sentences are in [`message`](crate::message).

/// The gateway's answer to one request, as users and metrics see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// The user holds a claim: the request went on to the origin.
    Granted,
    /// The user held a claim already: the request went on to the origin with that same claim.
    GrantedAgain,
    /// The path names a sale that the catalogue does not hold.
    UnknownSale,
    /// There is no user name in the request, or one that is not well formed.
    InvalidUser,
    /// The sale has not started.
    NotStarted,
    /// The sale is over.
    Ended,
    /// An operator closed the sale.
    Closed,
    /// The sale takes no new claims, and the user holds none.
    Draining,
    /// The configured page, instead of any decision.
    StaticPage,
    /// SQL has lost orders of the sale, and no operator has decided about them yet.
    Paused,
    /// No unit is left for this user.
    SoldOut,
    /// There is no order token in the request, or one that does not count.
    InvalidToken,
    /// The order token is good, and too young: a person takes longer from the checkout to the order.
    TokenTooYoung,
    /// Whoever asks for an order token must solve the sale's challenge first.
    ChallengeRequired,
    /// The request's idempotency key is not well formed.
    InvalidIdempotencyKey,
    /// The request does not say well how many units it wants.
    InvalidQuantity,
    /// Another attempt of the user to buy is not decided yet. Safe to retry.
    InProgress,
    /// The user or the address asks more often than allowed.
    RateLimited,
    /// The risk check or an operator has blocked the user, or the user let holds expire unpaid.
    Blocked,
    /// The user has no reservation, and only who has may buy.
    NotReserved,
    /// The user has as many units as one user may have.
    CapReached,
    /// A normal order for a SKU that a sale sells: the buyer has to order there.
    SkuInSale,
    /// Units are left, but fewer than the request wants.
    TooFew,
    /// No unit is free, but one may be again: others hold them, they are moving between shards, or data that Redis lost is
    /// being rebuilt. Safe to retry.
    AllReserved,
    /// The gateway has too much to do and gave up on this request before it touched the stock.
    Overloaded,
    /// The gateway could not find out: nothing is known, or the outcome is unknown. Safe to retry.
    Unavailable,
    /// The origin does not know the key with which this gateway signs: a claim would tie a unit up and never become an
    /// order.
    Misconfigured,
    /// An order token: the checkout's good answer.
    TokenMinted,
}

impl Verdict {
    /// Every verdict, in the order of the admission chain.
    pub const ALL: [Self; 28] = [
        Self::Granted,
        Self::GrantedAgain,
        Self::UnknownSale,
        Self::InvalidUser,
        Self::NotStarted,
        Self::Ended,
        Self::Closed,
        Self::Draining,
        Self::StaticPage,
        Self::Paused,
        Self::SoldOut,
        Self::InvalidToken,
        Self::TokenTooYoung,
        Self::InvalidIdempotencyKey,
        Self::InvalidQuantity,
        Self::RateLimited,
        Self::ChallengeRequired,
        Self::Blocked,
        Self::NotReserved,
        Self::CapReached,
        Self::InProgress,
        Self::SkuInSale,
        Self::TooFew,
        Self::AllReserved,
        Self::Overloaded,
        Self::Unavailable,
        Self::Misconfigured,
        Self::TokenMinted,
    ];

    /// The word in `x-weir-verdict`, in the JSON answer's `error` and in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::GrantedAgain => "granted_again",
            Self::UnknownSale => "unknown_sale",
            Self::InvalidUser => "invalid_user",
            Self::NotStarted => "not_started",
            Self::Ended => "ended",
            Self::Closed => "closed",
            Self::Draining => "draining",
            Self::StaticPage => "static_page",
            Self::Paused => "paused",
            Self::SoldOut => "sold_out",
            Self::InvalidToken => "invalid_token",
            Self::TokenTooYoung => "token_too_young",
            Self::ChallengeRequired => "challenge_required",
            Self::InvalidIdempotencyKey => "invalid_idempotency_key",
            Self::InvalidQuantity => "invalid_quantity",
            Self::InProgress => "in_progress",
            Self::RateLimited => "rate_limited",
            Self::Blocked => "blocked",
            Self::NotReserved => "not_reserved",
            Self::CapReached => "cap_reached",
            Self::SkuInSale => "sku_in_sale",
            Self::TooFew => "too_few",
            Self::AllReserved => "all_reserved",
            Self::Overloaded => "overloaded",
            Self::Unavailable => "unavailable",
            Self::Misconfigured => "misconfigured",
            Self::TokenMinted => "token_minted",
        }
    }

    /// The HTTP status of the gateway's own answer. The granted verdicts have none: the origin
    /// answers.
    pub const fn status(self) -> Option<u16> {
        match self {
            Self::Granted | Self::GrantedAgain => None,
            Self::InvalidIdempotencyKey | Self::InvalidQuantity => Some(400),
            Self::UnknownSale => Some(404),
            Self::InvalidUser => Some(401),
            Self::NotStarted
            | Self::Closed
            | Self::Draining
            | Self::InvalidToken
            | Self::TokenTooYoung
            | Self::ChallengeRequired
            | Self::Blocked
            | Self::NotReserved => Some(403),
            Self::Ended => Some(410),
            Self::SoldOut
            | Self::CapReached
            | Self::InProgress
            | Self::SkuInSale
            | Self::TooFew
            | Self::AllReserved => Some(409),
            Self::RateLimited => Some(429),
            Self::StaticPage
            | Self::Paused
            | Self::Overloaded
            | Self::Unavailable
            | Self::Misconfigured => Some(503),
            Self::TokenMinted => Some(200),
        }
    }

    /// Whether a retry, after a while, may fare better though nothing says when.
    pub const fn may_be_retried(self) -> bool {
        matches!(
            self,
            Self::StaticPage
                | Self::Paused
                | Self::InProgress
                | Self::AllReserved
                | Self::Overloaded
                | Self::Unavailable
                | Self::Misconfigured
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn words_are_distinct_and_fit_for_headers_and_metrics() {
        let words: BTreeSet<_> = Verdict::ALL.iter().map(|v| v.label()).collect();
        assert_eq!(words.len(), Verdict::ALL.len());
        assert!(
            words
                .iter()
                .all(|word| word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
        );
    }

    #[test]
    fn who_waits_for_weir_or_for_an_attempt_of_ones_own_may_retry() {
        for verdict in Verdict::ALL {
            let waits = verdict.status() == Some(503)
                || matches!(verdict, Verdict::InProgress | Verdict::AllReserved);
            assert_eq!(verdict.may_be_retried(), waits, "{verdict:?}");
        }
    }

    #[test]
    fn only_what_passes_has_no_status_of_its_own() {
        for verdict in Verdict::ALL {
            let passes = matches!(verdict, Verdict::Granted | Verdict::GrantedAgain);
            assert_eq!(verdict.status().is_none(), passes, "{verdict:?}");
        }
    }
}
