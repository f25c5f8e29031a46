//! Refusal counts that gateways publish, as operators read them.

use serde_json::{Value, json};
use weir_origin::clock::now_ms;
use weir_scripts::tally::{self, Subject, name};
use weir_scripts::{gateway_report, keys};

use crate::support::World;

/// A gateway publishes these counts, this many minutes ago.
async fn tell(world: &World, subject: Subject, ago: u64, counts: &[(&[&str], u64)]) {
    let at_ms = now_ms() - ago * 60_000;
    let key = keys::tally(&world.prefix, subject, at_ms);
    let counts = counts.iter().map(|(words, count)| (name(words), *count));
    world.script(&tally::call(&key, counts)).await;
}

#[tokio::test]
async fn recent_refusals_are_listed_by_rule_and_key() {
    let world = World::new().await;
    let of = async |query: &str| {
        world
            .admin("GET", &format!("/limits/refusals{query}"), &Value::Null)
            .await
    };
    let nothing = of("").await.body;
    let seen = (&nothing["minutes"], &nothing["rules"], &nothing["keys"]);
    assert_eq!(seen, (&json!(5), &json!([]), &json!([])));
    let some: [(&[&str], u64); 2] = [(&["limited", "r"], 3), (&["limited", "r", "alice"], 3)];
    for ago in [0, 2, 30] {
        tell(&world, Subject::Limits, ago, &some).await;
    }
    for (query, limited) in [("?minutes=1", 3), ("?minutes=4", 6), ("?minutes=60", 9)] {
        let body = of(query).await.body;
        assert_eq!(body["rules"][0]["limited"], limited, "{query}: {body}");
        assert_eq!(body["keys"][0]["limited"], limited, "{query}: {body}");
    }
    // Minute by minute, oldest first: the counts are in three of them.
    let hour = of("?minutes=60").await.body;
    let minutes = hour["by_minute"].as_array().unwrap();
    let counts = minutes
        .iter()
        .filter_map(|minute| minute["rules"][0]["limited"].as_u64());
    assert_eq!((minutes.len(), counts.collect()), (60, vec![3, 3, 3]));
    let (first, last) = (&minutes[0]["at_ms"], &minutes[59]["at_ms"]);
    let span_ms = last.as_u64().unwrap() - first.as_u64().unwrap();
    assert_eq!(span_ms, 59 * 60_000);
    for query in ["?minutes=0", "?minutes=61", "?minutes=x"] {
        let refused = of(query).await;
        assert_eq!(refused.status, 400, "{query}");
        assert_eq!(refused.body["error"], "invalid_query");
    }
}

/// A gateway reports a rule and a room.
async fn report(world: &World, gateway: &str, rule: &str) {
    let items = json!([
        { "kind": "rule", "name": "logins", "text": rule, "digest": rule },
        { "kind": "room", "name": "shop", "text": "open", "digest": "1", "numbers": { "per_minute": 600 } },
        { "kind": "room", "name": "acme--drop", "text": "paused", "digest": "2" },
    ]);
    let report = json!({
        "gateway": gateway, "process": gateway, "filter": "all", "version": "1.0.0", "configuration": "c",
        "at_ms": now_ms(), "items": items, "left_out": 0,
    });
    let key = keys::gateways(&world.prefix, now_ms());
    let call = gateway_report::call(&key, gateway, report.to_string().as_bytes());
    world.script(&call).await;
}

#[tokio::test]
async fn gateways_are_listed_with_their_differences() {
    let world = World::new().await;
    let list = async || world.admin("GET", "/gateways", &Value::Null).await.body;
    assert_eq!(list().await, json!({ "gateways": [], "differences": [] }));
    report(&world, "gw-1", "5 per 1 s").await;
    report(&world, "gw-2", "6 per 1 s").await;
    let found = list().await;
    let names: Vec<_> = found["gateways"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["name"])
        .collect();
    assert_eq!(names, ["gw-1", "gw-2"]);
    assert_eq!(
        found["gateways"][0]["filters"][0]["items"][1]["name"],
        "shop"
    );
    let difference = &found["differences"][0];
    assert_eq!(
        (&difference["kind"], &difference["name"]),
        (&json!("rule"), &json!("logins"))
    );
    assert_eq!(difference["variants"][1]["value"], "6 per 1 s");
    assert_eq!(found["differences"].as_array().unwrap().len(), 1);
    report(&world, "gw-1", "6 per 1 s").await;
    assert_eq!(list().await["differences"], json!([]));
    // A report that this origin cannot read does not hide the others.
    let key = keys::gateways(&world.prefix, now_ms());
    world
        .script(&gateway_report::call(&key, "broken", b"{"))
        .await;
    assert_eq!(list().await["gateways"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn rooms_of_gateways_are_listed_with_their_configuration() {
    let world = World::new().await;
    report(&world, "gw-1", "r").await;
    report(&world, "gw-2", "r").await;
    let rooms = world.admin("GET", "/rooms", &Value::Null).await.body;
    let shop = &rooms["rooms"][1];
    let configured = json!({ "gateways": 2, "mode": "open", "per_minute": 600, "active_max": 0, "opens_at_ms": 0 });
    assert_eq!(
        (&shop["name"], &shop["configured"]),
        (&json!("shop"), &configured)
    );
    assert_eq!(
        (&shop["setting"], &shop["queue"]),
        (&Value::Null, &Value::Null)
    );
    let one = world.admin("GET", "/rooms/shop", &Value::Null).await;
    assert_eq!(
        (one.status.as_u16(), &one.body["configured"]),
        (200, &configured)
    );
    let set = json!({ "mode": "paused" });
    let set = world.admin("PUT", "/rooms/shop", &set).await;
    assert_eq!(set.body["configured"], configured);
    let rooms = world.admin("GET", "/rooms", &Value::Null).await.body;
    assert_eq!(
        rooms["rooms"].as_array().unwrap().len(),
        2,
        "each is listed once"
    );
}
