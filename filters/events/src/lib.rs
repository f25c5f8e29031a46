//! `events`: behaviour events, collected and observed at the gateway, as a Proxy-Wasm filter.
//!
//! What it does is in [`weir_engine_events`]; how that runs in Envoy is in [`weir_proxy_kit`]. Here they meet.

#![deny(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use weir_base::FieldError;
use weir_engine::config::parse;
use weir_engine_events::NAME;
use weir_engine_events::config::Config;
use weir_proxy_kit::host::unique_name;
use weir_proxy_kit::shared::{HostData, shared_seed};
use weir_proxy_kit::{Configured, Filter, env};

/// The filter.
#[derive(Clone, Copy, Debug)]
pub struct Events;

impl Filter for Events {
    type Engine = weir_engine_events::Events<HostData>;

    fn configure(json: &[u8]) -> Result<Configured<Self::Engine>, FieldError> {
        let config = parse::<Config>(json)?.checked(&env::var)?;
        let redis = config.limits.redis.as_ref();
        Ok(Configured {
            redis_clusters: redis
                .map(|redis| redis.cluster.clone())
                .into_iter()
                .collect(),
            engine: Self::Engine::new(config, HostData, &unique_name(), shared_seed(NAME)),
        })
    }
}

weir_proxy_kit::filter!(Events);
