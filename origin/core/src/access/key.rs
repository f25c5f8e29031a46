//! Creates, formats and verifies keys and sessions.
//!
//! A key is `weir_<id>_<secret>`; a session cookie is `<id>.<secret>`. Secrets are 256 random bits, so a plain hash
//! does not reveal them.

use ring::digest::{SHA256, digest};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use subtle::ConstantTimeEq;

const PREFIX: &str = "weir_";
const ID_LEN: usize = 8;
const SECRET_LEN: usize = 32;

/// The operating system provides no random numbers.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no random numbers from the operating system")]
pub struct NoRandom;

/// A new id: 16 hexadecimal digits.
pub(super) fn new_id() -> Result<String, NoRandom> {
    Ok(hex::encode(random::<ID_LEN>()?))
}

fn random<const N: usize>() -> Result<[u8; N], NoRandom> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| NoRandom)?;
    Ok(bytes)
}

/// A new key in the form that is shown once.
pub(super) fn new_key(id: &str) -> Result<String, NoRandom> {
    let secret = hex::encode(random::<SECRET_LEN>()?);
    Ok(format!("{PREFIX}{id}_{secret}"))
}

/// The id in a presented key; `None` if it is malformed.
pub(super) fn id_of(presented: &str) -> Option<&str> {
    let (id, secret) = presented.strip_prefix(PREFIX)?.split_once('_')?;
    let is_hex = |text: &str, bytes: usize| {
        text.len() == 2 * bytes && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    (is_hex(id, ID_LEN) && is_hex(secret, SECRET_LEN)).then_some(id)
}

/// The hash of a key, which SQL stores.
pub(super) fn hash(presented: &str) -> Vec<u8> {
    digest(&SHA256, presented.as_bytes()).as_ref().to_vec()
}

/// Whether `presented` is the key with the hash `stored`. Runs in constant time.
pub(super) fn is_key(presented: &str, stored: &[u8]) -> bool {
    hash(presented).ct_eq(stored).into()
}

/// A new session secret, as in the cookie.
pub(super) fn new_secret() -> Result<String, NoRandom> {
    Ok(hex::encode(random::<SECRET_LEN>()?))
}

/// The stored proof of a session: its secret authenticated with `of_key`, the hash or secret of the key that opened it.
pub(super) fn proof(secret: &str, of_key: &[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, of_key);
    hmac::sign(&key, secret.as_bytes()).as_ref().to_vec()
}

/// Whether `secret` matches the proof `stored`.
pub(super) fn is_proof(secret: &str, of_key: &[u8], stored: &[u8]) -> bool {
    proof(secret, of_key).ct_eq(stored).into()
}

/// Twenty random bits.
pub(super) fn twenty_bits() -> Result<u64, NoRandom> {
    let bytes: [u8; 4] = random()?;
    Ok(u64::from(u32::from_be_bytes(bytes) >> 12))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_contains_its_id_and_is_verified_by_its_hash() {
        let id = new_id().unwrap();
        let key = new_key(&id).unwrap();
        assert_eq!(id_of(&key), Some(id.as_str()));
        assert!(is_key(&key, &hash(&key)));
        assert!(!is_key(&new_key(&id).unwrap(), &hash(&key)));
        for wrong in ["", "weir_", "weir__", &key[1..], &key[..key.len() - 1]] {
            assert_eq!(id_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn session_ends_with_its_key() {
        let secret = new_secret().unwrap();
        let retained = proof(&secret, b"one key");
        assert!(is_proof(&secret, b"one key", &retained));
        assert!(!is_proof(&secret, b"another key", &retained));
        assert!(!is_proof(&new_secret().unwrap(), b"one key", &retained));
    }
}
