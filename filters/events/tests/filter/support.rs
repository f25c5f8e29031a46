//! A gateway for events in a Proxy-Wasm host, with a virtual clock and two workers. The test plays the origin.

use std::cell::RefCell;
use std::rc::Rc;

use weir_event::answer::Answer;
use weir_event::batch::Batch;
use weir_event::event::Event;
use weir_event::stamps::Stamps;
use weir_host_test::{Call, FailurePolicy, Host, Reply, RequestBuilder, Stream, Upstream};

/// The start time of the host's clock.
pub const NOW_MS: u64 = 1_700_000_000_000;

pub const SECRET: &str = "0123456789abcdef";
pub const PAGE: &str = "https://shop.example";

pub const CONFIG: &str = r#"{ "keys": [
        { "name": "shop-web", "kind": "browser", "key": "wk_shop_web", "origins": ["https://shop.example"] },
        { "name": "erp", "kind": "server", "secret": { "env": "WEIR_EVENTS_KEY" } } ],
    "collect": {},
    "limits": { "per_visitor": { "rate": 10, "per": "1m" } },
    "observe": { "routes": [{ "path": "/products/{sku}" }], "key": "shop-web",
        "outbox": { "events_max": 100, "batches_max": 4 } } }"#;

/// The origin's received calls, and an optional response instead of verdicts.
#[derive(Default)]
pub struct Origin {
    pub calls: Vec<Call>,
    pub reply: Option<Reply>,
}

pub struct Gate {
    pub host: Host,
    pub origin: Rc<RefCell<Origin>>,
}

impl Origin {
    fn answer(&mut self, call: &Call) -> Reply {
        self.calls.push(call.clone());
        if let Some(reply) = &self.reply {
            return reply.clone();
        }
        let batch = Batch::read(&call.body).unwrap();
        let mut answer = Answer::default();
        for sent in &batch.events {
            answer.take(sent.id().unwrap().as_str(), false);
        }
        Reply::status(202, serde_json::to_vec(&answer).unwrap())
    }

    /// The views of all calls so far.
    pub fn views(&self) -> Vec<Event> {
        let events = |call: &Call| -> Vec<Event> {
            let batch = Batch::read(&call.body).unwrap();
            batch
                .events
                .iter()
                .map(|sent| sent.read().unwrap())
                .collect()
        };
        self.calls.iter().flat_map(events).collect()
    }
}

impl Gate {
    pub fn new() -> Self {
        Self::with(CONFIG)
    }

    pub fn with(config: &str) -> Self {
        let origin = Rc::<RefCell<Origin>>::default();
        let requested = Rc::clone(&origin);
        let host = Host::builder()
            .module_file(weir_stack::wasm::filter("events").unwrap())
            .vm_id("weir-events")
            .plugin_config(config)
            .env("WEIR_EVENTS_KEY", SECRET)
            .start_at_ns(NOW_MS * 1_000_000)
            .workers(2)
            .failure_policy(FailurePolicy::FailReload)
            .cluster("weir_redis", Upstream::held())
            .cluster(
                "weir_origin",
                Upstream::scripted(move |call| requested.borrow_mut().answer(call)),
            )
            .start()
            .unwrap();
        Self { host, origin }
    }

    /// A valid request with an event.
    pub fn post(&self, worker: usize) -> RequestBuilder {
        let request = self.host.request(worker).method("POST").path("/events");
        request
            .header("content-type", "application/json")
            .header("content-length", "15")
            .header("x-weir-write-key", "wk_shop_web")
            .body(r#"{"type":"view"}"#)
            .property(&["source", "address"], "203.0.113.7:4711")
    }

    /// A request for a product page.
    pub fn view(&self, worker: usize, sku: &str) {
        let request = self.host.request(worker).path(format!("/products/{sku}"));
        let stream = request.header("x-user-id", "alice").send();
        assert!(stream.is_continued());
        stream.respond(200, [("content-type", "text/html")], "<p>a product");
        stream.disconnect();
    }

    /// A counter. Filters publish their counters on ticks.
    pub fn metric(&self, name: &str) -> u64 {
        // Ticks start after the first stream's wake-up.
        self.host.run_until_idle();
        self.host.tick();
        self.host
            .metric(&format!("weir_events_{name}"))
            .unwrap_or_else(|| panic!("no {name}"))
    }
}

/// The gateway metadata of a request that passed.
pub fn stamps(stream: &Stream) -> Stamps {
    let request = stream.upstream_request();
    Stamps::read(|name| request.headers.text(name).map(str::as_bytes)).unwrap()
}
