//! The rate limiter's configuration, and requests to which its rules apply.

use weir_engine::config::parse;
use weir_limit::engine::config::Config;
use weir_limit::rules::{Request, RuleMatch};

/// [`Config`] up to the first NUL, and then a request: method, path, address, and one value for all headers, separated
/// by NUL.
///
/// Checks that a refusal names the field and the reason, that a rule gives the same result for the same request each
/// time, and that a cost can be charged.
pub fn limit_rules(data: &[u8]) {
    let mut parts = data.split(|byte| *byte == 0);
    let json = parts.next().unwrap_or_default();
    let config = match parse::<Config>(json).and_then(|config| config.checked(false, &|_| None)) {
        Ok(config) => config,
        Err(refusal) => {
            assert!(!refusal.problem.is_empty());
            assert!(refusal.path.len() < json.len() + 100, "{refusal}");
            return;
        }
    };
    let mut next = || parts.next().unwrap_or_default();
    let request = FakeRequest {
        method: next(),
        path: next(),
        address: next(),
        header: next(),
    };
    for rule in config.rules.iter() {
        let applied = rule.apply(&request);
        assert_eq!(applied, rule.apply(&request));
        if let RuleMatch::Hit(ask) = applied {
            assert!((1..=ask.quota.burst()).contains(&ask.cost));
            assert!(ask.key.len() <= 8 * (data.len() + 16));
        }
    }
}

struct FakeRequest<'a> {
    method: &'a [u8],
    path: &'a [u8],
    address: &'a [u8],
    /// The value of every header; empty for no headers.
    header: &'a [u8],
}

impl Request for FakeRequest<'_> {
    fn method(&self) -> &[u8] {
        self.method
    }

    fn path(&self) -> &[u8] {
        self.path
    }

    fn header(&self, _name: &str) -> Option<Vec<u8>> {
        (!self.header.is_empty()).then(|| self.header.to_vec())
    }

    fn address(&self) -> Vec<u8> {
        self.address.to_vec()
    }

    fn user(&self) -> Option<Vec<u8>> {
        self.header("x-user-id")
    }
}
