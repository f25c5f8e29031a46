//! `ratelimit`: the engine of rate limits ([`weir_engine_limiter`]) as an HTTP filter for Envoy.

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
use weir_proxy_kit::{Configured, env};

/// Whether this module is called back for responses: a variant of its own, see `Cargo.toml`.
const SEES_RESPONSES: bool = cfg!(feature = "response-headers");

/// The filter.
#[derive(Clone, Copy, Debug)]
pub struct Filter;

impl weir_proxy_kit::Filter for Filter {
    type Engine = Limiter<HostData>;

    fn configure(json: &[u8]) -> Result<Configured<Self::Engine>, FieldError> {
        let config = parse::<Config>(json)?.checked(SEES_RESPONSES, &env::var)?;
        let redis = config.redis.as_ref();
        Ok(Configured {
            redis_cluster: redis.map(|redis| redis.cluster.clone()),
            engine: Limiter::new(config, HostData, shared_seed(NAME)),
        })
    }
}

weir_proxy_kit::filter!(Filter);
