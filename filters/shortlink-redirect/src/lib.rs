//! `shortlink-redirect`: answers short links at the gateway, as a Proxy-Wasm filter.
//!
//! [`weir_link::engine`] contains the logic, and [`weir_proxy_kit`] runs it in Envoy.

use weir_base::FieldError;
use weir_link::engine::Links;
use weir_proxy_kit::shared::ProxyHost;
use weir_proxy_kit::{ConfiguredEngine, Filter};

/// The filter.
#[derive(Clone, Copy, Debug)]
pub struct ShortlinkRedirect;

impl Filter for ShortlinkRedirect {
    type Engine = Links;

    fn configure(json: &[u8]) -> Result<ConfiguredEngine<Self::Engine>, FieldError> {
        weir_link::engine::configure(json, &ProxyHost)
    }
}

weir_proxy_kit::filter!(ShortlinkRedirect);
