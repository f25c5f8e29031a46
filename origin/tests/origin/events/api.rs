//! Verdicts on events, and the handling of refused events.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use weir_event::consent::Consent;
use weir_origin::clock::now_ms;

use super::*;

#[tokio::test]
async fn events_get_verdicts_and_refused_ones_can_be_fixed_and_resent() {
    let world = world(|_| {}).await;
    let schema = json!({"type": "object", "required": ["sku"]});
    put_type(
        &world,
        "cart",
        &json!({"schema": schema, "retention": "1d"}),
    )
    .await;
    let now = now_ms();
    let body = json!([
        {"id": "a", "type": "view", "visitor": "v1"},
        {"id": "b", "type": "cart"},
        {"id": "c", "type": "buy"},
        {"id": "d", "type": "view", "colour": 1},
        {"id": "e", "type": "view", "at_ms": now + 90_000_000},
        {"id": "f", "type": "cart", "attributes": {"sku": 1}, "at_ms": now - 90_000_000},
        {"id": "g", "type": "view", "customer": "somebody"},
        {"id": "a", "type": "view", "visitor": "v1"},
        {"id": "a", "type": "view", "visitor": "v2"},
        {"id": "h", "type": "view", "attributes": {"text": "x".repeat(33_000)}},
        7,
    ]);
    let answer = send(&world, &browser(), &body).await;
    assert_eq!(
        verdicts(&answer),
        [
            "accepted",
            "schema",
            "unknown_type",
            "invalid",
            "clock",
            "clock",
            "customer_not_allowed",
            "duplicate",
            "id_reused",
            "too_large",
            "invalid",
        ]
    );
    assert_eq!(answer.body["accepted"], 1);
    assert_eq!(answer.body["duplicates"], 1);
    assert_eq!(answer.body["rejected"], 9);
    assert_eq!(answer.body["verdicts"][1]["id"], "b");

    let letters = until_dead(&world, "group=collect", 9).await;
    assert_eq!(letters.len(), 9);
    let schema = dead_letters(&world, "reason=schema").await;
    let [letter] = &schema[..] else {
        panic!("{schema:?}")
    };
    assert_eq!(
        letter["sent"]["event"],
        json!({"id": "b", "type": "cart"}).to_string()
    );
    assert_eq!(letter["sent"]["key"], "web");
    let path = format!("/events/dead-letters/{}", letter["id"].as_str().unwrap());

    let again = world
        .admin("POST", &format!("{path}/resend"), &Value::Null)
        .await;
    assert_eq!(again.status, 422, "nothing has changed: {again:?}");
    let document =
        json!({"event": {"id": "b", "type": "cart", "attributes": {"sku": "x"}, "visitor": "v1"}});
    let put = world.admin("PUT", &path, &document).await;
    assert_eq!(put.status, 200, "{put:?}");
    assert!(put.body["edited_at_ms"].is_u64());
    let again = world
        .admin("POST", &format!("{path}/resend"), &Value::Null)
        .await;
    assert_eq!(verdicts(&again), ["accepted"]);
    assert_eq!(world.admin("GET", &path, &Value::Null).await.status, 404);
    let path = "/visitors/v1/events";
    until("both are stored", async || {
        let found = world.admin("GET", path, &Value::Null).await;
        found.body["events"].as_array().unwrap().len() == 2
    })
    .await;

    // The type is registered late: then all waiting dead letters are accepted together.
    register(&world, "buy").await;
    let which = json!({"reason": "unknown_type"});
    let many = world
        .admin("POST", "/events/dead-letters/resend", &which)
        .await;
    assert_eq!(many.body, json!({"accepted": 1, "remaining": 0}));
    assert_eq!(dead_letters(&world, "").await.len(), 7);
}

#[tokio::test]
async fn repeated_event_counts_once_and_changed_repeat_is_refused() {
    let world = world(|settings| settings.remembered = 1).await;
    let event = view("e1", "alice");
    let mut other = view("e1", "alice");
    other["attributes"]["sku"] = "another".into();
    assert_eq!(
        verdicts(&send(&world, &server(), &event).await),
        ["accepted"]
    );
    assert_eq!(
        verdicts(&send(&world, &server(), &event).await),
        ["duplicate"]
    );
    assert_eq!(
        verdicts(&send(&world, &server(), &other).await),
        ["id_reused"]
    );
    // The memory has forgotten them, but the store still detects them.
    let rest = json!([
        view("e2", "alice"),
        view("e3", "alice"),
        view("e4", "alice")
    ]);
    send(&world, &server(), &rest).await;
    assert_eq!(
        verdicts(&send(&world, &server(), &event).await),
        ["accepted"]
    );
    send(&world, &server(), &rest).await;
    assert_eq!(
        verdicts(&send(&world, &server(), &other).await),
        ["accepted"]
    );
    let letters = until_dead(&world, "group=store", 1).await;
    assert_eq!(letters[0]["reason"], "id_reused");
    assert_eq!(letters[0]["event"]["attributes"]["sku"], "another");
    assert_eq!(stored(&world, "alice").await, ["e1", "e2", "e3", "e4"]);
    let first = world
        .admin("GET", "/customers/alice/events?limit=1", &Value::Null)
        .await;
    assert_eq!(first.body["events"][0]["attributes"]["sku"], "e1");
}

#[tokio::test]
async fn body_without_events_is_refused_as_a_whole() {
    let world = world(|_| {}).await;
    let json = "application/json";
    let one = r#"{"type":"view"}"#;
    let many = format!("[{}]", vec![one; 10_000].join(","));
    let long = format!("[{one}{}]", " ".repeat(1 << 20));
    let bomb = "[".repeat(100_000);
    let checks: [(&str, &[u8], u16); 12] = [
        (json, br#"[{"type":"view"}"#, 400),
        (json, b"", 400),
        (json, b"[]", 400),
        (json, b"\xff\xfe[\0{\0", 400),
        (json, b"[{\"type\":\"\xc3\x28\"}]", 400),
        (json, bomb.as_bytes(), 400),
        (json, many.as_bytes(), 413),
        (json, long.as_bytes(), 413),
        ("application/json; charset=utf-16", one.as_bytes(), 415),
        ("application/x-www-form-urlencoded", one.as_bytes(), 415),
        ("text/plain;charset=UTF-8", one.as_bytes(), 202),
        ("Application/JSON", one.as_bytes(), 202),
    ];
    for (kind, body, status) in checks {
        let request = stamped(&browser(), "POST", "/events").header("content-type", kind);
        let request = request.body(Body::from(body.to_vec())).unwrap();
        let answer = world.public(request).await;
        assert_eq!(answer.status, status, "{kind} {answer:?}");
    }
    let unstamped = Request::post("/events").header("content-type", json);
    let unstamped = world.public(unstamped.body(Body::from(one)).unwrap()).await;
    assert_eq!(
        (unstamped.status.as_u16(), unstamped.code()),
        (403, "not_by_a_gateway")
    );
    assert!(dead_letters(&world, "").await.is_empty());
}

#[tokio::test]
async fn deeply_nested_event_invalidates_no_other_event() {
    let world = world(|_| {}).await;
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    let body =
        format!(r#"[{{"type":"view","attributes":{{"x":{deep}}}}},{{"type":"view","id":"ok"}}]"#);
    let request = stamped(&browser(), "POST", "/events").header("content-type", "application/json");
    let answer = world.public(request.body(Body::from(body)).unwrap()).await;
    assert_eq!(verdicts(&answer), ["invalid", "accepted"]);
}

#[tokio::test]
async fn wrong_client_clock_is_corrected_by_the_sent_time() {
    let world = world(|_| {}).await;
    let stamps = server();
    let old = 1_000_000_000_000_u64;
    let mut event = view("e1", "alice");
    event["at_ms"] = (old - 5_000).into();
    let wrong = send(&world, &stamps, &json!([event])).await;
    assert_eq!(verdicts(&wrong), ["clock"]);
    let right = send(
        &world,
        &stamps,
        &json!({"sent_at_ms": old, "events": [event]}),
    )
    .await;
    assert_eq!(verdicts(&right), ["accepted"]);
    until_stored(&world, "alice", 1).await;
    let found = world
        .admin("GET", "/customers/alice/events", &Value::Null)
        .await;
    assert_eq!(found.body["events"][0]["at_ms"], stamps.received_ms - 5_000);
    assert_eq!(found.body["events"][0]["received_ms"], stamps.received_ms);
}

#[tokio::test]
async fn gateway_stamps_decide_between_user_and_anonymous_events() {
    let world = world(|_| {}).await;
    let signed_in = |stamps: &Stamps, id: &str| {
        let body = json!({"id": id, "type": "view", "visitor": "v9"});
        let request = stamped(stamps, "POST", "/events")
            .header("content-type", "application/json")
            .header("x-user-id", "carol");
        request.body(Body::from(body.to_string())).unwrap()
    };
    world.public(signed_in(&browser(), "known")).await;
    let anonymous = Stamps {
        consent: Consent::Anonymous,
        ..browser()
    };
    world.public(signed_in(&anonymous, "unknown")).await;
    send(
        &world,
        &anonymous,
        &json!({"type": "none", "visitor": "v9"}),
    )
    .await;
    let letters = until_dead(&world, "", 1).await;
    assert!(!letters[0].to_string().contains("v9"), "{letters:?}");
    assert!(!letters[0].to_string().contains("203.0.113"), "{letters:?}");
    until_caught_up(&world, "store").await;
    assert_eq!(stored(&world, "carol").await, ["known"]);
    let visits = world
        .admin("GET", "/visitors/v9/events", &Value::Null)
        .await;
    assert_eq!(visits.body["events"], json!([]));
    let again = world.public(signed_in(&anonymous, "unknown")).await;
    assert_eq!(verdicts(&again), ["duplicate"]);
}

#[tokio::test]
async fn image_request_records_an_event_or_returns_the_refusal() {
    let world = world(|_| {}).await;
    let ask = |query: &str| {
        let request = stamped(&browser(), "GET", &format!("/events.gif?{query}"));
        request.body(Body::empty()).unwrap()
    };
    let answer = world
        .public(ask("type=view&visitor=v1&id=p1&a.sku=a%201"))
        .await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers["content-type"], "image/gif");
    assert_eq!(answer.headers["cache-control"], "no-store");
    assert_eq!(
        world
            .public(ask("type=view&visitor=v1&id=p1&a.sku=a%201"))
            .await
            .status,
        200
    );
    let refused = world.public(ask("type=none&visitor=v1")).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (422, "event_rejected")
    );
    assert!(
        refused.detail().starts_with("unknown_type: "),
        "{refused:?}"
    );
    until_caught_up(&world, "store").await;
    let visits = world
        .admin("GET", "/visitors/v1/events", &Value::Null)
        .await;
    assert_eq!(
        visits.body["events"][0]["attributes"],
        json!({"sku": "a 1"})
    );
}

#[tokio::test]
async fn business_systems_push_events_with_the_admin_token() {
    let world = world(|_| {}).await;
    put_type(&world, "order", &json!({"customer": "/attributes/buyer"})).await;
    let body = json!({"id": "o1", "type": "order", "attributes": {"buyer": 42}});
    let json = [("content-type", "application/json")];
    let pushed = world
        .admin_with("POST", "/events?key=erp", &body, &json)
        .await;
    assert_eq!(verdicts(&pushed), ["accepted"]);
    let none = world.admin_as("POST", "/events", "{}", None).await;
    assert_eq!(none.status, 401);
    until_stored(&world, "42", 1).await;
    let found = world
        .admin("GET", "/customers/42/events", &Value::Null)
        .await;
    assert_eq!(found.body["events"][0]["key"], "erp");
}

#[tokio::test]
async fn type_edit_needs_the_version_that_was_read() {
    let world = World::with_events(|_| {}).await;
    let path = "/events/types/view";
    let response = world.admin("PUT", path, &json!({"window": "30m"})).await;
    assert_eq!(
        (response.status.as_u16(), &response.headers["etag"]),
        (201, &"\"1\"".parse().unwrap())
    );
    let stale = [("if-match", "\"7\"")];
    let changed = world.admin_with("PUT", path, &json!({}), &stale).await;
    assert_eq!(
        (changed.status.as_u16(), changed.code()),
        (412, "version_conflict")
    );
    let fresh = [("if-match", "\"1\"")];
    let spec = json!({"schema": {"type": "object"}, "routes": [{"topics": ["views"]}]});
    let changed = world.admin_with("PUT", path, &spec, &fresh).await;
    assert_eq!(
        (changed.status.as_u16(), &changed.body["version"]),
        (200, &json!(2))
    );
    let body = world.admin("GET", path, &Value::Null).await.body;
    assert_eq!(body["routes"], spec["routes"]);
    let all = world.admin("GET", "/events/types", &Value::Null).await.body;
    assert_eq!(all["types"], json!([body]));
    for (path, bad) in [
        (path, json!({"schema": {"type": "colour"}})),
        (path, json!({"retention": "a while"})),
        ("/events/types/View!", json!({})),
    ] {
        let refused = world.admin("PUT", path, &bad).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (422, "invalid_type")
        );
    }
    let strange = world.admin("PUT", path, &json!({"colour": 1})).await;
    assert_eq!(
        (strange.status.as_u16(), strange.code()),
        (400, "invalid_body")
    );
    assert_eq!(world.admin("DELETE", path, &Value::Null).await.status, 204);
    assert_eq!(world.admin("GET", path, &Value::Null).await.status, 404);
    let refused = send(&world, &browser(), &json!({"type": "view"})).await;
    assert_eq!(verdicts(&refused), ["unknown_type"]);
}

/// One version of a type validates a whole body, even if the type changes meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_schema_change_applies_to_whole_bodies_only() {
    let world = world(|_| {}).await;
    let schemas = ["number", "string"]
        .map(|kind| json!({"schema": {"required": ["n"], "properties": {"n": {"type": kind}}}}));
    let registry = world.origin.events().unwrap().registry().clone();
    let change = tokio::spawn(async move {
        for turn in 0..40 {
            let spec = serde_json::from_value(schemas[turn % 2].clone()).unwrap();
            let name = weir_event::name::EventType::new("view").unwrap();
            registry.put(name, spec, None).await.unwrap();
        }
    });
    let mut observed = std::collections::BTreeSet::new();
    let mut turn = 0;
    while !change.is_finished() || turn < 20 {
        let event =
            |n: u32| json!({"id": format!("{turn}-{n}"), "type": "view", "attributes": {"n": n}});
        let body: Vec<Value> = (0..300).map(event).collect();
        let words = verdicts(&send(&world, &browser(), &json!(body)).await);
        let words: std::collections::BTreeSet<String> = words.into_iter().collect();
        assert_eq!(words.len(), 1, "{words:?}");
        observed.extend(words);
        turn += 1;
    }
    change.await.unwrap();
    assert_eq!(observed.len(), 2, "both versions judged: {observed:?}");
}

#[tokio::test]
async fn event_routes_explain_how_to_enable_events_when_disabled() {
    let world = World::on("redis://127.0.0.1:1").await;
    let answer = world.admin("GET", "/groups", &Value::Null).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (404, "events_off"));
    assert!(answer.detail().contains("--events-log"));
}
