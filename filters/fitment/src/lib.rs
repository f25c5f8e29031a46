//! `fitment`: which parts fit which vehicles, answered at the gateway, as a Proxy-Wasm filter.
//!
//! What it does is in [`weir_fitment::engine`]; how that runs in Envoy is in [`weir_proxy_kit`]. Here they meet.

use weir_base::FieldError;
use weir_proxy_kit::{ConfiguredEngine, Filter};

/// The filter.
#[derive(Clone, Copy, Debug)]
pub struct Fitment;

impl Filter for Fitment {
    type Engine = weir_fitment::engine::Fitment;

    fn configure(json: &[u8]) -> Result<ConfiguredEngine<Self::Engine>, FieldError> {
        weir_fitment::engine::configure(json)
    }
}

weir_proxy_kit::filter!(Fitment);
