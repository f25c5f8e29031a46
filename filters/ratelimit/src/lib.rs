//! `ratelimit`: rate limits at the gateway, as a Proxy-Wasm filter.
//!
//! What it does is in [`weir_limit::engine`]; how that runs in Envoy is in [`weir_proxy_kit`]. Here they meet.

use weir_base::FieldError;
use weir_limit::engine::Limiter;
use weir_proxy_kit::shared::{HostData, ProxyHost};
use weir_proxy_kit::{ConfiguredEngine, Filter};

/// Whether this module is called back for responses: a variant of its own, see `Cargo.toml`.
const SEES_RESPONSES: bool = cfg!(feature = "response-headers");

/// The filter.
#[derive(Clone, Copy, Debug)]
pub struct RateLimit;

impl Filter for RateLimit {
    type Engine = Limiter<HostData>;

    fn configure(json: &[u8]) -> Result<ConfiguredEngine<Self::Engine>, FieldError> {
        weir_limit::engine::configure(json, &ProxyHost, SEES_RESPONSES)
    }
}

weir_proxy_kit::filter!(RateLimit);
