//! What the root context asks of the filter.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use proxy_wasm::traits::HttpContext;
use weir_filter_kit::config::{FieldError, read_plugin};
use weir_filter_kit::link::{HostLink, unique_name};
use weir_filter_kit::redis::Reply;
use weir_filter_kit::root::Plugin;
use weir_filter_kit::table::shared_seed;

use crate::NAME;
use crate::config::Config;
use crate::links::Links;
use crate::stream::Stream;

impl Plugin for Links {
    const NAME: &'static str = NAME;

    fn configure(root_context_id: u32) -> Result<Self, FieldError> {
        let config = read_plugin::<Config>()?.checked()?;
        let link = HostLink::new(&config.redis.cluster, root_context_id)?;
        Ok(Self::new(config, link, &unique_name(), shared_seed(NAME)))
    }

    fn stream(links: &Rc<RefCell<Self>>, id: u32) -> Box<dyn HttpContext> {
        Box::new(Stream::new(id, Rc::clone(links)))
    }

    fn tick(&self) -> Option<Duration> {
        Some(self.tick())
    }

    fn turn(&mut self, now_ms: u64) {
        self.turn(now_ms);
    }

    fn link(&self) -> Option<&HostLink> {
        Some(self.redis.pump.link())
    }

    fn on_reply(&mut self, token: u32, reply: Reply, now_ms: u64) {
        self.on_reply(token, reply, now_ms);
    }

    fn on_http_response(&mut self, token: u32, headers: usize, body: usize, now_ms: u64) {
        self.on_http_response(token, headers, body, now_ms);
    }
}
