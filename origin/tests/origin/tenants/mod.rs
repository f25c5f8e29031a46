//! Tenants: each sees, changes and uses up only its own resources.

mod limits;
mod names;

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use weir_origin::access::tenancy::TenantRule;
use weir_origin::api::OperationKey;
use weir_origin::openapi::tenant_rules;

use crate::support::{Answer, World, contract, sale_json};

/// Admin operations that need no key, or check one themselves.
const OPEN: [&str; 14] = [
    "/healthz",
    "/readyz",
    "/metrics",
    "/traffic",
    "/openapi.json",
    "/ui",
    "/ui/{file}",
    "/links/ui",
    "/links/ui/{file}",
    "/events/page",
    "/events/page/{file}",
    "/fitment/ui",
    "/fitment/ui/{file}",
    "/access/session",
];

/// Texts that others must never see of the first tenant: its name, its buyer, its link, the link's target, its key, its
/// domain.
const MARKS: [&str; 6] = [
    "acme",
    "acmes-buyer",
    "acmes-code",
    "acmes-target",
    "acmes-key",
    "acmes-dom",
];

impl World {
    async fn tenant(&self, name: &str, members: Value) {
        let mut new = json!({ "title": name });
        for (name, value) in members.as_object().unwrap() {
            new[name] = value.clone();
        }
        let response = self.admin("PUT", &format!("/tenants/{name}"), &new).await;
        assert!(response.status.is_success(), "{response:?}");
    }

    /// Creates a key of a tenant and returns its id and secret.
    async fn tenants_key(&self, tenant: &str, members: Value) -> (String, String) {
        let mut new = json!({ "name": format!("{tenant}s-key"), "tenant": tenant });
        for (name, value) in members.as_object().unwrap() {
            new[name] = value.clone();
        }
        let response = self.admin("POST", "/access/keys", &new).await;
        assert_eq!(response.status, 201, "{response:?}");
        let text = |name: &str| response.body[name].as_str().unwrap().to_owned();
        (text("id"), text("key"))
    }

    async fn by(&self, key: &str, method: &str, path: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer {key}");
        let body = match body {
            Value::String(text) => text.clone(),
            body => body.to_string(),
        };
        self.admin_as(method, path, &body, Some(&bearer)).await
    }
}

fn guarded() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (route, item) in contract::DOCUMENT["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let tags = operation["tags"].as_array().cloned().unwrap_or_default();
            if tags.contains(&json!("admin")) && !OPEN.contains(&route.as_str()) {
                all.push((method.to_uppercase(), route.clone()));
            }
        }
    }
    assert!(all.len() > 90, "{}", all.len());
    all
}

/// Only the open routes have no tenant rule.
#[test]
fn every_admin_operation_has_one_rule_for_tenants() {
    let ruled = tenant_rules().iter();
    let ruled: BTreeSet<_> = ruled
        .map(|(key, _)| (key.method.to_uppercase(), key.path.clone()))
        .collect();
    assert_eq!(ruled, guarded().into_iter().collect());
}

/// Resources of the first tenant, and the ids with which others try to reach them.
struct Victim {
    order: String,
    payment: String,
    key: String,
}

impl Victim {
    fn path(&self, route: &str) -> String {
        let id = match route.split('/').nth(1).unwrap() {
            "sales" => "acme--s",
            "orders" => &self.order,
            "payments" => &self.payment,
            "access" => &self.key,
            "tenants" => "acme",
            "link-domains" => "acmes-dom",
            _ => "7",
        };
        let query = match route {
            "/orders" | "/orders.csv" => "?user=acmes-buyer",
            "/payments" => "?state=paid",
            "/link-imports" => "?format=csv&domain=acmes-dom",
            route if route.starts_with("/links/{code}") => "?domain=acmes-dom",
            _ => "",
        };
        let at = route.replace("{id}", id).replace("{user}", "acmes-buyer");
        let at = at
            .replace("{code}", "acmes-code")
            .replace("{room}", "acme--shop");
        let at = at.replace("{group}", "store").replace("{name}", "view");
        let at = at.replace("{window}", "last").replace("{sku}", "7");
        let at = at.replace("{vehicle}", "1000001");
        assert!(!at.contains('{'), "{at}: what is this named by?");
        at + query
    }

    /// Bodies that would change something.
    fn body(&self, method: &str, route: &str) -> Value {
        match (method, route) {
            ("POST", "/sales") => sale_json("acme--new", 1),
            ("PATCH", "/sales/{id}") => json!({ "title": "mine" }),
            ("PUT", "/sales/{id}/switch") => json!({ "state": "closed" }),
            ("POST", "/sales/{id}/stock") => json!({ "units": 1 }),
            ("PUT", "/rooms/{room}") => json!({ "mode": "closed" }),
            ("POST", "/order-batches") => json!({ "action": "cancel", "orders": [self.order] }),
            ("POST", "/links") => json!({ "target": "https://x.example/", "domain": "acmes-dom" }),
            ("POST", "/link-imports") => json!("domain,code,url\n"),
            ("PATCH", "/links/{code}") => json!({ "disabled": true }),
            ("POST", "/access/keys") => {
                json!({ "name": "n", "role": "admin", "tenant": "acme" })
            }
            ("PUT", "/tenants/{id}") => json!({ "title": "mine" }),
            ("PUT", "/switch") => json!({ "state": "closed" }),
            ("PUT", "/user-list/{user}") => {
                json!({ "status": "blocked", "reason": "r", "operator": "o" })
            }
            _ => Value::Null,
        }
    }
}

/// A world with all features, two tenants, and the first tenant's resources.
async fn two_tenants() -> (World, Victim, String) {
    let world = World::with_everything().await;
    for (id, host) in [("acmes-dom", "a.example"), ("evils-dom", "e.example")] {
        let domain = json!({ "id": id, "hosts": [host] });
        let path = format!("/link-domains/{id}");
        let put = world.admin("PUT", &path, &domain).await;
        assert_eq!(put.status, 201, "{put:?}");
    }
    let limits = json!({ "requests_per_second": 1000 });
    world
        .tenant(
            "acme",
            json!({ "domains": ["acmes-dom"], "limits": limits }),
        )
        .await;
    world
        .tenant(
            "evil",
            json!({ "domains": ["evils-dom"], "limits": limits }),
        )
        .await;
    let (id, key) = world.tenants_key("acme", json!({ "role": "admin" })).await;
    for (method, path, body, status) in [
        ("POST", "/sales", sale_json("acme--s", 9), 201),
        ("POST", "/sales/acme--s/warm", Value::Null, 200),
        ("PUT", "/rooms/acme--shop", json!({ "mode": "open" }), 200),
        (
            "POST",
            "/links",
            json!({ "target": "https://acmes-target.example/", "domain": "acmes-dom", "code": "acmes-code", "tags": ["x"] }),
            201,
        ),
    ] {
        let done = world.by(&key, method, path, &body).await;
        assert_eq!(done.status, status, "{method} {path} {done:?}");
    }
    let ticket = world.claim("acme--s", "acmes-buyer").await;
    let response = world.order(&ticket).await;
    let order = response.body["order"].as_str().unwrap().to_owned();
    let path = format!("/orders/{order}");
    let payment = world.start_payment("acmes-buyer", &path).await;
    world.callback("e1", &payment, "paid").await;
    let victim = Victim {
        order,
        payment,
        key: id,
    };
    let (_, evil) = world.tenants_key("evil", json!({ "role": "admin" })).await;
    (world, victim, evil)
}

/// The first tenant's resources, as the platform sees them.
async fn state(world: &World, victim: &Victim) -> Vec<Value> {
    let mut all = Vec::new();
    for path in [
        "/sales/acme--s".to_owned(),
        "/sales/acme--s/stock".to_owned(),
        format!("/orders/{}", victim.order),
        "/rooms/acme--shop".to_owned(),
        "/links/acmes-code?domain=acmes-dom".to_owned(),
        "/link-domains/acmes-dom".to_owned(),
        format!("/access/keys/{}", victim.key),
        "/tenants/acme".to_owned(),
        "/user-list/acmes-buyer".to_owned(),
        "/switch".to_owned(),
    ] {
        let response = world.admin("GET", &path, &Value::Null).await;
        assert_eq!(response.status, 200, "{path} {response:?}");
        all.push(response.body);
    }
    let blocked = "SELECT COUNT(*) FROM blocked_users";
    all.push(json!(world.number(blocked).await));
    all
}

#[tokio::test]
async fn tenant_key_reaches_nothing_of_other_tenants() {
    let (world, victim, evil) = two_tenants().await;
    let before = state(&world, &victim).await;
    let (mut refused, mut heeded) = (0, 0);
    let rules = tenant_rules();
    for (method, route) in guarded() {
        let (path, body) = (victim.path(&route), victim.body(&method, &route));
        let answer = world.by(&evil, &method, &path, &body).await;
        let (status, observed) = (
            answer.status.as_u16(),
            format!("{method} {path} {answer:?}"),
        );
        let key = OperationKey {
            path: route.clone(),
            method: method.to_lowercase(),
        };
        match rules[&key] {
            TenantRule::Own(_) => assert_eq!(status, 404, "{observed}"),
            TenantRule::Platform => {
                assert_eq!((status, answer.code()), (403, "forbidden"), "{observed}");
            }
            TenantRule::Heeds => heeded += 1,
        }
        refused += u32::from(matches!(status, 403 | 404));
        // The answer reveals nothing about the other tenant. It may repeat requested names.
        let document = answer.body.to_string();
        for mark in MARKS {
            let is_own_word = body.to_string().contains(mark) || path.contains(mark);
            assert!(
                !document.contains(mark)
                    || (status >= 400 && is_own_word)
                    || route == "/order-batches",
                "{mark}: {observed}"
            );
        }
    }
    assert!(refused > 70 && heeded > 20, "{refused} {heeded}");
    assert_eq!(state(&world, &victim).await, before);
    let verdict = json!({ "action": "refund", "orders": [victim.order] });
    let acted = world.by(&evil, "POST", "/order-batches", &verdict).await;
    assert_eq!(acted.body["verdicts"][0]["verdict"], "unknown_order");
    assert_eq!(state(&world, &victim).await, before);
    // The same through other routes.
    for (method, path) in [
        ("GET", "/orders?sale=acme--s"),
        ("GET", "/orders?sale=acme--s&user=acmes-buyer&sort=oldest"),
        ("GET", "/orders.csv?sale=acme--s"),
        ("GET", "/payments?state=paid&limit=1"),
        ("GET", "/links?domain=acmes-dom"),
        ("GET", "/links?q=acmes&sort=clicks"),
        ("GET", "/links?tag=x"),
        ("GET", "/links.ndjson?tag=x"),
        ("GET", "/sales?limit=1"),
        ("HEAD", "/sales/acme--s"),
        ("GET", "/sales/%61cme--s"),
        ("GET", "/sales/acme--s/"),
        ("GET", "/sales/evil--x%2F..%2Facme--s"),
    ] {
        let answer = world.by(&evil, method, path, &Value::Null).await;
        assert!(
            !answer.body.to_string().contains("acmes-"),
            "{path} {answer:?}"
        );
        assert!(
            !answer.body.to_string().contains("acme--s"),
            "{path} {answer:?}"
        );
        let names = path.starts_with("/sales/");
        assert_eq!(answer.status.as_u16() == 404, names, "{path} {answer:?}");
    }
    // In the audit trail it sees only its own attempts.
    let trail = world.by(&evil, "GET", "/access/audit?limit=200", &Value::Null);
    let entries = trail.await.body["entries"].as_array().unwrap().clone();
    assert!(
        entries.len() > 40
            && entries
                .iter()
                .all(|entry| entry["actor_name"] == "evils-key")
    );
    for path in ["/access/audit?tenant=acme", "/access/keys?tenant=acme"] {
        let answer = world.by(&evil, "GET", path, &Value::Null).await;
        assert_eq!(answer.status, 403, "{path}");
    }
}

#[tokio::test]
async fn tenant_key_has_its_roles_rights_on_own_data() {
    let (world, victim, _) = two_tenants().await;
    let (_, operator) = world
        .tenants_key("acme", json!({ "role": "operator" }))
        .await;
    let (_, viewer) = world.tenants_key("acme", json!({ "role": "viewer" })).await;
    for path in [
        "/sales",
        "/sales/acme--s",
        "/sales/acme--s/audit",
        "/sales/acme--s/stock",
        "/orders?user=acmes-buyer",
        "/payments?state=paid",
        "/rooms",
        "/rooms/acme--shop",
        "/links",
        "/links?tag=x",
        "/links/acmes-code?domain=acmes-dom",
        "/link-domains",
        "/link-domains/acmes-dom",
    ] {
        let response = world.by(&viewer, "GET", path, &Value::Null).await;
        assert_eq!(response.status, 200, "{path} {response:?}");
        assert!(
            response.body.to_string().contains("acme"),
            "{path} {response:?}"
        );
        assert!(!response.body.to_string().contains("evils-dom"), "{path}");
    }
    let order = format!("/orders/{}", victim.order);
    let payload = json!({ "state": "drain" });
    for (method, path, body, status) in [
        ("GET", order.as_str(), Value::Null, 200),
        ("PUT", "/sales/acme--s/switch", payload, 200),
        ("PUT", "/sales/acme--s/blocked/u", Value::Null, 204),
        ("POST", "/sales/acme--s/close", Value::Null, 200),
        ("GET", "/order-deliveries", Value::Null, 200),
        ("POST", "/order-deliveries/retry", Value::Null, 200),
        ("PUT", "/switch", json!({ "state": "closed" }), 403),
        ("POST", "/sales", sale_json("s", 1), 403),
        ("POST", "/sales", sale_json("acme-s", 1), 403),
        ("POST", "/sales", sale_json("acme--s", 1), 409),
        ("PUT", "/rooms/shop", json!({ "mode": "open" }), 404),
        (
            "POST",
            "/links",
            json!({ "target": "https://x.example/" }),
            403,
        ),
        ("GET", "/links/acmes-code?domain=main", Value::Null, 404),
        (
            "POST",
            "/access/keys",
            json!({ "name": "n", "role": "viewer" }),
            403,
        ),
    ] {
        let done = world.by(&operator, method, path, &body).await;
        assert_eq!(done.status, status, "{method} {path} {done:?}");
        let done = world.by(&viewer, method, path, &body).await;
        let expected = if method == "GET" { status } else { 403 };
        assert_eq!(done.status, expected, "{method} {path} {done:?}");
    }
}

#[tokio::test]
async fn tenant_admin_creates_keys_and_sees_own_audit_trail() {
    let (world, victim, evil) = two_tenants().await;
    let (_, admin) = world.tenants_key("acme", json!({ "role": "admin" })).await;
    let make = json!({ "name": "acmes-second", "role": "operator" });
    let response = world.by(&admin, "POST", "/access/keys", &make).await;
    assert_eq!(
        (response.status.as_u16(), &response.body["tenant"]),
        (201, &json!("acme"))
    );
    let scopes = response.body["scopes"].to_string();
    assert!(
        scopes.contains("sales:write") && !scopes.contains("events"),
        "{scopes}"
    );
    for (new, status) in [
        (
            json!({ "name": "n", "scopes": ["sales:read"], "tenant": "acme" }),
            201,
        ),
        (
            json!({ "name": "n", "scopes": ["sales:read"], "tenant": "evil" }),
            403,
        ),
        (json!({ "name": "n", "scopes": ["events:read"] }), 422),
        (json!({ "name": "n", "scopes": ["limits:read"] }), 422),
    ] {
        let answer = world.by(&admin, "POST", "/access/keys", &new).await;
        assert_eq!(answer.status, status, "{new} {answer:?}");
    }
    let anonymous = json!({ "name": "n", "role": "viewer", "tenant": "nobody" });
    let refused = world.admin("POST", "/access/keys", &anonymous).await;
    assert_eq!(refused.code(), "invalid_key");

    // Keys: the platform's list contains none of them.
    let listed = world.by(&admin, "GET", "/access/keys", &Value::Null).await;
    assert_eq!(listed.body["keys"].as_array().unwrap().len(), 4);
    let listed = world.admin("GET", "/access/keys", &Value::Null).await;
    assert_eq!(listed.body["keys"], json!([]));
    let path = format!("/access/keys/{}", response.body["id"].as_str().unwrap());
    for method in ["GET", "DELETE"] {
        let other = world.by(&evil, method, &path, &Value::Null).await;
        assert_eq!(other.code(), "unknown_key");
    }
    let revoked = world.by(&admin, "DELETE", &path, &Value::Null).await;
    assert_eq!(revoked.body["good"], false);

    // The audit trail: page by page, each entry once, and nothing of others.
    world
        .by(&evil, "POST", "/sales", &sale_json("evil--s", 1))
        .await;
    let close = json!({ "state": "closed" });
    let refused = world.by(&evil, "PUT", "/sales/acme--s/switch", &close);
    assert_eq!(refused.await.status, 404);
    let (mut entries, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/access/audit?limit=2{after}");
        let page = world.by(&admin, "GET", &path, &Value::Null).await;
        entries.extend(page.body["entries"].as_array().unwrap().clone());
        let Some(next) = page.body["next"].as_str() else {
            break;
        };
        after = format!("&after={next}");
    }
    assert!(entries.len() >= 8, "{entries:?}");
    assert!(
        entries.iter().all(|entry| entry["tenant"] == "acme"),
        "{entries:?}"
    );
    // Link creations are audited after the answer.
    world.origin.access().finish().await;
    let one = format!("/access/audit?actor={}", victim.key);
    let one = world.by(&admin, "GET", &one, &Value::Null).await;
    assert_eq!(one.body["entries"].as_array().unwrap().len(), 4, "{one:?}");
    let evils = world
        .admin("GET", "/access/audit?tenant=evil", &Value::Null)
        .await;
    let evils = evils.body["entries"].as_array().unwrap();
    assert!(evils.iter().all(|entry| entry["tenant"] == "evil") && evils.len() >= 3);

    // A session belongs to the key and shows its tenant.
    let headers = [("x-weir-console", "1"), ("origin", "http://desk")];
    let mut request = Request::builder().method("POST").uri("/access/session");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let body = Body::from(json!({ "key": admin }).to_string());
    let entered = world.admin_request(request.body(body).unwrap()).await;
    assert_eq!(entered.body["tenant"], "acme", "{entered:?}");
    let cookie = entered.headers["set-cookie"].to_str().unwrap().to_owned();
    let cookie = cookie.split(';').next().unwrap();
    for (path, status) in [
        ("/sales/acme--s", 200),
        ("/sales/evil--s", 404),
        ("/switch", 403),
    ] {
        let request = Request::get(path).header("cookie", cookie);
        let document = world
            .admin_request(request.body(Body::empty()).unwrap())
            .await;
        assert_eq!(document.status, status, "{path} {document:?}");
    }
}
