//! Codes in the spellings that the options of their domain permit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use weir_origin::clock::now_ms;

use super::api::{DAY_MS, create_link};
use super::id;
use crate::support::{Answer, World};

const TARGET: &str = "https://example.com/";

fn domain(codes: &Value) -> Value {
    json!({"id": "t", "hosts": ["t.example.com"], "codes": codes, "length": 5, "life_days": 1})
}

fn all_options() -> Value {
    json!({"trailing_slash": true, "ignore_case": true, "unicode": true, "segments": true})
}

async fn world(clock: &Arc<AtomicU64>) -> World {
    let clock = clock.clone();
    let plain = json!({"id": "s", "hosts": ["s.example.com"]});
    let domains = json!({"domains": [plain, domain(&all_options())]});
    World::with_links(domains, move |settings| {
        settings.clock = Arc::new(move || clock.load(Ordering::Relaxed));
    })
    .await
}

async fn public(world: &World, path: &str) -> Answer {
    let request = Request::builder().uri(path).header("host", "t.example.com");
    world.public(request.body(Body::empty()).unwrap()).await
}

async fn follow(world: &World, path: &str) -> u16 {
    public(world, &format!("/l/{path}")).await.status.as_u16()
}

async fn choose(world: &World, domain: &str, code: &str) -> Answer {
    let body = json!({"target": TARGET, "domain": domain, "code": code});
    world.admin("POST", "/links", &body).await
}

#[tokio::test]
async fn chosen_code_resolves_in_every_spelling() {
    let world = world(&Arc::new(AtomicU64::new(now_ms()))).await;
    let link = choose(&world, "t", "Größe/24").await;
    assert_eq!(link.status, 201, "{link:?}");
    assert_eq!(link.body["code"], "xn--gre-6ka8i/24");
    assert_eq!(link.body["url"], "https://t.example.com/gr%C3%B6%C3%9Fe/24");
    for path in [
        "gr%C3%B6%C3%9Fe/24",
        "GR%C3%96%C3%9FE/24/",
        "gro%CC%88%c3%9fe/24",
        "xn--gre-6ka8i/24",
    ] {
        assert_eq!(follow(&world, path).await, 302, "{path}");
    }
    for path in [
        "gr%C3%B6%C3%9Fe%2F24",
        "gr%C3%B6%C3%9Fe//24",
        "gr%C3%B6%C3%9Fe/24//",
        "gr%C3%B6%C3%9Fe/./24",
        "gr%C3%B6%C3%9Fe",
        ".well-known/gr%C3%B6%C3%9Fe/24",
    ] {
        assert_eq!(follow(&world, path).await, 404, "{path}");
    }
    // The API accepts the same spellings, as one path segment.
    for code in [
        "gr%C3%B6%C3%9Fe%2F24",
        "GR%C3%96%C3%9FE%2F24",
        "xn--gre-6ka8i%2F24",
    ] {
        let path = format!("/links/{code}?domain=t");
        let found = world.admin("GET", &path, &Value::Null).await;
        assert_eq!(found.body["code"], "xn--gre-6ka8i/24", "{code}");
    }
    let path = "/links/gr%C3%B6%C3%9Fe%2F24/stats.csv?domain=t";
    let table = world.admin("GET", path, &Value::Null).await;
    let name = "attachment; filename=\"t-xn--gre-6ka8i-24.csv\"";
    assert_eq!(table.headers["content-disposition"], name);
    // Gateways use the stored form.
    let record = public(&world, "/link-records/t/xn--gre-6ka8i%2F24?for=look").await;
    assert_eq!(record.status, 200);
    for accepted in ["größe/24", "GRÖßE/24", "xn--gre-6ka8i/24"] {
        assert_eq!(choose(&world, "t", accepted).await.code(), "code_taken");
    }
}

#[tokio::test]
async fn domain_without_options_accepts_plain_codes_only() {
    let world = world(&Arc::new(AtomicU64::new(now_ms()))).await;
    for code in ["größe", "spring/24", "spring/"] {
        let refused = choose(&world, "s", code).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (422, "invalid_link")
        );
        assert!(
            refused
                .detail()
                .starts_with("code has the invalid character"),
            "{refused:?}"
        );
    }
    assert_eq!(choose(&world, "s", "Summer-24").await.status, 201);
    for (path, status) in [("Summer-24", 302), ("summer-24", 404), ("Summer-24/", 404)] {
        let request = Request::builder().uri(format!("/l/{path}"));
        let request = request.header("host", "s.example.com").body(Body::empty());
        let answer = world.public(request.unwrap()).await;
        assert_eq!(answer.status.as_u16(), status, "{path}");
    }
}

#[tokio::test]
async fn generated_codes_are_lower_case_if_case_is_ignored() {
    let clock = Arc::new(AtomicU64::new(now_ms()));
    let world = world(&clock).await;
    let many = json!([{"target": TARGET, "domain": "t"}, {"target": TARGET, "domain": "t"}]);
    let both = create_link(&world, many).await;
    let one = create_link(&world, json!({"target": TARGET, "domain": "t"})).await;
    for link in [&both[0], &both[1], &one] {
        let code = link["code"].as_str().unwrap();
        assert_eq!(code.len(), 6, "{code}");
        assert_eq!(follow(&world, &code.to_uppercase()).await, 302);
    }
    // A number that may be handed out cannot be chosen as a custom code; the last one is free.
    assert_eq!(choose(&world, "t", "0000ZZ").await.code(), "code_taken");
    assert_eq!(choose(&world, "t", "F5FWM7").await.status, 201);
    assert_eq!(world.number("SELECT COUNT(*) FROM link_customs").await, 1);

    // Once the link is deleted, its number can be generated again.
    let links = world.origin.links().unwrap();
    links.records().forget(&id("t/f5fwm7")).await.unwrap();
    clock.fetch_add(2 * DAY_MS, Ordering::Relaxed);
    assert!(links.cleaner().clean().await.unwrap().removed >= 1);
    assert_eq!(world.number("SELECT COUNT(*) FROM link_customs").await, 0);
}

#[tokio::test]
async fn case_option_is_fixed_while_a_domain_has_links() {
    let world = world(&Arc::new(AtomicU64::new(now_ms()))).await;
    let put = async |codes: Value| {
        let answer = world.admin("PUT", "/link-domains/t", &domain(&codes)).await;
        answer.status.as_u16()
    };
    assert_eq!(put(json!({})).await, 200);
    assert_eq!(put(json!({"ignore_case": true})).await, 200);
    assert_eq!(choose(&world, "t", "spring-24").await.status, 201);
    assert_eq!(put(json!({"segments": true})).await, 409);
    assert_eq!(
        put(json!({"ignore_case": true, "segments": true})).await,
        200
    );
    let plain = json!({"id": "s", "hosts": ["s.example.com"]});
    let all = json!({"domains": [plain, domain(&json!({}))]});
    let replaced = world.admin("PUT", "/link-domains", &all).await;
    assert_eq!(
        (replaced.status.as_u16(), replaced.code()),
        (409, "domain_has_links")
    );
}
