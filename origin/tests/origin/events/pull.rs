//! Events pulled from a real service.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use weir_origin::background::Backoff;
use weir_origin::events::pull::{Destination, HttpSource, Pull};
use weir_origin::http::server::serve;

use super::*;

/// A service with this many events, three per page; the third one is invalid.
#[derive(Default)]
struct Service {
    count: AtomicUsize,
    is_down: AtomicBool,
    requested: AtomicUsize,
}

async fn answer(
    State(service): State<Arc<Service>>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
) -> (StatusCode, Json<Value>) {
    assert_eq!(headers["authorization"], "Bearer hush");
    service.requested.fetch_add(1, Ordering::Relaxed);
    if service.is_down.load(Ordering::Relaxed) {
        return (StatusCode::BAD_GATEWAY, Json(json!({})));
    }
    let from = match query["after"].as_str() {
        "" => 0,
        cursor => cursor.strip_prefix("at ").unwrap().parse().unwrap(),
    };
    let to = service.count.load(Ordering::Relaxed).min(from + 3);
    let event = |n: usize| match n {
        2 => json!({"id": "e2", "type": "none"}),
        n => view(&format!("e{n}"), "alice"),
    };
    let events: Vec<Value> = (from..to).map(event).collect();
    (
        StatusCode::OK,
        Json(json!({"events": events, "cursor": format!("at {to}")})),
    )
}

async fn service() -> (Arc<Service>, Pull, DropGuard) {
    let service = Arc::new(Service::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "http://{}/events?after={{cursor}}",
        listener.local_addr().unwrap()
    );
    let router = Router::new()
        .route("/events", get(answer))
        .with_state(service.clone());
    let stop = CancellationToken::new();
    tokio::spawn(serve(listener, router, stop.clone()));
    let pull = Pull {
        name: KeyName::new("erp").unwrap(),
        every: Duration::from_millis(20),
        backoff: Backoff::constant(Duration::from_millis(20)),
        source: Arc::new(HttpSource::new(&url, None, Some("hush")).unwrap()),
        destination: Destination::Log,
    };
    (service, pull, stop.drop_guard())
}

async fn pulled(world: &World) -> Value {
    let body = world.admin("GET", "/events/pulls", &Value::Null).await.body;
    body["pulls"][0].clone()
}

#[tokio::test]
async fn events_are_fetched_once_with_a_persistent_cursor() {
    let (service, pull, _stop) = service().await;
    service.count.store(10, Ordering::Relaxed);
    let again = pull.clone();
    // Register the type before the first round, otherwise its events become dead letters.
    let world = World::with_events(|_| {}).await;
    register(&world, "view").await;
    let world = world
        .with_events_again(|settings| settings.pulls.push(pull))
        .await;
    until_stored(&world, "alice", 9).await;
    let letters = until_dead(&world, "reason=unknown_type", 1).await;
    assert_eq!(letters[0]["sent"]["key"], "erp");
    until("the cursor has moved", async || {
        pulled(&world).await["cursor"] == "at 10"
    })
    .await;

    service.is_down.store(true, Ordering::Relaxed);
    until("failures are told", async || {
        pulled(&world).await["failures"] != 0
    })
    .await;
    let failing = pulled(&world).await;
    assert_eq!(
        (&failing["error"], &failing["cursor"]),
        (&json!("answered 502"), &json!("at 10"))
    );

    service.count.store(12, Ordering::Relaxed);
    let world = world
        .with_events_again(|settings| settings.pulls.push(again))
        .await;
    service.is_down.store(false, Ordering::Relaxed);
    until_stored(&world, "alice", 11).await;
    until("it works again", async || {
        pulled(&world).await["failures"] == 0
    })
    .await;
    assert_eq!(stored(&world, "alice").await.len(), 11);
    assert_eq!(
        dead_letters(&world, "").await.len(),
        1,
        "nothing was fetched twice"
    );
}
