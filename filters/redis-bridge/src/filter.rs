//! Connects [`Bridge`] to Envoy.

use std::rc::Rc;

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, RootContext, StreamContext};
use proxy_wasm::types::{Action, BufferType, ContextType};
use weir_base::FieldError;
use weir_engine::config::parse;
use weir_proxy_kit::host;

use crate::bridge::{Bridge, Inbound, Outbound};
use crate::config::Config;
use crate::login::Login;

pub(crate) const NAME: &str = "redis-bridge";

#[derive(Default)]
pub(crate) struct Root {
    config: Rc<Config>,
    /// The bytes that each connection starts with, if Redis has a password.
    login: Option<Rc<[u8]>>,
}

impl Root {
    fn configured() -> Result<Self, FieldError> {
        let config = parse::<Config>(&host::configuration()?)?.checked()?;
        let login = config.login()?.map(Rc::from);
        Ok(Self {
            config: config.into(),
            login,
        })
    }
}

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, _plugin_configuration_size: usize) -> bool {
        match Self::configured() {
            Ok(configured) => {
                *self = configured;
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
        Some(Box::new(Connection {
            bridge: Bridge::new(Rc::clone(&self.config)),
            login: Login::new(self.login.clone()),
        }))
    }
}

struct Connection {
    bridge: Bridge,
    login: Login,
}

impl Connection {
    /// Handles `bytes` from Redis, and replaces them in the buffer. Returns whether the connection continues.
    fn outbound(&mut self, bytes: &[u8]) -> bool {
        let passed = match self.login.incoming(bytes) {
            Ok(bytes) => self.bridge.outbound(bytes),
            Err(error) => self.bridge.login_refused(&error),
        };
        match passed {
            Outbound::Wait => replace(BufferType::UpstreamData, bytes.len(), b""),
            Outbound::Pass(passed) => replace(BufferType::UpstreamData, bytes.len(), &passed),
        }
    }
}

impl Context for Connection {}

impl StreamContext for Connection {
    fn on_downstream_data(&mut self, size: usize, _end_of_stream: bool) -> Action {
        let bytes = take(BufferType::DownstreamData, size);
        let replaced = match self.bridge.inbound(&bytes) {
            Inbound::Wait => replace(BufferType::DownstreamData, size, b""),
            Inbound::Pass(bytes) => {
                let bytes = self.login.outgoing(bytes);
                replace(BufferType::DownstreamData, size, &bytes)
            }
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
        if !self.outbound(&bytes) {
            // Raw replies must not pass.
            let _ = hostcalls::set_buffer(BufferType::UpstreamData, 0, size, b"");
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

/// Replaces the buffer's first `length` bytes by `bytes`. Returns whether the host did: otherwise raw RESP or a raw
/// head would reach the wrong side.
fn replace(buffer: BufferType, length: usize, bytes: &[u8]) -> bool {
    hostcalls::set_buffer(buffer, 0, length, bytes).is_ok()
}

fn close() {
    // It can only fail when the connection is already closed.
    let _ = hostcalls::close_downstream();
}
