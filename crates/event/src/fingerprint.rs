//! Fingerprints of events: 128 bits of SHA-256 over all data from the client.

use core::fmt;

use sha2::{Digest, Sha256};

/// A fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; Self::LEN]);

impl Fingerprint {
    /// Length in bytes. Among a billion events, a collision has a probability of one in 10²⁰.
    pub const LEN: usize = 16;

    /// The fingerprint of `fields`, in order. A missing field differs from an empty one.
    pub(crate) fn from_fields<'f>(fields: impl IntoIterator<Item = Option<&'f [u8]>>) -> Self {
        let mut hash = Sha256::new();
        for field in fields {
            // Each field is prefixed by its length, so that different lists never give the same bytes.
            let length = field.map_or(u64::MAX, |field| field.len() as u64);
            hash.update(length.to_be_bytes());
            hash.update(field.unwrap_or_default());
        }
        let digest = hash.finalize();
        Self(digest.first_chunk().copied().unwrap_or_default())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn of(fields: &[Option<Vec<u8>>]) -> Fingerprint {
        Fingerprint::from_fields(fields.iter().map(Option::as_deref))
    }

    #[test]
    fn fingerprint_is_displayed_in_hexadecimal() {
        let text = of(&[]).to_string();
        // The beginning of the SHA-256 of the empty string.
        assert_eq!(text, "e3b0c44298fc1c149afbf4c8996fb924");
    }

    proptest! {
        #[test]
        fn different_fields_have_different_fingerprints(
            a: Vec<Option<Vec<u8>>>, b: Vec<Option<Vec<u8>>>,
        ) {
            prop_assert_eq!(a == b, of(&a) == of(&b));
        }

        #[test]
        fn field_boundaries_change_the_fingerprint(a: Vec<u8>, b: Vec<u8>) {
            let both = [a.clone(), b.clone()].concat();
            prop_assert_ne!(of(&[Some(a.clone()), Some(b.clone())]), of(&[Some(both)]));
            prop_assert_ne!(of(&[Some(a.clone()), None]), of(&[Some(a), Some(Vec::new())]));
        }
    }
}
