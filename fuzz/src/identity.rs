//! The signed user.

use weir_base::id::UserId;
use weir_base::key::{KeyRing, SigningKey};
use weir_sale::identity::{IdentityError, sign, verify};

/// The time of the checks.
const NOW_MS: u64 = 1_700_000_000_000;

/// [`verify`] of a user header and a signature header, separated by a line feed. Checks that an accepted user was
/// signed with a key of the ring within the last minute, and encodes to the same text.
pub fn signed_user(data: &[u8]) {
    let mut lines = data.splitn(2, |&byte| byte == b'\n');
    let (value, signature) = (
        lines.next().unwrap_or_default(),
        lines.next().unwrap_or_default(),
    );
    let keys = [key("k1", 7), key("k2", 8)];
    let ring = KeyRing::new(keys.to_vec()).expect("two keys");
    let found = verify(&ring, value, signature, NOW_MS);
    assert_eq!(found, expect(&keys, value, signature));

    if let Ok(user) = UserId::new(value) {
        let signed = sign(&ring, &user, NOW_MS);
        let (value, signature) = (signed.value.as_bytes(), signed.signature.as_bytes());
        assert_eq!(verify(&ring, value, signature, NOW_MS), Ok(user));
    }
}

fn key(id: &str, byte: u8) -> SigningKey {
    SigningKey::new(id, &[byte; 32]).expect("a good key")
}

fn expect(keys: &[SigningKey], value: &[u8], signature: &[u8]) -> Result<UserId, IdentityError> {
    let value = std::str::from_utf8(value).map_err(|_| IdentityError::Malformed)?;
    let signature = std::str::from_utf8(signature).unwrap_or_default();
    let Some((key_id, tag)) = signature.split_once(';') else {
        return Err(IdentityError::SignatureMalformed);
    };
    let tag = hex::decode(tag).map_err(|_| IdentityError::SignatureMalformed)?;
    let key = keys.iter().find(|key| key.id() == key_id);
    let key = key.ok_or(IdentityError::UnknownKey)?;
    // The signer of claims signs any text.
    let own = key.sign(&format!("weir-user\n{value}"));
    if own != format!("{key_id};{}", hex::encode(tag)) {
        return Err(IdentityError::WrongSignature);
    }
    let fields: Vec<&str> = value.splitn(3, ';').collect();
    let ["v1", at_ms, user] = fields[..] else {
        return Err(IdentityError::Malformed);
    };
    let number: u64 = at_ms.parse().map_err(|_| IdentityError::Malformed)?;
    if number.to_string() != at_ms {
        return Err(IdentityError::Malformed);
    }
    let user = UserId::new(user).map_err(|_| IdentityError::Malformed)?;
    match i128::from(NOW_MS) - i128::from(number) {
        ..-60_000 => Err(IdentityError::FutureDated),
        -60_000..=60_000 => Ok(user),
        _ => Err(IdentityError::Expired),
    }
}
