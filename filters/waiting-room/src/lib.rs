//! `waiting-room`: a waiting room in front of any route, as a Proxy-Wasm filter.
//!
//! [`weir_room::engine`] contains the logic, and [`weir_proxy_kit`] runs it in Envoy.

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
