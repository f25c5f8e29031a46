//! `fitment`: answers vehicle fitment queries at the gateway, as a Proxy-Wasm filter.
//!
//! [`weir_fitment::engine`] contains the logic, and [`weir_proxy_kit`] runs it in Envoy.

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
