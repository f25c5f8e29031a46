//! The queue token: a signed queue position or session, which the visitor sends with each request.
//!
//! ```text
//! <key id>.<payload>.<tag>
//! payload:  v1;<room>;<visitor>;<joined_ms>;<place>;<head>;<until_ms>, in base64url without padding
//! tag:      HMAC-SHA256 of "weir-room-pass\n" and the payload's text, in base64url
//! ```
//!
//! Gateways do not store tokens. Each gateway verifies them with the shared keys. A token also carries state that Redis
//! may lose: its position shows how many were assigned, and `head` how far the queue had been called.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use weir_base::key::{KeyRing, Purpose};

use crate::{NUMBER_MAX, RoomName, Visitor};

/// Maximum length of a token, in bytes; longer ones are not parsed. The longest minted one has 388: a key ID of 64
/// bytes, a payload of 142 and a tag of 32 before encoding, and two dots.
pub const LEN_MAX: usize = 512;

const VERSION: &str = "v1";

/// The content of a queue token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// The visitor.
    pub visitor: Visitor,
    /// When the visitor first arrived, in milliseconds since the Unix epoch.
    pub joined_ms: u64,
    /// The position that Redis assigned, from 1; 0 if none is known.
    pub place: u64,
    /// How far the queue had been called when the token was signed.
    pub head: u64,
    /// The end of the session, in milliseconds since the Unix epoch; 0 while waiting.
    pub until_ms: u64,
}

/// Why a token is refused. Its visitor counts as new; metrics distinguish the reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PassError {
    /// More than [`LEN_MAX`] bytes.
    #[error("the queue token is longer than {LEN_MAX} bytes")]
    TooLong,
    /// Not three parts of base64url, or an invalid payload.
    #[error("the queue token is malformed")]
    Malformed,
    /// It names an unknown key.
    #[error("the queue token is signed with an unknown key")]
    UnknownKey,
    /// The signature does not match the payload.
    #[error("the queue token's signature is wrong")]
    BadSignature,
    /// It is for another room.
    #[error("the queue token is for another room")]
    OtherRoom,
    /// It is older than the lifetime of tokens.
    #[error("the queue token has expired")]
    Expired,
}

impl PassError {
    /// All reasons.
    pub const ALL: [Self; 6] = [
        Self::TooLong,
        Self::Malformed,
        Self::UnknownKey,
        Self::BadSignature,
        Self::OtherRoom,
        Self::Expired,
    ];

    /// The metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::Malformed => "malformed",
            Self::UnknownKey => "unknown_key",
            Self::BadSignature => "bad_signature",
            Self::OtherRoom => "other_room",
            Self::Expired => "expired",
        }
    }
}

impl Pass {
    /// The token of a new visitor.
    pub fn newcomer(visitor: Visitor, now_ms: u64) -> Self {
        Self {
            visitor,
            joined_ms: now_ms,
            place: 0,
            head: 0,
            until_ms: 0,
        }
    }

    /// Whether the visitor has an active session.
    pub fn is_inside(&self, now_ms: u64) -> bool {
        now_ms < self.until_ms
    }

    /// The token that counts at `now_ms`: after a session, the visitor is a new one with the same ID.
    pub fn in_force(self, now_ms: u64) -> Self {
        match self.until_ms > 0 && !self.is_inside(now_ms) {
            true => Self::newcomer(self.visitor, now_ms),
            false => self,
        }
    }

    /// The encoded token, signed with the ring's first key.
    pub fn mint(&self, ring: &KeyRing, room: &RoomName) -> String {
        let Self {
            joined_ms,
            place,
            head,
            until_ms,
            ..
        } = self;
        let visitor = self.visitor.to_hex();
        let payload = format!("{VERSION};{room};{visitor};{joined_ms};{place};{head};{until_ms}");
        let key = ring.signer();
        let tag = key.tag(Purpose::RoomPass, payload.as_bytes());
        let (payload, tag) = (URL_SAFE_NO_PAD.encode(payload), URL_SAFE_NO_PAD.encode(tag));
        [key.id(), ".", &payload, ".", &tag].concat()
    }

    /// Parses a token for `room`. `life_ms` is the lifetime of a waiting visitor's token. A session has its own end;
    /// after it, the visitor counts as new with the same ID.
    ///
    /// # Errors
    /// If the token is refused. The payload is parsed only after its tag has been verified, in constant time.
    pub fn read(
        ring: &KeyRing,
        room: &RoomName,
        text: &[u8],
        now_ms: u64,
        life_ms: u64,
    ) -> Result<Self, PassError> {
        let payload = open(ring, text)?;
        let (of, pass) = parse(&payload).ok_or(PassError::Malformed)?;
        if of != room.as_str().as_bytes() {
            return Err(PassError::OtherRoom);
        }
        let ends_ms = pass.until_ms.max(pass.joined_ms.saturating_add(life_ms));
        if now_ms >= ends_ms {
            return Err(PassError::Expired);
        }
        Ok(pass)
    }
}

/// The payload of a token signed with one of the ring's keys.
fn open(ring: &KeyRing, text: &[u8]) -> Result<Vec<u8>, PassError> {
    if text.len() > LEN_MAX {
        return Err(PassError::TooLong);
    }
    let (key_id, payload, tag) = split(text).ok_or(PassError::Malformed)?;
    let decode = |text| {
        URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| PassError::Malformed)
    };
    let (payload, tag) = (decode(payload)?, decode(tag)?);
    let key_id = core::str::from_utf8(key_id).ok();
    let key = key_id.and_then(|id| ring.find(id));
    let key = key.ok_or(PassError::UnknownKey)?;
    if !key.is_tag(Purpose::RoomPass, &payload, &tag) {
        return Err(PassError::BadSignature);
    }
    Ok(payload)
}

fn split(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let mut parts = text.split(|&byte| byte == b'.');
    let parts = (parts.next()?, parts.next()?, parts.next()?, parts.next());
    match parts {
        (key_id, payload, tag, None) => Some((key_id, payload, tag)),
        _ => None,
    }
}

fn parse(payload: &[u8]) -> Option<(&[u8], Pass)> {
    let mut fields = payload.split(|&byte| byte == b';');
    if fields.next()? != VERSION.as_bytes() {
        return None;
    }
    let room = fields.next()?;
    let visitor = Visitor::from_hex(fields.next()?)?;
    let mut number = || {
        let digits = core::str::from_utf8(fields.next()?).ok()?;
        digits.parse().ok().filter(|number| *number < NUMBER_MAX)
    };
    let pass = Pass {
        visitor,
        joined_ms: number()?,
        place: number()?,
        head: number()?,
        until_ms: number()?,
    };
    fields.next().is_none().then_some((room, pass))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;
    use weir_base::key::SigningKey;

    const NOW_MS: u64 = 1_700_000_000_000;
    const LIFE_MS: u64 = 86_400_000;

    fn ring(keys: &[(&str, u8)]) -> KeyRing {
        let key = |&(id, byte): &(&str, u8)| SigningKey::new(id, &[byte; 32]).unwrap();
        KeyRing::new(keys.iter().map(key).collect()).unwrap()
    }

    fn room(name: &str) -> RoomName {
        RoomName::new(name).unwrap()
    }

    fn waiting() -> Pass {
        Pass {
            place: 17,
            head: 3,
            ..Pass::newcomer(Visitor::of_user(b"alice"), NOW_MS)
        }
    }

    fn read_at(text: &str, now_ms: u64) -> Result<Pass, PassError> {
        let ring = ring(&[("k2", 8), ("k1", 7)]);
        Pass::read(&ring, &room("shop"), text.as_bytes(), now_ms, LIFE_MS)
    }

    /// The format is fixed: gateways of two versions serve the same visitors during an upgrade.
    #[test]
    fn encoding_of_a_pass_is_stable() {
        let text = waiting().mint(&ring(&[("k1", 7)]), &room("shop"));
        let mut parts = text.split('.');
        assert_eq!(parts.next(), Some("k1"));
        let payload = URL_SAFE_NO_PAD.decode(parts.next().unwrap()).unwrap();
        let visitor = Visitor::of_user(b"alice").to_hex();
        let expected = format!("v1;shop;{visitor};1700000000000;17;3;0");
        assert_eq!(payload, expected.as_bytes());
        assert_eq!(text.len(), 2 + 1 + 60 + 1 + 43);
    }

    #[test]
    fn pass_is_valid_with_any_ring_key_until_it_expires() {
        let text = waiting().mint(&ring(&[("k1", 7)]), &room("shop"));
        assert_eq!(read_at(&text, NOW_MS), Ok(waiting()));
        assert_eq!(read_at(&text, NOW_MS + LIFE_MS - 1), Ok(waiting()));
        assert_eq!(read_at(&text, NOW_MS + LIFE_MS), Err(PassError::Expired));
        let inside = Pass {
            until_ms: NOW_MS + 2 * LIFE_MS,
            ..waiting()
        };
        let text = inside.mint(&ring(&[("k1", 7)]), &room("shop"));
        let late = read_at(&text, NOW_MS + LIFE_MS).unwrap();
        assert!(late.is_inside(NOW_MS + LIFE_MS) && !late.is_inside(NOW_MS + 2 * LIFE_MS));
    }

    #[test]
    fn each_invalid_pass_is_refused_with_a_reason() {
        let good = waiting().mint(&ring(&[("k1", 7)]), &room("shop"));
        let (head, tag) = good.rsplit_once('.').unwrap();
        let other_key = waiting().mint(&ring(&[("k9", 7)]), &room("shop"));
        let other_secret = waiting().mint(&ring(&[("k1", 9)]), &room("shop"));
        let other_room = waiting().mint(&ring(&[("k1", 7)]), &room("other"));
        for (text, error) in [
            ("".into(), PassError::Malformed),
            ("a".repeat(513), PassError::TooLong),
            (head.into(), PassError::Malformed),
            (format!("{good}.x"), PassError::Malformed),
            (format!("{head}=.{tag}"), PassError::Malformed),
            (format!("{head}.{}", &tag[4..]), PassError::BadSignature),
            (other_key, PassError::UnknownKey),
            (other_secret, PassError::BadSignature),
            (other_room, PassError::OtherRoom),
        ] {
            let text: String = text;
            assert_eq!(read_at(&text, NOW_MS), Err(error), "{text}");
        }
    }

    #[test]
    fn value_signed_for_another_purpose_is_not_a_pass() {
        let ring = ring(&[("k1", 7)]);
        for payload in [
            "v2;shop;00;1;1;1;1",
            "v1;shop;0001ab03040506ff;1;1;1",
            "v1;shop",
        ] {
            let tag = ring.signer().tag(Purpose::RoomPass, payload.as_bytes());
            let parts = [payload.as_bytes(), &tag].map(|part| URL_SAFE_NO_PAD.encode(part));
            let text = format!("k1.{}", parts.join("."));
            assert_eq!(
                read_at(&text, NOW_MS),
                Err(PassError::Malformed),
                "{payload}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_pass_round_trips_through_its_encoding(
            visitor: [u8; 8],
            numbers in prop::array::uniform4(0..NUMBER_MAX),
        ) {
            let [joined_ms, place, head, until_ms] = numbers;
            let visitor = Visitor::from_bytes(visitor);
            let pass = Pass { visitor, joined_ms, place, head, until_ms };
            let ring = ring(&[("k1", 7)]);
            let text = pass.mint(&ring, &room("shop"));
            let read = Pass::read(&ring, &room("shop"), text.as_bytes(), 0, 1);
            prop_assert_eq!(read, Ok(pass));
        }

        #[test]
        fn random_bytes_are_never_a_valid_pass(bytes in prop::collection::vec(any::<u8>(), 0..600), cut in 0..200_usize) {
            let ring = ring(&[("k1", 7)]);
            prop_assert!(Pass::read(&ring, &room("shop"), &bytes, 1, 1).is_err());
            let mut good = waiting().mint(&ring, &room("shop")).into_bytes();
            let at = cut % good.len();
            good[at] = good[at].wrapping_add(1);
            prop_assert!(Pass::read(&ring, &room("shop"), &good, NOW_MS, LIFE_MS).is_err());
            let _ = vec![good];
        }
    }
}
