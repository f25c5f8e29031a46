//! `ratelimit`: rate limits at the gateway, as a Proxy-Wasm filter.
//!
//! What it does is in [`weir_engine_limiter`]; how that runs in Envoy is in [`weir_proxy_kit`]. Here they meet.

#![deny(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use weir_base::FieldError;
use weir_engine::config::parse;
use weir_engine_limiter::config::Config;
use weir_engine_limiter::{Limiter, NAME};
use weir_proxy_kit::shared::{HostData, shared_seed};
use weir_proxy_kit::{Configured, Filter, env};

/// Whether this module is called back for responses: a variant of its own, see `Cargo.toml`.
const SEES_RESPONSES: bool = cfg!(feature = "response-headers");

/// The filter.
#[derive(Debug)]
pub struct RateLimit;

impl Filter for RateLimit {
    type Engine = Limiter<HostData>;

    fn configure(json: &[u8]) -> Result<Configured<Self::Engine>, FieldError> {
        let config = parse::<Config>(json)?.checked(SEES_RESPONSES, &env::var)?;
        let redis = config.redis.as_ref();
        Ok(Configured {
            redis_clusters: redis
                .map(|redis| redis.cluster.clone())
                .into_iter()
                .collect(),
            engine: Limiter::new(config, HostData, shared_seed(NAME)),
        })
    }
}

weir_proxy_kit::filter!(RateLimit);
