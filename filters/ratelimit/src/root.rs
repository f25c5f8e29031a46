//! The root context.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{ContextType, Status};
use weir_filter_kit::config::{ConfigError, read_plugin};
use weir_filter_kit::host::now_ms;
use weir_filter_kit::link::HostLink;
use weir_filter_kit::table::shared_seed;

use crate::NAME;
use crate::config::Config;
use crate::limiter::Limiter;
use crate::stream::Stream;

pub(crate) struct Root {
    id: u32,
    /// From a good configuration on.
    limiter: Option<Rc<RefCell<Limiter>>>,
    /// How far apart ticks are now, if there are any.
    tick: Option<Duration>,
}

impl Root {
    pub(crate) fn new(id: u32) -> Self {
        Self {
            id,
            limiter: None,
            tick: None,
        }
    }

    fn configure(&mut self) -> Result<(), ConfigError> {
        let config = read_plugin::<Config>()?.checked()?;
        let link = match &config.redis {
            Some(redis) => Some(HostLink::new(&redis.cluster, self.id).map_err(no_queue)?),
            None => None,
        };
        let limiter = Limiter::new(config, link, shared_seed("ratelimit"));
        self.limiter = Some(Rc::new(RefCell::new(limiter)));
        self.adjust_tick();
        Ok(())
    }

    /// Runs `act` on the limiter, and makes this context the effective one again afterwards.
    fn with_limiter(&mut self, act: impl FnOnce(&mut Limiter)) {
        if let Some(limiter) = &self.limiter {
            act(&mut limiter.borrow_mut());
            // It is this callback's own context, so it cannot be gone.
            let _ = hostcalls::set_effective_context(self.id);
            self.adjust_tick();
        }
    }

    fn adjust_tick(&mut self) {
        let tick = self
            .limiter
            .as_ref()
            .and_then(|limiter| limiter.borrow().tick());
        let Some(period) = tick.filter(|_| tick != self.tick) else {
            return;
        };
        self.tick = tick;
        if let Err(status) = hostcalls::set_tick_period(period) {
            log::error!("{NAME}: the host gives no ticks, so no rules can be read: {status:?}");
        }
    }
}

fn no_queue(status: Status) -> ConfigError {
    let problem = format!("the host gives no queue to wake this VM with: {status:?}");
    ConfigError::new("", problem)
}

impl Context for Root {
    fn on_http_call_response(&mut self, token: u32, headers: usize, body: usize, _trailers: usize) {
        self.with_limiter(|limiter| limiter.on_response(token, headers, body, now_ms()));
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
        self.with_limiter(|limiter| limiter.turn(now_ms()));
    }

    fn on_queue_ready(&mut self, queue: u32) {
        self.with_limiter(|limiter| {
            if limiter.is_wakeup(queue) {
                limiter.turn(now_ms());
            }
        });
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        let limiter = Rc::clone(self.limiter.as_ref()?);
        Some(Box::new(Stream::new(id, limiter)))
    }
}
