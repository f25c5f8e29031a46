//! Domains in SQL: seeded once, changed through the API, the same for all origins.

use serde_json::{Value, json};
use weir_link::redis::keys::link_domains;
use weir_origin::links::domains::SharedDomains;

use crate::support::World;

fn file(hosts: &[&str]) -> Value {
    let domain = |host: &&str| {
        let id = host.split('.').next().unwrap();
        json!({"id": id, "hosts": [host]})
    };
    json!({"domains": hosts.iter().map(domain).collect::<Vec<_>>()})
}

async fn published(world: &World) -> Value {
    let key = link_domains(&world.prefix);
    let text = world.redis(redis::cmd("GET").arg(key)).await;
    let text: Vec<u8> = redis::FromRedisValue::from_redis_value(text).unwrap();
    serde_json::from_slice(&text).unwrap()
}

#[tokio::test]
async fn domain_is_created_changed_and_deleted() {
    let world = World::with_links(file(&["s.example"]), |_| ()).await;
    let new = json!({"id": "t", "hosts": ["t.example"], "gone_page": "<p>over"});
    let response = world.admin("PUT", "/link-domains/t", &new).await;
    assert_eq!(response.status, 201, "{response:?}");
    let all = world.admin("GET", "/link-domains", &Value::Null).await;
    assert_eq!(all.body["version"], 2);
    assert_eq!(all.headers["etag"], "\"2\"");
    assert_eq!(all.body["domains"][1]["gone_page"], "<p>over");
    // Gateways have it, and links can be created in it.
    assert_eq!(published(&world).await["domains"][1]["id"], "t");
    let link = json!({"target": "https://a.example/", "domain": "t", "code": "abc"});
    let link = world.admin("POST", "/links", &link).await;
    assert_eq!(link.body["url"], "https://t.example/abc", "{link:?}");
    let in_use = world.admin("DELETE", "/link-domains/t", &Value::Null).await;
    assert_eq!(
        (in_use.status.as_u16(), &in_use.body["error"]),
        (409, &json!("domain_has_links"))
    );
    let without = json!({"domains": [{"id": "s", "hosts": ["s.example"]}]});
    let replaced = world.admin("PUT", "/link-domains", &without).await;
    assert_eq!(replaced.status, 409);
    world
        .admin("DELETE", "/links/abc?domain=t", &Value::Null)
        .await;
    let answer = world.admin("DELETE", "/link-domains/t", &Value::Null).await;
    assert_eq!(answer.status, 204);
    assert_eq!(
        published(&world).await["domains"].as_array().unwrap().len(),
        1
    );
    let unknown = world.admin("GET", "/link-domains/t", &Value::Null).await;
    assert_eq!(unknown.status, 404);
}

#[tokio::test]
async fn invalid_domain_is_refused_by_field_and_changes_nothing() {
    let world = World::with_links(file(&["s.example", "t.example"]), |_| ()).await;
    for (path, body, detail) in [
        (
            "/link-domains/t",
            json!({"id": "t", "hosts": ["s.example"]}),
            "domains[1].hosts[0]",
        ),
        (
            "/link-domains/t",
            json!({"id": "u", "hosts": ["u.example"]}),
            "id: ",
        ),
        ("/link-domains", json!({"domains": []}), "domains: "),
    ] {
        let refused = world.admin("PUT", path, &body).await;
        assert_eq!(refused.status, 422, "{refused:?}");
        let message = refused.body["detail"].as_str().unwrap();
        assert!(message.starts_with(detail), "{message}");
    }
    for id in ["s", "t"] {
        let path = format!("/link-domains/{id}");
        world.admin("DELETE", &path, &Value::Null).await;
    }
    let all = world.admin("GET", "/link-domains", &Value::Null).await;
    assert_eq!(
        all.body["domains"].as_array().unwrap().len(),
        1,
        "the last one stays"
    );
    let body = json!({"id": "t", "hosts": ["t.example"]});
    let if_match = [("if-match", "\"1\"")];
    let stale = world
        .admin_with("PUT", "/link-domains/t", &body, &if_match)
        .await;
    assert_eq!(stale.status, 412, "{stale:?}");
}

/// A rolling change of the file: the second origin starts with another one.
#[tokio::test]
async fn two_origins_share_domains_despite_different_files() {
    let world = World::with_links(file(&["s.example"]), |_| ()).await;
    let store = world.origin.links().unwrap().store().clone();
    let other: weir_link::domain::DomainsConfig =
        serde_json::from_value(file(&["s.example", "new.example"])).unwrap();
    let other = other.checked().unwrap();
    let clock: weir_origin::links::numbers::Clock = std::sync::Arc::new(|| 1);
    let second = SharedDomains::open(store, &other, clock).await.unwrap();
    assert_eq!(second.get(), world.origin.links().unwrap().domains());
    // The other origin has the change after a refresh.
    let new = json!({"id": "new", "hosts": ["new.example"]});
    world.admin("PUT", "/link-domains/new", &new).await;
    assert!(second.get().domains.by_id("new").is_none());
    assert!(second.refresh().await.unwrap());
    assert!(second.get().domains.by_id("new").is_some());
    assert!(!second.refresh().await.unwrap());
    assert_eq!(second.snapshot().ever.len(), 2);
}

/// Two concurrent changes: neither is lost.
#[tokio::test]
async fn concurrent_domain_changes_are_all_applied() {
    let world = World::with_links(file(&["s.example"]), |_| ()).await;
    let ids = ["a", "b", "c", "d"];
    let put = async |id: &str| {
        let body = json!({"id": id, "hosts": [format!("{id}.example")]});
        let path = format!("/link-domains/{id}");
        world.admin("PUT", &path, &body).await.status.as_u16()
    };
    let created = tokio::join!(put(ids[0]), put(ids[1]), put(ids[2]), put(ids[3]));
    assert_eq!(created, (201, 201, 201, 201));
    let all = world.admin("GET", "/link-domains", &Value::Null).await;
    assert_eq!(all.body["domains"].as_array().unwrap().len(), 5);
    assert_eq!(all.body["version"], 5);
}
