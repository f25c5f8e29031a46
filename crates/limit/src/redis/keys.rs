//! Redis keys of rate limits.

use alloc::format;
use alloc::vec::Vec;

/// The key of the document with the rules.
pub fn limit_rules(prefix: &str) -> Vec<u8> {
    format!("{prefix}:limit:rules").into_bytes()
}

/// The Redis key with the state of one key of a rate limit: a string, see `limit_state.lua`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitKey(Vec<u8>);

impl LimitKey {
    /// The key of `rule`, whose name contains no brace, and of a hash of the request's key: Redis never stores values
    /// from clients.
    pub fn new(prefix: &str, rule: &str, hash: [u8; 16]) -> Self {
        let hash = hex::encode(hash);
        Self(format!("{prefix}:limit:{{{rule}:{hash}}}").into_bytes())
    }

    /// The key as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_key_is_its_rule_and_a_hash() {
        let key = LimitKey::new(
            "weir",
            "per-user",
            *b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\xff",
        );
        assert_eq!(
            key.as_bytes(),
            b"weir:limit:{per-user:000102030405060708090a0b0c0d0eff}"
        );
        assert_eq!(limit_rules("weir"), b"weir:limit:rules");
    }
}
