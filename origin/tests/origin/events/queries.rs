//! Queries of events by customer.

use serde_json::{Value, json};

use super::*;

/// Events of one customer, at these seconds of the last hour.
async fn course(world: &World, events: &[(&str, u64)]) -> u64 {
    let stamps = server();
    let start = stamps.received_ms - 3_600_000;
    let event = |(n, (name, at_s)): (usize, &(&str, u64))| json!({"id": format!("e{n}"), "type": name, "customer": "alice", "at_ms": start + 1_000 * at_s});
    let body: Vec<Value> = events.iter().enumerate().map(event).collect();
    let answer = send(world, &stamps, &json!(body)).await;
    assert_eq!(answer.body["accepted"], events.len(), "{answer:?}");
    until_stored(world, "alice", events.len()).await;
    start
}

async fn get(world: &World, path: &str) -> Value {
    let answer = world.admin("GET", path, &Value::Null).await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.body
}

fn ids(events: &Value) -> Vec<&str> {
    let events = events.as_array().unwrap().iter();
    events.map(|event| event["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn customer_history_is_listed_by_time_and_type_in_pages() {
    let world = world(|_| {}).await;
    register(&world, "cart").await;
    let times: Vec<(&str, u64)> = (0..25)
        .map(|n| (if n % 5 == 4 { "cart" } else { "view" }, n / 2))
        .collect();
    let start = course(&world, &times).await;
    let mut all = Vec::new();
    let mut page = String::new();
    loop {
        let message = get(&world, &format!("/customers/alice/events?limit=7{page}")).await;
        all.extend(ids(&message["events"]).iter().map(|id| (*id).to_owned()));
        let Some(next) = message["next_page"].as_str() else {
            break;
        };
        page = format!("&page={next}");
    }
    let expected: Vec<String> = (0..25).map(|n| format!("e{n}")).collect();
    assert_eq!(
        all, expected,
        "in the order in which they were sent, also within a millisecond"
    );
    let carts = get(&world, "/customers/alice/events?type=cart&order=latest").await;
    assert_eq!(ids(&carts["events"]), ["e24", "e19", "e14", "e9", "e4"]);
    let (from, to) = (start + 2_000, start + 4_000);
    let between = get(
        &world,
        &format!("/customers/alice/events?from_ms={from}&to_ms={to}"),
    )
    .await;
    assert_eq!(ids(&between["events"]), ["e4", "e5", "e6", "e7"]);
    for bad in ["limit=0", "limit=1001", "page=x", "order=up", "colour=1"] {
        let path = format!("/customers/alice/events?{bad}");
        assert_eq!(
            world.admin("GET", &path, &Value::Null).await.status,
            400,
            "{bad}"
        );
    }
    let anonymous = get(&world, "/customers/nobody/events").await;
    assert_eq!(anonymous, json!({"events": [], "next_page": null}));
}

#[tokio::test]
async fn event_windows_return_last_events_and_counts() {
    let world = world(|_| {}).await;
    put_type(&world, "view", &json!({"window": "20s"})).await;
    for name in ["cart", "order"] {
        register(&world, name).await;
    }
    let day = [
        ("view", 10),
        ("view", 20),
        ("cart", 25),
        ("view", 30),
        ("order", 125),
        ("order", 126),
    ];
    let start = course(&world, &day).await;
    let path = |query: &str| format!("/customers/alice/windows/{query}");
    let last = get(&world, &path("last?type=view&n=2")).await;
    assert_eq!(ids(&last["events"]), ["e3", "e1"]);
    let end = start + 30_000;
    let count = get(&world, &path(&format!("count?type=view&end_ms={end}"))).await;
    assert_eq!(
        count,
        json!({"count": 2, "complete": true}),
        "by the type's window"
    );
    let count = get(
        &world,
        &path(&format!("count?type=view&within=21s&end_ms={end}")),
    )
    .await;
    assert_eq!(count["count"], 3);
    let pairs = get(&world, &path("sequences?type=cart&then=order&within=100s")).await;
    let pairs = pairs["sequences"].as_array().unwrap();
    assert_eq!(pairs.len(), 1);
    assert_eq!(
        (&pairs[0]["first"]["id"], &pairs[0]["then"]["id"]),
        (&json!("e2"), &json!("e4"))
    );
    let strange = world
        .admin("GET", &path("median?type=view"), &Value::Null)
        .await;
    assert_eq!(strange.status, 404);
    let missing = world
        .admin("GET", &path("count?type=cart"), &Value::Null)
        .await;
    assert_eq!(missing.status, 400);
}
