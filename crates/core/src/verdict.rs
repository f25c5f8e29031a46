//! The gateway's answers: their words, statuses and messages, each defined here once.

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
    /// No unit is left for this user.
    SoldOut,
    /// The user has as many units as one user may have.
    CapReached,
    /// The gateway has too much to do and gave up on this request before it touched the stock.
    Overloaded,
    /// The gateway could not find out: nothing is known, or the outcome is unknown. Safe to retry.
    Unavailable,
}

impl Verdict {
    /// Every verdict, in the order of the admission chain.
    pub const ALL: [Self; 11] = [
        Self::Granted,
        Self::GrantedAgain,
        Self::UnknownSale,
        Self::InvalidUser,
        Self::NotStarted,
        Self::Ended,
        Self::Closed,
        Self::SoldOut,
        Self::CapReached,
        Self::Overloaded,
        Self::Unavailable,
    ];

    /// The word in `x-weir-verdict`, in the JSON answer's `error` and in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::GrantedAgain => "granted_again",
            Self::UnknownSale => "unknown_sale",
            Self::InvalidUser => "invalid_user",
            Self::NotStarted => "not_started",
            Self::Ended => "ended",
            Self::Closed => "closed",
            Self::SoldOut => "sold_out",
            Self::CapReached => "cap_reached",
            Self::Overloaded => "overloaded",
            Self::Unavailable => "unavailable",
        }
    }

    /// The HTTP status of the gateway's own answer. The granted verdicts have none: the origin
    /// answers.
    pub const fn status(self) -> Option<u16> {
        match self {
            Self::Granted | Self::GrantedAgain => None,
            Self::UnknownSale => Some(404),
            Self::InvalidUser => Some(401),
            Self::NotStarted | Self::Closed => Some(403),
            Self::Ended => Some(410),
            Self::SoldOut | Self::CapReached => Some(409),
            Self::Overloaded | Self::Unavailable => Some(503),
        }
    }

    /// One sentence for the person at the other end.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Granted => "a unit is held for you",
            Self::GrantedAgain => "the unit that is held for you already",
            Self::UnknownSale => "there is no such sale",
            Self::InvalidUser => "the request does not say who you are; sign in and try again",
            Self::NotStarted => "the sale has not started yet",
            Self::Ended => "the sale is over",
            Self::Closed => "the sale is closed",
            Self::SoldOut => "sold out",
            Self::CapReached => "you already have as many units as one person may have",
            Self::Overloaded => "too busy right now; please try again",
            Self::Unavailable => {
                "no answer could be had; please try again, a retry never buys twice"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn words_are_distinct_and_fit_for_headers_and_metrics() {
        let words: BTreeSet<_> = Verdict::ALL.iter().map(|v| v.word()).collect();
        assert_eq!(words.len(), Verdict::ALL.len());
        assert!(
            words
                .iter()
                .all(|word| word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
        );
    }

    #[test]
    fn only_what_passes_has_no_status_of_its_own() {
        for verdict in Verdict::ALL {
            let passes = matches!(verdict, Verdict::Granted | Verdict::GrantedAgain);
            assert_eq!(verdict.status().is_none(), passes, "{verdict:?}");
        }
    }
}
