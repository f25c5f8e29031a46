//! Visitor IDs.

use alloc::string::String;

use sha2::{Digest, Sha256};
use weir_base::key::{Purpose, SigningKey};

/// A visitor: 64 bits of a hash. Among a million visitors, a collision has a probability of 3 in a hundred million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Visitor([u8; 8]);

impl Visitor {
    /// The visitor who is signed in as `user`. The hash has no key, so that gateways agree on it during a key rotation.
    pub fn of_user(user: &[u8]) -> Self {
        let digest = Sha256::new()
            .chain_update(b"weir-room-visitor\n")
            .chain_update(user)
            .finalize();
        Self(first_8(&digest))
    }

    /// A new visitor. `unique` must differ between visitors. The ID cannot be guessed without the key.
    pub fn new(key: &SigningKey, unique: &str) -> Self {
        Self(first_8(&key.tag(Purpose::RoomVisitor, unique.as_bytes())))
    }

    /// The visitor from these bytes.
    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }

    /// The bytes as stored in Redis.
    pub const fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }

    /// Sixteen hexadecimal digits.
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }

    /// Parses the output of [`Visitor::to_hex`].
    pub fn from_hex(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; 8];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        let is_lower = text.iter().all(|b| !b.is_ascii_uppercase());
        is_lower.then_some(Self(bytes))
    }

    /// The visitor's bucket among `count`; `count` is at most 65,536.
    pub fn bucket(self, count: u32) -> u32 {
        let [a, b, ..] = self.0;
        u32::from(u16::from_be_bytes([a, b])) % count.max(1)
    }
}

fn first_8(bytes: &[u8]) -> [u8; 8] {
    let mut first = [0; 8];
    first
        .iter_mut()
        .zip(bytes)
        .for_each(|(to, from)| *to = *from);
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_maps_to_one_distinct_visitor() {
        assert_eq!(Visitor::of_user(b"alice"), Visitor::of_user(b"alice"));
        assert_ne!(Visitor::of_user(b"alice"), Visitor::of_user(b"bob"));
        let key = |byte| SigningKey::new("k1", &[byte; 32]).unwrap();
        assert_eq!(Visitor::new(&key(1), "1"), Visitor::new(&key(1), "1"));
        assert_ne!(Visitor::new(&key(1), "1"), Visitor::new(&key(1), "2"));
        assert_ne!(Visitor::new(&key(1), "1"), Visitor::new(&key(2), "1"));
    }

    #[test]
    fn visitor_id_has_one_canonical_form() {
        let visitor = Visitor::from_bytes([0, 1, 0xab, 3, 4, 5, 6, 0xff]);
        assert_eq!(visitor.to_hex(), "0001ab03040506ff");
        assert_eq!(Visitor::from_hex(b"0001ab03040506ff"), Some(visitor));
        for bad in [
            "",
            "0001ab03040506f",
            "0001AB03040506ff",
            "0001ab03040506fff",
        ] {
            assert_eq!(Visitor::from_hex(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(visitor.bucket(16_384), 1);
    }
}
