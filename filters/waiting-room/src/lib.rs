//! `waiting-room`: a waiting room in front of any route, as a Proxy-Wasm filter.
//!
//! What it does is in [`weir_room::engine`]; how that runs in Envoy is in [`weir_proxy_kit`]. Here they meet.

use weir_base::FieldError;
use weir_proxy_kit::shared::{HostData, ProxyHost};
use weir_proxy_kit::{ConfiguredEngine, Filter};

/// The filter.
#[derive(Clone, Copy, Debug)]
pub struct WaitingRoom;

impl Filter for WaitingRoom {
    type Engine = weir_room::engine::WaitingRoom<HostData>;

    fn configure(json: &[u8]) -> Result<ConfiguredEngine<Self::Engine>, FieldError> {
        weir_room::engine::configure(json, &ProxyHost)
    }
}

weir_proxy_kit::filter!(WaitingRoom);
