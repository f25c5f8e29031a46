//! What requests with events cost, and pages that are observed.

use anyhow::{Context, Result, ensure};
use weir_host_test::{Host, Stream, Upstream};

use crate::{Cost, NOW_MS, REQUESTS, USER_AGENT};

/// The configuration of `envoy/events.yaml`, with limits that no request reaches.
const CONFIG: &str = r#"{
    "keys": [{ "name": "shop-web", "kind": "browser", "key": "wk_shop_web", "origins": ["http://localhost:10000"] }],
    "user_header": "x-user-id",
    "trusted_hops": 0,
    "collect": {},
    "limits": {
        "per_visitor": { "rate": 1000000, "per": "1s" },
        "per_address": { "rate": 1000000, "per": "1s" }
    },
    "observe": { "routes": [{ "path": "/products/{sku}", "type": "view" }], "key": "shop-web" } }"#;

/// The scenarios.
pub(crate) fn all() -> Result<Vec<Cost>> {
    let host = Host::builder()
        .module_file(weir_stack::wasm::filter("events")?)
        .vm_id("weir-events")
        .plugin_config(CONFIG)
        .start_at_ns(NOW_MS * 1_000_000)
        .cluster("weir_origin", Upstream::held())
        .start()
        .context("the filter for events does not start")?;
    let scenarios: [(&'static str, Ask, Outcome); 4] = [
        (
            "events of a page, with two limits",
            from_page,
            Outcome::GoesOn,
        ),
        (
            "events without a known key",
            without_key,
            Outcome::Status(401),
        ),
        ("a page that is observed", page, Outcome::IsShown),
        ("a request that is neither", other, Outcome::GoesOn),
    ];
    let mut costs = Vec::new();
    for (scenario, ask, outcome) in scenarios {
        // The first make tables, and read the user agent.
        run(&host, ask, 0, outcome)?;
        let before = host.cost();
        run(&host, ask, REQUESTS, outcome)?;
        let after = host.cost();
        costs.push(Cost::between(scenario, &before, &after, REQUESTS, 0));
    }
    Ok(costs)
}

type Ask = fn(&Host, u64) -> Stream;

/// What must become of a request.
#[derive(Clone, Copy)]
enum Outcome {
    GoesOn,
    /// It goes on, is answered, and ends.
    IsShown,
    Status(u16),
}

fn run(host: &Host, ask: Ask, from: u64, outcome: Outcome) -> Result<()> {
    for n in from..from + REQUESTS {
        let stream = ask(host, n);
        let is_right = match outcome {
            Outcome::Status(status) => stream.status() == Some(status),
            _ => stream.is_continued(),
        };
        ensure!(is_right, "a request came to {:?}", stream.state());
        if let Outcome::IsShown = outcome {
            stream.respond(200, [("content-type", "text/html")], "<p>a product");
        }
        stream.disconnect();
    }
    Ok(())
}

fn from_page(host: &Host, n: u64) -> Stream {
    let request = host
        .request(0)
        .method("POST")
        .path("/events?key=wk_shop_web");
    request
        .header("content-type", "text/plain;charset=UTF-8")
        .header("content-length", "200")
        .header("origin", "http://localhost:10000")
        .header("user-agent", USER_AGENT)
        .header("x-weir-visitor", format!("v{n:011}"))
        .header("x-forwarded-for", "192.0.2.1")
        .send()
}

fn without_key(host: &Host, _: u64) -> Stream {
    let request = host.request(0).method("POST").path("/events");
    request
        .header("content-type", "application/json")
        .header("content-length", "200")
        .header("user-agent", USER_AGENT)
        .send()
}

fn page(host: &Host, n: u64) -> Stream {
    let request = host.request(0).path(format!("/products/{n}"));
    request
        .header("user-agent", USER_AGENT)
        .header("x-user-id", format!("u{n:011}"))
        .header("cookie", format!("weir_visitor=v{n:011}"))
        .send()
}

fn other(host: &Host, _: u64) -> Stream {
    host.request(0)
        .path("/")
        .header("user-agent", USER_AGENT)
        .send()
}
