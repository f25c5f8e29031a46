//! What sellers ask about events: profiles, trends, segments and funnels.

use serde_json::{Value, json};

use super::groups::hurried;
use super::*;

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

async fn get(world: &World, path: &str) -> Value {
    let answer = world.admin("GET", path, &Value::Null).await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.body
}

/// Sends events by customer, type and time, and waits until they are stored.
async fn stores(world: &World, prefix: &str, events: &[(&str, &str, u64)]) {
    let event = |(n, (customer, name, at_ms)): (usize, &(&str, &str, u64))| json!({"id": format!("{prefix}{n}"), "type": name, "customer": customer, "at_ms": at_ms});
    let body: Vec<Value> = events.iter().enumerate().map(event).collect();
    let answer = send(world, &server(), &json!(body)).await;
    assert_eq!(answer.body["accepted"], events.len(), "{answer:?}");
    until_caught_up(world, "store").await;
}

/// A world with the types `view`, `cart` and `order`.
async fn shop() -> World {
    let world = world(hurried).await;
    for name in ["cart", "order"] {
        register(&world, name).await;
    }
    world
}

#[tokio::test]
async fn profile_has_first_and_last_time_and_counts_by_type() {
    let world = shop().await;
    let start = now_ms() - DAY_MS;
    let events = [
        ("alice", "view", start),
        ("alice", "view", start + 1_000),
        ("alice", "cart", start + 2_000),
        ("bob", "order", start + 9_000),
        ("alice", "view", start + 3_000),
    ];
    stores(&world, "e", &events).await;
    let profile = get(&world, "/customers/alice/profile").await;
    let expected = json!({
        "customer": "alice",
        "first_ms": start,
        "last_ms": start + 3_000,
        "events": 4,
        "complete": true,
        "types": [
            {"type": "view", "events": 3, "first_ms": start, "last_ms": start + 3_000},
            {"type": "cart", "events": 1, "first_ms": start + 2_000, "last_ms": start + 2_000},
        ],
        "segments": [],
    });
    assert_eq!(profile, expected);
    let nobody = get(&world, "/customers/nobody/profile").await;
    assert_eq!(
        (&nobody["first_ms"], &nobody["last_ms"], &nobody["events"]),
        (&Value::Null, &Value::Null, &json!(0))
    );
}

#[tokio::test]
async fn trends_count_each_stored_event_once_by_its_own_hour_and_day() {
    let world = shop().await;
    let hour = now_ms() / DAY_MS * DAY_MS - 2 * DAY_MS;
    let mut events = vec![("bob", "cart", hour + HOUR_MS)];
    // More than one statement inserts.
    events.extend((0..70).map(|n| ("alice", "view", hour + 10 * n)));
    events.extend((0..3).map(|n| ("alice", "view", hour + 25 * HOUR_MS + n)));
    stores(&world, "e", &events).await;
    // A repetition of the same events after the log was read again counts nothing.
    let seek = world
        .admin("POST", "/groups/store/seek", &json!({"to": "start"}))
        .await;
    assert_eq!(seek.status, 200, "{seek:?}");
    stores(&world, "again", &[("carol", "order", hour)]).await;

    let path = |rest: &str| {
        let (from, to) = (hour, hour + 26 * HOUR_MS - 1);
        format!("/events/trends?from_ms={from}&to_ms={to}{rest}")
    };
    let by_hour = get(&world, &path("")).await;
    let point = |at_ms: u64, events: u64| json!({"at_ms": at_ms, "events": events});
    let types = json!([
        {"type": "view", "events": 73, "points": [point(hour, 70), point(hour + 25 * HOUR_MS, 3)]},
        {"type": "cart", "events": 1, "points": [point(hour + HOUR_MS, 1)]},
        {"type": "order", "events": 1, "points": [point(hour, 1)]},
    ]);
    assert_eq!(
        by_hour,
        json!({"from_ms": hour, "to_ms": hour + 26 * HOUR_MS, "step_ms": HOUR_MS, "types": types, "complete": true})
    );
    let by_day = get(&world, &path("&by=day&type=view")).await;
    assert_eq!(
        by_day["types"],
        json!([{"type": "view", "events": 73, "points": [point(hour, 70), point(hour + DAY_MS, 3)]}])
    );
    assert_eq!(by_day["to_ms"], hour + 2 * DAY_MS);
    let recent = get(&world, "/events/trends").await;
    assert_eq!(recent["types"], json!([]), "the last 24 hours");
    let month = get(&world, "/events/trends?by=day").await;
    assert_eq!(month["types"][0]["events"], 73, "the last 31 days");
}

#[tokio::test]
async fn trends_refuse_times_that_are_too_long_or_reversed() {
    let world = shop().await;
    for bad in [
        format!("from_ms={}&to_ms={}", 0, 32 * DAY_MS),
        format!("by=day&from_ms=0&to_ms={}", 367 * DAY_MS),
        format!("from_ms={}&to_ms={}", 9 * DAY_MS, 8 * DAY_MS),
        "by=week".to_owned(),
        "colour=1".to_owned(),
    ] {
        let path = format!("/events/trends?{bad}");
        let answer = world.admin("GET", &path, &Value::Null).await;
        assert_eq!(answer.status, 400, "{bad}: {answer:?}");
    }
}

/// Saves a segment, waits until it is evaluated, and returns it.
pub(super) async fn evaluate(world: &World, name: &str, spec: &Value) -> Value {
    let path = format!("/events/segments/{name}");
    let put = world.admin("PUT", &path, spec).await;
    assert_eq!(put.status, 200, "{put:?}");
    let changed_ms = put.body["changed_at_ms"].as_u64().unwrap();
    until("evaluated", async || {
        let segment = get(world, &path).await;
        segment["evaluated_ms"].as_u64() >= Some(changed_ms)
    })
    .await;
    get(world, &path).await
}

/// The members of a segment, in pages of `limit`.
async fn members(world: &World, name: &str, limit: u32) -> Vec<String> {
    let (mut all, mut page) = (Vec::new(), String::new());
    loop {
        let path = format!("/events/segments/{name}/members?limit={limit}{page}");
        let found = get(world, &path).await;
        let members = found["members"].as_array().unwrap().iter();
        all.extend(members.map(|one| one["customer"].as_str().unwrap().to_owned()));
        match found["next_page"].as_str() {
            Some(next) => page = format!("&page={next}"),
            None => return all,
        }
    }
}

fn at_least(event_type: &str, count: u32, days: u32) -> Value {
    json!({"type": event_type, "at_least": count, "days": days})
}

#[tokio::test]
async fn segment_has_the_customers_who_meet_all_conditions() {
    let world = shop().await;
    let (now, old) = (now_ms() - 1_000, now_ms() - 40 * DAY_MS);
    let events = [
        ("alice", "view", now),
        ("alice", "view", now - 1),
        ("bob", "view", now),
        ("carl", "view", now),
        ("carl", "view", now - 1),
        ("carl", "order", now),
        ("dan", "view", old),
        ("dan", "view", old + 1),
        ("eve", "order", now),
    ];
    stores(&world, "e", &events).await;
    let spec = json!({"conditions": [
        {"type": "order", "at_most": 0, "days": 30},
        at_least("view", 2, 30),
    ]});
    let segment = evaluate(&world, "hesitant", &spec).await;
    assert_eq!(
        (
            &segment["members"],
            &segment["complete"],
            &segment["notify"]
        ),
        (&json!(1), &json!(true), &json!(false))
    );
    assert_eq!(members(&world, "hesitant", 10).await, ["alice"]);
    let all = json!({"conditions": [at_least("view", 1, 60)]});
    evaluate(&world, "viewers", &all).await;
    let viewers = ["alice", "bob", "carl", "dan"];
    assert_eq!(members(&world, "viewers", 2).await, viewers);
    let profile = get(&world, "/customers/alice/profile").await;
    let of_alice = profile["segments"].as_array().unwrap().iter();
    let of_alice: Vec<&str> = of_alice.map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(of_alice, ["hesitant", "viewers"]);

    // A change: who does not meet the new rule leaves.
    let range = json!({"conditions": [{"type": "view", "at_least": 1, "at_most": 1, "days": 30}]});
    let segment = evaluate(&world, "viewers", &range).await;
    assert_eq!(
        (&segment["version"], &segment["members"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(members(&world, "viewers", 10).await, ["bob"]);
    let listed = get(&world, "/events/segments").await;
    let names = listed["segments"].as_array().unwrap().iter();
    let names: Vec<&str> = names.map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["hesitant", "viewers"]);

    // New events count from the next evaluation on.
    stores(&world, "late", &[("zoe", "view", now)]).await;
    let evaluated = world
        .admin("POST", "/events/segments/viewers/evaluate", &Value::Null)
        .await;
    assert_eq!(evaluated.status, 202, "{evaluated:?}");
    until("evaluated again", async || {
        members(&world, "viewers", 10).await == ["bob", "zoe"]
    })
    .await;
}

#[tokio::test]
async fn segment_of_many_chunks_is_exported_as_csv() {
    let world = shop().await;
    let now = now_ms() - 1_000;
    let names: Vec<String> = (0..2_500).map(|n| format!("c{n:04}")).collect();
    for (n, some) in names.chunks(500).enumerate() {
        let views: Vec<(&str, &str, u64)> = some
            .iter()
            .map(|name| (name.as_str(), "view", now))
            .collect();
        stores(&world, &format!("e{n}-"), &views).await;
    }
    stores(&world, "formula", &[("=1+1", "view", now)]).await;
    let spec = json!({"conditions": [at_least("view", 1, 1)]});
    let segment = evaluate(&world, "all", &spec).await;
    assert_eq!(segment["members"], 2_501);
    let csv = world
        .admin("GET", "/events/segments/all/members.csv", &Value::Null)
        .await;
    assert_eq!(csv.status, 200);
    let kind = csv.headers["content-type"].to_str().unwrap();
    assert!(kind.starts_with("text/csv"), "{kind}");
    let file = csv.headers["content-disposition"].to_str().unwrap();
    assert_eq!(file, "attachment; filename=\"all.csv\"");
    let since = segment["evaluated_ms"].as_u64().unwrap();
    let lines = names.iter().map(|name| format!("{name},{since}\r\n"));
    let expected: String = lines.collect();
    assert_eq!(
        csv.body.as_str().unwrap(),
        format!("customer,since_ms\r\n'=1+1,{since}\r\n{expected}")
    );
}

#[tokio::test]
async fn segments_refuse_invalid_rules_and_unknown_names() {
    let world = shop().await;
    let put = async |name: &str, spec: &Value| {
        let path = format!("/events/segments/{name}");
        let answer = world.admin("PUT", &path, spec).await;
        answer.status.as_u16()
    };
    let one = |condition: Value| json!({"conditions": [condition]});
    for spec in [
        json!({}),
        json!({"conditions": []}),
        json!({"conditions": vec![at_least("view", 1, 1); 4]}),
        one(json!({"type": "view", "at_most": 0, "days": 30})),
        one(at_least("view", 1, 367)),
        one(at_least("view", 10_001, 7)),
        one(at_least("No", 1, 7)),
        one(json!({"type": "view", "at_least": 1, "days": 1, "hours": 2})),
    ] {
        assert!([400, 422].contains(&put("bad", &spec).await), "{spec}");
    }
    let good = one(at_least("view", 1, 1));
    assert_eq!(put("Bad", &good).await, 422);
    for (method, path) in [
        ("GET", "/events/segments/none"),
        ("GET", "/events/segments/none/members"),
        ("GET", "/events/segments/none/members.csv"),
        ("DELETE", "/events/segments/none"),
        ("POST", "/events/segments/none/evaluate"),
    ] {
        let answer = world.admin(method, path, &Value::Null).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (404, "unknown_segment")
        );
    }
    // A deleted segment is gone at once; its name is free when its members are.
    evaluate(&world, "good", &good).await;
    let deleted = world
        .admin("DELETE", "/events/segments/good", &Value::Null)
        .await;
    assert_eq!(deleted.status, 204);
    let gone = world
        .admin("GET", "/events/segments/good", &Value::Null)
        .await;
    assert_eq!(gone.status, 404);
    until("free again", async || put("good", &good).await == 200).await;
}

/// The customers of each step, over all pages, and the number of pages.
async fn funnel(world: &World, query: &str) -> (Vec<u64>, usize) {
    let (mut counts, mut pages, mut page) = (Vec::new(), 0, String::new());
    loop {
        let found = get(world, &format!("/events/funnels?{query}{page}")).await;
        assert_eq!(found["complete"], true);
        let steps = found["steps"].as_array().unwrap();
        counts.resize(steps.len(), 0);
        for (count, step) in counts.iter_mut().zip(steps) {
            *count += step["customers"].as_u64().unwrap();
        }
        pages += 1;
        match found["next_page"].as_str() {
            Some(next) => page = format!("&page={next}"),
            None => return (counts, pages),
        }
    }
}

#[tokio::test]
async fn funnel_counts_customers_by_steps_in_order_and_in_time() {
    let world = shop().await;
    let start = now_ms() - DAY_MS;
    let minute = |n: u64| start + 60_000 * n;
    let events = [
        // All steps, with repetitions, which count once.
        ("alice", "view", minute(0)),
        ("alice", "view", minute(1)),
        ("alice", "cart", minute(2)),
        ("alice", "cart", minute(3)),
        ("alice", "order", minute(9)),
        // The order is too late for the cart.
        ("bob", "view", minute(0)),
        ("bob", "cart", minute(10)),
        ("bob", "order", minute(61)),
        // The wrong order.
        ("carl", "cart", minute(0)),
        ("carl", "view", minute(1)),
        ("carl", "order", minute(2)),
        // The first step is before the time.
        ("dan", "view", start - 60_000),
        ("dan", "cart", minute(1)),
        // No first step.
        ("eve", "cart", minute(1)),
        // After the time, but the first step is in it.
        ("fay", "view", minute(119)),
        ("fay", "cart", minute(130)),
    ];
    stores(&world, "e", &events).await;
    let time = format!("from_ms={start}&to_ms={}", minute(120));
    for (query, expected) in [
        ("types=view,cart,order&within=1h", vec![4, 3, 1]),
        ("types=view,cart,order&within=2h", vec![4, 3, 2]),
        ("types=view,order&within=1h", vec![4, 2]),
        ("types=page,order&within=1h", vec![0, 0]),
    ] {
        let found = funnel(&world, &format!("{query}&{time}")).await;
        assert_eq!(found, (expected, 1), "{query}");
    }
    let week = funnel(&world, "types=view,cart&within=1h").await;
    assert_eq!(week.0, [5, 4], "the last 7 days");
}

#[tokio::test]
async fn funnel_of_many_customers_has_pages_that_add_up() {
    let world = shop().await;
    let now = now_ms() - 100_000;
    let names: Vec<String> = (0..10_500).map(|n| format!("c{n:05}")).collect();
    for (n, some) in names.chunks(500).enumerate() {
        let mut events: Vec<(&str, &str, u64)> = some
            .iter()
            .map(|name| (name.as_str(), "view", now))
            .collect();
        // One of five goes on.
        let next = some.iter().step_by(5);
        events.extend(next.map(|name| (name.as_str(), "cart", now + 1)));
        stores(&world, &format!("e{n}-"), &events).await;
    }
    let (counts, pages) = funnel(&world, "types=view,cart&within=1m").await;
    assert_eq!((counts, pages), (vec![10_500, 2_100], 2));
}

#[tokio::test]
async fn funnels_refuse_steps_and_times_out_of_bounds() {
    let world = shop().await;
    for bad in [
        "within=1h",
        "types=view,cart",
        "types=view&within=1h",
        "types=view,view&within=1h",
        "types=view,cart,order,page&within=1h",
        "types=view,No&within=1h",
        "types=view,cart&within=0s",
        "types=view,cart&within=32d",
        "types=view,cart&within=1h&from_ms=9&to_ms=9",
        "types=view,cart&within=1h&from_ms=0&to_ms=9000000000",
        "types=view,cart&within=1h&page=%20",
    ] {
        let path = format!("/events/funnels?{bad}");
        let answer = world.admin("GET", &path, &Value::Null).await;
        assert_eq!(answer.status, 400, "{bad}: {answer:?}");
    }
}

#[tokio::test]
async fn tenants_and_readers_reach_only_what_their_keys_allow() {
    let world = shop().await;
    let key = async |members: Value| {
        let answer = world.admin("POST", "/access/keys", &members).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        format!("Bearer {}", answer.body["key"].as_str().unwrap())
    };
    let acme = json!({"title": "Acme"});
    let acme = world.admin("PUT", "/tenants/acme", &acme).await;
    assert!(acme.status.is_success(), "{acme:?}");
    let tenant = key(json!({"name": "t", "role": "admin", "tenant": "acme"})).await;
    let reader = key(json!({"name": "r", "scopes": ["events:read"]})).await;
    let other = key(json!({"name": "o", "scopes": ["sales:read"]})).await;
    let spec = json!({"conditions": [at_least("view", 1, 1)]}).to_string();
    for (method, path, body, may_reader) in [
        ("GET", "/customers/alice/profile", "", true),
        ("GET", "/events/trends", "", true),
        ("GET", "/events/funnels?types=view,cart&within=1h", "", true),
        ("GET", "/events/segments", "", true),
        ("PUT", "/events/segments/all", spec.as_str(), false),
        ("DELETE", "/events/segments/all", "", false),
        ("POST", "/events/segments/all/evaluate", "", false),
    ] {
        for (key, may) in [(&tenant, false), (&reader, may_reader), (&other, false)] {
            let answer = world.admin_as(method, path, body, Some(key)).await;
            let expected = if may { 200 } else { 403 };
            assert_eq!(answer.status, expected, "{method} {path}: {answer:?}");
        }
    }
}
