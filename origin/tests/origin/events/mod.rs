//! Behaviour events on a real SQL database and real files.

mod api;
mod bodies;
mod faults;
mod groups;
mod pull;
mod pull_table;
mod queries;
mod sellers;
mod webhook;

use std::future::Future;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use weir_event::consent::Consent;
use weir_event::name::KeyName;
use weir_event::stamps::{Kind, Stamps};
use weir_origin::clock::now_ms;
use weir_origin::events::Settings;

use crate::support::{Answer, World};

/// Time limit of a wait: other tests run at the same time.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits until `is_so`.
async fn until<F: Future<Output = bool>>(subject: &str, mut is_so: impl FnMut() -> F) {
    let deadline = Instant::now() + LIMIT;
    while !is_so().await {
        assert!(Instant::now() < deadline, "never: {subject}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Gateway metadata of a browser.
fn browser() -> Stamps {
    Stamps {
        key: KeyName::new("web").unwrap(),
        kind: Kind::Browser,
        received_ms: now_ms(),
        address: Some("203.0.113.0/24".parse().unwrap()),
        consent: Consent::Full,
    }
}

/// Gateway metadata of a server.
fn server() -> Stamps {
    Stamps {
        key: KeyName::new("shop").unwrap(),
        kind: Kind::Server,
        ..browser()
    }
}

/// A request with gateway metadata.
fn stamped(stamps: &Stamps, method: &str, path: &str) -> axum::http::request::Builder {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in stamps.headers() {
        request = request.header(name, value);
    }
    request
}

/// Sends events like a gateway.
async fn send(world: &World, stamps: &Stamps, body: &Value) -> Answer {
    let request = stamped(stamps, "POST", "/events").header("content-type", "application/json");
    let body = Body::from(body.to_string());
    world.public(request.body(body).unwrap()).await
}

/// Registers a type that accepts any attributes.
async fn register(world: &World, name: &str) {
    put_type(world, name, &json!({})).await;
}

async fn put_type(world: &World, name: &str, spec: &Value) {
    let put = world
        .admin("PUT", &format!("/events/types/{name}"), spec)
        .await;
    assert!(put.status.is_success(), "{put:?}");
}

/// A world with a type `view` and short intervals.
async fn world(change: impl FnOnce(&mut Settings)) -> World {
    let world = World::with_events(change).await;
    register(&world, "view").await;
    world
}

/// The labels of the verdicts in an answer.
fn verdicts(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 202, "{answer:?}");
    let verdicts = answer.body["verdicts"].as_array().unwrap().iter();
    let word = |verdict: &Value| match verdict["reason"].as_str() {
        Some(reason) => reason.to_owned(),
        None => verdict["verdict"].as_str().unwrap().to_owned(),
    };
    verdicts.map(word).collect()
}

/// A `view` event of a customer, sent by a server.
fn view(id: &str, customer: &str) -> Value {
    json!({ "id": id, "type": "view", "customer": customer, "attributes": { "sku": id } })
}

/// The ids of a customer's events in SQL, in order.
async fn stored(world: &World, customer: &str) -> Vec<String> {
    let path = format!("/customers/{customer}/events?limit=1000");
    let answer = world.admin("GET", &path, &Value::Null).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let events = answer.body["events"].as_array().unwrap().iter();
    events
        .map(|event| event["id"].as_str().unwrap().to_owned())
        .collect()
}

async fn until_stored(world: &World, customer: &str, count: usize) {
    until("stored", async || {
        stored(world, customer).await.len() >= count
    })
    .await;
}

async fn group(world: &World, name: &str) -> Value {
    let answer = world
        .admin("GET", &format!("/groups/{name}"), &Value::Null)
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body
}

/// Waits until a group has handled everything.
async fn until_caught_up(world: &World, name: &str) {
    until("caught up", async || {
        let group = group(world, name).await;
        group["lag_bytes"] == 0 && group["retries"] == 0
    })
    .await;
}

async fn dead_letters(world: &World, query: &str) -> Vec<Value> {
    let path = format!("/events/dead-letters?{query}");
    let answer = world.admin("GET", &path, &Value::Null).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body["dead_letters"].as_array().unwrap().clone()
}

async fn until_dead(world: &World, query: &str, count: usize) -> Vec<Value> {
    until("dead letters", async || {
        dead_letters(world, query).await.len() >= count
    })
    .await;
    dead_letters(world, query).await
}
