//! An edge's signature on a request: proves the edge, the time and the client's address.
//!
//! ```text
//! x-weir-edge:           v1;<at_ms>;<edge>;<client's address>;<method>;<path and query>
//! x-weir-edge-signature: <key id>;<HMAC-SHA256 of "weir-edge\n" and the header's bytes, in hex>
//! ```
//!
//! The path is the last field because it may contain a `;`. A stamp is valid for one request and one minute, so an
//! intercepted stamp cannot authorise another request. Edges and gateways remove copies sent by clients.

use alloc::format;
use alloc::string::String;

use crate::id::SaleId;
use crate::key::{KeyRing, Purpose, SignatureError};

/// The validity of a stamp and the maximum clock difference, in milliseconds.
pub const AGE_MS_MAX: u64 = 60_000;

const VERSION: &str = "v1";

/// A request forwarded by an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp<'a> {
    /// The time in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The edge's name, with the alphabet of sale ids.
    pub edge: &'a str,
    /// The client's address; empty for a request of the edge itself.
    pub client: &'a str,
    /// The method.
    pub method: &'a str,
    /// The path with its query.
    pub path: &'a str,
}

/// The two headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StampHeaders {
    /// The value of [`crate::headers::EDGE`].
    pub value: String,
    /// The value of [`crate::headers::EDGE_SIGNATURE`].
    pub signature: String,
}

/// Why a stamp is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StampError {
    /// No key of the ring has signed it.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// It does not have the documented form.
    #[error("the edge assertion is malformed")]
    Malformed,
    /// It belongs to another request.
    #[error("the edge assertion is for another request")]
    OtherRequest,
    /// It is older than a minute, or from the future.
    #[error("the edge assertion is not valid at this time: check the clocks")]
    Time,
}

impl<'a> Stamp<'a> {
    /// Signs the stamp with the ring's first key.
    pub fn sign(&self, ring: &KeyRing) -> StampHeaders {
        let value = self.encode();
        let signature = ring.sign_for(Purpose::Edge, &value);
        StampHeaders { value, signature }
    }

    /// Reads a stamp and verifies its signature, its request and its time.
    ///
    /// # Errors
    /// See [`StampError`].
    pub fn verify(
        ring: &KeyRing,
        value: &'a str,
        signature: &str,
        (method, path): (&str, &str),
        now_ms: u64,
    ) -> Result<Self, StampError> {
        ring.verify_for(Purpose::Edge, value, signature)?;
        let stamp = Self::decode(value).ok_or(StampError::Malformed)?;
        if (stamp.method, stamp.path) != (method, path) {
            return Err(StampError::OtherRequest);
        }
        match stamp.at_ms.abs_diff(now_ms) <= AGE_MS_MAX {
            true => Ok(stamp),
            false => Err(StampError::Time),
        }
    }

    fn encode(&self) -> String {
        let Self {
            at_ms,
            edge,
            client,
            method,
            path,
        } = self;
        format!("{VERSION};{at_ms};{edge};{client};{method};{path}")
    }

    fn decode(value: &'a str) -> Option<Self> {
        let mut fields = value.splitn(6, ';');
        if fields.next()? != VERSION {
            return None;
        }
        let stamp = Self {
            at_ms: fields.next()?.parse().ok()?,
            edge: fields.next()?,
            client: fields.next()?,
            method: fields.next()?,
            path: fields.next()?,
        };
        SaleId::new(stamp.edge).ok()?;
        (stamp.encode() == value).then_some(stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::document::tests::ring;
    use proptest::prelude::*;

    const STAMP: Stamp<'_> = Stamp {
        at_ms: 1_700_000_000_000,
        edge: "fra-1",
        client: "192.0.2.1",
        method: "POST",
        path: "/sales/s/orders?a=1;b",
    };
    const REQUEST: (&str, &str) = ("POST", "/sales/s/orders?a=1;b");

    fn verify(value: &str, signature: &str, now_ms: u64) -> Result<(), StampError> {
        let ring = ring(&[("e1", 1), ("e0", 2)]);
        Stamp::verify(&ring, value, signature, REQUEST, now_ms).map(|_| ())
    }

    #[test]
    fn stamp_is_valid_for_its_request_for_one_minute() {
        let signed = STAMP.sign(&ring(&[("e1", 1)]));
        assert_eq!(
            signed.value,
            "v1;1700000000000;fra-1;192.0.2.1;POST;/sales/s/orders?a=1;b"
        );
        for (later_ms, expected) in [
            (0, Ok(())),
            (AGE_MS_MAX, Ok(())),
            (AGE_MS_MAX + 1, Err(StampError::Time)),
        ] {
            for now_ms in [STAMP.at_ms + later_ms, STAMP.at_ms - later_ms] {
                assert_eq!(verify(&signed.value, &signed.signature, now_ms), expected);
            }
        }
        let ring = ring(&[("e1", 1)]);
        for other in [("GET", REQUEST.1), ("POST", "/sales/s/orders")] {
            let (value, signature) = (&signed.value, &signed.signature);
            let refused = Stamp::verify(&ring, value, signature, other, STAMP.at_ms);
            assert_eq!(refused, Err(StampError::OtherRequest));
        }
    }

    #[test]
    fn only_stamps_signed_with_an_edge_key_are_valid() {
        let old = STAMP.sign(&ring(&[("e0", 2)]));
        assert_eq!(verify(&old.value, &old.signature, STAMP.at_ms), Ok(()));
        for (keys, error) in [
            (("e1", 9), SignatureError::Wrong),
            (("e2", 1), SignatureError::UnknownKey),
        ] {
            let forged = STAMP.sign(&ring(&[keys]));
            let refused = verify(&forged.value, &forged.signature, STAMP.at_ms);
            assert_eq!(refused, Err(error.into()));
        }
        // A claim's signature by the same secret is not valid for a stamp.
        let (ring, value) = (ring(&[("e1", 1)]), STAMP.encode());
        let refused = verify(&value, &ring.sign(&value), STAMP.at_ms);
        assert_eq!(refused, Err(SignatureError::Wrong.into()));
    }

    proptest! {
        #[test]
        fn every_edge_stamp_round_trips(
            at_ms: u64, edge in "[a-z0-9-]{1,64}", client in "[0-9a-f:.]{0,40}", path in "/[!-~]{0,80}",
        ) {
            let stamp = Stamp { at_ms, edge: &edge, client: &client, method: "GET", path: &path };
            let ring = ring(&[("e1", 1)]);
            let StampHeaders { value, signature } = stamp.sign(&ring);
            let read = Stamp::verify(&ring, &value, &signature, ("GET", &path), at_ms);
            prop_assert_eq!(read, Ok(stamp));
        }

        #[test]
        fn no_text_panics_the_reader(text in ".{0,200}") {
            let ring = ring(&[("e1", 1)]);
            prop_assert!(Stamp::verify(&ring, &text, &text, ("GET", "/"), 0).is_err());
            let signature = ring.sign_for(Purpose::Edge, &text);
            prop_assert!(Stamp::verify(&ring, &text, &signature, ("GET", "/"), 0).is_err());
        }
    }
}
