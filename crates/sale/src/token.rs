//! The order token: permission to order, which the checkout page requests from the gateway.
//!
//! ```text
//! x-weir-order-token: <key id>.<payload>.<tag>
//! payload:            v1;<sale>;<issued_at_ms>;<user>, in base64url without padding
//! tag:                HMAC-SHA256 of "weir-order-token\n" and the payload's text, in base64url
//! ```
//!
//! Gateways store no tokens: each verifies them with the shared key ring. A token is valid for one user and one sale,
//! from a minimum to a maximum age. The minimum age stops scripts, which reach the order faster than people. It may be
//! used more than once: the claim enforces the user's cap, and a single-use token would be lost with a lost answer.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use weir_base::id::{SaleId, UserId};
use weir_base::key::{KeyRing, Purpose};

/// The maximum length of a token in bytes. The longest minted token has 399: before encoding, a key's id of 64 bytes, a
/// payload of 217 and a tag of 32, and two dots.
pub const LEN_MAX: usize = 512;

const VERSION: &str = "v1";

/// Why a token is invalid. Clients get one answer for all reasons except [`TokenError::TooYoung`]; metrics distinguish
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum TokenError {
    /// The request has no token.
    #[error("the token is missing")]
    Missing,
    /// It has more than [`LEN_MAX`] bytes. Checked first, to bound the cost.
    #[error("the token is longer than {LEN_MAX} bytes")]
    TooLong,
    /// It does not consist of three parts separated by dots, or its payload is malformed.
    #[error("the token is malformed")]
    Malformed,
    /// Its payload or tag is not canonical base64url without padding.
    #[error("the token is not base64url")]
    NotBase64,
    /// The ring has no key with this id.
    #[error("the token is signed with an unknown key")]
    UnknownKey,
    /// The tag does not match the payload, or is truncated.
    #[error("the token's signature is wrong")]
    BadSignature,
    /// It was minted for another user.
    #[error("the token is for another user")]
    ForeignUser,
    /// It was minted for another sale.
    #[error("the token is for another sale")]
    OtherSale,
    /// It was minted less than [`Ages::min_ms`] ago.
    #[error("the token is too young")]
    TooYoung,
    /// It was minted more than [`Ages::max_ms`] ago.
    #[error("the token has expired")]
    Expired,
    /// Its time is more than [`Ages::skew_ms`] in the future.
    #[error("the token is dated in the future")]
    FutureDated,
}

impl TokenError {
    /// Every reason, in the order of the checks.
    pub const ALL: [Self; 11] = [
        Self::Missing,
        Self::TooLong,
        Self::Malformed,
        Self::NotBase64,
        Self::UnknownKey,
        Self::BadSignature,
        Self::ForeignUser,
        Self::OtherSale,
        Self::FutureDated,
        Self::TooYoung,
        Self::Expired,
    ];

    /// The label in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::TooLong => "too_long",
            Self::Malformed => "malformed",
            Self::NotBase64 => "not_base64",
            Self::UnknownKey => "unknown_key",
            Self::BadSignature => "bad_signature",
            Self::ForeignUser => "foreign_user",
            Self::OtherSale => "other_sale",
            Self::TooYoung => "too_young",
            Self::Expired => "expired",
            Self::FutureDated => "future_dated",
        }
    }
}

/// The minimum and maximum age of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ages {
    /// The minimum age in milliseconds.
    pub min_ms: u64,
    /// The maximum age in milliseconds.
    pub max_ms: u64,
    /// The maximum clock difference between gateways, in milliseconds. A token from this near future has the age 0: it
    /// is too young, not invalid.
    pub skew_ms: u64,
}

impl Default for Ages {
    /// Age 1 s to 10 min, clock difference at most 2 s.
    fn default() -> Self {
        Self {
            min_ms: 1_000,
            max_ms: 600_000,
            skew_ms: 2_000,
        }
    }
}

impl Ages {
    fn check(self, issued_at_ms: u64, now_ms: u64) -> Result<(), TokenError> {
        if issued_at_ms > now_ms.saturating_add(self.skew_ms) {
            return Err(TokenError::FutureDated);
        }
        let age_ms = now_ms.saturating_sub(issued_at_ms);
        if age_ms < self.min_ms {
            return Err(TokenError::TooYoung);
        }
        if age_ms > self.max_ms {
            return Err(TokenError::Expired);
        }
        Ok(())
    }
}

/// A token for `user` and `sale`, minted at `now_ms` with the ring's first key.
pub fn mint(ring: &KeyRing, sale: &SaleId, user: &UserId, now_ms: u64) -> String {
    let payload = format!("{VERSION};{sale};{now_ms};{user}");
    seal(ring, Purpose::OrderToken, &payload)
}

/// `<key id>.<payload>.<tag>`, signed with the ring's first key.
pub(crate) fn seal(ring: &KeyRing, purpose: Purpose, payload: &str) -> String {
    let key = ring.signer();
    let tag = key.tag(purpose, payload.as_bytes());
    let (payload, tag) = (URL_SAFE_NO_PAD.encode(payload), URL_SAFE_NO_PAD.encode(tag));
    format!("{}.{payload}.{tag}", key.id())
}

/// Checks `token`, the header's bytes or none, for `user` and `sale` at `now_ms`. The tag is verified in constant time
/// before the payload is read.
///
/// # Errors
/// The first reason against it, in the order of [`TokenError::ALL`].
pub fn check(
    ring: &KeyRing,
    token: &[u8],
    sale: &SaleId,
    user: &UserId,
    now_ms: u64,
    ages: Ages,
) -> Result<(), TokenError> {
    let payload = open(ring, Purpose::OrderToken, token)?;
    let (token_sale, issued_at_ms, token_user) = parse(&payload).ok_or(TokenError::Malformed)?;
    if token_user != user.as_str().as_bytes() {
        return Err(TokenError::ForeignUser);
    }
    if token_sale != sale.as_str().as_bytes() {
        return Err(TokenError::OtherSale);
    }
    ages.check(issued_at_ms, now_ms)
}

/// Milliseconds until a token that [`check`] found too young is valid. It does not verify the signature again.
pub fn usable_in_ms(token: &[u8], ages: Ages, now_ms: u64) -> Option<u64> {
    let (_, payload, _) = split(token)?;
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    let (_, issued_at_ms, _) = parse(&payload)?;
    let usable_at_ms = issued_at_ms.checked_add(ages.min_ms)?;
    Some(usable_at_ms.saturating_sub(now_ms))
}

/// The payload of a token that one of the ring's keys has [sealed](seal) for this purpose.
pub(crate) fn open(ring: &KeyRing, purpose: Purpose, token: &[u8]) -> Result<Vec<u8>, TokenError> {
    if token.is_empty() {
        return Err(TokenError::Missing);
    }
    if token.len() > LEN_MAX {
        return Err(TokenError::TooLong);
    }
    let (key_id, payload, tag) = split(token).ok_or(TokenError::Malformed)?;
    let decode = |text| {
        URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| TokenError::NotBase64)
    };
    let (payload, tag) = (decode(payload)?, decode(tag)?);
    let key = core::str::from_utf8(key_id).ok();
    let key = key.and_then(|id| ring.find(id));
    let key = key.ok_or(TokenError::UnknownKey)?;
    if !key.is_tag(purpose, &payload, &tag) {
        return Err(TokenError::BadSignature);
    }
    Ok(payload)
}

fn split(token: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let mut parts = token.split(|&byte| byte == b'.');
    let parts = (parts.next()?, parts.next()?, parts.next()?, parts.next());
    match parts {
        (key_id, payload, tag, None) => Some((key_id, payload, tag)),
        _ => None,
    }
}

/// A payload's sale, time of issue and user. The user is the last field, because a user's name may contain a `;`.
fn parse(payload: &[u8]) -> Option<(&[u8], u64, &[u8])> {
    let mut fields = payload.splitn(4, |&byte| byte == b';');
    if fields.next()? != VERSION.as_bytes() {
        return None;
    }
    let (sale, issued_at_ms, user) = (fields.next()?, fields.next()?, fields.next()?);
    let issued_at_ms = core::str::from_utf8(issued_at_ms).ok()?.parse().ok()?;
    Some((sale, issued_at_ms, user))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::ring;
    use alloc::borrow::ToOwned;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const NOW_MS: u64 = 1_700_000_000_000;
    const AGES: Ages = Ages {
        min_ms: 1_000,
        max_ms: 600_000,
        skew_ms: 2_000,
    };

    fn names(sale: &str, user: &str) -> (SaleId, UserId) {
        (SaleId::new(sale).unwrap(), UserId::new(user).unwrap())
    }

    fn minted() -> String {
        let (sale, user) = names("s", "alice;x");
        mint(&ring(&[("k1", 7)]), &sale, &user, NOW_MS)
    }

    /// Checks a token with a gateway that has the keys `k1` and `k2`.
    fn check_as(token: &[u8], sale: &str, user: &str, now_ms: u64) -> Result<(), TokenError> {
        let (sale, user) = names(sale, user);
        let ring = ring(&[("k2", 8), ("k1", 7)]);
        check(&ring, token, &sale, &user, now_ms, AGES)
    }

    fn check_bytes(token: &[u8]) -> Result<(), TokenError> {
        check_as(token, "s", "alice;x", NOW_MS + 1_000)
    }

    /// A correctly signed token with any payload and key.
    fn forged(payload: &str, key_id: &str, byte: u8) -> String {
        let ring = ring(&[(key_id, byte)]);
        let tag = ring.signer().tag(Purpose::OrderToken, payload.as_bytes());
        let (payload, tag) = (URL_SAFE_NO_PAD.encode(payload), URL_SAFE_NO_PAD.encode(tag));
        format!("{key_id}.{payload}.{tag}")
    }

    /// The format must never change: during an upgrade, gateways of two versions serve the same users.
    #[test]
    fn encoding_of_a_token_is_stable() {
        let token = minted();
        let (head, tag) = token.rsplit_once('.').unwrap();
        assert_eq!(head, "k1.djE7czsxNzAwMDAwMDAwMDAwO2FsaWNlO3g");
        let hmac = ring(&[("k1", 7)]);
        let message = "weir-order-token\nv1;s;1700000000000;alice;x";
        let signature = hmac.sign(message).replace("k1;", "");
        assert_eq!(hex::encode(URL_SAFE_NO_PAD.decode(tag).unwrap()), signature);
    }

    #[test]
    fn token_is_valid_between_its_minimum_and_maximum_age() {
        let at = |now_ms| check_as(minted().as_bytes(), "s", "alice;x", now_ms);
        assert_eq!(at(NOW_MS + 999), Err(TokenError::TooYoung));
        let usable_in_ms = |now_ms| usable_in_ms(minted().as_bytes(), AGES, now_ms);
        assert_eq!(usable_in_ms(NOW_MS + 999), Some(1));
        assert_eq!(usable_in_ms(NOW_MS + 1_000), Some(0));
        assert_eq!(at(NOW_MS + 1_000), Ok(()));
        assert_eq!(at(NOW_MS + 600_000), Ok(()));
        assert_eq!(at(NOW_MS + 600_001), Err(TokenError::Expired));
        assert_eq!(at(u64::MAX), Err(TokenError::Expired));
    }

    #[test]
    fn slightly_slow_clock_rates_a_token_as_young_not_forged() {
        let at = |now_ms| check_as(minted().as_bytes(), "s", "alice;x", now_ms);
        assert_eq!(at(NOW_MS - 2_000), Err(TokenError::TooYoung));
        assert_eq!(at(NOW_MS - 2_001), Err(TokenError::FutureDated));
        assert_eq!(at(0), Err(TokenError::FutureDated));
        let (sale, user) = names("s", "alice;x");
        let no_least_age = Ages { min_ms: 0, ..AGES };
        let token = minted();
        let checked = check(
            &ring(&[("k1", 7)]),
            token.as_bytes(),
            &sale,
            &user,
            NOW_MS - 2_000,
            no_least_age,
        );
        assert_eq!(
            checked,
            Ok(()),
            "an age of 0 is enough where 0 is asked for"
        );
    }

    #[test]
    fn each_invalid_token_has_a_distinct_reason() {
        let good = minted();
        let (head, tag) = good.rsplit_once('.').unwrap();
        let (_, payload) = head.split_once('.').unwrap();
        let other_key = forged("v1;s;1700000000000;alice;x", "k9", 7);
        let other_secret = forged("v1;s;1700000000000;alice;x", "k1", 9);
        let cases = [
            (String::new(), TokenError::Missing),
            ("a".repeat(100_000), TokenError::TooLong),
            (".".repeat(LEN_MAX + 1), TokenError::TooLong),
            ("a".repeat(LEN_MAX), TokenError::Malformed),
            (head.to_owned(), TokenError::Malformed),
            (format!("{good}."), TokenError::Malformed),
            (format!("k1.{payload}=.{tag}"), TokenError::NotBase64),
            (format!("k1.{payload}.{tag}="), TokenError::NotBase64),
            (format!("k1.{payload}.+{tag}"), TokenError::NotBase64),
            (format!("k1.{payload} .{tag}"), TokenError::NotBase64),
            (other_key, TokenError::UnknownKey),
            (format!(".{payload}.{tag}"), TokenError::UnknownKey),
            (format!("k2.{payload}.{tag}"), TokenError::BadSignature),
            (other_secret, TokenError::BadSignature),
            (format!("k1.{payload}."), TokenError::BadSignature),
            (
                format!("k1.{payload}.{}", &tag[..40]),
                TokenError::BadSignature,
            ),
            (format!("k1..{tag}"), TokenError::BadSignature),
        ];
        for (token, reason) in cases {
            assert_eq!(check_bytes(token.as_bytes()), Err(reason), "{token:.99}");
        }
        assert_eq!(check_bytes(&[0xff; 9]), Err(TokenError::Malformed));
        assert_eq!(check_bytes(b"\xff.AA.AA"), Err(TokenError::UnknownKey));
        let foreign = check_as(good.as_bytes(), "s", "bob", NOW_MS + 1_000);
        assert_eq!(foreign, Err(TokenError::ForeignUser));
        let other_sale = check_as(good.as_bytes(), "s-2", "alice;x", NOW_MS + 1_000);
        assert_eq!(other_sale, Err(TokenError::OtherSale));
    }

    #[test]
    fn signed_token_with_a_malformed_payload_is_refused() {
        for payload in [
            "",
            "v1",
            "v1;s;1",
            "v2;s;1;alice;x",
            "v1;s;-1;alice;x",
            "v1;s;;alice;x",
        ] {
            let token = forged(payload, "k1", 7);
            assert_eq!(check_bytes(token.as_bytes()), Err(TokenError::Malformed));
        }
    }

    #[test]
    fn claim_or_user_signature_is_not_valid_for_a_token() {
        let payload = "v1;s;1700000000000;alice;x";
        for purpose in [Purpose::Claim, Purpose::User] {
            let tag = ring(&[("k1", 7)]).signer().tag(purpose, payload.as_bytes());
            let (payload, tag) = (URL_SAFE_NO_PAD.encode(payload), URL_SAFE_NO_PAD.encode(tag));
            let token = format!("k1.{payload}.{tag}");
            assert_eq!(check_bytes(token.as_bytes()), Err(TokenError::BadSignature));
        }
    }

    #[test]
    fn token_error_labels_are_distinct_and_valid_for_metrics() {
        let words: BTreeSet<_> = TokenError::ALL.iter().map(|error| error.label()).collect();
        assert_eq!(words.len(), TokenError::ALL.len());
        let is_fit = |word: &&str| {
            word.bytes()
                .all(|b| b.is_ascii_lowercase() || b"_64".contains(&b))
        };
        assert!(words.iter().all(is_fit), "{words:?}");
    }

    #[test]
    fn longest_minted_token_is_parsed() {
        let (sale, user) = names(&"s".repeat(64), &"u".repeat(128));
        let ring = ring(&[(&"k".repeat(64), 7)]);
        let token = mint(&ring, &sale, &user, u64::MAX);
        assert_eq!(token.len(), 399);
        let ages = Ages { min_ms: 0, ..AGES };
        assert_eq!(
            check(&ring, token.as_bytes(), &sale, &user, u64::MAX, ages),
            Ok(())
        );
    }

    proptest! {
        #[test]
        fn any_minted_token_is_valid_for_its_user(
            sale in "[a-z0-9-]{1,64}", user in "[!-~]{1,128}", key_id in "[a-z0-9-]{1,64}",
            issued_at_ms in 0..u64::MAX / 2, age_ms in 1_000..=600_000_u64,
        ) {
            let (sale, user) = names(&sale, &user);
            let ring = ring(&[(&key_id, 3)]);
            let token = mint(&ring, &sale, &user, issued_at_ms);
            let now_ms = issued_at_ms + age_ms;
            prop_assert_eq!(check(&ring, token.as_bytes(), &sale, &user, now_ms, AGES), Ok(()));
        }

        #[test]
        fn token_with_one_changed_byte_is_refused(at: prop::sample::Index, flip in 1..=255_u8) {
            let mut token = minted().into_bytes();
            prop_assert_eq!(check_bytes(&token), Ok(()));
            let at = at.index(token.len());
            token[at] ^= flip;
            prop_assert!(check_bytes(&token).is_err());
        }

        #[test]
        fn truncated_or_extended_token_is_refused(cut in 0..90_usize, more in "[A-Za-z0-9._-]{1,4}") {
            let token = minted();
            let cut = &token[..cut.min(token.len() - 1)];
            prop_assert!(check_bytes(cut.as_bytes()).is_err());
            prop_assert!(check_bytes((token.clone() + &more).as_bytes()).is_err());
        }

        #[test]
        fn no_bytes_panic_the_reader(token: Vec<u8>, now_ms: u64) {
            prop_assert!(check_as(&token, "s", "u", now_ms).is_err());
        }
    }
}
