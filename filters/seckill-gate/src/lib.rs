//! `seckill-gate`: flash-sale admission at the gateway, as a Proxy-Wasm filter.
//!
//! What it does is in [`weir_sale::engine`]; how that runs in Envoy is in [`weir_proxy_kit`]. Here they meet.

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
