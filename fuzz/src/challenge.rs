//! The solution of a checkout's challenge.

use weir_base::id::{SaleId, UserId};
use weir_base::key::{KeyRing, SigningKey};
use weir_sale::challenge::{BITS_MIN, LEN_MAX, SolutionError, VALID_MS, ask, check};

/// The time of the checks.
const NOW_MS: u64 = 1_700_000_001_000;

/// [`check`] of one solution. Checks that a valid one is a challenge by [`ask`] followed by a decimal counter, and
/// expires no later than a challenge may.
pub fn challenge_solution(data: &[u8]) {
    let key = |id: &str, byte: u8| SigningKey::new(id, &[byte; 32]).expect("a good key");
    let ring = KeyRing::new(vec![key("k1", 7), key("k2", 8)]).expect("two keys");
    let (sale, user) = (SaleId::new("sale-1"), UserId::new("alice;x"));
    let (sale, user) = (sale.expect("a name"), user.expect("a name"));
    let found = check(&ring, data, &sale, &user, BITS_MIN, NOW_MS);
    if data.len() > LEN_MAX || !data.contains(&b':') {
        assert_eq!(found, Err(SolutionError::Malformed));
    }
    let Ok(solved) = found else { return };
    assert!(solved.expires_at_ms > NOW_MS && solved.expires_at_ms <= NOW_MS + VALID_MS + 2_000);
    let text = std::str::from_utf8(data).expect("challenges are text");
    let (challenge, counter) = text.rsplit_once(':').expect("it has a counter");
    assert!(counter.bytes().all(|byte| byte.is_ascii_digit()));
    let asked_at_ms = solved.expires_at_ms - VALID_MS;
    let mut written = (BITS_MIN..=u8::MAX).flat_map(|bits| {
        let by = |key: SigningKey| ask(&key.into(), &sale, &user, bits, asked_at_ms);
        [by(key("k1", 7)), by(key("k2", 8))]
    });
    assert!(written.any(|own| own == challenge), "{text}");
}
