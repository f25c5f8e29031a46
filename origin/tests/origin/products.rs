//! Product changes through the signed webhook, and through a collector.

use axum::body::Body;
use axum::http::Request;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use weir_base::key::{KeyRing, SigningKey};
use weir_origin::clock::now_ms;
use weir_origin::http::server::serve;
use weir_stack::http::Method;

use crate::events_process::{admin, options_of, start_with, until};
use crate::support::{self, Answer, World};

const SECRET: &str = "products-secret-products-secret-1";

/// The keys that sign product changes.
pub fn keys() -> KeyRing {
    SigningKey::new("p1", SECRET.as_bytes()).unwrap().into()
}

async fn world() -> World {
    World::with_everything().await.and_product_keys(keys())
}

async fn send(world: &World, secret: &str, at_s: u64, body: &Value) -> Answer {
    let body = body.to_string();
    let key = SigningKey::new("p1", secret.as_bytes()).unwrap();
    let request = Request::post("/product-changes")
        .header("content-type", "application/json")
        .header("x-weir-products-timestamp", at_s)
        .header(
            "x-weir-products-signature",
            key.sign(&format!("{at_s}.{body}")),
        );
    world.public(request.body(Body::from(body)).unwrap()).await
}

async fn change(world: &World, changes: Value) -> Value {
    let body = json!({ "changes": changes });
    let answer = send(world, SECRET, now_ms() / 1_000, &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body["outcomes"].clone()
}

/// The SPU of a SKU in fitment and in browse histories.
async fn spus(world: &World, sku: &str) -> [Value; 2] {
    let mut spus = [Value::Null, Value::Null];
    for (spu, path) in spus.iter_mut().zip(["/fitment/products", "/products"]) {
        let product = world
            .admin("GET", &format!("{path}/{sku}"), &Value::Null)
            .await;
        *spu = product.body["spu"].clone();
    }
    spus
}

#[tokio::test]
async fn product_is_updated_by_the_newest_change_only() {
    let world = world().await;
    let new = json!([{ "sku": "S1", "version": 10, "spu": "P1", "type": "tyre", "merchant": "m1", "title": "A tyre" }]);
    assert_eq!(change(&world, new.clone()).await, json!(["applied"]));
    assert_eq!(spus(&world, "S1").await, ["P1", "P1"]);
    // Again, and late.
    assert_eq!(change(&world, new).await, json!(["stale"]));
    let moves = json!([
        { "sku": "S1", "version": 12, "spu": "P3" },
        { "sku": "S1", "version": 11, "spu": "P2", "title": "Late" },
        { "sku": "S2", "version": 1, "spu": "P3" },
    ]);
    assert_eq!(
        change(&world, moves).await,
        json!(["applied", "stale", "applied"])
    );
    assert_eq!(spus(&world, "S1").await, ["P3", "P3"]);
    // Only browse history has S2.
    assert_eq!(spus(&world, "S2").await, [Value::Null, "P3".into()]);
    let response = world
        .admin("GET", "/fitment/products/S1", &Value::Null)
        .await;
    assert_eq!(
        [&response.body["type"], &response.body["merchant"]],
        [&json!("tyre"), &json!("m1")]
    );
    let response = world.admin("GET", "/products/S1", &Value::Null).await;
    assert_eq!(response.body["title"], "A tyre");
}

#[tokio::test]
async fn concurrent_changes_of_a_product_end_with_the_newest() {
    let world = world().await;
    let first =
        json!([{ "sku": "S1", "version": 1, "spu": "P1", "type": "tyre", "merchant": "m1" }]);
    change(&world, first).await;
    let moves = (2..12).map(|version| {
        let spu = format!("P{version}");
        change(
            &world,
            json!([{ "sku": "S1", "version": version, "spu": spu }]),
        )
    });
    let moves: Vec<_> = moves.collect();
    let mut applied = 0;
    for outcome in futures(moves).await {
        applied += usize::from(outcome == json!(["applied"]));
    }
    assert!(applied >= 1);
    assert_eq!(spus(&world, "S1").await, ["P11", "P11"]);
}

/// Runs all futures at once.
async fn futures(all: Vec<impl Future<Output = Value>>) -> Vec<Value> {
    let mut all: Vec<_> = all.into_iter().map(Box::pin).collect();
    let mut values: Vec<Option<Value>> = vec![None; all.len()];
    std::future::poll_fn(|context| {
        for (future, value) in all.iter_mut().zip(&mut values) {
            if value.is_none()
                && let std::task::Poll::Ready(done) = future.as_mut().poll(context)
            {
                *value = Some(done);
            }
        }
        match values.iter().all(Option::is_some) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    values.into_iter().flatten().collect()
}

#[tokio::test]
async fn product_changes_without_a_valid_signature_are_refused() {
    let world = world().await;
    let now_s = now_ms() / 1_000;
    let body = json!({ "changes": [{ "sku": "S1", "version": 1, "spu": "P1" }] });
    let check = async |secret, at_s, body: &Value, status: u16, code: &str| {
        let answer = send(&world, secret, at_s, body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (status, code),
            "{answer:?}"
        );
    };
    check(
        "another-secret-another-secret-123",
        now_s,
        &body,
        403,
        "signature_invalid",
    )
    .await;
    check(SECRET, now_s - 400, &body, 403, "timestamp_out_of_window").await;
    let unsigned = Request::post("/product-changes").body(Body::from(body.to_string()));
    assert_eq!(world.public(unsigned.unwrap()).await.status, 403);
    for (changes, expected) in [
        (json!([]), "changes: must be 1 to 1000"),
        (
            json!([{ "sku": "S1", "version": 0, "spu": "P1" }]),
            "changes[0].version",
        ),
        (
            json!([{ "sku": "a b", "version": 1, "spu": "P1" }]),
            "changes[0].sku",
        ),
        (
            json!([{ "sku": "S1", "version": 1 }]),
            "missing field `spu`",
        ),
    ] {
        let answer = send(&world, SECRET, now_s, &json!({ "changes": changes })).await;
        let message = answer.detail();
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(message.contains(expected), "{message}");
    }
    assert_eq!(spus(&world, "S1").await, [Value::Null, Value::Null]);
    let off = World::with_everything().await;
    let answer = send(&off, SECRET, now_s, &body).await;
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (501, "products_not_configured")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn collector_hands_changes_to_products() {
    let dir = tempfile::tempdir().unwrap();
    let changes = json!([
        { "sku": "S1", "version": 2, "spu": "P2", "title": "New" },
        { "sku": "S1", "version": 1, "spu": "P1" },
        { "sku": "S2", "version": "none", "spu": "P1" },
        { "sku": "S3", "version": 1, "spu": "P1" },
    ]);
    let answer = Json(json!({ "events": changes, "cursor": "1" }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "http://{}/changes?after={{cursor}}",
        listener.local_addr().unwrap()
    );
    let router = Router::new().route("/changes", get(move || async move { answer }));
    let stop = CancellationToken::new();
    tokio::spawn(serve(listener, router, stop.clone()));
    let _stop = stop.drop_guard();
    let file = dir.path().join("pulls.json");
    let pulls =
        json!({ "pulls": [{ "name": "erp", "every": "50ms", "url": url, "into": "products" }] });
    std::fs::write(&file, pulls.to_string()).unwrap();
    let redis = support::redis(&dir).await;
    let mut options = options_of(dir.path(), redis.url());
    let flags = ["--history", "--events-pulls", file.to_str().unwrap()];
    options.flags.extend(flags.map(str::to_owned));
    let origin = start_with(options, dir.path()).await;
    until("the newest change is applied", async || {
        let product = admin(&origin, Method::GET, "/products/S1", &Value::Null).await;
        product
            .json()
            .is_ok_and(|product| product["spu"] == "P2" && product["title"] == "New")
    })
    .await;
    let other = admin(&origin, Method::GET, "/products/S3", &Value::Null).await;
    assert_eq!(other.status, 200, "one that is no change spoils no other");
    let metrics = admin(&origin, Method::GET, "/metrics", &Value::Null)
        .await
        .text();
    let of = |outcome: &str| {
        let name = format!("weir_origin_product_changes_total{{outcome=\"{outcome}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(of("applied"), 2);
    assert!(of("stale") >= 1 && of("invalid") >= 1, "{metrics}");
}
