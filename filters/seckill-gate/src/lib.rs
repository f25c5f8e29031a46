//! `seckill-gate`: flash-sale admission at the gateway, as a Proxy-Wasm filter.
//!
//! [`weir_sale::engine`] contains the logic, and [`weir_proxy_kit`] runs it in Envoy.

use weir_base::FieldError;
use weir_proxy_kit::shared::{HostData, ProxyHost};
use weir_proxy_kit::{ConfiguredEngine, Filter};
use weir_sale::engine::Gate;

/// The filter.
#[derive(Clone, Copy, Debug)]
pub struct SeckillGate;

impl Filter for SeckillGate {
    type Engine = Gate<HostData>;

    fn configure(json: &[u8]) -> Result<ConfiguredEngine<Self::Engine>, FieldError> {
        weir_sale::engine::configure(json, &ProxyHost)
    }
}

weir_proxy_kit::filter!(SeckillGate);
