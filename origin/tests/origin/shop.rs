//! The public view of sales, CORS for other sites, and the language of messages to buyers.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use axum::http::request::Builder;
use serde_json::{Value, json};
use weir_base::language::Language;
use weir_origin::clock::now_ms;
use weir_origin::http::{AllowedOrigin, Cors};
use weir_sale::message::message;

use crate::support::{Answer, World, contract, sale_json};

async fn ask(world: &World, request: Builder) -> Answer {
    world.public(request.body(Body::empty()).unwrap()).await
}

async fn list(world: &World, query: &str) -> Answer {
    ask(world, Request::get(format!("/public-sales{query}"))).await
}

/// Creates a sale that is not loaded.
async fn make(world: &World, sale: &str, members: Value) {
    let mut new = sale_json(sale, 4);
    for (name, value) in members.as_object().unwrap() {
        new[name] = value.clone();
    }
    let response = world.admin("POST", "/sales", &new).await;
    assert_eq!(response.status, 201, "{response:?}");
}

fn ids(page: &Answer) -> Vec<&str> {
    let sales = page.body["sales"].as_array().unwrap().iter();
    sales.map(|sale| sale["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn public_sales_are_filtered_by_sku() {
    let world = World::new().await;
    for (sale, sku) in [("a", "hat"), ("b", "scarf"), ("c", "hat")] {
        make(&world, sale, json!({ "listed": true, "sku": sku })).await;
    }
    assert_eq!(ids(&list(&world, "?sku=hat").await), ["a", "c"]);
    let none: [&str; 0] = [];
    assert_eq!(ids(&list(&world, "?sku=shoe").await), none);
}

#[tokio::test]
async fn public_list_pages_through_listed_sales_only() {
    let world = World::new().await;
    let now = now_ms();
    let listed = |starts_at_ms: u64| json!({ "listed": true, "starts_at_ms": starts_at_ms });
    make(&world, "later", listed(now + 60_000)).await;
    make(&world, "b", listed(now - 9_000)).await;
    make(&world, "a", listed(now - 9_000)).await;
    make(&world, "secret", json!({})).await;
    let long_ago = json!({ "listed": true, "starts_at_ms": 1, "ends_at_ms": now - 7_200_000 });
    make(&world, "long-ago", long_ago).await;
    let window = json!({ "from_ms": now, "until_ms": now + 9_000 });
    let body = json!({ "listed": true, "title": "Shoes", "token": true, "reservation": window });
    world.sale_with("warm", 4, body).await;

    let first = list(&world, "?limit=2").await;
    assert_eq!((first.status.as_u16(), ids(&first)), (200, vec!["a", "b"]));
    assert!(
        first.headers["cache-control"]
            .to_str()
            .unwrap()
            .contains("public")
    );
    let next = first.body["next"].as_str().unwrap();
    let second = list(&world, &format!("?limit=2&after={next}")).await;
    assert_eq!(ids(&second), ["warm", "later"]);
    assert_eq!(second.body["next"], Value::Null);
    let warm = &second.body["sales"][0];
    let expected = json!({
        "id": "warm", "title": "Shoes", "sku": null, "price": null, "state": "running", "remaining": "high", "user_cap": 1,
        "starts_at_ms": warm["starts_at_ms"], "ends_at_ms": warm["ends_at_ms"],
        "reservation": window, "token": true,
    });
    assert_eq!(warm, &expected, "and nothing else: no stock, no shards");
    assert_eq!(second.body["sales"][1]["state"], "scheduled");
    assert_eq!(
        first.body["sales"][0]["state"], "scheduled",
        "nobody can buy what is not warm"
    );
    for query in ["?limit=0", "?limit=1001", "?after=x", "?after=1.", "?odd=1"] {
        assert_eq!(list(&world, query).await.code(), "invalid_query", "{query}");
    }
}

#[tokio::test]
async fn listing_can_change_while_a_sale_runs() {
    let world = World::with_sale("s", 4).await;
    assert!(ids(&list(&world, "").await).is_empty());
    for (listed, expected) in [(true, vec!["s"]), (false, vec![])] {
        let body = json!({ "listed": listed });
        let edited = world.admin("PATCH", "/sales/s", &body).await;
        assert_eq!(
            (edited.status.as_u16(), &edited.body["listed"]),
            (200, &json!(listed))
        );
        // The last result from SQL is cached for a second.
        tokio::time::sleep(std::time::Duration::from_millis(1_050)).await;
        assert_eq!(ids(&list(&world, "").await), expected);
    }
    let odd = world
        .admin("PATCH", "/sales/s", &json!({ "listed": "yes" }))
        .await;
    assert_eq!(odd.code(), "invalid_body");
    world
        .admin("PUT", "/sales/s/switch", &json!({ "state": "closed" }))
        .await;
    world
        .admin("PATCH", "/sales/s", &json!({ "listed": true }))
        .await;
    tokio::time::sleep(std::time::Duration::from_millis(1_050)).await;
    assert_eq!(list(&world, "").await.body["sales"][0]["state"], "closed");
}

const SHOP: &str = "https://shop.example";

fn shared(world: World, credentials: bool) -> World {
    let shop: AllowedOrigin = SHOP.parse().unwrap();
    world.and_cors(Cors::new(vec![shop], credentials))
}

#[tokio::test]
async fn only_pages_of_named_sites_can_read_answers() {
    let world = shared(World::with_sale("s", 4).await, true);
    let preflight = |site: &str| {
        Request::options("/orders")
            .header("origin", site)
            .header("access-control-request-method", "POST")
            .header(
                "access-control-request-headers",
                "idempotency-key,x-weir-order-token",
            )
    };
    let allowed = world
        .raw(preflight(SHOP).body(Body::empty()).unwrap())
        .await;
    assert_eq!(allowed.status(), 204);
    let headers = allowed.headers();
    assert_eq!(headers["access-control-allow-origin"], SHOP);
    assert_eq!(headers["access-control-allow-credentials"], "true");
    assert_eq!(
        headers["access-control-allow-headers"],
        "idempotency-key,x-weir-order-token"
    );
    assert_eq!(headers["vary"], "origin");
    let other = "https://shop.example.other.example";
    let refused = ask(&world, preflight(other)).await;
    assert_eq!(refused.code(), "no_method");
    assert!(!refused.headers.contains_key("access-control-allow-origin"));

    // Refusals are readable cross-origin, also for unknown paths.
    for path in ["/public-sales", "/orders/x", "/nothing"] {
        let answer = ask(&world, Request::get(path).header("origin", SHOP)).await;
        assert_eq!(
            answer.headers["access-control-allow-origin"], SHOP,
            "{path}"
        );
        assert!(answer.headers.contains_key("access-control-expose-headers"));
        let answer = ask(&world, Request::get(path).header("origin", other)).await;
        assert!(!answer.headers.contains_key("access-control-allow-origin"));
        assert_eq!(answer.headers["vary"], "origin", "for caches");
    }
}

#[tokio::test]
async fn cors_is_off_by_default() {
    let world = World::with_sale("s", 4).await;
    let answer = ask(&world, Request::get("/public-sales").header("origin", SHOP)).await;
    assert!(!answer.headers.contains_key("access-control-allow-origin"));
    assert!(!answer.headers.contains_key("vary"));
    let world = shared(world, false);
    let answer = ask(&world, Request::get("/public-sales").header("origin", SHOP)).await;
    assert!(
        !answer
            .headers
            .contains_key("access-control-allow-credentials")
    );
}

#[tokio::test]
async fn errors_use_the_buyers_language_and_keep_their_code() {
    let world = World::with_sale("s", 4).await;
    let unknown = async |language: &str| {
        let mut request = Request::get("/orders/none").header("accept-language", language);
        for (name, value) in crate::support::requests::user_headers("alice") {
            request = request.header(name, value);
        }
        ask(&world, request).await
    };
    let english = unknown("fr, en;q=0.5").await;
    assert_eq!(english.body["message"], "you have no such order");
    assert!(!english.headers.contains_key("content-language"));
    for (expected, tag, response) in [
        (
            "de-CH, en;q=0.9",
            "de",
            "Sie haben keine solche Bestellung.",
        ),
        ("zh-TW,zh;q=0.9", "zh", "您没有该订单"),
    ] {
        let answer = unknown(expected).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (404, "unknown_order")
        );
        assert_eq!(answer.body["message"], response);
        assert_eq!(answer.body["detail"], english.body["detail"]);
        assert_eq!(answer.headers["content-language"], tag);
        assert_eq!(answer.headers["vary"], "accept-language");
    }
    // Also without a route; a successful answer stays unchanged.
    let nothing = ask(
        &world,
        Request::get("/nothing").header("accept-language", "de"),
    )
    .await;
    assert_eq!(nothing.body["message"], "Diese Seite gibt es nicht.");
    let good = ask(
        &world,
        Request::get("/public-sales").header("accept-language", "de"),
    )
    .await;
    assert!(!good.headers.contains_key("content-language"));
}

/// The document names all codes of the routes for buyers.
#[test]
fn each_code_for_buyers_has_a_message() {
    let mut missing = BTreeSet::new();
    let paths = contract::DOCUMENT["paths"].as_object().unwrap();
    let is_buyers = |path: &str| {
        ["/orders", "/my-orders", "/sales", "/public-sales"]
            .iter()
            .any(|start| path.starts_with(start))
    };
    for (_, item) in paths.iter().filter(|(path, _)| is_buyers(path)) {
        let operations = item.as_object().unwrap().values();
        // Routes that operators may also call list operators' codes, too.
        let is_public = |operation: &&Value| operation["tags"] == json!(["public"]);
        for operation in operations.filter(is_public) {
            for response in operation["responses"].as_object().unwrap().values() {
                let codes = response["x-error-codes"].as_array().into_iter().flatten();
                let codes = codes.filter_map(Value::as_str);
                missing.extend(codes.filter(|code| message(code, Language::German).is_none()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}
