//! Quotas and rate limits of tenants.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tower::ServiceExt;
use weir_origin::clock::now_ms;
use weir_origin::links::quota::{AGAIN_AFTER, FRESH_FOR};

use super::two_tenants;
use crate::support::{TOKEN, World, sale_json};

#[tokio::test]
async fn concurrent_requests_never_exceed_a_tenant_limit() {
    let world = Arc::new(World::new().await);
    let limits = json!({ "sales": 3, "units": 100, "rooms": 2, "keys": 2, "requests_per_second": 1000, "requests_at_once": 100 });
    world.tenant("acme", json!({ "limits": limits })).await;
    world.tenant("other", json!({})).await;
    let (id, key) = world.tenants_key("acme", json!({ "role": "admin" })).await;
    let (_, others) = world.tenants_key("other", json!({ "role": "admin" })).await;
    let all = async |make: &dyn Fn(usize) -> (&'static str, String, Value)| {
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..12 {
            let (method, path, body) = make(n);
            let (world, key) = (Arc::clone(&world), key.clone());
            tasks.spawn(async move { world.by(&key, method, &path, &body).await });
        }
        let mut created = 0;
        while let Some(answer) = tasks.join_next().await {
            let answer = answer.unwrap();
            match answer.status.as_u16() {
                200 | 201 => created += 1,
                409 => assert_eq!(answer.code(), "tenant_limit", "{answer:?}"),
                status => panic!("{status} {answer:?}"),
            }
        }
        created
    };
    let sales = |n| {
        (
            "POST",
            "/sales".to_owned(),
            sale_json(&format!("acme--{n}"), 10),
        )
    };
    assert_eq!(all(&sales).await, 3);
    let room = |n| {
        (
            "PUT",
            format!("/rooms/acme--{n}"),
            json!({ "mode": "open" }),
        )
    };
    assert_eq!(all(&room).await, 2);
    let keys = |n: usize| {
        (
            "POST",
            "/access/keys".to_owned(),
            json!({ "name": n.to_string(), "role": "viewer" }),
        )
    };
    assert_eq!(all(&keys).await, 1);

    // Existing resources can still be changed; a revoked key makes room.
    let response = world.admin("GET", "/tenants/acme", &Value::Null).await;
    assert_eq!(
        response.body["used"],
        json!({ "sales": 3, "units": 30, "rooms": 2, "keys": 2 })
    );
    let rooms = world.by(&key, "GET", "/rooms", &Value::Null).await;
    let room = rooms.body["rooms"][0]["name"].as_str().unwrap();
    let (path, close) = (format!("/rooms/{room}"), json!({ "mode": "closed" }));
    let closed = world.by(&key, "PUT", &path, &close);
    assert_eq!(closed.await.status, 200);
    let listed = world.by(&key, "GET", "/access/keys", &Value::Null).await;
    let second = listed.body["keys"].as_array().unwrap().iter();
    let second = second
        .map(|key| key["id"].as_str().unwrap())
        .find(|one| *one != id);
    let path = format!("/access/keys/{}", second.unwrap());
    assert_eq!(
        world.by(&key, "DELETE", &path, &Value::Null).await.status,
        200
    );
    assert_eq!(all(&keys).await, 1);

    // Units: in a change before the start, and in stock added during the sale. The limit also applies to the platform.
    let listed = world.by(&key, "GET", "/sales", &Value::Null).await;
    let ids: Vec<&str> = listed.body["sales"]
        .as_array()
        .unwrap()
        .iter()
        .map(|sale| sale["id"].as_str().unwrap())
        .collect();
    let second = format!("/sales/{}", ids[1]);
    assert_eq!(
        world
            .by(&key, "POST", &format!("{second}/warm"), &Value::Null)
            .await
            .status,
        200
    );
    let add = async |key: &str, units: i64, name: &str| {
        let request = Request::post(format!("{second}/stock"))
            .header("authorization", format!("Bearer {key}"))
            .header("idempotency-key", name)
            .body(Body::from(json!({ "units": units }).to_string()));
        world.admin_request(request.unwrap()).await
    };
    let over = add(&key, 71, "a").await;
    assert_eq!(
        (over.status.as_u16(), over.code()),
        (409, "tenant_limit"),
        "{over:?}"
    );
    assert_eq!(add(&key, 70, "b").await.status, 200);
    assert_eq!(add(&key, 1, "c").await.code(), "tenant_limit");
    assert_eq!(add(TOKEN, 1, "c").await.code(), "tenant_limit");
    assert_eq!(add(&key, -5, "d").await.status, 200);
    assert_eq!(add(&key, 5, "e").await.status, 200);

    // Other tenants and resources without a tenant are not affected.
    let created = world
        .by(&others, "POST", "/sales", &sale_json("other--1", 50))
        .await;
    assert_eq!(created.status, 201, "{created:?}");
    let created = world
        .admin("POST", "/sales", &sale_json("nobody--1", 50))
        .await;
    assert_eq!(created.status, 201, "{created:?}");
}

#[tokio::test]
async fn unstarted_sale_grows_up_to_the_tenant_limit() {
    let world = World::new().await;
    world
        .tenant("acme", json!({ "limits": { "sales": 2, "units": 20 } }))
        .await;
    let (_, key) = world
        .tenants_key("acme", json!({ "role": "operator" }))
        .await;
    let mut later = sale_json("acme--later", 10);
    later["starts_at_ms"] = json!(now_ms() + 60_000);
    later["ends_at_ms"] = json!(now_ms() + 120_000);
    assert_eq!(world.by(&key, "POST", "/sales", &later).await.status, 201);
    let path = "/sales/acme--later";
    for (total, status) in [(21, 409), (20, 200), (15, 200), (16, 200)] {
        let changed = world
            .by(&key, "PATCH", path, &json!({ "total": total }))
            .await;
        assert_eq!(changed.status, status, "{total} {changed:?}");
    }
    let more = world
        .by(&key, "POST", "/sales", &sale_json("acme--more", 5))
        .await;
    assert_eq!(more.code(), "tenant_limit");
    // The quota is lowered below the current number: existing resources stay and may be deleted.
    world
        .tenant("acme", json!({ "limits": { "sales": 0, "units": 1 } }))
        .await;
    for (total, status) in [(17, 409), (14, 200)] {
        let changed = world
            .by(&key, "PATCH", path, &json!({ "total": total }))
            .await;
        assert_eq!(changed.status, status, "{total} {changed:?}");
    }
}

#[tokio::test]
async fn tenant_over_its_request_rate_waits_and_others_do_not() {
    let world = World::new().await;
    let slow = json!({ "limits": { "requests_per_second": 5 } });
    world.tenant("acme", slow).await;
    world
        .tenant("other", json!({ "limits": { "requests_at_once": 1 } }))
        .await;
    let (_, key) = world.tenants_key("acme", json!({ "role": "admin" })).await;
    let (_, others) = world.tenants_key("other", json!({ "role": "admin" })).await;
    let mut refused = 0;
    for _ in 0..40 {
        // Requests of the platform count, too: their refusals would fill the audit trail.
        let answer = world
            .by(&key, "PUT", "/switch", &json!({ "state": "closed" }))
            .await;
        match answer.status.as_u16() {
            403 => {}
            429 => {
                assert_eq!(answer.code(), "tenant_limit");
                assert_eq!(answer.headers["retry-after"], "1");
                refused += 1;
            }
            status => panic!("{status}"),
        }
    }
    assert!(refused > 20, "{refused}");
    assert_eq!(
        world
            .by(&others, "GET", "/sales", &Value::Null)
            .await
            .status,
        200
    );
    assert_eq!(world.admin("GET", "/sales", &Value::Null).await.status, 200);
    let recorded = world
        .number("SELECT COUNT(*) FROM audit_trail WHERE tenant = 'acme'")
        .await;
    assert_eq!(recorded, 40 - refused);

    // A streamed answer counts as running until it ends.
    let response = world
        .by(&others, "POST", "/sales", &sale_json("other--s", 1))
        .await;
    assert_eq!(response.status, 201);
    let request = Request::get("/sales/other--s/live")
        .header("authorization", format!("Bearer {others}"))
        .header("accept", "text/event-stream");
    let [_, admin] = world.routers();
    let live = admin
        .oneshot(request.body(Body::empty()).unwrap())
        .await
        .unwrap();
    assert_eq!(live.status(), 200);
    let waits = world.by(&others, "GET", "/sales", &Value::Null).await;
    assert_eq!(waits.code(), "tenant_limit", "{waits:?}");
    drop(live);
    assert_eq!(
        world
            .by(&others, "GET", "/sales", &Value::Null)
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn tenant_links_are_counted_and_idempotency_keys_are_separate() {
    let (world, _, evil) = two_tenants().await;
    let limits = json!({ "links": 3, "requests_per_second": 1000 });
    world
        .tenant(
            "acme",
            json!({ "domains": ["acmes-dom"], "limits": limits }),
        )
        .await;
    let (_, acme) = world.tenants_key("acme", json!({ "role": "admin" })).await;
    let link = |domain: &str| json!({ "target": "https://t.example/", "domain": domain });
    // One exists already. Lists are created whole or not at all.
    let three = json!([link("acmes-dom"), link("acmes-dom"), link("acmes-dom")]);
    let refused = world.by(&acme, "POST", "/links", &three).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (409, "tenant_limit"),
        "{refused:?}"
    );
    let two = json!([link("acmes-dom"), link("acmes-dom")]);
    assert_eq!(world.by(&acme, "POST", "/links", &two).await.status, 201);
    let refused = world.by(&acme, "POST", "/links", &link("acmes-dom")).await;
    assert_eq!(refused.code(), "tenant_limit");
    let file = json!("domain,code,url,target\nacmes-dom,imported,,https://i.example/\n");
    let path = "/link-imports?format=csv";
    let imported = world.by(&acme, "POST", path, &file).await;
    assert_eq!(
        imported.body["refused"][0]["error"], "tenant_limit",
        "{imported:?}"
    );
    assert_eq!(
        world
            .by(&evil, "POST", "/links", &link("evils-dom"))
            .await
            .status,
        201
    );
    // Deleted resources make room.
    let answer = world
        .by(
            &acme,
            "DELETE",
            "/links/acmes-code?domain=acmes-dom",
            &Value::Null,
        )
        .await;
    assert_eq!(answer.status, 204, "{answer:?}");
    let deadline = now_ms() + 2 * u64::try_from(FRESH_FOR.as_millis()).unwrap();
    loop {
        tokio::time::sleep(AGAIN_AFTER).await;
        let response = world.by(&acme, "POST", "/links", &link("acmes-dom")).await;
        if response.status == 201 {
            break;
        }
        assert!(now_ms() < deadline, "{response:?}");
    }

    // The same key of two tenants counts as two keys: each tenant gets its own answer.
    let once = async |key: &str, domain: &str| {
        let request = Request::post("/links")
            .header("authorization", format!("Bearer {key}"))
            .header("idempotency-key", "the-same")
            .body(Body::from(link(domain).to_string()));
        world.admin_request(request.unwrap()).await
    };
    let first = once(&evil, "evils-dom").await;
    let again = once(&evil, "evils-dom").await;
    assert_eq!((first.status.as_u16(), &first.body), (201, &again.body));
    let platform = once(TOKEN, "evils-dom").await;
    assert_ne!(platform.body["code"], first.body["code"]);
}
