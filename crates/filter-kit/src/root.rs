//! The root context of an HTTP filter: what all of them do alike.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;

use crate::config::FieldError;
use crate::host::now_ms;
use crate::link::HostLink;
use crate::metrics;
use crate::redis::Reply;

/// The state of one VM, shared by its root context and its streams.
pub trait Plugin: Sized + 'static {
    /// The filter's name, in logs.
    const NAME: &'static str;

    /// Reads the configuration and makes what it asks for.
    ///
    /// # Errors
    /// When the configuration is refused: the host then serves nothing with it.
    fn configure(root_context_id: u32) -> Result<Self, FieldError>;

    /// A new stream.
    fn stream(plugin: &Rc<RefCell<Self>>, id: u32) -> Box<dyn HttpContext>;

    /// How far apart ticks should be now, if there is anything to do in them. Counters are told to the host
    /// in each, and once a second if this asks for none.
    fn tick(&self) -> Option<Duration>;

    /// Does what is due. The root context is effective, and need not be afterwards.
    fn turn(&mut self, now_ms: u64);

    /// The way to Redis, if there is one.
    fn link(&self) -> Option<&HostLink>;

    /// The call `token` to Redis has ended. As [`Plugin::turn`].
    fn on_reply(&mut self, token: u32, reply: Reply, now_ms: u64);

    /// The response to the HTTP call `token` has come, with so many headers and bytes. As [`Plugin::turn`].
    fn on_http_response(&mut self, _token: u32, _headers: usize, _body: usize, _now_ms: u64) {}
}

/// How far apart ticks are for a plugin that needs none: what it has counted is told to the host.
const FLUSH_PERIOD: Duration = Duration::from_secs(1);

/// The root context.
pub struct Root<P> {
    id: u32,
    /// From a good configuration on.
    plugin: Option<Rc<RefCell<P>>>,
    /// How far apart ticks are now: none before a good configuration.
    tick: Option<Duration>,
}

impl<P: Plugin> Root<P> {
    /// The root context `id`, not configured yet.
    pub fn new(id: u32) -> Self {
        Self {
            id,
            plugin: None,
            tick: None,
        }
    }

    /// Runs `act` on the plugin. Another context may be effective afterwards, until the callback's end.
    fn with_plugin(&mut self, act: impl FnOnce(&mut P)) {
        if let Some(plugin) = &self.plugin {
            act(&mut plugin.borrow_mut());
            self.adjust_tick();
        }
    }

    /// Runs `hear` on the plugin's link, and tells the plugin what has come of the call `token`.
    fn hear(&mut self, token: u32, hear: impl FnOnce(&HostLink) -> Option<Reply>) {
        let reply = |plugin: &Rc<RefCell<P>>| hear(plugin.borrow().link()?);
        if let Some(reply) = self.plugin.as_ref().and_then(reply) {
            self.with_plugin(|plugin| plugin.on_reply(token, reply, now_ms()));
        }
    }

    /// Does what is due. Calls whose time is over come first, one in a callback.
    fn turn(&mut self) {
        self.with_plugin(|plugin| {
            let now_ms = now_ms();
            match plugin.link().and_then(|link| link.expired(now_ms)) {
                Some((token, reply)) => plugin.on_reply(token, reply, now_ms),
                None => plugin.turn(now_ms),
            }
        });
    }

    /// The root context must be effective.
    fn close_idle(&self) {
        if let Some(plugin) = &self.plugin {
            plugin
                .borrow()
                .link()
                .inspect(|link| link.close_idle(now_ms()));
        }
    }

    fn make_effective(&self) {
        // It is this callback's own context, so it cannot be gone.
        let _ = hostcalls::set_effective_context(self.id);
    }

    fn adjust_tick(&mut self) {
        let Some(plugin) = &self.plugin else { return };
        let period = plugin.borrow().tick().unwrap_or(FLUSH_PERIOD);
        if self.tick.replace(period) == Some(period) {
            return;
        }
        self.make_effective();
        if let Err(status) = hostcalls::set_tick_period(period) {
            let name = P::NAME;
            log::error!("{name}: the host gives no ticks, so nothing can be read: {status:?}");
        }
    }
}

impl<P: Plugin> Context for Root<P> {
    fn on_http_call_response(&mut self, token: u32, headers: usize, body: usize, _trailers: usize) {
        self.with_plugin(|plugin| plugin.on_http_response(token, headers, body, now_ms()));
    }

    fn on_grpc_stream_message(&mut self, token: u32, size: usize) {
        self.hear(token, |link| link.arrived(token, size));
    }

    fn on_grpc_stream_close(&mut self, token: u32, _status: u32) {
        self.hear(token, |link| link.closed(token));
    }
}

impl<P: Plugin> RootContext for Root<P> {
    fn on_configure(&mut self, _plugin_configuration_size: usize) -> bool {
        let configured = P::configure(self.id)
            .inspect_err(|error| log::error!("{}: configuration refused: {error}", P::NAME));
        let Ok(plugin) = configured else {
            return false;
        };
        self.plugin = Some(Rc::new(RefCell::new(plugin)));
        self.adjust_tick();
        true
    }

    fn on_tick(&mut self) {
        // A wake-up may have been lost, and deadlines pass while nothing wakes.
        self.turn();
        self.make_effective();
        self.close_idle();
        metrics::flush();
    }

    fn on_queue_ready(&mut self, queue: u32) {
        let is_wakeup = |plugin: &Rc<RefCell<P>>| Some(plugin.borrow().link()?.take_wakeup(queue));
        if self.plugin.as_ref().and_then(is_wakeup) == Some(true) {
            self.turn();
        }
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        Some(P::stream(self.plugin.as_ref()?, id))
    }
}
