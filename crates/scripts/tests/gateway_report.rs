//! Reports of gateways on a real Redis and on a model.

use std::collections::BTreeMap;

use crate::support::Server;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use weir_base::resp::Value;
use weir_scripts::gateway_report::{self, BYTES_MAX, KEPT_S, REPORTERS_MAX};
use weir_scripts::keys;

/// The content of a minute's hash.
#[derive(Default)]
struct Model(BTreeMap<Vec<u8>, Vec<u8>>);

impl Model {
    /// Stores a report. Returns whether it fitted.
    fn store(&mut self, reporter: &str, report: &[u8]) -> bool {
        let is_new = !self.0.contains_key(reporter.as_bytes());
        let is_full = is_new && self.0.len() as u64 >= REPORTERS_MAX;
        if reporter.len() + report.len() > BYTES_MAX || is_full {
            return false;
        }
        self.0.insert(reporter.into(), report.into());
        true
    }
}

#[test]
fn reports_match_the_model_and_finally_expire() {
    let server = Server::start();
    let redis = std::cell::RefCell::new((server.connect(), 0));
    let sizes = prop_oneof![0..40_usize, BYTES_MAX - 3..BYTES_MAX + 3];
    let reports = prop::collection::vec(("[a-c]{1,2}", sizes), 1..20);
    let config = Config {
        cases: 64,
        failure_persistence: None,
        ..Config::default()
    };
    let agrees = |reports: Vec<(String, usize)>| {
        let (redis, minute) = &mut *redis.borrow_mut();
        *minute += 1;
        let key = keys::gateways("weir", *minute * 60_000);
        let mut model = Model::default();
        for (reporter, size) in reports {
            let report = vec![b'x'; size];
            let is_stored = redis.run(&gateway_report::call(&key, &reporter, &report));
            let expected = model.store(&reporter, &report);
            prop_assert_eq!(is_stored, Value::Integer(expected.into()));
        }
        let Value::Array(all) = redis.command(&[b"HGETALL", &key]) else {
            panic!("no hash");
        };
        let stored = all.chunks(2).map(|pair| match pair {
            [Value::Bulk(name), Value::Bulk(report)] => (name.to_vec(), report.to_vec()),
            other => panic!("{other:?}"),
        });
        prop_assert_eq!(stored.collect::<BTreeMap<_, _>>(), model.0);
        let ttl = redis.command(&[b"TTL", &key]);
        prop_assert!(matches!(ttl, Value::Integer(s) if s <= KEPT_S as i64));
        Ok(())
    };
    TestRunner::new(config).run(&reports, agrees).unwrap();
}

#[test]
fn full_minute_accepts_only_existing_reporters() {
    let server = Server::start();
    let mut redis = server.connect();
    let key = keys::gateways("weir", 0);
    let mut store = |reporter: &str| redis.run(&gateway_report::call(&key, reporter, b"{}"));
    for number in 0..REPORTERS_MAX {
        assert_eq!(store(&number.to_string()), Value::Integer(1));
    }
    assert_eq!(store("new"), Value::Integer(0));
    assert_eq!(store("7"), Value::Integer(1));
}
