//! `seckill-gate`: flash-sale admission at the gateway, as a Proxy-Wasm filter.
//!
//! What it does is in [`weir_engine_gate`]; how that runs in Envoy is in [`weir_proxy_kit`]. Here they meet.

#![deny(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use weir_base::FieldError;
use weir_engine::config::parse;
use weir_engine_gate::{Config, Gate};
use weir_proxy_kit::shared::HostData;
use weir_proxy_kit::{Configured, Filter, env};

/// The filter.
#[derive(Debug)]
pub struct SeckillGate;

impl Filter for SeckillGate {
    type Engine = Gate<HostData>;

    fn configure(json: &[u8]) -> Result<Configured<Self::Engine>, FieldError> {
        let config = parse::<Config>(json)?.checked(&env::var)?;
        Ok(Configured {
            redis_clusters: vec![config.redis.cluster.clone()],
            engine: Gate::new(config, &HostData),
        })
    }
}

weir_proxy_kit::filter!(SeckillGate);
