//! Scripts of short links, on a real Redis.

use crate::support::{Redis, Server};
use weir_base::resp::Value;
use weir_link::redis::keys::UniquesKeys;
use weir_link::redis::link_uniques::{self, ADDED_MAX, Expiries, UniqueCounts, UniqueHash};

fn hash(number: u64) -> UniqueHash {
    let mut hash = [0xff; 16];
    hash[..8].copy_from_slice(&number.to_le_bytes());
    hash
}

fn hashes(range: std::ops::Range<u64>) -> Vec<UniqueHash> {
    range.map(hash).collect()
}

fn expiries() -> Expiries {
    let now_ms = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    Expiries {
        hour_ms: now_ms + 100_000,
        day_ms: now_ms + 900_000,
    }
}

fn add(
    redis: &mut Redis,
    hour: u64,
    visitors: &[UniqueHash],
    addresses: &[UniqueHash],
) -> UniqueCounts {
    let keys = UniquesKeys::new("weir", &"s/abc".parse().unwrap(), hour);
    let call = link_uniques::call(&keys, expiries(), visitors, addresses);
    link_uniques::parse(&redis.run(&call)).unwrap()
}

#[test]
fn visitors_count_once_an_hour_and_once_a_day() {
    let server = Server::start();
    let mut redis = server.connect();
    let first = add(&mut redis, 24, &hashes(0..30), &hashes(0..10));
    let expected = UniqueCounts {
        hour_visitors: 30,
        hour_addresses: 10,
        day_visitors: 30,
        day_addresses: 10,
    };
    assert_eq!(first, expected);
    assert_eq!(
        add(&mut redis, 24, &hashes(0..30), &hashes(0..10)),
        expected
    );
    // The next hour of the same day; half of them are new.
    let second = add(&mut redis, 25, &hashes(20..40), &hashes(5..15));
    let expected = UniqueCounts {
        hour_visitors: 20,
        hour_addresses: 10,
        day_visitors: 40,
        day_addresses: 15,
    };
    assert_eq!(second, expected);
    // The next day starts empty.
    assert_eq!(add(&mut redis, 48, &[], &hashes(0..1)).day_addresses, 1);
}

#[test]
fn largest_batch_of_visitors_fits_and_all_keys_expire() {
    let server = Server::start();
    let mut redis = server.connect();
    let most = hashes(0..ADDED_MAX as u64);
    let counts = add(&mut redis, 24, &most, &most);
    let error = counts.day_visitors.abs_diff(ADDED_MAX as u64);
    assert!(error * 100 < ADDED_MAX as u64 * 4, "{counts:?}");
    let keys = UniquesKeys::new("weir", &"s/abc".parse().unwrap(), 24).all();
    for (key, life_ms) in keys.iter().zip([100_000, 100_000, 900_000, 900_000]) {
        let Value::Integer(left_ms) = redis.command(&[b"PTTL", key]) else {
            panic!("no life");
        };
        assert!((1..=life_ms).contains(&left_ms), "{left_ms} of {life_ms}");
    }
}
