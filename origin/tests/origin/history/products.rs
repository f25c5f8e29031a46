//! Product data from the table and from a service, also during outages.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use weir_history::Sku;
use weir_origin::history::Settings;
use weir_origin::history::products::{ProductLimits, ProductService};

use super::{Clock, record, user};
use crate::support::World;

#[tokio::test]
async fn products_of_the_table_are_shown_and_variants_once() {
    let clock = Clock::at_noon();
    let world = World::with_history(|settings| clock.set(settings)).await;
    let history = world.origin.history().unwrap().clone();
    let (now, alice) = (clock.now_ms(), user("alice"));
    let body = json!({ "products": [
        { "sku": "1", "spu": "shoe", "title": "Schuh, größer", "picture": "https://cdn.example/1.jpg" },
        { "sku": "2", "spu": "shoe", "title": "A shoe, smaller" },
        { "sku": "3", "title": "A hat" },
    ] });
    let put = world.admin("PUT", "/products", &body).await;
    assert_eq!(put.status, 204, "{put:?}");
    record(
        &history,
        &alice,
        &[(1, now - 1), (2, now - 2), (3, now - 3), (4, now - 4)],
    )
    .await;
    let list = world.as_user("alice", "GET", "/history").await;
    let expected = json!([
        { "sku": "1", "viewed_at_ms": now - 1, "spu": "shoe", "title": "Schuh, größer", "picture": "https://cdn.example/1.jpg" },
        { "sku": "3", "viewed_at_ms": now - 3, "title": "A hat" },
        { "sku": "4", "viewed_at_ms": now - 4 },
    ]);
    assert_eq!(list.body["items"], expected);
    let count = world.as_user("alice", "GET", "/history/count").await;
    assert_eq!(count.body["count"], 3);
    // The origin that makes a change sees it immediately.
    let changed = world
        .admin("PUT", "/products/4", &json!({ "title": "New" }))
        .await;
    assert_eq!(changed.status, 204);
    let list = world.as_user("alice", "GET", "/history").await;
    assert_eq!(list.body["items"][2]["title"], "New");
    let response = world.admin("GET", "/products/4", &Value::Null).await;
    assert_eq!(response.body, json!({ "sku": "4", "title": "New" }));
    assert_eq!(
        world
            .admin("DELETE", "/products/4", &Value::Null)
            .await
            .status,
        204
    );
    assert_eq!(
        world.admin("GET", "/products/4", &Value::Null).await.status,
        404
    );
    assert_eq!(
        world
            .admin("DELETE", "/products/4", &Value::Null)
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn product_is_removed_with_its_variants() {
    let clock = Clock::at_noon();
    let world = World::with_history(|settings| clock.set(settings)).await;
    let history = world.origin.history().unwrap().clone();
    let (now, alice) = (clock.now_ms(), user("alice"));
    let body = json!({ "products": [
        { "sku": "1", "spu": "shoe" }, { "sku": "2", "spu": "shoe" }, { "sku": "3", "spu": "hat" }, { "sku": "4" },
        { "sku": "5", "spu": "shoe" }, { "sku": "6", "spu": "hat" },
    ] });
    world.admin("PUT", "/products", &body).await;
    let views: Vec<(u64, u64)> = (1..=6).map(|sku| (sku, now - sku)).collect();
    record(&history, &alice, &views).await;
    let skus = async || {
        let list = world.as_user("alice", "GET", "/history").await;
        let items = list.body["items"].as_array().unwrap().clone();
        let sku = |item: &Value| item["sku"].as_str().unwrap().to_owned();
        items.iter().map(sku).collect::<Vec<_>>()
    };
    assert_eq!(skus().await, ["1", "3", "4"]);
    let deleted = world.as_user("alice", "DELETE", "/history/1").await;
    assert_eq!(deleted.status, 204);
    assert_eq!(skus().await, ["3", "4"], "no variant comes in its place");
    // Several SKUs, one of them without a product.
    let body = json!({ "skus": ["4", "6"] });
    let deleted = world
        .as_user_with("alice", "POST", "/history/delete", &body)
        .await;
    assert_eq!(deleted.status, 204);
    assert_eq!(skus().await, [""; 0]);
    clock.pass(10);
    record(&history, &alice, &[(2, now + 5)]).await;
    assert_eq!(skus().await, ["2"], "it was viewed again");
}

#[tokio::test]
async fn invalid_product_is_refused_with_the_field_name() {
    let world = World::with_history(|_| ()).await;
    for (product, member) in [
        (json!({ "sku": "a b" }), "products[0].sku"),
        (
            json!({ "sku": "a", "spu": "x".repeat(65) }),
            "products[0].spu",
        ),
        (json!({ "sku": "a", "spu": "ü" }), "products[0].spu"),
        (json!({ "sku": "a", "title": "" }), "products[0].title"),
        (
            json!({ "sku": "a", "picture": "javascript:alert(1)" }),
            "products[0].picture",
        ),
    ] {
        let refused = world
            .admin("PUT", "/products", &json!({ "products": [product] }))
            .await;
        assert_eq!(refused.status, 422, "{refused:?}");
        assert!(refused.detail().starts_with(member), "{refused:?}");
    }
    let many = vec![json!({ "sku": "a" }); 1_001];
    let refused = world
        .admin("PUT", "/products", &json!({ "products": many }))
        .await;
    assert_eq!(refused.status, 422);
}

/// A product service that records the number of products in each request.
async fn service() -> (String, Arc<Mutex<Vec<usize>>>, tokio::task::JoinHandle<()>) {
    let requests = Arc::new(Mutex::new(vec![]));
    let recorded = requests.clone();
    let answer = move |Json(body): Json<Value>| async move {
        let skus = body["skus"].as_array().unwrap();
        recorded.lock().unwrap().push(skus.len());
        let existing = skus.iter().filter(|sku| *sku != "unknown");
        let product = |sku: &Value| json!({ "sku": sku, "spu": "all", "title": "T", "price": 7 });
        Json(json!({ "products": existing.map(product).collect::<Vec<_>>() }))
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/products", listener.local_addr().unwrap());
    let router = Router::new().route("/products", post(answer));
    let stop = tokio_util::sync::CancellationToken::new();
    let served = tokio::spawn(weir_origin::http::server::serve(listener, router, stop));
    (url, requests, served)
}

#[tokio::test]
async fn product_service_is_called_in_batches_and_cached() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let (url, requested, served) = service().await;
    let history = world
        .history(|settings: &mut Settings| {
            clock.set(settings);
            settings.product_service = Some(Arc::new(ProductService::new(&url, None).unwrap()));
            settings.products = ProductLimits {
                batch: 4,
                cached_max: 100,
                life: Duration::from_secs(60),
            };
        })
        .await;
    let (now, alice) = (clock.now_ms(), user("alice"));
    let views: Vec<(u64, u64)> = (1..=10).map(|n| (n, now - n)).collect();
    record(&history, &alice, &views).await;
    let page = history.list(&alice, 50, None).await.unwrap();
    // All are variants of one product.
    assert_eq!((page.items.len(), page.is_complete), (1, true));
    assert_eq!(page.items[0].product.title.as_deref(), Some("T"));
    assert_eq!(*requested.lock().unwrap(), [4, 4, 2]);
    history.list(&alice, 50, None).await.unwrap();
    assert_eq!(requested.lock().unwrap().len(), 3, "all are remembered");
    clock.pass(60_000);
    history.list(&alice, 50, None).await.unwrap();
    assert_eq!(requested.lock().unwrap().len(), 6);
    // The service is down: the list has no product data and is marked as incomplete.
    served.abort();
    let _ = served.await;
    clock.pass(60_000);
    let page = history.list(&alice, 50, None).await.unwrap();
    assert_eq!((page.items.len(), page.is_complete), (10, false));
    let found = history
        .products()
        .find(&[Sku::new("unknown").unwrap()])
        .await;
    assert_eq!((found.products, found.is_complete), (vec![None], false));
}
