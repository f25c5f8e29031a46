//! `events`: collects and observes behaviour events at the gateway, as a Proxy-Wasm filter.
//!
//! [`weir_event::engine`] contains the logic, and [`weir_proxy_kit`] runs it in Envoy.

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
