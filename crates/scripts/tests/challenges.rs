//! `challenge_spend.lua`, on a real Redis.

use std::time::Duration;

use crate::support::{Redis, Server};
use weir_base::resp::Value;
use weir_sale::redis::challenge_spend::{SolutionSpend, call, parse};

fn spend(redis: &mut Redis, spends: &[SolutionSpend]) -> Vec<u64> {
    let reply = redis.run(&call("weir", spends));
    parse(&reply, spends.len()).unwrap()
}

fn of(name: u8, now_ms: u64) -> SolutionSpend {
    SolutionSpend {
        name: [name; 16],
        now_ms,
        keep_ms: 60_000,
    }
}

#[test]
fn first_use_of_a_solution_decides_when_its_token_was_issued() {
    let server = Server::start();
    let mut redis = server.connect();
    assert_eq!(
        spend(&mut redis, &[of(1, 1_700_000_000_000)]),
        [1_700_000_000_000]
    );
    assert_eq!(
        spend(&mut redis, &[of(1, 1_700_000_000_001)]),
        [1_700_000_000_000]
    );
    // Also in one call, and with a clock that is behind.
    let many = [of(2, 7), of(1, 5), of(2, 6), of(3, u64::MAX)];
    assert_eq!(
        spend(&mut redis, &many),
        [7, 1_700_000_000_000, 7, u64::MAX]
    );
    assert!(spend(&mut redis, &[]).is_empty());
}

#[test]
fn stored_solution_expires_after_its_retention() {
    let server = Server::start();
    let mut redis = server.connect();
    let short = |now_ms| SolutionSpend {
        keep_ms: 50,
        ..of(1, now_ms)
    };
    assert_eq!(spend(&mut redis, &[short(1)]), [1]);
    std::thread::sleep(Duration::from_millis(80));
    assert_eq!(spend(&mut redis, &[short(2)]), [2]);
}

#[test]
fn malformed_challenge_reply_is_refused() {
    let times = |values: Vec<Value>| parse(&Value::Array(values), 1);
    assert!(times(vec![Value::Bulk(b"5".to_vec())]).is_ok());
    for values in [
        vec![],
        vec![Value::Null],
        vec![Value::Bulk(b"-5".to_vec())],
        vec![Value::Bulk(b"5".to_vec()), Value::Bulk(b"5".to_vec())],
    ] {
        assert!(times(values.clone()).is_err(), "{values:?}");
    }
    assert!(parse(&Value::Integer(5), 1).is_err());
}
