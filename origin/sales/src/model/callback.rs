//! The signature of a payment provider's callback.
//!
//! ```text
//! x-weir-payment-timestamp: <seconds since the Unix epoch>
//! x-weir-payment-signature: <key id>;<HMAC-SHA256 of "<timestamp>.<body>", in hex>
//! ```
//!
//! The timestamp is signed with the body and valid for [`AGE_S_MAX`], so a recorded callback cannot be replayed later.
//! Within that time, the event id prevents duplicates.

use std::str;

use weir_base::key::{KeyRing, Purpose, SignatureError};

/// Maximum age of a callback, and maximum clock skew of the provider, in seconds.
pub const AGE_S_MAX: u64 = 300;

/// Why a callback was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    /// A header or the body is not text, or the timestamp is not a number.
    #[error("the callback is malformed")]
    Malformed,
    /// The signature does not match any of the keys.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// The timestamp differs from the current time by more than [`AGE_S_MAX`].
    #[error("the callback's signature time is wrong")]
    Age,
}

/// Verifies a callback. Call it before the body is parsed.
///
/// # Errors
/// Names the cause: form, signature or age.
pub fn verify(
    keys: &KeyRing,
    timestamp: &[u8],
    signature: &[u8],
    body: &[u8],
    now_ms: u64,
) -> Result<(), CallbackError> {
    let text = |bytes| str::from_utf8(bytes).map_err(|_| CallbackError::Malformed);
    let (timestamp, signature, body) = (text(timestamp)?, text(signature)?, text(body)?);
    let signed = [timestamp, ".", body].concat();
    keys.verify_for(Purpose::PaymentCallback, &signed, signature)?;
    let at_s: u64 = timestamp.parse().map_err(|_| CallbackError::Malformed)?;
    match at_s.abs_diff(now_ms / 1_000) <= AGE_S_MAX {
        true => Ok(()),
        false => Err(CallbackError::Age),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::key::SigningKey;

    const NOW_MS: u64 = 1_700_000_000_000;

    fn ring(ids: &[(&str, u8)]) -> KeyRing {
        let keys = ids
            .iter()
            .map(|&(id, byte)| SigningKey::new(id, &[byte; 32]).unwrap());
        KeyRing::new(keys.collect()).unwrap()
    }

    /// Computed with OpenSSL: `printf '1700000000.{}' | openssl dgst -sha256 -mac HMAC -macopt hexkey:0707…07`.
    const SIGNED: &str = "p1;7b24748c9a3d39ed07b08d270a9c3b5ae3b420a0cba2eb3337b0fd8b739e40cd";

    #[test]
    fn callback_is_valid_only_within_its_maximum_age() {
        let check = |now_ms| {
            let (timestamp, signature) = (b"1700000000", SIGNED.as_bytes());
            verify(&ring(&[("p1", 7)]), timestamp, signature, b"{}", now_ms)
        };
        for now_ms in [NOW_MS, NOW_MS - 300_000, NOW_MS + 300_999] {
            assert_eq!(check(now_ms), Ok(()));
        }
        for now_ms in [NOW_MS - 300_001, NOW_MS + 301_000, 0, u64::MAX] {
            assert_eq!(check(now_ms), Err(CallbackError::Age));
        }
    }

    #[test]
    fn rotated_keys_are_accepted_and_unknown_keys_rejected() {
        let check = |ring: &KeyRing, timestamp: &str, body: &str| {
            let (timestamp, body) = (timestamp.as_bytes(), body.as_bytes());
            verify(ring, timestamp, SIGNED.as_bytes(), body, NOW_MS)
        };
        let rotated = ring(&[("p2", 8), ("p1", 7)]);
        assert_eq!(check(&rotated, "1700000000", "{}"), Ok(()));
        let dropped = check(&ring(&[("p2", 8)]), "1700000000", "{}");
        assert_eq!(dropped, Err(SignatureError::UnknownKey.into()));
        let wrong = Err(SignatureError::Wrong.into());
        assert_eq!(check(&rotated, "1700000001", "{}"), wrong);
        assert_eq!(check(&rotated, "1700000000", "{ }"), wrong);
        // A signature of a gateway with the same secret is not valid for a callback.
        let claim = ring(&[("p1", 7)]).sign_for(Purpose::User, "1700000000.{}");
        let refused = verify(&rotated, b"1700000000", claim.as_bytes(), b"{}", NOW_MS);
        assert_eq!(refused, wrong);
    }

    #[test]
    fn hostile_callback_never_panics_the_reader() {
        let keys = ring(&[("p1", 7)]);
        for (timestamp, signature, body) in [
            (&b""[..], &b""[..], &b""[..]),
            (b"\xff", b"p1;00", b"{}"),
            (b"1", b"p1", b"{}"),
            (b"1", b"p1;00", b"\xff"),
            (b"99999999999999999999", b"p1;00", b"{}"),
        ] {
            assert!(verify(&keys, timestamp, signature, body, NOW_MS).is_err());
        }
    }
}
