//! Decision counts on a real Redis and on a model.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::support::{Redis, Server};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use weir_base::resp::Value;
use weir_scripts::keys;
use weir_scripts::tally::{self, KEPT_S, NAMES_MAX, Subject};

/// The content of a minute's hash.
#[derive(Default)]
struct Model(BTreeMap<String, u64>);

impl Model {
    /// Adds counts. Returns how many names did not fit.
    fn add(&mut self, counts: &[(String, u64)]) -> i64 {
        let mut left_out = 0;
        for (name, count) in counts {
            if self.0.contains_key(name) || (self.0.len() as u64) < NAMES_MAX {
                *self.0.entry(name.clone()).or_default() += count;
            } else {
                left_out += 1;
            }
        }
        left_out
    }
}

fn stored_counts(redis: &mut Redis, key: &[u8]) -> BTreeMap<String, u64> {
    let Value::Array(all) = redis.command(&[b"HGETALL", key]) else {
        panic!("no hash");
    };
    let text = |value: &Value| match value {
        Value::Bulk(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    };
    let pairs = all.chunks(2);
    pairs
        .map(|pair| (text(&pair[0]), text(&pair[1]).parse().unwrap()))
        .collect()
}

#[test]
fn tally_counts_match_the_model_and_finally_expire() {
    let server = Server::start();
    let redis = RefCell::new((server.connect(), 0));
    let counts = prop::collection::vec(("[a-e]{1,2}", 0..1_000_u64), 0..40);
    let calls = prop::collection::vec(counts, 1..6);
    let config = Config {
        failure_persistence: None,
        ..Config::default()
    };
    let adds_up = |calls: Vec<Vec<(String, u64)>>| {
        let (redis, minute) = &mut *redis.borrow_mut();
        *minute += 1;
        let key = keys::tally("weir", Subject::Limits, *minute * 60_000);
        let mut model = Model::default();
        for counts in calls {
            let left_out = redis.run(&tally::call(&key, counts.clone()));
            prop_assert_eq!(left_out, Value::Integer(model.add(&counts)));
        }
        prop_assert_eq!(stored_counts(redis, &key), model.0);
        let ttl = redis.command(&[b"TTL", &key]);
        prop_assert!(matches!(ttl, Value::Integer(s) if s <= KEPT_S as i64));
        Ok(())
    };
    let outcome = TestRunner::new(config).run(&calls, adds_up);
    outcome.unwrap();
}

#[test]
fn full_tally_minute_counts_only_existing_names() {
    let server = Server::start();
    let mut redis = server.connect();
    let key = keys::tally("weir", Subject::Sales, 0);
    let mut model = Model::default();
    for start in (0..NAMES_MAX + 500).step_by(500) {
        let counts: Vec<_> = (start..start + 500).map(|n| (n.to_string(), 2)).collect();
        let left_out = redis.run(&tally::call(&key, counts.clone()));
        assert_eq!(left_out, Value::Integer(model.add(&counts)));
    }
    let counts = [("7".to_owned(), 1), ("new".to_owned(), 1)];
    let left_out = redis.run(&tally::call(&key, counts.clone()));
    assert_eq!(left_out, Value::Integer(1));
    model.add(&counts);
    assert_eq!(stored_counts(&mut redis, &key), model.0);
}
