//! The order token.

use weir_base::id::{SaleId, UserId};
use weir_base::key::{KeyRing, SigningKey};
use weir_sale::token::{Ages, LEN_MAX, TokenError, check, mint};

/// The time of the checks.
const NOW_MS: u64 = 1_700_000_001_000;

const SALE: &str = "sale-1";
const USER: &str = "alice;x";

/// [`check`] of one token, compared with a parser that implements base64 independently and gets the tag from the signer
/// of claims. Checks that any input is refused for the first applicable reason, and that a valid token is one that
/// [`mint`] created.
pub fn order_token(data: &[u8]) {
    let keys = [key("k1", 7), key("k2", 8)];
    let ring = KeyRing::new(keys.to_vec()).expect("two keys");
    let (sale, user) = (SaleId::new(SALE), UserId::new(USER));
    let (sale, user) = (sale.expect("a name"), user.expect("a name"));
    let found = check(&ring, data, &sale, &user, NOW_MS, Ages::default());
    match expect(&keys, data) {
        Expected::Is(expected) => assert_eq!(found, expected),
        Expected::Refused => assert!(found.is_err()),
    }
    if found.is_ok() {
        let minted = issued_at_ms(data).into_iter().flat_map(|at_ms| {
            let by = |key: &SigningKey| mint(&key.clone().into(), &sale, &user, at_ms);
            keys.iter().map(by).collect::<Vec<_>>()
        });
        assert!(minted.into_iter().any(|token| token.as_bytes() == data));
    }
}

fn key(id: &str, byte: u8) -> SigningKey {
    SigningKey::new(id, &[byte; 32]).expect("a good key")
}

enum Expected {
    Is(Result<(), TokenError>),
    /// The signer of claims signs only text, so nothing more is known about other payloads.
    Refused,
}

fn expect(keys: &[SigningKey], token: &[u8]) -> Expected {
    let parts: Vec<&[u8]> = token.split(|&byte| byte == b'.').collect();
    let [key_id, payload, tag] = match parts[..] {
        _ if token.is_empty() => return Expected::Is(Err(TokenError::Missing)),
        _ if token.len() > LEN_MAX => return Expected::Is(Err(TokenError::TooLong)),
        [key_id, payload, tag] => [key_id, payload, tag],
        _ => return Expected::Is(Err(TokenError::Malformed)),
    };
    let (Some(payload), Some(tag)) = (base64url(payload), base64url(tag)) else {
        return Expected::Is(Err(TokenError::NotBase64));
    };
    let Some(key) = keys.iter().find(|key| key.id().as_bytes() == key_id) else {
        return Expected::Is(Err(TokenError::UnknownKey));
    };
    let Ok(payload) = String::from_utf8(payload) else {
        return Expected::Refused;
    };
    let own = key.sign(&format!("weir-order-token\n{payload}"));
    if own != format!("{};{}", key.id(), hex::encode(tag)) {
        return Expected::Is(Err(TokenError::BadSignature));
    }
    Expected::Is(expect_payload(&payload))
}

fn expect_payload(payload: &str) -> Result<(), TokenError> {
    let fields: Vec<&str> = payload.splitn(4, ';').collect();
    let ["v1", sale, at_ms, user] = fields[..] else {
        return Err(TokenError::Malformed);
    };
    let at_ms: u64 = at_ms.parse().map_err(|_| TokenError::Malformed)?;
    if user != USER {
        return Err(TokenError::ForeignUser);
    }
    if sale != SALE {
        return Err(TokenError::OtherSale);
    }
    match i128::from(NOW_MS) - i128::from(at_ms) {
        ..-2_000 => Err(TokenError::FutureDated),
        -2_000..1_000 => Err(TokenError::TooYoung),
        1_000..=600_000 => Ok(()),
        _ => Err(TokenError::Expired),
    }
}

fn issued_at_ms(token: &[u8]) -> Option<u64> {
    let payload = base64url(token.split(|&byte| byte == b'.').nth(1)?)?;
    let fields = String::from_utf8(payload).ok()?;
    fields.split(';').nth(2)?.parse().ok()
}

/// Decodes unpadded base64url bit by bit; accepts only the canonical encoding.
fn base64url(text: &[u8]) -> Option<Vec<u8>> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut bits = Vec::new();
    for byte in text {
        let value = DIGITS.iter().position(|digit| digit == byte)?;
        bits.extend((0..6).rev().map(|bit| value >> bit & 1));
    }
    let (bytes, rest) = bits.as_chunks::<8>();
    let is_canonical = rest.len() < 6 && rest.iter().all(|&bit| bit == 0);
    let byte = |bits: &[usize; 8]| bits.iter().fold(0, |byte, &bit| byte << 1 | bit as u8);
    is_canonical.then(|| bytes.iter().map(byte).collect())
}
