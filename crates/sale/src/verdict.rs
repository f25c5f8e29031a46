//! The gateway's verdicts with their labels and statuses. Their messages are in [`message`](crate::message).

/// The gateway's decision on one request, for users and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// The user has a claim: the request continued to the origin.
    Granted,
    /// The user had this claim already: the request continued to the origin with it.
    GrantedAgain,
    /// The catalogue does not contain the sale in the path.
    UnknownSale,
    /// The user is missing or invalid.
    InvalidUser,
    /// The sale has not started.
    NotStarted,
    /// The sale is over.
    Ended,
    /// An operator closed the sale.
    Closed,
    /// The sale takes no new claims, and the user has none.
    Draining,
    /// The configured page instead of a decision.
    StaticPage,
    /// SQL has lost orders of the sale, and an operator must decide about them.
    Paused,
    /// No unit is left for this user.
    SoldOut,
    /// The order token is missing or invalid.
    InvalidToken,
    /// The order token is valid but too young: people are slower from the checkout to the order.
    TokenTooYoung,
    /// The sale requires a challenge before an order token.
    ChallengeRequired,
    /// The idempotency key is invalid.
    InvalidIdempotencyKey,
    /// The requested quantity is invalid.
    InvalidQuantity,
    /// Another purchase attempt of the user is pending. Safe to retry.
    InProgress,
    /// The user or the address exceeds a rate limit.
    RateLimited,
    /// The risk check or an operator has blocked the user, or the user let claims expire unpaid.
    Blocked,
    /// The sale requires a reservation, which the user does not have.
    NotReserved,
    /// The user has reached the cap.
    CapReached,
    /// A normal order for a sale's SKU: the buyer must order in the sale.
    SkuInSale,
    /// Fewer units are left than the request wants.
    TooFew,
    /// No unit is free now, but one may become free: units are in claims or in transfers, or lost Redis data is being
    /// rebuilt. Safe to retry.
    AllReserved,
    /// The gateway is overloaded and has rejected this request before it touched the stock.
    Overloaded,
    /// The state or the outcome is unknown. Safe to retry.
    Unavailable,
    /// The origin does not accept this gateway's signing key: a claim would block a unit and never become an order.
    Misconfigured,
    /// The checkout's response with an order token.
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

    /// The value of `x-weir-verdict`, of the JSON answer's `error` and of the metric label.
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

    /// The HTTP status of the gateway's own answer; `None` for granted verdicts, because the origin answers.
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

    /// Whether a later retry may succeed, although no time is known.
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
    fn verdict_labels_are_distinct_and_valid_in_headers() {
        let words: BTreeSet<_> = Verdict::ALL.iter().map(|v| v.label()).collect();
        assert_eq!(words.len(), Verdict::ALL.len());
        assert!(
            words
                .iter()
                .all(|word| word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
        );
    }

    #[test]
    fn only_temporary_verdicts_may_be_retried() {
        for verdict in Verdict::ALL {
            let waits = verdict.status() == Some(503)
                || matches!(verdict, Verdict::InProgress | Verdict::AllReserved);
            assert_eq!(verdict.may_be_retried(), waits, "{verdict:?}");
        }
    }

    #[test]
    fn only_granted_verdicts_have_no_http_status() {
        for verdict in Verdict::ALL {
            let passes = matches!(verdict, Verdict::Granted | Verdict::GrantedAgain);
            assert_eq!(verdict.status().is_none(), passes, "{verdict:?}");
        }
    }
}
