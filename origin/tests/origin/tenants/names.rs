//! Resources that belong to a tenant by their name: created, listed and deleted.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use weir_link::code::{Code, DomainId, LinkId};
use weir_link::record::Link;
use weir_log::Position;
use weir_origin::clock::now_ms;
use weir_origin::links::model::labels::Labels;
use weir_origin::links::search::SCAN_MAX;
use weir_origin::links::store::{Entry, NewLink};

use super::two_tenants;
use crate::support::{World, sale_json};

#[tokio::test]
async fn each_name_and_domain_belongs_to_one_tenant() {
    let world = World::new().await;
    for sale in ["acme--old", "acme", "acme-x--s"] {
        assert_eq!(
            world
                .admin("POST", "/sales", &sale_json(sale, 1))
                .await
                .status,
            201
        );
    }
    let put = async |name: &str, body: Value| {
        let path = format!("/tenants/{name}");
        world.admin("PUT", &path, &body).await
    };
    let answer = put("acme", json!({ "title": "A" })).await;
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (409, "tenant_names_taken")
    );
    assert!(answer.detail().contains("1 sales"), "{answer:?}");
    let created = put(
        "acme",
        json!({ "title": "A", "takes_over": true, "domains": ["b", "a", "a"] }),
    )
    .await;
    assert_eq!(
        (created.status.as_u16(), &created.body["domains"]),
        (201, &json!(["a", "b"]))
    );
    assert_eq!(
        put("acme", json!({ "title": "A", "domains": ["a"] }))
            .await
            .status,
        200
    );
    let answer = put("other", json!({ "title": "O", "domains": ["a"] })).await;
    assert_eq!(answer.code(), "tenant_domain_taken");
    assert_eq!(
        put("other", json!({ "title": "O", "domains": ["b"] }))
            .await
            .status,
        201
    );
    for (name, body) in [
        ("a--b", json!({ "title": "A" })),
        ("a-", json!({ "title": "A" })),
        ("A", json!({ "title": "A" })),
        ("ok", json!({ "title": "" })),
        ("ok", json!({ "title": "A", "domains": ["A"] })),
        (
            "ok",
            json!({ "title": "A", "limits": { "requests_per_second": 0 } }),
        ),
    ] {
        let refused = put(name, body.clone()).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (422, "invalid_tenant"),
            "{name} {body}"
        );
    }
    assert_eq!(
        put("ok", json!({ "title": "A", "colour": 1 })).await.status,
        400
    );
    let listed = world.admin("GET", "/tenants", &Value::Null).await;
    let names: Vec<&Value> = listed.body["tenants"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["name"])
        .collect();
    assert_eq!(names, ["acme", "other"]);

    // Names of a tenant begin with its name and two hyphens: neither the bare name nor a longer tenant's name matches.
    let (_, key) = world.tenants_key("acme", json!({ "role": "admin" })).await;
    let response = world.by(&key, "GET", "/sales", &Value::Null).await;
    assert_eq!(
        response.body["sales"].as_array().unwrap().len(),
        1,
        "{response:?}"
    );
    for (sale, status) in [("acme--old", 200), ("acme", 404), ("acme-x--s", 404)] {
        let response = world
            .by(&key, "GET", &format!("/sales/{sale}"), &Value::Null)
            .await;
        assert_eq!(response.status, status, "{sale}");
    }

    // The tenant is deleted: its keys open nothing, and a later tenant with the same name has none of them.
    assert_eq!(
        world
            .admin("DELETE", "/tenants/acme", &Value::Null)
            .await
            .status,
        204
    );
    assert_eq!(
        world
            .admin("DELETE", "/tenants/acme", &Value::Null)
            .await
            .code(),
        "unknown_tenant"
    );
    assert_eq!(
        world.by(&key, "GET", "/sales", &Value::Null).await.status,
        401
    );
    assert_eq!(
        put("acme", json!({ "title": "A", "takes_over": true }))
            .await
            .status,
        201
    );
    assert_eq!(
        world.by(&key, "GET", "/sales", &Value::Null).await.status,
        401
    );
    assert_eq!(
        world
            .admin("GET", "/sales/acme--old", &Value::Null)
            .await
            .status,
        200
    );
}

/// More links of the first tenant than a page examines, created after all others.
async fn many_links(world: &World) {
    let link = Link::to("https://acmes-target.example/");
    let created = |n: usize| {
        let domain = DomainId::new("acmes-dom").unwrap();
        let code = Code::new(format!("acmes-many-{n}")).unwrap();
        Entry::Made(NewLink {
            id: LinkId { domain, code },
            record: String::from_utf8(link.encode()).unwrap(),
            labels: Labels::tagged(vec!["x".to_owned()]),
            life_ms: 0,
            ends_at_ms: 0,
            created_at_ms: now_ms() + 1_000,
        })
    };
    let entries: Vec<Entry> = (0..SCAN_MAX + 100).map(created).collect();
    let log = "0123456789abcdef0123456789abcdef";
    let at = Position { file: 1, byte: 1 };
    let store = world.origin.links().unwrap().store();
    store.log().drain(log, at, &entries).await.unwrap();
}

#[tokio::test]
async fn lists_have_only_the_tenants_own_entries() {
    let (world, _, evil) = two_tenants().await;
    let (_, acme) = world.tenants_key("acme", json!({ "role": "admin" })).await;
    for n in 0..5 {
        for (tenant, key) in [("acme", &acme), ("evil", &evil)] {
            let sale = sale_json(&format!("{tenant}--{n}"), 1);
            assert_eq!(world.by(key, "POST", "/sales", &sale).await.status, 201);
            let link = json!({ "target": format!("https://{tenant}s-target.example/{n}"), "domain": format!("{tenant}s-dom"), "code": format!("{tenant}s-code-{n}"), "tags": ["x"] });
            let response = world.by(key, "POST", "/links", &link).await;
            assert_eq!(response.status, 201, "{response:?}");
        }
    }
    many_links(&world).await;
    for (path, member, name) in [
        ("/sales?limit=2", "sales", "id"),
        ("/links?limit=2", "links", "code"),
        ("/links?limit=2&tag=x", "links", "code"),
        ("/links?limit=2&sort=clicks", "links", "code"),
        ("/links?limit=2&q=code", "links", "code"),
    ] {
        let (mut observed, mut after) = (BTreeSet::new(), String::new());
        for _ in 0..20 {
            let page = world
                .by(&evil, "GET", &format!("{path}{after}"), &Value::Null)
                .await;
            assert_eq!(page.status, 200, "{page:?}");
            assert!(!page.body.to_string().contains("acme"), "{path} {page:?}");
            for one in page.body[member].as_array().unwrap() {
                let is_first = observed.insert(one[name].as_str().unwrap().to_owned());
                assert!(is_first, "{path} {one}");
            }
            let Some(next) = page.body["next"].as_str() else {
                break;
            };
            after = format!("&after={next}");
        }
        assert_eq!(observed.len(), 5, "{path} {observed:?}");
    }
    for format in ["csv", "ndjson"] {
        let path = format!("/links.{format}");
        let text = world
            .by(&evil, "GET", &path, &Value::Null)
            .await
            .body
            .to_string();
        assert!(
            !text.contains("acme") && text.matches("evils-code-").count() >= 5,
            "{text}"
        );
    }

    // The public list of sales: all sales, or those of one tenant.
    for sale in ["acme--1", "evil--1"] {
        let path = format!("/sales/{sale}");
        let listed = world
            .admin("PATCH", &path, &json!({ "listed": true }))
            .await;
        assert_eq!(listed.status, 200, "{listed:?}");
    }
    let body = async |path: &str| {
        let answer = world
            .public(Request::get(path).body(Body::empty()).unwrap())
            .await;
        answer.body["sales"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(body("/public-sales?tenant=acme").await, 1);
    assert_eq!(body("/public-sales").await, 2);
    assert_eq!(body("/public-sales?tenant=none").await, 0);
    assert_eq!(body("/public-sales?tenant=a--b").await, 0);
}
