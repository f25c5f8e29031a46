//! `shortlink-redirect`: short links, answered at the gateway, as a Proxy-Wasm filter.
//!
//! What it does is in [`weir_link::engine`]; how that runs in Envoy is in [`weir_proxy_kit`]. Here they meet.

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
