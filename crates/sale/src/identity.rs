//! The signed user: the gateway's message to the origin about the user of a request without a claim.
//!
//! ```text
//! x-weir-user:           v1;<issued_at_ms>;<user>
//! x-weir-user-signature: <key id>;<HMAC-SHA256 of "weir-user\n" and the user header's bytes, in hex>
//! ```
//!
//! It identifies the user but authorises no particular request: within [`AGE_MS_MAX`] it is valid for any request of
//! that user. So send it only over a private connection from gateway to origin.

use alloc::format;
use alloc::string::String;

use weir_base::id::UserId;
use weir_base::key::{KeyRing, Purpose, SignatureError};

/// The validity of a signed user: the maximum time of a request to the origin.
pub const AGE_MS_MAX: u64 = 60_000;

/// How far the gateway's clock may be ahead of the origin's: the same as behind it. So a buyer with a claim from that
/// gateway can also pay.
pub const SKEW_MS_MAX: u64 = 60_000;

const VERSION: &str = "v1";

/// The two headers with the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedUser {
    /// The value of [`weir_base::headers::USER`].
    pub value: String,
    /// The value of [`weir_base::headers::USER_SIGNATURE`].
    pub signature: String,
}

/// Why a user header is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The user header does not have the documented form.
    #[error("the user is malformed")]
    Malformed,
    /// The signature header does not have the documented form.
    #[error("the user's signature is malformed")]
    SignatureMalformed,
    /// The ring has no key with this id.
    #[error("the user is signed with an unknown key")]
    UnknownKey,
    /// The signature does not match the user.
    #[error("the user's signature is wrong")]
    WrongSignature,
    /// It was signed more than [`AGE_MS_MAX`] ago.
    #[error("the user was signed too long ago")]
    Expired,
    /// Its time is more than [`SKEW_MS_MAX`] in the future.
    #[error("the user was signed in the future")]
    FutureDated,
}

impl From<SignatureError> for IdentityError {
    fn from(error: SignatureError) -> Self {
        match error {
            SignatureError::Malformed => Self::SignatureMalformed,
            SignatureError::UnknownKey => Self::UnknownKey,
            SignatureError::Wrong => Self::WrongSignature,
        }
    }
}

/// The headers for a request of `user` at `now_ms`.
pub fn sign(ring: &KeyRing, user: &UserId, now_ms: u64) -> SignedUser {
    let value = format!("{VERSION};{now_ms};{user}");
    let signature = ring.sign_for(Purpose::User, &value);
    SignedUser { value, signature }
}

/// Verifies the two headers. The signature is verified before the user is read.
///
/// # Errors
/// When the form, the key, the signature or the age is invalid.
pub fn verify(
    ring: &KeyRing,
    value: &[u8],
    signature: &[u8],
    now_ms: u64,
) -> Result<UserId, IdentityError> {
    let value = core::str::from_utf8(value).map_err(|_| IdentityError::Malformed)?;
    let signature =
        core::str::from_utf8(signature).map_err(|_| IdentityError::SignatureMalformed)?;
    ring.verify_for(Purpose::User, value, signature)?;
    let (issued_at_ms, user) = parse(value).ok_or(IdentityError::Malformed)?;
    if issued_at_ms > now_ms.saturating_add(SKEW_MS_MAX) {
        return Err(IdentityError::FutureDated);
    }
    if now_ms.saturating_sub(issued_at_ms) > AGE_MS_MAX {
        return Err(IdentityError::Expired);
    }
    Ok(user)
}

fn parse(value: &str) -> Option<(u64, UserId)> {
    let mut fields = value.splitn(3, ';');
    if fields.next()? != VERSION {
        return None;
    }
    let issued_at_ms = fields.next()?.parse().ok()?;
    let user = UserId::new(fields.next()?).ok()?;
    // Each value has one spelling: no `+3`, no `007`.
    (format!("{VERSION};{issued_at_ms};{user}") == value).then_some((issued_at_ms, user))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::ring;
    use proptest::prelude::*;

    const NOW_MS: u64 = 1_700_000_000_000;

    fn user(name: &str) -> UserId {
        UserId::new(name).unwrap()
    }

    fn check(signed: &SignedUser, now_ms: u64) -> Result<UserId, IdentityError> {
        let (value, signature) = (signed.value.as_bytes(), signed.signature.as_bytes());
        verify(&ring(&[("k1", 7)]), value, signature, now_ms)
    }

    fn signed(name: &str) -> SignedUser {
        sign(&ring(&[("k1", 7)]), &user(name), NOW_MS)
    }

    #[test]
    fn signed_user_is_accepted_while_the_signature_is_fresh() {
        let alice = signed("alice;x");
        assert_eq!(alice.value, "v1;1700000000000;alice;x");
        for now_ms in [NOW_MS - SKEW_MS_MAX, NOW_MS, NOW_MS + AGE_MS_MAX] {
            assert_eq!(check(&alice, now_ms), Ok(user("alice;x")));
        }
        let late = check(&alice, NOW_MS + AGE_MS_MAX + 1);
        assert_eq!(late, Err(IdentityError::Expired));
        let early = check(&alice, NOW_MS - SKEW_MS_MAX - 1);
        assert_eq!(early, Err(IdentityError::FutureDated));
        assert_eq!(check(&alice, u64::MAX), Err(IdentityError::Expired));
        assert_eq!(check(&alice, 0), Err(IdentityError::FutureDated));
    }

    #[test]
    fn user_with_a_foreign_signature_is_refused() {
        let alice = signed("alice");
        let check = |value: &str, signature: &str| {
            let ring = ring(&[("k1", 7)]);
            verify(&ring, value.as_bytes(), signature.as_bytes(), NOW_MS)
        };
        let foreign = check(&signed("bob").value, &alice.signature);
        assert_eq!(foreign, Err(IdentityError::WrongSignature));
        let later = check(&alice.value.replace("17", "18"), &alice.signature);
        assert_eq!(later, Err(IdentityError::WrongSignature));
        let other_key = sign(&ring(&[("k2", 7)]), &user("alice"), NOW_MS);
        let unknown = check(&other_key.value, &other_key.signature);
        assert_eq!(unknown, Err(IdentityError::UnknownKey));
        let no_signature = check(&alice.value, "");
        assert_eq!(no_signature, Err(IdentityError::SignatureMalformed));
        // A claim's signature over the same bytes is not valid.
        let as_claim = ring(&[("k1", 7)]).sign(&alice.value);
        let as_claim = check(&alice.value, &as_claim);
        assert_eq!(as_claim, Err(IdentityError::WrongSignature));
    }

    #[test]
    fn signed_but_malformed_user_value_is_refused() {
        let ring = ring(&[("k1", 7)]);
        for value in [
            "", "v1", "v1;1", "v2;1;u", "v1;+1;u", "v1;01;u", "v1;;u", "v1;1;", "v1;1;a b",
        ] {
            let signature = ring.sign_for(Purpose::User, value);
            let refused = verify(&ring, value.as_bytes(), signature.as_bytes(), 1);
            assert_eq!(refused, Err(IdentityError::Malformed), "{value}");
        }
    }

    proptest! {
        #[test]
        fn any_signed_user_round_trips(name in "[!-~]{1,128}", at_ms: u64) {
            let ring = ring(&[("k1", 7)]);
            let signed = sign(&ring, &user(&name), at_ms);
            let read = verify(&ring, signed.value.as_bytes(), signed.signature.as_bytes(), at_ms);
            prop_assert_eq!(read, Ok(user(&name)));
        }

        #[test]
        fn no_bytes_panic_the_reader(
            value in prop::collection::vec(any::<u8>(), 0..100),
            signature in prop::collection::vec(any::<u8>(), 0..100),
            now_ms: u64,
        ) {
            prop_assert!(verify(&ring(&[("k1", 7)]), &value, &signature, now_ms).is_err());
        }
    }
}
