//! The proof of work that a sale may require before it issues an order token.
//!
//! ```text
//! challenge:        <key id>.<payload>.<tag>
//! payload:          v1;<sale>;<expires_at_ms>;<bits>;<user>, in base64url without padding
//! tag:              HMAC-SHA256 of "weir-challenge\n" and the payload's text, in base64url
//! x-weir-solution:  <challenge>:<counter>, a decimal number; the SHA-256 of this whole text begins with <bits> zero bits
//! ```
//!
//! Gateways store no challenges: each verifies them with the shared key ring. Clients cannot compute solutions in
//! advance, because the tag is unpredictable. A user who requests two challenges in one millisecond gets the same one,
//! and both lead to one token. Redis records the token of a solution by its [name](AcceptedSolution::name), see
//! `challenge_spend` of `weir-scripts`.

use alloc::format;
use alloc::string::String;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use weir_base::id::{SaleId, UserId};
use weir_base::key::{KeyRing, Purpose};

use crate::token::{self, TokenError};

/// The minimum difficulty: 256 hashes, which users do not notice.
pub const BITS_MIN: u8 = 8;

/// The maximum difficulty: 67 million hashes, half a minute on fast clients and several minutes on slow ones.
pub const BITS_MAX: u8 = 26;

/// The validity of a challenge, in milliseconds: two minutes.
pub const VALID_MS: u64 = 120_000;

/// The maximum clock difference between gateways, in milliseconds.
pub const SKEW_MS: u64 = 2_000;

/// The maximum number of digits in a counter: 64 bits.
const DIGITS_MAX: usize = 20;

/// The maximum length of a solution in bytes: a challenge is at most as long as a token.
pub const LEN_MAX: usize = token::LEN_MAX + 1 + DIGITS_MAX;

/// The length of a solution's name in bytes.
pub const NAME_LEN: usize = 16;

const VERSION: &str = "v1";

/// The challenge that a sale requires for an order token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Challenge {
    /// A proof of work.
    ProofOfWork {
        /// The number of leading zero bits in a solution's hash. One more doubles the work.
        bits: u8,
    },
    /// A CAPTCHA of the gateway's provider.
    Captcha {},
}

/// The OpenAPI schema. Client generators need a name for each variant.
#[cfg(feature = "openapi")]
mod schema {
    use alloc::borrow::Cow;
    use alloc::string::String;
    use alloc::vec::Vec;
    use utoipa::openapi::{RefOr, Schema};
    use utoipa::{PartialSchema, ToSchema};

    /// The client must compute a proof of work.
    #[derive(ToSchema)]
    #[expect(dead_code, reason = "describes the variant of the same name")]
    struct ProofOfWork {
        /// How many zero bits a solution's hash must begin with. One more is twice the work.
        #[schema(minimum = 8, maximum = 26)]
        bits: u8,
    }

    /// The user must solve a CAPTCHA of the gateway's provider.
    #[derive(ToSchema)]
    struct CaptchaChallenge {}

    /// Challenge that users must solve before they get an order token.
    #[derive(ToSchema)]
    #[schema(rename_all = "snake_case")]
    #[expect(dead_code, reason = "describes the enum of the same name")]
    enum Challenge {
        /// A proof of work.
        ProofOfWork(ProofOfWork),
        /// A CAPTCHA.
        Captcha(CaptchaChallenge),
    }

    impl PartialSchema for super::Challenge {
        fn schema() -> RefOr<Schema> {
            Challenge::schema()
        }
    }

    impl ToSchema for super::Challenge {
        fn name() -> Cow<'static, str> {
            Cow::Borrowed("Challenge")
        }

        fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
            Challenge::schemas(schemas);
        }
    }
}

impl Challenge {
    /// Whether gateways support these values.
    pub fn is_valid(self) -> bool {
        match self {
            Self::ProofOfWork { bits } => (BITS_MIN..=BITS_MAX).contains(&bits),
            Self::Captcha {} => true,
        }
    }
}

/// Why a solution is invalid. Clients get a new challenge in every case; metrics distinguish the reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum SolutionError {
    /// It is too long, or not a challenge and a counter.
    #[error("the solution is malformed")]
    Malformed,
    /// No key of the ring has signed the challenge.
    #[error("the challenge is not from this gateway")]
    Forged,
    /// The challenge belongs to another user.
    #[error("the challenge is for another user")]
    ForeignUser,
    /// The challenge belongs to another sale.
    #[error("the challenge is for another sale")]
    OtherSale,
    /// The challenge expires later than any that exists by now.
    #[error("the challenge is dated in the future")]
    FutureDated,
    /// The challenge has expired.
    #[error("the challenge has expired")]
    Expired,
    /// The sale now requires more bits.
    #[error("the challenge is too easy")]
    TooEasy,
    /// The hash has too few leading zero bits.
    #[error("the challenge is not solved")]
    Unsolved,
}

impl SolutionError {
    /// Every reason, in the order of the checks.
    pub const ALL: [Self; 8] = [
        Self::Malformed,
        Self::Forged,
        Self::ForeignUser,
        Self::OtherSale,
        Self::FutureDated,
        Self::Expired,
        Self::TooEasy,
        Self::Unsolved,
    ];

    /// The label in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Forged => "forged",
            Self::ForeignUser => "foreign_user",
            Self::OtherSale => "other_sale",
            Self::FutureDated => "future_dated",
            Self::Expired => "expired",
            Self::TooEasy => "too_easy",
            Self::Unsolved => "unsolved",
        }
    }
}

impl From<TokenError> for SolutionError {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::UnknownKey | TokenError::BadSignature => Self::Forged,
            _ => Self::Malformed,
        }
    }
}

/// A valid solution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedSolution {
    /// Identifies the challenge: the same for all its solutions.
    pub name: [u8; NAME_LEN],
    /// When the challenge expires.
    pub expires_at_ms: u64,
}

/// A challenge of `bits` bits for `user` and `sale`, signed with the ring's first key.
pub fn ask(ring: &KeyRing, sale: &SaleId, user: &UserId, bits: u8, now_ms: u64) -> String {
    let expires_at_ms = now_ms.saturating_add(VALID_MS);
    let payload = format!("{VERSION};{sale};{expires_at_ms};{bits};{user}");
    token::seal(ring, Purpose::Challenge, &payload)
}

/// Checks `solution`, the header's bytes, for `user` and `sale`, which requires `bits` bits. The tag is verified before
/// the payload is read.
///
/// # Errors
/// The first reason against it, in the order of [`SolutionError::ALL`].
pub fn check(
    ring: &KeyRing,
    solution: &[u8],
    sale: &SaleId,
    user: &UserId,
    bits: u8,
    now_ms: u64,
) -> Result<AcceptedSolution, SolutionError> {
    let challenge = challenge_of(solution).ok_or(SolutionError::Malformed)?;
    let payload = token::open(ring, Purpose::Challenge, challenge)?;
    let (of_sale, expires_at_ms, of_bits, of_user) =
        parse(&payload).ok_or(SolutionError::Malformed)?;
    if of_user != user.as_str().as_bytes() {
        return Err(SolutionError::ForeignUser);
    }
    if of_sale != sale.as_str().as_bytes() {
        return Err(SolutionError::OtherSale);
    }
    if expires_at_ms > now_ms.saturating_add(VALID_MS + SKEW_MS) {
        return Err(SolutionError::FutureDated);
    }
    if now_ms >= expires_at_ms {
        return Err(SolutionError::Expired);
    }
    if of_bits < bits {
        return Err(SolutionError::TooEasy);
    }
    if zero_bits(&Sha256::digest(solution)) < u32::from(of_bits) {
        return Err(SolutionError::Unsolved);
    }
    let mut name = [0; NAME_LEN];
    for (to, from) in name.iter_mut().zip(Sha256::digest(challenge)) {
        *to = from;
    }
    Ok(AcceptedSolution {
        name,
        expires_at_ms,
    })
}

/// The challenge in a well-formed solution.
fn challenge_of(solution: &[u8]) -> Option<&[u8]> {
    if solution.len() > LEN_MAX {
        return None;
    }
    let at = solution.iter().rposition(|&byte| byte == b':')?;
    let (challenge, counter) = (solution.get(..at)?, solution.get(at + 1..)?);
    let is_counter =
        (1..=DIGITS_MAX).contains(&counter.len()) && counter.iter().all(u8::is_ascii_digit);
    is_counter.then_some(challenge)
}

/// A payload's sale, expiry, bits and user. The user is the last field, because a user's name may contain a `;`.
fn parse(payload: &[u8]) -> Option<(&[u8], u64, u8, &[u8])> {
    let mut fields = payload.splitn(5, |&byte| byte == b';');
    if fields.next()? != VERSION.as_bytes() {
        return None;
    }
    let (sale, expires_at_ms, bits) = (fields.next()?, fields.next()?, fields.next()?);
    let text = |bytes| core::str::from_utf8(bytes).ok();
    let expires_at_ms = text(expires_at_ms)?.parse().ok()?;
    let bits = text(bits)?.parse().ok()?;
    Some((sale, expires_at_ms, bits, fields.next()?))
}

/// The number of leading zero bits of a hash.
fn zero_bits(hash: &[u8]) -> u32 {
    let zero_bytes = hash.iter().take_while(|&&byte| byte == 0).count();
    let next = hash.get(zero_bytes).map_or(0, |byte| byte.leading_zeros());
    u32::try_from(zero_bytes).map_or(0, |bytes| bytes * 8 + next)
}

/// Finds the first solution of `challenge`, like a browser. For tests.
#[cfg(any(test, feature = "model"))]
pub fn solve(challenge: &str, bits: u8) -> String {
    let solutions = (0_u64..).map(|counter| format!("{challenge}:{counter}"));
    let is_one = |text: &String| zero_bits(&Sha256::digest(text)) >= u32::from(bits);
    let mut solutions = solutions.filter(is_one);
    solutions.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::ring;
    use alloc::borrow::ToOwned;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const NOW_MS: u64 = 1_700_000_000_000;

    fn names(sale: &str, user: &str) -> (SaleId, UserId) {
        (SaleId::new(sale).unwrap(), UserId::new(user).unwrap())
    }

    fn new_challenge() -> String {
        let (sale, user) = names("s", "alice;x");
        ask(&ring(&[("k1", 7)]), &sale, &user, BITS_MIN, NOW_MS)
    }

    fn check_as(
        solution: &[u8],
        (sale, user): (&str, &str),
        bits: u8,
        now_ms: u64,
    ) -> Result<AcceptedSolution, SolutionError> {
        let (sale, user) = names(sale, user);
        check(
            &ring(&[("k2", 8), ("k1", 7)]),
            solution,
            &sale,
            &user,
            bits,
            now_ms,
        )
    }

    fn check_at(solution: &str, now_ms: u64) -> Result<AcceptedSolution, SolutionError> {
        check_as(solution.as_bytes(), ("s", "alice;x"), BITS_MIN, now_ms)
    }

    #[test]
    fn solution_is_valid_for_its_user_and_sale_until_it_expires() {
        let solution = solve(&new_challenge(), BITS_MIN);
        let solved = check_at(&solution, NOW_MS).unwrap();
        assert_eq!(solved.expires_at_ms, NOW_MS + VALID_MS);
        assert_eq!(check_at(&solution, NOW_MS + VALID_MS - 1), Ok(solved));
        assert_eq!(check_at(&solution, NOW_MS - SKEW_MS), Ok(solved));
        let refused =
            |of, bits, now_ms| check_as(solution.as_bytes(), of, bits, now_ms).unwrap_err();
        let own = ("s", "alice;x");
        assert_eq!(
            refused(("s", "alice"), BITS_MIN, NOW_MS),
            SolutionError::ForeignUser
        );
        assert_eq!(
            refused(("t", "alice;x"), BITS_MIN, NOW_MS),
            SolutionError::OtherSale
        );
        assert_eq!(
            refused(own, BITS_MIN, NOW_MS + VALID_MS),
            SolutionError::Expired
        );
        assert_eq!(
            refused(own, BITS_MIN, NOW_MS - SKEW_MS - 1),
            SolutionError::FutureDated
        );
        assert_eq!(refused(own, BITS_MIN + 1, NOW_MS), SolutionError::TooEasy);
    }

    #[test]
    fn unsolved_or_foreign_challenge_is_rejected() {
        let challenge = new_challenge();
        let unsolved = (0_u64..)
            .map(|counter| format!("{challenge}:{counter}"))
            .find(|text| zero_bits(&Sha256::digest(text)) < u32::from(BITS_MIN));
        assert_eq!(
            check_at(&unsolved.unwrap(), NOW_MS),
            Err(SolutionError::Unsolved)
        );
        let (sale, user) = names("s", "alice;x");
        for (id, byte) in [("k1", 9), ("k3", 7)] {
            let forged = ask(&ring(&[(id, byte)]), &sale, &user, BITS_MIN, NOW_MS);
            let solution = solve(&forged, BITS_MIN);
            assert_eq!(check_at(&solution, NOW_MS), Err(SolutionError::Forged));
        }
        // A token is not a challenge, although the same key has signed it.
        let token = token::mint(&ring(&[("k1", 7)]), &sale, &user, NOW_MS);
        let solution = solve(&token, BITS_MIN);
        assert_eq!(check_at(&solution, NOW_MS), Err(SolutionError::Forged));
        for counter in ["", "-1", "+1", "1 ", "0x1", "123456789012345678901"] {
            let solution = format!("{challenge}:{counter}");
            assert_eq!(
                check_at(&solution, NOW_MS),
                Err(SolutionError::Malformed),
                "{counter}"
            );
        }
        for text in ["", ":", ":1", "a.b:1", &challenge] {
            assert_eq!(
                check_at(text, NOW_MS),
                Err(SolutionError::Malformed),
                "{text}"
            );
        }
        let long = format!("{}:1", "a".repeat(LEN_MAX));
        assert_eq!(check_at(&long, NOW_MS), Err(SolutionError::Malformed));
    }

    #[test]
    fn solutions_of_one_challenge_share_an_identifier() {
        let challenge = new_challenge();
        let mut solutions = (0_u64..)
            .map(|counter| format!("{challenge}:{counter}"))
            .filter_map(|text| check_at(&text, NOW_MS).ok());
        let (first, second) = (solutions.next().unwrap(), solutions.next().unwrap());
        assert_eq!(first.name, second.name);
        let (sale, user) = names("s", "alice;x");
        let later = ask(&ring(&[("k1", 7)]), &sale, &user, BITS_MIN, NOW_MS + 1);
        let later = check_at(&solve(&later, BITS_MIN), NOW_MS + 1).unwrap();
        assert_ne!(first.name, later.name);
    }

    #[test]
    fn longest_challenge_is_parsed() {
        let (sale, user) = names(&"s".repeat(64), &"u".repeat(128));
        let ring = ring(&[(&"k".repeat(64), 7)]);
        let longest = ask(&ring, &sale, &user, BITS_MAX, u64::MAX);
        assert!(longest.len() <= token::LEN_MAX, "{}", longest.len());
    }

    #[test]
    fn leading_zero_bits_are_counted_across_bytes() {
        for (hash, bits) in [
            (&[0x80, 0][..], 0),
            (&[0x01, 0], 7),
            (&[0, 0x40], 9),
            (&[0, 0], 16),
            (&[], 0),
        ] {
            assert_eq!(zero_bits(hash), bits, "{hash:?}");
        }
    }

    #[test]
    fn challenge_terms_round_trip_as_json_and_are_bounded() {
        let read = serde_json::from_str::<Challenge>;
        let work = read(r#"{"proof_of_work":{"bits":18}}"#).unwrap();
        assert_eq!(work, Challenge::ProofOfWork { bits: 18 });
        let captcha = read(r#"{"captcha":{}}"#).unwrap();
        assert_eq!(
            serde_json::to_string(&captcha).unwrap(),
            r#"{"captcha":{}}"#
        );
        for bad in [
            r#"{"proof_of_work":{}}"#,
            r#"{"proof_of_work":{"bits":300}}"#,
            r#"{"captcha":{"key":1}}"#,
            r#"{"riddle":{}}"#,
            r#""captcha""#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        let of = |bits| Challenge::ProofOfWork { bits }.is_valid();
        assert_eq!([7, 8, 26, 27].map(of), [false, true, true, false]);
    }

    #[test]
    fn solution_error_labels_are_distinct() {
        let words: BTreeSet<_> = SolutionError::ALL
            .iter()
            .map(|error| error.label())
            .collect();
        assert_eq!(words.len(), SolutionError::ALL.len());
    }

    proptest! {
        #[test]
        fn random_bytes_are_rejected_as_solution_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
            prop_assert!(check_as(&bytes, ("s", "alice;x"), BITS_MIN, NOW_MS).is_err());
        }

        #[test]
        fn solution_with_one_changed_byte_is_rejected(at in 0_usize..140, byte: u8) {
            let solution = solve(&new_challenge(), BITS_MIN);
            let mut changed = solution.clone().into_bytes();
            let at = at % changed.len();
            let was = core::mem::replace(&mut changed[at], byte);
            let found = check_as(&changed, ("s", "alice;x"), BITS_MIN, NOW_MS);
            let colon = solution.rfind(':').unwrap();
            // Another counter may also be a solution.
            prop_assert!(was == byte || found.is_err() || at > colon, "{}", solution.to_owned());
        }
    }
}
