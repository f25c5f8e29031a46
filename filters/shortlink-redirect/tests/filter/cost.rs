//! The cost of a redirect from memory: few host calls, because each costs as much as all of the filter's own work.

use super::support::{Gate, link, status};

/// Maximum cost of a redirect in wasm instructions; see the numbers below.
const FUEL_MAX: u64 = 12_000;

#[test]
fn cached_redirect_costs_three_host_calls() {
    // As in `envoy/shortlink.yaml`.
    let gate = Gate::with(r#"{ "redis": {}, "clicks": { "trusted_hops": 0 } }"#);
    gate.put("s/aZ3k9Qx", &link());
    gate.click("/aZ3k9Qx");
    gate.click("/aZ3k9Qx");
    let request = || {
        let request = gate
            .request(0, "/aZ3k9Qx")
            .header("x-forwarded-for", "192.0.2.1");
        request.header("user-agent", "curl/8")
    };
    request().send();
    let stream = request().send();
    assert_eq!(status(&stream), 302);
    stream.disconnect();
    gate.host.turn();
    let cost = stream.cost();
    let calls: Vec<_> = cost.host_calls_by_name().collect();
    let expected = [
        ("proxy_get_current_time_nanoseconds", 1),
        ("proxy_get_header_map_pairs", 1),
        ("proxy_send_local_response", 1),
    ];
    assert_eq!(calls, expected);
    // Created, request headers, deleted.
    assert_eq!(cost.callbacks, 3);
    println!("a redirect from memory: {} of fuel", cost.fuel);
    assert!(cost.fuel <= FUEL_MAX, "{}", cost.fuel);
}
