//! The gate's configuration and time limits.

use std::rc::Rc;

use weir_base::key::KeyRing;
use weir_base::shared_data::LocalData;
use weir_engine::config::parse;
use weir_sale::engine::config::CheckedConfig;
use weir_sale::engine::{Config, Gate};

use crate::host::TracksStreams;

/// The engine of a worker.
pub(crate) type Engine = Gate<Rc<LocalData>>;

impl TracksStreams for Engine {
    fn open_streams(&self) -> usize {
        Gate::open_streams(self)
    }
}

/// How long a claim is held, and how long a request waits for Redis and for an origin.
pub(crate) const CLAIM_TTL_MS: u64 = 2_000;
pub(crate) const DEADLINE_MS: u64 = 250;
pub(crate) const ORIGIN_TIMEOUT_MS: u64 = 1_500;

/// The maximum number of Redis calls for one request, each at most two deadlines and a tick: three claims, and two
/// rebalances of up to seven.
const CALLS_MAX: u64 = 3 + 2 * 7;

/// The time limit for answering or continuing every request.
pub(crate) const DECIDED_WITHIN_US: u64 = CALLS_MAX * (2 * DEADLINE_MS + 100) * 1_000;

const SECRET: &[u8] = b"a secret of the simulation, 32 bytes or more";

/// Sensitive breakers, so that a few clients can open them.
const CONFIG: &str = r#"{
    "routes": [{ "path": "/sales/{sale}/orders" }],
    "identify_prefixes": ["/orders/"],
    "user_header": "x-user-id",
    "claim": { "ttl_ms": 2000, "keys": [{ "secret": { "env": "SECRET" } }] },
    "redis": { "deadline_ms": 250 },
    "overload": {
        "redis_breaker": { "window_ms": 2000, "min_requests": 4, "failure_percent": 60, "open_ms": 300 },
        "origin_breaker": { "window_ms": 2000, "min_requests": 4, "failure_percent": 60, "open_ms": 300 }
    }
}"#;

/// The configuration of every gateway.
pub(crate) fn config() -> CheckedConfig {
    let config: Config = parse(CONFIG.as_bytes()).expect("the configuration is JSON");
    let environment = |_: &str| Some(SECRET.to_vec());
    config
        .checked(&environment)
        .expect("the configuration makes sense")
}

/// The keys shared by gateways and origins.
pub(crate) fn keys() -> Rc<KeyRing> {
    Rc::new(config().claim_keys)
}
