//! `events`: behaviour events, collected and observed at the gateway, as a Proxy-Wasm filter.
//!
//! What it does is in [`weir_event::engine`]; how that runs in Envoy is in [`weir_proxy_kit`]. Here they meet.

use weir_base::FieldError;
use weir_proxy_kit::shared::{HostData, ProxyHost};
use weir_proxy_kit::{ConfiguredEngine, Filter};

/// The filter.
#[derive(Clone, Copy, Debug)]
pub struct Events;

impl Filter for Events {
    type Engine = weir_event::engine::Events<HostData>;

    fn configure(json: &[u8]) -> Result<ConfiguredEngine<Self::Engine>, FieldError> {
        weir_event::engine::configure(json, &ProxyHost)
    }
}

weir_proxy_kit::filter!(Events);
