//! The root context.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;
use weir_filter_kit::config::{ConfigError, read_plugin};
use weir_filter_kit::host::now_ms;
use weir_filter_kit::link::HostLink;

use crate::NAME;
use crate::config::Config;
use crate::gate::Gate;
use crate::stream::Stream;

pub(crate) struct Root {
    id: u32,
    /// From a good configuration on.
    gate: Option<Rc<RefCell<Gate>>>,
    /// How far apart ticks are now.
    tick: Duration,
}

impl Root {
    pub(crate) fn new(id: u32) -> Self {
        Self {
            id,
            gate: None,
            tick: Duration::ZERO,
        }
    }

    fn configure(&mut self) -> Result<(), ConfigError> {
        let config = read_plugin::<Config>()?.checked()?;
        let refused = |status| {
            let problem = format!("the host gives no queue to wake this VM with: {status:?}");
            ConfigError::new("", problem)
        };
        let link = HostLink::new(&config.redis.cluster, self.id).map_err(refused)?;
        self.gate = Some(Rc::new(RefCell::new(Gate::new(config, link))));
        self.adjust_tick();
        Ok(())
    }

    /// Runs `act` on the gate, and makes this context the effective one again afterwards.
    fn with_gate(&mut self, act: impl FnOnce(&mut Gate)) {
        if let Some(gate) = &self.gate {
            act(&mut gate.borrow_mut());
            // It is this callback's own context, so it cannot be gone.
            let _ = hostcalls::set_effective_context(self.id);
            self.adjust_tick();
        }
    }

    fn adjust_tick(&mut self) {
        let Some(tick) = self.gate.as_ref().map(|gate| gate.borrow().tick()) else {
            return;
        };
        if std::mem::replace(&mut self.tick, tick) == tick {
            return;
        }
        if let Err(status) = hostcalls::set_tick_period(tick) {
            log::error!("{NAME}: the host gives no ticks, so no sale will be known: {status:?}");
        }
    }
}

impl Context for Root {
    fn on_http_call_response(&mut self, token: u32, headers: usize, body: usize, _trailers: usize) {
        self.with_gate(|gate| gate.on_response(token, headers, body, now_ms()));
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, _plugin_configuration_size: usize) -> bool {
        self.configure()
            .inspect_err(|error| log::error!("{NAME}: configuration refused: {error}"))
            .is_ok()
    }

    fn on_tick(&mut self) {
        // A wake-up may have been lost, and deadlines pass while nothing wakes.
        self.with_gate(|gate| gate.turn(now_ms()));
    }

    fn on_queue_ready(&mut self, queue: u32) {
        self.with_gate(|gate| {
            if gate.is_wakeup(queue) {
                gate.turn(now_ms());
            }
        });
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        let gate = Rc::clone(self.gate.as_ref()?);
        Some(Box::new(Stream::new(id, gate)))
    }
}
