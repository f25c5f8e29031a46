//! Fitment queries of clients, and their errors.

use serde_json::{Value, json};

use super::{add, catalogue, check, follow, remove, vehicle};
use crate::support::World;

async fn refused(world: &World, body: &Value) -> (u16, String) {
    let answer = world.admin("POST", "/fitment/check", body).await;
    (answer.status.as_u16(), answer.code().to_owned())
}

#[tokio::test]
async fn invalid_fitment_query_is_refused_with_a_reason() {
    let world = World::with_fitment(|_| ()).await;
    let vehicles = |count: u32| {
        (1..=count)
            .map(|n| vehicle(n).to_string())
            .collect::<Vec<_>>()
    };
    let skus = |count: u32| (1..=count).map(|n| format!("S{n}")).collect::<Vec<_>>();
    for (body, status, code) in [
        (
            json!({ "vehicles": vehicles(1), "skus": skus(201) }),
            422,
            "invalid_sku_count",
        ),
        (
            json!({ "vehicles": vehicles(6), "skus": skus(1) }),
            422,
            "invalid_vehicle_count",
        ),
        (
            json!({ "vehicles": [], "skus": skus(1) }),
            422,
            "invalid_vehicle_count",
        ),
        (
            json!({ "vehicles": ["100000a"], "skus": skus(1) }),
            422,
            "invalid_vehicle",
        ),
        (
            json!({ "vehicles": ["10000001"], "skus": skus(1) }),
            422,
            "invalid_vehicle",
        ),
        (
            json!({ "vehicles": vehicles(1), "skus": ["a b"] }),
            422,
            "invalid_sku",
        ),
        (json!({ "vehicles": vehicles(1) }), 400, "invalid_body"),
        (json!("x".repeat(70_000)), 413, "body_too_long"),
    ] {
        assert_eq!(refused(&world, &body).await, (status, code.to_owned()));
    }
    let full = json!({ "vehicles": vehicles(5), "skus": skus(200) });
    let answer = world.admin("POST", "/fitment/check", &full).await;
    assert_eq!(answer.status, 200);
    let all = answer.body["skus"].as_array().unwrap();
    assert_eq!(all.len(), 200);
    assert!(
        all.iter()
            .all(|of| of["answers"] == json!(vec!["unknown"; 5]))
    );
}

#[tokio::test]
async fn unknown_product_or_vehicle_is_answered_as_unknown() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 3, &[("S1", "P1"), ("S2", "P1")]).await;
    add(&world, "S1", 1).await;
    assert_eq!(
        check(&world, "S1", &[1, 2, 77]).await,
        ["fits", "does_not", "unknown"]
    );
    assert_eq!(
        check(&world, "S2", &[1]).await,
        ["unknown"],
        "nobody said what it fits"
    );
    assert_eq!(check(&world, "none", &[1]).await, ["unknown"]);
}

#[tokio::test]
async fn gateways_query_fitment_at_the_public_port() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 3, &[("S1", "P1")]).await;
    add(&world, "S1", 2).await;
    let body = json!({ "vehicles": ["1000002", "1000002"], "skus": ["S1", { "sku": "S1", "spu": "wrong" }] });
    let request = axum::http::Request::post("/fitment/check");
    let request = request
        .body(axum::body::Body::from(body.to_string()))
        .unwrap();
    let answer = world.public(request).await;
    let expected = json!({
        "vehicles": ["1000002", "1000002"],
        "skus": [
            { "sku": "S1", "answers": ["fits", "fits"] },
            { "sku": "S1", "answers": ["fits", "fits"] },
        ],
    });
    assert_eq!((answer.status.as_u16(), answer.body), (200, expected));
    let off = World::new()
        .await
        .admin("POST", "/fitment/check", &json!({}))
        .await;
    assert_eq!((off.status.as_u16(), off.code()), (404, "fitment_off"));
}

/// Queries above the limit of concurrent SQL reads are refused and succeed later.
#[tokio::test]
async fn concurrent_sql_reads_of_queries_are_limited() {
    let world = World::with_fitment(|settings| settings.fallbacks_max = 0).await;
    let body = json!({ "vehicles": ["1000002"], "skus": ["S1"] });
    assert_eq!(refused(&world, &body).await, (503, "overloaded".to_owned()));
}

async fn page(world: &World, number: u32, after: &str) -> (Vec<String>, Option<String>) {
    let path = format!("/fitment/skus?vehicle={}{after}", vehicle(number));
    let answer = world.admin("GET", &path, &Value::Null).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let skus = answer.body["skus"].as_array().unwrap().iter();
    let skus = skus.map(|sku| sku.as_str().unwrap().to_owned()).collect();
    (skus, answer.body["next"].as_str().map(str::to_owned))
}

#[tokio::test]
async fn products_that_fit_a_vehicle_are_listed_in_pages() {
    let world = World::with_fitment(|_| ()).await;
    let names: Vec<String> = (0..120).map(|n| format!("S{n:03}")).collect();
    let skus: Vec<_> = names.iter().map(|name| (name.as_str(), "P1")).collect();
    catalogue(&world, 20, &skus).await;
    for (name, index) in names.iter().zip(0..) {
        add(&world, name, 17).await;
        if index % 2 == 0 {
            add(&world, name, 18).await;
        }
    }
    let (mut all, mut after, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let (skus, next) = page(&world, 17, &after).await;
        all.extend(skus);
        pages += 1;
        match next {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!((pages, &all), (3, &names));
    let (even, next) = page(&world, 18, "").await;
    assert!(even.len() == 50 && next.is_some() && even.contains(&"S002".to_owned()));
    assert_eq!(
        page(&world, 1, "").await,
        (vec![], None),
        "a neighbour of the same row"
    );
    let unknown = world
        .admin("GET", "/fitment/skus?vehicle=9999999", &Value::Null)
        .await;
    assert_eq!(
        (unknown.status.as_u16(), unknown.code()),
        (404, "unknown_vehicle")
    );
    let bad = world
        .admin("GET", "/fitment/skus?vehicle=x", &Value::Null)
        .await;
    assert_eq!((bad.status.as_u16(), bad.code()), (422, "invalid_vehicle"));
    remove(&world, "S000", 18).await;
    let (even, _) = page(&world, 18, "").await;
    assert!(!even.contains(&"S000".to_owned()));
}

/// A single change of a vehicle drops its cached page, and a changed product changes the page's stamp.
#[tokio::test]
async fn cached_page_is_dropped_when_its_content_changes() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 3, &[("S1", "P1"), ("S2", "P1")]).await;
    add(&world, "S1", 1).await;
    add(&world, "S2", 2).await;
    follow(&world).await;
    page(&world, 1, "").await;
    assert_eq!(world.keys("fit:by:*").await.len(), 1);
    add(&world, "S2", 1).await;
    follow(&world).await;
    assert_eq!(world.keys("fit:by:*").await, [""; 0]);
    assert_eq!(page(&world, 1, "").await.0, ["S1", "S2"]);
}

#[tokio::test]
async fn catalogue_entries_are_changed_one_by_one() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 3, &[("S1", "P1")]).await;
    let golf = json!({ "make": "VW", "model": "Golf_100%", "year": 2015, "engine": "2.0 TDI" });
    assert_eq!(
        world
            .admin("PUT", "/fitment/vehicles/1000002", &golf)
            .await
            .status,
        204
    );
    let found = world
        .admin(
            "GET",
            "/fitment/vehicles?make=vw&model=f_100%25",
            &Value::Null,
        )
        .await;
    assert_eq!(found.body["vehicles"][0]["vehicle"], "1000002");
    let none = world
        .admin("GET", "/fitment/vehicles?model=f%25100", &Value::Null)
        .await;
    assert_eq!(
        none.body["vehicles"],
        json!([]),
        "what LIKE would take for its own"
    );
    let one = world
        .admin("GET", "/fitment/vehicles/1000002", &Value::Null)
        .await;
    assert_eq!(one.body["engine"], "2.0 TDI");
    let of = json!({ "year_from": 2012, "year_to": 2015, "position": "front" });
    let path = "/fitment/relations/S1/1000002";
    assert_eq!(world.admin("PUT", path, &of).await.status, 202);
    let product = world
        .admin("GET", "/fitment/products/S1", &Value::Null)
        .await;
    assert_eq!(product.body["vehicles"][0]["qualifiers"]["year_from"], 2012);
    assert_eq!(
        (&product.body["count"], &product.body["spu"]),
        (&json!(1), &json!("P1"))
    );
    assert_eq!(world.admin("DELETE", path, &Value::Null).await.status, 202);
    let product = world
        .admin("GET", "/fitment/products/S1", &Value::Null)
        .await;
    assert_eq!(product.body["vehicles"], json!([]));
    for (method, path, body, status, code) in [
        (
            "PUT",
            "/fitment/relations/none/1000002",
            json!({}),
            404,
            "unknown_sku",
        ),
        (
            "PUT",
            "/fitment/relations/S1/1999999",
            json!({}),
            404,
            "unknown_vehicle",
        ),
        (
            "PUT",
            path,
            json!({ "year_from": 2015, "year_to": 2012 }),
            422,
            "invalid_qualifiers",
        ),
        (
            "PUT",
            "/fitment/products/a%7Bb",
            json!({ "spu": "P", "type": "t", "merchant": "m" }),
            422,
            "invalid_sku",
        ),
        (
            "PUT",
            "/fitment/products/S1",
            json!({ "spu": "}", "type": "t", "merchant": "m" }),
            400,
            "invalid_body",
        ),
        (
            "PUT",
            "/fitment/vehicles/1000003",
            json!({ "make": "x".repeat(65) }),
            422,
            "invalid_vehicle",
        ),
        (
            "GET",
            "/fitment/products/none",
            Value::Null,
            404,
            "unknown_sku",
        ),
        (
            "DELETE",
            "/fitment/products/none",
            Value::Null,
            404,
            "unknown_sku",
        ),
    ] {
        let answer = world.admin(method, path, &body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (status, code),
            "{method} {path}"
        );
    }
    let stranger = world.admin_as("GET", "/fitment/imports", "", None).await;
    assert_eq!(stranger.status, 401);
}
