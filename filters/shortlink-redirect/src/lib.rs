//! `shortlink-redirect`: short links, answered at the gateway, as a Proxy-Wasm filter.
//!
//! What it does is in [`weir_engine_links`]; how that runs in Envoy is in [`weir_proxy_kit`]. Here they meet.

#![deny(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use weir_base::FieldError;
use weir_engine::config::parse;
use weir_engine_links::config::Config;
use weir_engine_links::{Links, NAME};
use weir_proxy_kit::host::unique_name;
use weir_proxy_kit::shared::shared_seed;
use weir_proxy_kit::{Configured, Filter};

/// The filter.
#[derive(Clone, Copy, Debug)]
pub struct ShortlinkRedirect;

impl Filter for ShortlinkRedirect {
    type Engine = Links;

    fn configure(json: &[u8]) -> Result<Configured<Links>, FieldError> {
        let config = parse::<Config>(json)?.checked()?;
        let redis_clusters = vec![config.redis.cluster.clone()];
        let engine = Links::new(config, &unique_name(), shared_seed(NAME));
        Ok(Configured {
            engine,
            redis_clusters,
        })
    }
}

weir_proxy_kit::filter!(ShortlinkRedirect);
