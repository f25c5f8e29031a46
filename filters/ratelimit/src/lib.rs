//! `ratelimit`: rate limits at the gateway, as a Proxy-Wasm filter.
//!
//! [`weir_limit::engine`] contains the logic, and [`weir_proxy_kit`] runs it in Envoy.

use weir_base::FieldError;
use weir_limit::engine::Limiter;
use weir_proxy_kit::shared::{HostData, ProxyHost};
use weir_proxy_kit::{ConfiguredEngine, Filter};

/// Whether this module receives responses: a separate variant, see `Cargo.toml`.
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
