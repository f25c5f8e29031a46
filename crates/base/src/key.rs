//! Named secrets: gateways sign with one, and whoever checks knows several, so that a secret can be
//! changed while a sale runs.
//!
//! To change a secret: give the new key to all as the second of their ring; then put it first
//! everywhere; drop the old one when all that it signed has expired.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::id::SaleId;

/// The least bytes of a signing key: as many as the hash puts out (RFC 2104, section 3).
pub const KEY_LEN_MIN: usize = 32;

/// The most keys of a ring. Two are enough to change a secret; more only tell that old ones stay.
pub const KEYS_MAX: usize = 8;

/// The bytes of a tag: what HMAC-SHA256 puts out.
pub const TAG_LEN: usize = 32;

/// Why a signing key was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Fewer bytes than [`KEY_LEN_MIN`].
    #[error("has {0} bytes, needs at least {KEY_LEN_MIN}")]
    TooShort(usize),
    /// The key's id is empty or has other bytes than `a-z`, `0-9` and `-`.
    #[error("has an id that is not 1 to 64 of a-z, 0-9 and -")]
    Id,
}

/// Why keys make no ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyRingError {
    /// No key at all.
    #[error("needs at least one key")]
    Empty,
    /// More keys than [`KEYS_MAX`].
    #[error("has {0} keys, the maximum is {KEYS_MAX}")]
    TooMany(usize),
    /// Two keys of one id.
    #[error("has the id of an earlier key at position {at}")]
    SameId {
        /// The position of the later one, counted from 0.
        at: usize,
    },
}

/// Why a signature was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// It is not `<key id>;<hex>`.
    #[error("the signature is malformed")]
    Malformed,
    /// It was made with a key of another id.
    #[error("it is signed with an unknown key")]
    UnknownKey,
    /// It is not this message's.
    #[error("the signature is wrong")]
    Wrong,
}

/// What a signature is for. One secret may serve several purposes: what was signed for one of them
/// counts for no other, as each signs messages that begin in a way of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A claim header. It has no prefix, but begins with `v1;`, as no prefix does.
    Claim,
    /// An order token, which the checkout gives.
    OrderToken,
    /// A user header, which says who asks.
    User,
    /// The seed of a hash, see [`KeyRing::seed`].
    Seed,
    /// A payment provider's callback. It has no prefix, so that a provider need not know of one, but begins with a
    /// digit, as no prefix does.
    PaymentCallback,
    /// A round of the permutation of link numbers, which makes codes of them.
    LinkScramble,
    /// A document that the origin publishes for edges.
    Feed,
    /// A stamp, which an edge puts on a request.
    Edge,
    /// What tells two secrets apart, see [`SigningKey::fingerprint`].
    Fingerprint,
    /// A pass of a waiting room: a place in its queue, or a session inside.
    RoomPass,
    /// The name of a visitor of a waiting room who has none.
    RoomVisitor,
    /// A challenge, which a sale may set before it gives an order token.
    Challenge,
    /// The seed of a waiting room's draw, and a round of the permutation that it makes.
    RoomDraw,
    /// The name of a click that travels on from a link.
    LinkClick,
}

impl Purpose {
    /// Every purpose.
    pub const ALL: [Self; 14] = [
        Self::Claim,
        Self::OrderToken,
        Self::User,
        Self::Seed,
        Self::PaymentCallback,
        Self::LinkScramble,
        Self::Feed,
        Self::Edge,
        Self::Fingerprint,
        Self::RoomPass,
        Self::RoomVisitor,
        Self::Challenge,
        Self::RoomDraw,
        Self::LinkClick,
    ];

    const fn prefix(self) -> &'static str {
        match self {
            Self::Claim | Self::PaymentCallback => "",
            Self::OrderToken => "weir-order-token\n",
            Self::User => "weir-user\n",
            Self::Seed => "weir-seed\n",
            Self::LinkScramble => "weir-link-scramble\n",
            Self::Feed => "weir-feed\n",
            Self::Edge => "weir-edge\n",
            Self::Fingerprint => "weir-fingerprint\n",
            Self::RoomPass => "weir-room-pass\n",
            Self::RoomVisitor => "weir-room-visitor\n",
            Self::Challenge => "weir-challenge\n",
            Self::RoomDraw => "weir-room-draw\n",
            Self::LinkClick => "weir-link-click\n",
        }
    }
}

/// A named secret with which gateways sign and the origin checks.
#[derive(Clone)]
pub struct SigningKey {
    id: String,
    // Keyed once: cloning the state is cheaper than hashing the key for each claim.
    mac: Hmac<Sha256>,
}

/// The secret stays out of logs.
impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl SigningKey {
    /// A key named `id` from `secret`.
    ///
    /// # Errors
    /// When the secret is too short or the id not fit for a header.
    pub fn new(id: &str, secret: &[u8]) -> Result<Self, KeyError> {
        if secret.len() < KEY_LEN_MIN {
            return Err(KeyError::TooShort(secret.len()));
        }
        // A key's id has the same alphabet as a sale's.
        SaleId::new(id).map_err(|_| KeyError::Id)?;
        // HMAC takes keys of any length, so the error cannot come.
        let mac = Hmac::new_from_slice(secret).map_err(|_| KeyError::TooShort(secret.len()))?;
        Ok(Self { id: id.into(), mac })
    }

    /// The key's name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The signature header of a claim header with the bytes `claim`.
    pub fn sign(&self, claim: &str) -> String {
        self.sign_for(Purpose::Claim, claim)
    }

    /// Checks, in constant time, that `signature` is what [`SigningKey::sign`] gives for `claim`.
    ///
    /// # Errors
    /// Says whether the form, the key or the signature itself is wrong.
    pub fn verify(&self, claim: &str, signature: &str) -> Result<(), SignatureError> {
        let (key_id, tag) = read_signature(signature)?;
        if key_id != self.id {
            return Err(SignatureError::UnknownKey);
        }
        let is_right = self.is_tag(Purpose::Claim, claim.as_bytes(), &tag);
        is_right.then_some(()).ok_or(SignatureError::Wrong)
    }

    /// The tag of `message`.
    pub fn tag(&self, purpose: Purpose, message: &[u8]) -> [u8; TAG_LEN] {
        self.mac_of(purpose, message).finalize().into_bytes().into()
    }

    /// Whether `tag` is the tag of `message`; in constant time.
    pub fn is_tag(&self, purpose: Purpose, message: &[u8], tag: &[u8]) -> bool {
        self.mac_of(purpose, message).verify_slice(tag).is_ok()
    }

    /// Tells secrets apart without showing them: the same for all who have this one, in 16 hexadecimal digits. Its id has no
    /// part in it. A secret of 32 random bytes cannot be found from it.
    pub fn fingerprint(&self) -> String {
        let tag = self.tag(Purpose::Fingerprint, b"");
        let [a, b, c, d, e, f, g, h, ..] = tag;
        hex::encode([a, b, c, d, e, f, g, h])
    }

    fn mac_of(&self, purpose: Purpose, message: &[u8]) -> Hmac<Sha256> {
        let mac = self.mac.clone();
        mac.chain_update(purpose.prefix()).chain_update(message)
    }

    fn sign_for(&self, purpose: Purpose, message: &str) -> String {
        let tag = self.tag(purpose, message.as_bytes());
        // `hex::encode` pushes one character at a time: that was two fifths of what a claim's completion cost.
        let mut digits = [0; 2 * TAG_LEN];
        // It has room for two digits a byte, and they are ASCII: neither can fail.
        let _ = hex::encode_to_slice(tag, &mut digits);
        let digits = core::str::from_utf8(&digits).unwrap_or_default();
        [&self.id, ";", digits].concat()
    }
}

/// A signature header's key id and tag.
fn read_signature(signature: &str) -> Result<(&str, Vec<u8>), SignatureError> {
    let (key_id, tag) = signature.split_once(';').ok_or(SignatureError::Malformed)?;
    let tag = hex::decode(tag).map_err(|_| SignatureError::Malformed)?;
    Ok((key_id, tag))
}

/// The keys that count: the first signs, all verify.
#[derive(Clone, Debug)]
pub struct KeyRing {
    signer: SigningKey,
    others: Vec<SigningKey>,
}

impl KeyRing {
    /// A ring of 1 to [`KEYS_MAX`] keys with distinct ids.
    ///
    /// # Errors
    /// When there are none, too many, or two of one id.
    pub fn new(keys: Vec<SigningKey>) -> Result<Self, KeyRingError> {
        if keys.len() > KEYS_MAX {
            return Err(KeyRingError::TooMany(keys.len()));
        }
        let is_repeated = |(at, key): (usize, &SigningKey)| {
            let mut earlier = keys.iter().take(at);
            earlier.any(|other| other.id == key.id).then_some(at)
        };
        if let Some(at) = keys.iter().enumerate().find_map(is_repeated) {
            return Err(KeyRingError::SameId { at });
        }
        let mut keys = keys.into_iter();
        let signer = keys.next().ok_or(KeyRingError::Empty)?;
        let others = keys.collect();
        Ok(Self { signer, others })
    }

    /// The key that signs.
    pub fn signer(&self) -> &SigningKey {
        &self.signer
    }

    /// The key named `id`.
    pub fn find(&self, id: &str) -> Option<&SigningKey> {
        let mut keys = core::iter::once(&self.signer).chain(&self.others);
        keys.find(|key| key.id == id)
    }

    /// The signature header of a claim header with the bytes `claim`.
    pub fn sign(&self, claim: &str) -> String {
        self.signer.sign(claim)
    }

    /// Checks, in constant time, that `signature` is what one of the keys gives for `claim`.
    ///
    /// # Errors
    /// Says whether the form, the key or the signature itself is wrong.
    pub fn verify(&self, claim: &str, signature: &str) -> Result<(), SignatureError> {
        self.verify_for(Purpose::Claim, claim, signature)
    }

    /// The id and the fingerprint of each key, the signing one first.
    pub fn fingerprints(&self) -> Vec<(&str, String)> {
        let keys = core::iter::once(&self.signer).chain(&self.others);
        keys.map(|key| (key.id(), key.fingerprint())).collect()
    }

    /// The seed of the hash named `name`: all who have the same first key agree on it without a word,
    /// and nobody else knows it.
    pub fn seed(&self, name: &str) -> u64 {
        let tag = self.signer.tag(Purpose::Seed, name.as_bytes());
        let [a, b, c, d, e, f, g, h, ..] = tag;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// The signature header of `message`: `<key id>;<tag in hex>`.
    pub fn sign_for(&self, purpose: Purpose, message: &str) -> String {
        self.signer.sign_for(purpose, message)
    }

    /// Checks, in constant time, that `signature` is what one of the keys gives for `message` and
    /// `purpose`.
    ///
    /// # Errors
    /// Says whether the form, the key or the signature itself is wrong.
    pub fn verify_for(
        &self,
        purpose: Purpose,
        message: &str,
        signature: &str,
    ) -> Result<(), SignatureError> {
        let (key_id, tag) = read_signature(signature)?;
        let key = self.find(key_id).ok_or(SignatureError::UnknownKey)?;
        let is_right = key.is_tag(purpose, message.as_bytes(), &tag);
        is_right.then_some(()).ok_or(SignatureError::Wrong)
    }
}

impl From<SigningKey> for KeyRing {
    fn from(signer: SigningKey) -> Self {
        let others = Vec::new();
        Self { signer, others }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec;
    use proptest::prelude::*;

    fn key(id: &str, byte: u8) -> SigningKey {
        SigningKey::new(id, &[byte; 32]).unwrap()
    }

    fn ring(keys: &[(&str, u8)]) -> KeyRing {
        KeyRing::new(keys.iter().map(|&(id, byte)| key(id, byte)).collect()).unwrap()
    }

    /// RFC 4231, test case 6: pins the algorithm.
    #[test]
    fn the_signature_is_hmac_sha256_in_hex() {
        let key = SigningKey::new("k", &[0xaa; 131]).unwrap();
        let data = "Test Using Larger Than Block-Size Key - Hash Key First";
        let expected = "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54";
        assert_eq!(key.sign(data), format!("k;{expected}"));
    }

    #[test]
    fn weak_or_misnamed_key_is_refused_and_good_key_is_never_logged() {
        assert_eq!(
            SigningKey::new("k1", &[0; 31]).unwrap_err(),
            KeyError::TooShort(31)
        );
        assert_eq!(SigningKey::new("k;1", &[0; 32]).unwrap_err(), KeyError::Id);
        let key = SigningKey::new("k1", b"hush-hush-hush-hush-hush-hush-hush").unwrap();
        let shown = format!("{key:?} {:?}", KeyRing::from(key.clone()));
        assert!(!shown.contains("hush"), "{shown}");
        assert!(shown.contains("k1"), "{shown}");
    }

    #[test]
    fn a_key_checks_what_it_has_signed_and_nothing_else() {
        let own = key("a", 1);
        let signature = own.sign("c");
        assert_eq!(own.verify("c", &signature), Ok(()));
        assert_eq!(own.verify("d", &signature), Err(SignatureError::Wrong));
        let unknown = key("b", 1).verify("c", &signature);
        assert_eq!(unknown, Err(SignatureError::UnknownKey));
        assert_eq!(own.verify("c", "a"), Err(SignatureError::Malformed));
    }

    #[test]
    fn a_ring_has_one_to_eight_keys_each_with_an_id_of_its_own() {
        let refused = |keys| KeyRing::new(keys).unwrap_err();
        assert_eq!(refused(vec![]), KeyRingError::Empty);
        let many = (0..9).map(|n| key(&format!("k{n}"), n)).collect();
        assert_eq!(refused(many), KeyRingError::TooMany(9));
        let alike = vec![key("a", 1), key("b", 2), key("a", 3)];
        assert_eq!(refused(alike), KeyRingError::SameId { at: 2 });
        assert!(KeyRing::new((0..8).map(|n| key(&format!("k{n}"), n)).collect()).is_ok());
    }

    /// A change of the secret, step by step: no step meets a signature that it cannot check.
    #[test]
    fn secret_is_rotated_without_refusing_a_signature() {
        let steps = [
            ring(&[("old", 1)]),
            ring(&[("old", 1), ("new", 2)]),
            ring(&[("new", 2), ("old", 1)]),
            ring(&[("new", 2)]),
        ];
        for pair in steps.windows(2) {
            for (signs, checks) in [(&pair[0], &pair[1]), (&pair[1], &pair[0])] {
                let signature = signs.sign("v1;claim");
                assert_eq!(checks.verify("v1;claim", &signature), Ok(()));
            }
        }
        assert_eq!(steps[2].signer().id(), "new");
        assert!(steps[2].sign("c").starts_with("new;"));
        let old = steps[0].sign("c");
        assert_eq!(steps[3].verify("c", &old), Err(SignatureError::UnknownKey));
    }

    #[test]
    fn a_seed_hangs_on_the_first_key_and_the_name() {
        let seed = |keys: &[(&str, u8)], name| ring(keys).seed(name);
        let users = seed(&[("a", 1)], "users");
        assert_eq!(users, seed(&[("z", 1), ("b", 2)], "users"));
        assert_ne!(users, seed(&[("a", 2)], "users"));
        assert_ne!(users, seed(&[("a", 1)], "addresses"));
    }

    #[test]
    fn a_fingerprint_hangs_on_the_secret_alone() {
        assert_eq!(key("a", 1).fingerprint(), key("b", 1).fingerprint());
        assert_ne!(key("a", 1).fingerprint(), key("a", 2).fingerprint());
        let ring = ring(&[("a", 1), ("b", 2)]);
        let expected = [("a", key("a", 1)), ("b", key("b", 2))];
        let expected = expected.map(|(id, key)| (id, key.fingerprint()));
        assert_eq!(ring.fingerprints(), expected);
        assert_eq!(expected[0].1.len(), 16);
    }

    #[test]
    fn a_key_is_picked_by_its_id_alone() {
        let ring = ring(&[("a", 1), ("b", 2)]);
        let misnamed = key("b", 1).sign("c");
        assert_eq!(ring.verify("c", &misnamed), Err(SignatureError::Wrong));
        let malformed = ring.verify("c", "a");
        assert_eq!(malformed, Err(SignatureError::Malformed));
    }

    proptest! {
        #[test]
        fn what_is_signed_for_one_purpose_counts_for_no_other(message in ".{0,40}") {
            let ring = ring(&[("k", 7)]);
            // Those without a prefix sign messages that begin in a way of their own.
            let of = |purpose| match purpose {
                Purpose::Claim => format!("v1;{message}"),
                Purpose::PaymentCallback => format!("1700000000.{message}"),
                _ => message.clone(),
            };
            for signed in Purpose::ALL {
                let signature = ring.sign_for(signed, &of(signed));
                for checked in Purpose::ALL {
                    let right = ring.verify_for(checked, &of(checked), &signature).is_ok();
                    prop_assert_eq!(right, signed == checked);
                }
            }
        }
    }
}
