//! Named secrets. Gateways sign with one and verifiers accept several, so that operators can rotate a secret during a
//! sale.
//!
//! To rotate a secret, add the new key as the second of every ring. Then put it first everywhere. Remove the old key
//! when all its signatures have expired.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::id::SaleId;

/// The minimum length of a signing key: the output length of the hash (RFC 2104, section 3).
pub const KEY_LEN_MIN: usize = 32;

/// The most keys of a ring. Two are enough for a rotation; more mean that old keys are never removed.
pub const KEYS_MAX: usize = 8;

/// The length of a tag: the output of HMAC-SHA256.
pub const TAG_LEN: usize = 32;

/// Why a signing key is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It has fewer bytes than [`KEY_LEN_MIN`].
    #[error("has {0} bytes, needs at least {KEY_LEN_MIN}")]
    TooShort(usize),
    /// The id is empty or contains bytes other than `a-z`, `0-9` and `-`.
    #[error("has an id that is not 1 to 64 of a-z, 0-9 and -")]
    Id,
}

/// Why a key ring is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyRingError {
    /// It has no key.
    #[error("needs at least one key")]
    Empty,
    /// It has more keys than [`KEYS_MAX`].
    #[error("has {0} keys, the maximum is {KEYS_MAX}")]
    TooMany(usize),
    /// Two keys have the same id.
    #[error("has the id of an earlier key at position {at}")]
    SameId {
        /// The index of the second one, from 0.
        at: usize,
    },
}

/// Why a signature is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// It is not `<key id>;<hex>`.
    #[error("the signature is malformed")]
    Malformed,
    /// The ring has no key with this id.
    #[error("it is signed with an unknown key")]
    UnknownKey,
    /// It does not match the message.
    #[error("the signature is wrong")]
    Wrong,
}

/// The purpose of a signature. One secret may serve several purposes. A signature for one purpose is not valid for
/// another, because the signed messages begin differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A claim header. It has no prefix, but begins with `v1;`, unlike every prefix.
    Claim,
    /// An order token from the checkout.
    OrderToken,
    /// A user header, which identifies the user.
    User,
    /// The seed of a hash, see [`KeyRing::seed`].
    Seed,
    /// A payment provider's callback. It has no prefix, so that providers need not add one, but begins with a digit,
    /// unlike every prefix.
    PaymentCallback,
    /// A round of the permutation that turns link numbers into codes.
    LinkScramble,
    /// A feed document of the origin.
    Feed,
    /// An edge's stamp on a request.
    Edge,
    /// The input of [`SigningKey::fingerprint`].
    Fingerprint,
    /// A waiting room's queue token: a queue position or an active session.
    RoomPass,
    /// The id of a waiting room's visitor without an id of their own.
    RoomVisitor,
    /// A challenge that a sale requires before it issues an order token.
    Challenge,
    /// The seed of a waiting room's ballot, and a round of its permutation.
    RoomDraw,
    /// The click id that a link passes on to its target.
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

/// A named secret. Gateways sign with it and the origin verifies.
#[derive(Clone)]
pub struct SigningKey {
    id: String,
    // Keyed once: cloning the state is cheaper than hashing the key for each claim.
    mac: Hmac<Sha256>,
}

/// Keeps the secret out of logs.
impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl SigningKey {
    /// A key named `id` with this secret.
    ///
    /// # Errors
    /// When the secret is too short or the id is invalid.
    pub fn new(id: &str, secret: &[u8]) -> Result<Self, KeyError> {
        if secret.len() < KEY_LEN_MIN {
            return Err(KeyError::TooShort(secret.len()));
        }
        // A key's id has the same alphabet as a sale's.
        SaleId::new(id).map_err(|_| KeyError::Id)?;
        // HMAC accepts keys of any length, so this cannot fail.
        let mac = Hmac::new_from_slice(secret).map_err(|_| KeyError::TooShort(secret.len()))?;
        Ok(Self { id: id.into(), mac })
    }

    /// The key's name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The signature header for the claim header `claim`.
    pub fn sign(&self, claim: &str) -> String {
        self.sign_for(Purpose::Claim, claim)
    }

    /// Verifies a signature by [`SigningKey::sign`], in constant time.
    ///
    /// # Errors
    /// See [`SignatureError`].
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

    /// A public identifier of the secret: 16 hexadecimal digits, equal for equal secrets, independent of the key's id.
    /// It does not reveal a secret of 32 random bytes.
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
        // `hex::encode` pushes one character at a time, which took two fifths of the time of a claim's completion.
        let mut digits = [0; 2 * TAG_LEN];
        // The buffer has two ASCII digits per byte, so neither call can fail.
        let _ = hex::encode_to_slice(tag, &mut digits);
        let digits = core::str::from_utf8(&digits).unwrap_or_default();
        [&self.id, ";", digits].concat()
    }
}

/// The key id and the tag of a signature header.
fn read_signature(signature: &str) -> Result<(&str, Vec<u8>), SignatureError> {
    let (key_id, tag) = signature.split_once(';').ok_or(SignatureError::Malformed)?;
    let tag = hex::decode(tag).map_err(|_| SignatureError::Malformed)?;
    Ok((key_id, tag))
}

/// The accepted keys: the first signs, all verify.
#[derive(Clone, Debug)]
pub struct KeyRing {
    signer: SigningKey,
    others: Vec<SigningKey>,
}

impl KeyRing {
    /// A ring of 1 to [`KEYS_MAX`] keys with distinct ids.
    ///
    /// # Errors
    /// See [`KeyRingError`].
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

    /// The signature header for the claim header `claim`.
    pub fn sign(&self, claim: &str) -> String {
        self.signer.sign(claim)
    }

    /// Verifies, in constant time, a signature of `claim` by one of the keys.
    ///
    /// # Errors
    /// See [`SignatureError`].
    pub fn verify(&self, claim: &str, signature: &str) -> Result<(), SignatureError> {
        self.verify_for(Purpose::Claim, claim, signature)
    }

    /// The id and the fingerprint of each key, the signing one first.
    pub fn fingerprints(&self) -> Vec<(&str, String)> {
        let keys = core::iter::once(&self.signer).chain(&self.others);
        keys.map(|key| (key.id(), key.fingerprint())).collect()
    }

    /// The seed of the hash named `name`. All processes with the same first key derive the same seed; it is secret.
    pub fn seed(&self, name: &str) -> u64 {
        let tag = self.signer.tag(Purpose::Seed, name.as_bytes());
        let [a, b, c, d, e, f, g, h, ..] = tag;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// The signature header of `message`: `<key id>;<tag in hex>`.
    pub fn sign_for(&self, purpose: Purpose, message: &str) -> String {
        self.signer.sign_for(purpose, message)
    }

    /// Verifies, in constant time, a signature of `message` for `purpose` by one of the keys.
    ///
    /// # Errors
    /// See [`SignatureError`].
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

    /// RFC 4231, test case 6, fixes the algorithm.
    #[test]
    fn signature_is_hmac_sha256_in_hex() {
        let key = SigningKey::new("k", &[0xaa; 131]).unwrap();
        let data = "Test Using Larger Than Block-Size Key - Hash Key First";
        let expected = "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54";
        assert_eq!(key.sign(data), format!("k;{expected}"));
    }

    #[test]
    fn weak_or_misnamed_key_is_refused_and_valid_key_never_logged() {
        assert_eq!(
            SigningKey::new("k1", &[0; 31]).unwrap_err(),
            KeyError::TooShort(31)
        );
        assert_eq!(SigningKey::new("k;1", &[0; 32]).unwrap_err(), KeyError::Id);
        let key = SigningKey::new("k1", b"hush-hush-hush-hush-hush-hush-hush").unwrap();
        let message = format!("{key:?} {:?}", KeyRing::from(key.clone()));
        assert!(!message.contains("hush"), "{message}");
        assert!(message.contains("k1"), "{message}");
    }

    #[test]
    fn key_verifies_only_its_own_signatures() {
        let own = key("a", 1);
        let signature = own.sign("c");
        assert_eq!(own.verify("c", &signature), Ok(()));
        assert_eq!(own.verify("d", &signature), Err(SignatureError::Wrong));
        let unknown = key("b", 1).verify("c", &signature);
        assert_eq!(unknown, Err(SignatureError::UnknownKey));
        assert_eq!(own.verify("c", "a"), Err(SignatureError::Malformed));
    }

    #[test]
    fn key_ring_has_one_to_eight_keys_with_unique_ids() {
        let refused = |keys| KeyRing::new(keys).unwrap_err();
        assert_eq!(refused(vec![]), KeyRingError::Empty);
        let many = (0..9).map(|n| key(&format!("k{n}"), n)).collect();
        assert_eq!(refused(many), KeyRingError::TooMany(9));
        let alike = vec![key("a", 1), key("b", 2), key("a", 3)];
        assert_eq!(refused(alike), KeyRingError::SameId { at: 2 });
        assert!(KeyRing::new((0..8).map(|n| key(&format!("k{n}"), n)).collect()).is_ok());
    }

    /// At each step of a rotation, every verifier accepts every signature.
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
    fn seed_depends_on_first_secret_and_name() {
        let seed = |keys: &[(&str, u8)], name| ring(keys).seed(name);
        let users = seed(&[("a", 1)], "users");
        assert_eq!(users, seed(&[("z", 1), ("b", 2)], "users"));
        assert_ne!(users, seed(&[("a", 2)], "users"));
        assert_ne!(users, seed(&[("a", 1)], "addresses"));
    }

    #[test]
    fn fingerprint_depends_only_on_the_secret() {
        assert_eq!(key("a", 1).fingerprint(), key("b", 1).fingerprint());
        assert_ne!(key("a", 1).fingerprint(), key("a", 2).fingerprint());
        let ring = ring(&[("a", 1), ("b", 2)]);
        let expected = [("a", key("a", 1)), ("b", key("b", 2))];
        let expected = expected.map(|(id, key)| (id, key.fingerprint()));
        assert_eq!(ring.fingerprints(), expected);
        assert_eq!(expected[0].1.len(), 16);
    }

    #[test]
    fn verification_key_is_selected_only_by_id() {
        let ring = ring(&[("a", 1), ("b", 2)]);
        let misnamed = key("b", 1).sign("c");
        assert_eq!(ring.verify("c", &misnamed), Err(SignatureError::Wrong));
        let malformed = ring.verify("c", "a");
        assert_eq!(malformed, Err(SignatureError::Malformed));
    }

    proptest! {
        #[test]
        fn signature_is_valid_for_one_purpose_only(message in ".{0,40}") {
            let ring = ring(&[("k", 7)]);
            // Purposes without a prefix sign messages with a distinct beginning.
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
