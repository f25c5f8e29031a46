//! The glue between Envoy and [`Bridge`].

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, RootContext, StreamContext};
use proxy_wasm::types::{Action, BufferType, ContextType};
use weir_filter_kit::config::read_plugin;

use crate::bridge::{Bridge, Inbound, Outbound};
use crate::config::Config;

pub(crate) const NAME: &str = "redis-bridge";

#[derive(Default)]
pub(crate) struct Root {
    config: Config,
}

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, _plugin_configuration_size: usize) -> bool {
        match read_plugin::<Config>().and_then(Config::checked) {
            Ok(config) => {
                self.config = config;
                true
            }
            Err(error) => {
                log::error!("{NAME}: configuration refused: {error}");
                false
            }
        }
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::StreamContext)
    }

    fn create_stream_context(&self, _context_id: u32) -> Option<Box<dyn StreamContext>> {
        Some(Box::new(Connection(Bridge::new(self.config))))
    }
}

struct Connection(Bridge);

impl Context for Connection {}

impl StreamContext for Connection {
    fn on_downstream_data(&mut self, size: usize, _end_of_stream: bool) -> Action {
        let bytes = take(BufferType::DownstreamData, size);
        let replaced = match self.0.inbound(&bytes) {
            Inbound::Wait => replace(BufferType::DownstreamData, size, b""),
            Inbound::Pass(bytes) => replace(BufferType::DownstreamData, size, &bytes),
            Inbound::Close => false,
        };
        if !replaced {
            close();
            return Action::Pause;
        }
        Action::Continue
    }

    fn on_upstream_data(&mut self, size: usize, _end_of_stream: bool) -> Action {
        let bytes = take(BufferType::UpstreamData, size);
        let replaced = match self.0.outbound(&bytes) {
            Outbound::Wait => replace(BufferType::UpstreamData, size, b""),
            Outbound::Pass(bytes) => replace(BufferType::UpstreamData, size, &bytes),
        };
        if !replaced {
            close();
        }
        Action::Continue
    }
}

fn take(buffer: BufferType, size: usize) -> Vec<u8> {
    hostcalls::get_buffer(buffer, 0, size)
        .ok()
        .flatten()
        .unwrap_or_default()
}

/// Puts `bytes` in place of the buffer's first `length`. Returns whether the host did: if not, raw
/// RESP or a raw head would pass where the other side cannot read it.
fn replace(buffer: BufferType, length: usize, bytes: &[u8]) -> bool {
    hostcalls::set_buffer(buffer, 0, length, bytes).is_ok()
}

fn close() {
    // It can only fail when the connection has gone already.
    let _ = hostcalls::close_downstream();
}
