//! Properties for arbitrary client input.

use proptest::prelude::*;
use weir_event::consent::Consent;
use weir_event::stamps::REMOVED;

use crate::host::{Host, NOW_MS, State, WEB_KEY};

const NAMES: [&str; 16] = [
    "x-weir-write-key",
    "x-weir-visitor",
    "x-weir-consent",
    "x-weir-event-key",
    "x-weir-event-kind",
    "x-weir-received-ms",
    "x-weir-address",
    "x-user-id",
    "x-forwarded-for",
    "content-type",
    "content-length",
    "origin",
    "sec-gpc",
    "cookie",
    "user-agent",
    "access-control-request-method",
];

const VALUES: [&str; 14] = [
    WEB_KEY,
    "0123456789abcdef",
    "erp",
    "server",
    "1",
    "full",
    "anonymous",
    "none",
    "application/json",
    "https://shop.example",
    "198.51.100.1, 192.0.2.1",
    "weir_visitor=v;weir_consent=full",
    "42",
    "\u{ff}",
];

const PATHS: [&str; 7] = [
    "/events",
    "/events?key=wk_shop_web",
    "/events?consent=none&visitor=v2",
    "/events.gif?key=wk_shop_web&type=view",
    "/products/a1",
    "/products/%ff",
    "/else",
];

fn headers() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let value = prop_oneof![
        4 => prop::sample::select(VALUES.to_vec()).prop_map(String::from),
        1 => "[ -~]{0,20}",
    ];
    prop::collection::vec((prop::sample::select(NAMES.to_vec()), value), 0..12)
}

proptest! {
    /// A request that passes has each of the gateway's metadata headers once, without the client's values. An anonymous
    /// one contains no identity. Each request is counted once.
    #[test]
    fn only_gateway_stamps_are_forwarded(
        requests in prop::collection::vec(
            (prop::sample::select(vec!["GET", "POST", "OPTIONS"]), prop::sample::select(PATHS.to_vec()), headers()), 1..8,
        ),
    ) {
        let mut host = Host::new(
            r#""collect":{},"limits":{"per_visitor":{"rate":2,"per":"1m"},"per_key":{"rate":5,"per":"1m"}},
            "observe":{"key":"shop-web","routes":[{"path":"/products/{sku}"}]}"#,
        );
        let mut collected = 0;
        for (method, path, headers) in &requests {
            let mut all = vec![(":method", *method), (":path", *path)];
            all.extend(headers.iter().map(|(name, value)| (*name, value.as_str())));
            let stream = host.request(&all);
            let is_collected = path.starts_with("/events");
            collected += u64::from(is_collected);
            let went = host.stream(stream).clone();
            match went.state {
                State::GoesOn { .. } if is_collected => {
                    let stamps = went.stamps().unwrap();
                    prop_assert_eq!(stamps.received_ms, NOW_MS);
                    prop_assert!(["shop-web", "erp"].contains(&stamps.key.as_str()));
                    for name in REMOVED {
                        prop_assert!(went.sent(name).len() <= 1);
                    }
                    for removed in ["cookie", "x-forwarded-for", "x-weir-write-key", "x-weir-visitor"] {
                        prop_assert!(went.sent(removed).is_empty());
                    }
                    if stamps.consent == Consent::Anonymous {
                        prop_assert!(stamps.address.is_none() && went.sent("x-user-id").is_empty());
                    }
                    prop_assert!(!went.sent(":path")[0].contains("key="));
                    host.respond(stream);
                }
                State::GoesOn { .. } => {
                    for (name, value) in &all {
                        prop_assert!(value.is_empty() || went.sent(name).contains(value));
                    }
                }
                State::Answered(_) => prop_assert!(is_collected),
                other => prop_assert!(false, "{:?}", other),
            }
            host.end(stream, Some(200));
        }
        let outcomes = [
            "forwarded", "dropped", "sampled", "preflight", "unauthorized", "origin_not_allowed", "method", "content_type",
            "length", "malformed", "limited",
        ];
        let counted: u64 = outcomes
            .iter()
            .map(|outcome| host.count(&format!("weir_events_requests_total.outcome.{outcome}")))
            .sum();
        prop_assert_eq!(counted, collected);
    }
}
