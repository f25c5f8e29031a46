//! Messages for buyers by code and language, at gateways and at the origin. Codes are for programs, and the same in every
//! language. The texts are in `weir-text`.
//!
//! A gateway uses only the texts of verdicts, so its filter does not contain the others.

use weir_base::language::Language;
use weir_text::Text;

use crate::verdict::Verdict;

impl Verdict {
    /// One sentence for the user.
    pub const fn message(self, language: Language) -> &'static str {
        self.text().get(language)
    }

    const fn text(self) -> Text {
        match self {
            Self::Granted => weir_text::SALE_GRANTED,
            Self::GrantedAgain => weir_text::SALE_GRANTED_AGAIN,
            Self::UnknownSale => weir_text::SALE_UNKNOWN_SALE,
            Self::InvalidUser => weir_text::SALE_INVALID_USER,
            Self::NotStarted => weir_text::SALE_NOT_STARTED,
            Self::Ended => weir_text::SALE_ENDED,
            Self::Closed => weir_text::SALE_CLOSED,
            Self::Draining => weir_text::SALE_DRAINING,
            Self::StaticPage => weir_text::SALE_STATIC_PAGE,
            Self::Paused => weir_text::SALE_PAUSED,
            Self::SoldOut => weir_text::SALE_SOLD_OUT,
            Self::InvalidToken => weir_text::SALE_INVALID_TOKEN,
            Self::TokenTooYoung => weir_text::SALE_TOKEN_TOO_YOUNG,
            Self::ChallengeRequired => weir_text::SALE_CHALLENGE_REQUIRED,
            Self::InvalidIdempotencyKey => weir_text::SALE_INVALID_IDEMPOTENCY_KEY,
            Self::InvalidQuantity => weir_text::SALE_INVALID_QUANTITY,
            Self::InProgress => weir_text::SALE_IN_PROGRESS,
            Self::RateLimited => weir_text::SALE_RATE_LIMITED,
            Self::Blocked => weir_text::SALE_BLOCKED,
            Self::NotReserved => weir_text::SALE_NOT_RESERVED,
            Self::CapReached => weir_text::SALE_CAP_REACHED,
            Self::SkuInSale => weir_text::SALE_SKU_IN_SALE,
            Self::TooFew => weir_text::SALE_TOO_FEW,
            Self::AllReserved => weir_text::SALE_ALL_RESERVED,
            Self::Overloaded => weir_text::SALE_OVERLOADED,
            Self::Unavailable => weir_text::SALE_UNAVAILABLE,
            Self::Misconfigured => weir_text::SALE_MISCONFIGURED,
            Self::TokenMinted => weir_text::SALE_TOKEN_MINTED,
        }
    }
}

/// The origin's further messages on buyer routes. In English the origin adds details where available.
const OF_ORIGIN: &[(&str, Text)] = &[
    ("barred", weir_text::SALE_BARRED),
    ("claim_invalid", weir_text::SALE_CLAIM_INVALID),
    ("claim_missing", weir_text::SALE_CLAIM_MISSING),
    ("claim_released", weir_text::SALE_CLAIM_RELEASED),
    ("cooling_down", weir_text::SALE_COOLING_DOWN),
    ("draw_open", weir_text::SALE_DRAW_OPEN),
    ("group_cap", weir_text::SALE_GROUP_CAP),
    (
        "idempotency_key_reused",
        weir_text::SALE_IDEMPOTENCY_KEY_REUSED,
    ),
    ("invalid_body", weir_text::SALE_INVALID_BODY),
    ("invalid_payload", weir_text::SALE_INVALID_PAYLOAD),
    ("invalid_query", weir_text::SALE_INVALID_QUERY),
    ("no_draw", weir_text::SALE_NO_DRAW),
    ("no_method", weir_text::SALE_NO_METHOD),
    ("no_reservation", weir_text::SALE_NO_RESERVATION),
    ("no_route", weir_text::SALE_NO_ROUTE),
    ("order_cancelled", weir_text::SALE_ORDER_CANCELLED),
    ("order_expired", weir_text::SALE_ORDER_EXPIRED),
    ("order_paid", weir_text::SALE_ORDER_PAID),
    (
        "payments_not_configured",
        weir_text::SALE_PAYMENTS_NOT_CONFIGURED,
    ),
    ("redis_unavailable", weir_text::SALE_REDIS_UNAVAILABLE),
    ("reservation_closed", weir_text::SALE_RESERVATION_CLOSED),
    ("reservation_not_open", weir_text::SALE_RESERVATION_NOT_OPEN),
    ("sql_unavailable", weir_text::SALE_SQL_UNAVAILABLE),
    ("timeout", weir_text::SALE_TIMEOUT),
    ("unknown_order", weir_text::SALE_UNKNOWN_ORDER),
    ("unknown_reservation", weir_text::SALE_UNKNOWN_RESERVATION),
    ("unpaid_holds", weir_text::SALE_UNPAID_HOLDS),
    ("user_cap", weir_text::SALE_USER_CAP),
    ("user_invalid", weir_text::SALE_USER_INVALID),
    ("user_missing", weir_text::SALE_USER_MISSING),
];

/// The message of a code, if there is one.
pub fn message(code: &str, language: Language) -> Option<&'static str> {
    if let Some(verdict) = Verdict::ALL.into_iter().find(|v| v.label() == code) {
        return Some(verdict.message(language));
    }
    let (_, text) = OF_ORIGIN.iter().find(|(existing, _)| *existing == code)?;
    Some(text.get(language))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    fn codes() -> Vec<&'static str> {
        let verdicts = Verdict::ALL.into_iter().map(Verdict::label);
        let origin = OF_ORIGIN.iter().map(|(code, _)| *code);
        verdicts.chain(origin).collect()
    }

    #[test]
    fn each_code_is_listed_once_with_text_in_each_language() {
        let codes = codes();
        let distinct: BTreeSet<&str> = codes.iter().copied().collect();
        assert_eq!(distinct.len(), codes.len());
        for code in codes {
            let replies = Language::ALL.map(|language| message(code, language).unwrap());
            let distinct: BTreeSet<&str> = replies.into_iter().collect();
            assert_eq!(distinct.len(), replies.len(), "{code}: {replies:?}");
            assert!(!distinct.contains(""), "{code}");
        }
        assert_eq!(message("no_such_code", Language::German), None);
    }

    #[test]
    fn each_message_is_written_in_its_language() {
        for code in codes() {
            let response = |language| message(code, language).unwrap();
            assert!(response(Language::English).is_ascii(), "{code}");
            assert!(!response(Language::Chinese).is_ascii(), "{code}");
            let german = response(Language::German);
            assert!(german.ends_with('.'), "{code}: a sentence, with its stop");
            assert!(german.starts_with(char::is_uppercase), "{code}");
        }
    }

    #[test]
    fn each_verdict_has_a_distinct_message() {
        for language in Language::ALL {
            let replies: BTreeSet<_> = Verdict::ALL.iter().map(|v| v.message(language)).collect();
            assert_eq!(replies.len(), Verdict::ALL.len());
        }
    }
}
