//! The group `webhook`, with a real receiver.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use weir_origin::events::groups::NewGroup;
use weir_origin::events::groups::webhook::Webhook;
use weir_origin::http::server::serve;

use super::groups::hurried;
use super::*;

const SECRET: &[u8] = b"webhook-secret-webhook-secret-webhook";

/// The requests received, and the answers to give.
#[derive(Default)]
struct Receiver {
    /// Received bodies by id.
    received: Mutex<BTreeMap<String, Vec<Value>>>,
    /// Answers by id or type, before the event is accepted.
    answers: Mutex<BTreeMap<String, Vec<u16>>>,
}

async fn receive(
    State(receiver): State<Arc<Receiver>>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    let (id, at_s) = (header("webhook-id"), header("webhook-timestamp"));
    let tag = header("webhook-signature");
    let tag = STANDARD.decode(tag.strip_prefix("v1,").unwrap()).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
    let signed = [id.as_bytes(), b".", at_s.as_bytes(), b".", &body].concat();
    hmac::verify(&key, &signed, &tag).expect("a signature that is right");
    let age_s = now_ms() / 1_000 - at_s.parse::<u64>().unwrap();
    assert!(age_s < 300);
    let body: Value = serde_json::from_slice(&body).unwrap();
    let kind = body["type"].as_str().unwrap().to_owned();
    receiver
        .received
        .lock()
        .unwrap()
        .entry(id.clone())
        .or_default()
        .push(body);
    let mut answers = receiver.answers.lock().unwrap();
    let status = answers.get_mut(&id).and_then(Vec::pop);
    let status = status.or_else(|| answers.get_mut(&kind).and_then(Vec::pop));
    let status = status.unwrap_or(204);
    StatusCode::from_u16(status).unwrap()
}

async fn with_receiver() -> (World, Arc<Receiver>, DropGuard) {
    let receiver = Arc::new(Receiver::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook?a=1", listener.local_addr().unwrap());
    let router = Router::new()
        .route("/hook", post(receive))
        .with_state(receiver.clone());
    let stop = CancellationToken::new();
    tokio::spawn(serve(listener, router, stop.clone()));
    let world = world(|settings| {
        hurried(settings);
        settings.times.handle_max = Duration::from_secs(30);
        let webhook = Webhook::new(&url, None, SECRET, settings.clock.clone()).unwrap();
        settings
            .groups
            .push(NewGroup::new("webhook", Arc::new(webhook)));
    })
    .await;
    (world, receiver, stop.drop_guard())
}

#[tokio::test]
async fn webhook_events_are_signed_and_retried_until_accepted() {
    let (world, receiver, _stop) = with_receiver().await;
    // The last answer comes first.
    let answers = [("e3", vec![500, 429, 302]), ("e4", vec![410])];
    let answers = answers.map(|(id, answers)| (id.to_owned(), answers));
    receiver.answers.lock().unwrap().extend(answers);
    let event = |n: u32| view(&format!("e{n}"), &format!("customer-{n}"));
    let body: Vec<Value> = (0..10).map(event).collect();
    send(&world, &server(), &json!(body)).await;
    until_caught_up(&world, "webhook").await;
    let received = receiver.received.lock().unwrap().clone();
    assert_eq!(received.len(), 10);
    for (id, times) in &received {
        assert_eq!(times.len(), if id == "e3" { 4 } else { 1 }, "{id}");
        assert_eq!(
            (&times[0]["id"], &times[0]["type"]),
            (&json!(id), &json!("view"))
        );
    }
    let letters = dead_letters(&world, "group=webhook").await;
    assert_eq!(letters.len(), 1);
    assert_eq!(
        (&letters[0]["event"]["id"], &letters[0]["message"]),
        (&json!("e4"), &json!("answered 410"))
    );
}

/// The events of segments that the receiver accepted: type, customer and segment.
fn segment_events(receiver: &Receiver) -> Vec<(String, String, String)> {
    let received = receiver.received.lock().unwrap();
    let bodies = received.values().map(|times| times.last().unwrap());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut events: Vec<_> = bodies
        .filter(|body| text(&body["type"]).starts_with("weir.segment."))
        .map(|body| {
            let segment = &body["attributes"]["segment"];
            (text(&body["type"]), text(&body["customer"]), text(segment))
        })
        .collect();
    events.sort();
    events
}

#[tokio::test]
async fn customers_who_enter_and_leave_a_segment_reach_the_webhook() {
    let (world, receiver, _stop) = with_receiver().await;
    register(&world, "order").await;
    let answers = ("weir.segment.entered".to_owned(), vec![500, 503]);
    receiver.answers.lock().unwrap().extend([answers]);
    let body = json!([view("a1", "alice"), view("b1", "bob")]);
    send(&world, &server(), &body).await;
    until_caught_up(&world, "store").await;

    // At first without events, then with them: members of before are sent, too.
    let mut viewers = json!({"conditions": [
        {"type": "view", "at_least": 1, "days": 30},
        {"type": "order", "at_most": 0, "days": 30},
    ]});
    sellers::evaluate(&world, "hesitant", &viewers).await;
    until_caught_up(&world, "webhook").await;
    assert_eq!(segment_events(&receiver), []);
    viewers["notify"] = json!(true);
    sellers::evaluate(&world, "hesitant", &viewers).await;
    until_caught_up(&world, "webhook").await;
    let event = |what: &str, customer: &str| {
        let what = format!("weir.segment.{what}");
        (what, customer.to_owned(), "hesitant".to_owned())
    };
    let entered = [event("entered", "alice"), event("entered", "bob")];
    assert_eq!(segment_events(&receiver), entered);
    let times: usize = receiver
        .received
        .lock()
        .unwrap()
        .values()
        .map(Vec::len)
        .sum();
    assert_eq!(times, 2 + 2 + 2, "two views, two customers, two retries");

    // Bob orders, so he leaves; nobody else is sent again.
    let order = json!({"id": "o1", "type": "order", "customer": "bob"});
    send(&world, &server(), &json!([order])).await;
    until_caught_up(&world, "store").await;
    sellers::evaluate(&world, "hesitant", &viewers).await;
    until_caught_up(&world, "webhook").await;
    let [alice, bob] = entered;
    assert_eq!(
        segment_events(&receiver),
        [alice, bob, event("left", "bob")]
    );
    // They are events of the customers, with their own retention and profile.
    let stored = stored(&world, "bob").await;
    assert_eq!(stored.len(), 4, "{stored:?}");
}
