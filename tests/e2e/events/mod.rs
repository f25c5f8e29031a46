//! Behaviour events: a real Envoy with the filter, before an origin that records received events.

mod collect;
mod observe;
mod sdk;
mod whole;

use std::collections::BTreeMap;

use anyhow::Result;
use weir_stack::http::{Method, Response};
use weir_tests::EventGateway;

/// A body with one event.
fn event(id: &str) -> String {
    format!(r#"{{"id":"{id}","type":"view","attributes":{{"sku":"a1"}}}}"#)
}

async fn shipped() -> Result<EventGateway> {
    EventGateway::start(None, BTreeMap::new()).await
}

/// Sends a valid request with events and additional headers.
async fn post(gateway: &EventGateway, body: &str, other: &[(&str, &str)]) -> Result<Response> {
    let usual = [
        ("content-type", "application/json"),
        ("x-weir-write-key", "wk_shop_web"),
    ];
    let is_other = |name: &str| other.iter().any(|(existing, _)| *existing == name);
    let usual = usual.into_iter().filter(|(name, _)| !is_other(name));
    let headers: Vec<_> = usual.chain(other.iter().copied()).collect();
    gateway.ask(Method::POST, "/events", &headers, body).await
}
