//! Tenants: each sees, changes and fills up what is its own, and nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tower::ServiceExt;
use weir_origin::access::tenancy::TenantRule;
use weir_origin::clock::now_ms;
use weir_origin::links::quota::{AGAIN_AFTER, FRESH_FOR};
use weir_origin::tenant_rules::RULES;

use crate::support::{Answer, World, contract, sale_json};

/// Admin operations that need no key, or ask for one themselves.
const OPEN: [&str; 13] = [
    "/healthz",
    "/readyz",
    "/metrics",
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

/// What others must never see of the first tenant: its name, its buyer, its link, where that leads, its key, its domain.
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
        let made = self.admin("PUT", &format!("/tenants/{name}"), &new).await;
        assert!(made.status.is_success(), "{made:?}");
    }

    /// A key of a tenant: its id and itself.
    async fn tenants_key(&self, tenant: &str, members: Value) -> (String, String) {
        let mut new = json!({ "name": format!("{tenant}s-key"), "tenant": tenant });
        for (name, value) in members.as_object().unwrap() {
            new[name] = value.clone();
        }
        let made = self.admin("POST", "/access/keys", &new).await;
        assert_eq!(made.status, 201, "{made:?}");
        let text = |name: &str| made.body[name].as_str().unwrap().to_owned();
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

/// A route that nobody has decided about is the platform's, which is safe; but somebody is to decide.
#[test]
fn every_admin_operation_has_one_rule_for_tenants() {
    let mut ruled = BTreeSet::new();
    for (methods, route, _) in RULES {
        for method in methods.split(' ') {
            let is_first = ruled.insert((method.to_owned(), (*route).to_owned()));
            assert!(is_first, "two rules: {method} {route}");
        }
    }
    let guarded: BTreeSet<_> = guarded().into_iter().collect();
    let undecided: Vec<_> = guarded.difference(&ruled).collect();
    assert!(
        undecided.is_empty(),
        "add to origin/src/tenant_rules.rs what these are to tenants: {undecided:?}"
    );
    let gone: Vec<_> = ruled.difference(&guarded).collect();
    assert!(gone.is_empty(), "no such operations: {gone:?}");
}

/// What the first tenant has, and what others try to reach it by.
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

    /// Bodies that would do something.
    fn body(&self, method: &str, route: &str) -> Value {
        match (method, route) {
            ("POST", "/sales") => sale_json("acme--new", 1),
            ("PATCH", "/sales/{id}") => json!({ "title": "mine" }),
            ("PUT", "/sales/{id}/switch") => json!({ "state": "closed" }),
            ("POST", "/sales/{id}/stock") => json!({ "units": 1 }),
            ("PUT", "/rooms/{room}") => json!({ "mode": "closed" }),
            ("POST", "/order-actions") => json!({ "action": "cancel", "orders": [self.order] }),
            ("POST", "/links") => json!({ "target": "https://x.example/", "domain": "acmes-dom" }),
            ("POST", "/link-imports") => json!("domain,code,url\n"),
            ("PATCH", "/links/{code}") => json!({ "disabled": true }),
            ("POST", "/access/keys") => {
                json!({ "name": "n", "role": "admin", "tenant": "acme" })
            }
            ("PUT", "/tenants/{id}") => json!({ "title": "mine" }),
            ("PUT", "/switch") => json!({ "state": "closed" }),
            ("PUT", "/user-list/{user}") => {
                json!({ "standing": "blocked", "reason": "r", "operator": "o" })
            }
            _ => Value::Null,
        }
    }
}

/// A world with all that an origin has, two tenants, and what the first one has.
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
    let made = world.order(&ticket).await;
    let order = made.body["order"].as_str().unwrap().to_owned();
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

/// What the first tenant has, as the platform sees it.
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
        let seen = world.admin("GET", &path, &Value::Null).await;
        assert_eq!(seen.status, 200, "{path} {seen:?}");
        all.push(seen.body);
    }
    all
}

#[tokio::test]
async fn a_tenants_key_reaches_nothing_of_another_by_any_operation() {
    let (world, victim, evil) = two_tenants().await;
    let before = state(&world, &victim).await;
    let (mut refused, mut heeded) = (0, 0);
    for (method, route) in guarded() {
        let (path, body) = (victim.path(&route), victim.body(&method, &route));
        let answer = world.by(&evil, &method, &path, &body).await;
        let (status, seen) = (
            answer.status.as_u16(),
            format!("{method} {path} {answer:?}"),
        );
        let rule = RULES
            .iter()
            .find(|(methods, at, _)| *at == route && methods.split(' ').any(|one| one == method));
        match rule.unwrap().2 {
            TenantRule::Own(_) => assert_eq!(status, 404, "{seen}"),
            TenantRule::Platform => {
                assert_eq!((status, answer.code()), (403, "forbidden"), "{seen}");
            }
            TenantRule::Heeds => heeded += 1,
        }
        refused += u32::from(matches!(status, 403 | 404));
        // Whatever it says, it says nothing of the other's. What was asked for may be named again.
        let said = answer.body.to_string();
        for mark in MARKS {
            let is_own_word = body.to_string().contains(mark) || path.contains(mark);
            assert!(
                !said.contains(mark) || (status >= 400 && is_own_word) || route == "/order-actions",
                "{mark}: {seen}"
            );
        }
    }
    assert!(refused > 70 && heeded > 20, "{refused} {heeded}");
    assert_eq!(state(&world, &victim).await, before);
    let verdict = json!({ "action": "refund", "orders": [victim.order] });
    let acted = world.by(&evil, "POST", "/order-actions", &verdict).await;
    assert_eq!(acted.body["verdicts"][0]["verdict"], "unknown_order");
    assert_eq!(state(&world, &victim).await, before);
    // The same asked otherwise.
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
    // Of the trail it sees what it has tried itself.
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
async fn a_tenants_key_does_with_its_own_what_its_role_says() {
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
        let seen = world.by(&viewer, "GET", path, &Value::Null).await;
        assert_eq!(seen.status, 200, "{path} {seen:?}");
        assert!(seen.body.to_string().contains("acme"), "{path} {seen:?}");
        assert!(!seen.body.to_string().contains("evils-dom"), "{path}");
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
async fn a_tenants_admin_makes_keys_and_sees_the_trail_of_its_own() {
    let (world, victim, evil) = two_tenants().await;
    let (_, admin) = world.tenants_key("acme", json!({ "role": "admin" })).await;
    let make = json!({ "name": "acmes-second", "role": "operator" });
    let made = world.by(&admin, "POST", "/access/keys", &make).await;
    assert_eq!(
        (made.status.as_u16(), &made.body["tenant"]),
        (201, &json!("acme"))
    );
    let scopes = made.body["scopes"].to_string();
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
    let nobody = json!({ "name": "n", "role": "viewer", "tenant": "nobody" });
    let refused = world.admin("POST", "/access/keys", &nobody).await;
    assert_eq!(refused.code(), "invalid_key");

    // Keys: the platform's list has none of them.
    let listed = world.by(&admin, "GET", "/access/keys", &Value::Null).await;
    assert_eq!(listed.body["keys"].as_array().unwrap().len(), 4);
    let listed = world.admin("GET", "/access/keys", &Value::Null).await;
    assert_eq!(listed.body["keys"], json!([]));
    let path = format!("/access/keys/{}", made.body["id"].as_str().unwrap());
    for method in ["GET", "DELETE"] {
        let other = world.by(&evil, method, &path, &Value::Null).await;
        assert_eq!(other.code(), "unknown_key");
    }
    let revoked = world.by(&admin, "DELETE", &path, &Value::Null).await;
    assert_eq!(revoked.body["good"], false);

    // The trail: page by page, each once, and nothing of others.
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
    // A link is noted behind the answer.
    world.origin.access().finish().await;
    let one = format!("/access/audit?actor={}", victim.key);
    let one = world.by(&admin, "GET", &one, &Value::Null).await;
    assert_eq!(one.body["entries"].as_array().unwrap().len(), 4, "{one:?}");
    let evils = world
        .admin("GET", "/access/audit?tenant=evil", &Value::Null)
        .await;
    let evils = evils.body["entries"].as_array().unwrap();
    assert!(evils.iter().all(|entry| entry["tenant"] == "evil") && evils.len() >= 3);

    // A session is the key's, and says whose.
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
        let seen = world
            .admin_request(request.body(Body::empty()).unwrap())
            .await;
        assert_eq!(seen.status, status, "{path} {seen:?}");
    }
}

#[tokio::test]
async fn no_tenant_has_more_than_it_may_however_many_ask_at_once() {
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
        let mut made = 0;
        while let Some(answer) = tasks.join_next().await {
            let answer = answer.unwrap();
            match answer.status.as_u16() {
                200 | 201 => made += 1,
                409 => assert_eq!(answer.code(), "tenant_limit", "{answer:?}"),
                status => panic!("{status} {answer:?}"),
            }
        }
        made
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

    // One that is there is changed nevertheless; a key that was revoked makes room.
    let seen = world.admin("GET", "/tenants/acme", &Value::Null).await;
    assert_eq!(
        seen.body["used"],
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

    // Units: of a change before the start, and of stock that is added while it runs. The platform is held by it, too.
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
    assert_eq!(
        add(crate::support::TOKEN, 1, "c").await.code(),
        "tenant_limit"
    );
    assert_eq!(add(&key, -5, "d").await.status, 200);
    assert_eq!(add(&key, 5, "e").await.status, 200);

    // Another tenant is not touched by it, nor is what is nobody's.
    let made = world
        .by(&others, "POST", "/sales", &sale_json("other--1", 50))
        .await;
    assert_eq!(made.status, 201, "{made:?}");
    let made = world
        .admin("POST", "/sales", &sale_json("nobody--1", 50))
        .await;
    assert_eq!(made.status, 201, "{made:?}");
}

#[tokio::test]
async fn a_sale_that_has_not_started_grows_as_far_as_its_tenant_may() {
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
    // Lowered below what is there: it stays, and may shrink.
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
async fn a_tenant_that_asks_too_much_waits_and_the_others_do_not() {
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
        // What is the platform's counts, too: its refusals would fill the trail.
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
    let noted = world
        .number("SELECT COUNT(*) FROM audit_trail WHERE tenant = 'acme'")
        .await;
    assert_eq!(noted, 40 - refused);

    // An answer that goes on is under way until it is gone.
    let made = world
        .by(&others, "POST", "/sales", &sale_json("other--s", 1))
        .await;
    assert_eq!(made.status, 201);
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
async fn names_and_domains_are_one_tenants_each() {
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
    let taken = put("acme", json!({ "title": "A" })).await;
    assert_eq!(
        (taken.status.as_u16(), taken.code()),
        (409, "tenant_names_taken")
    );
    assert!(taken.detail().contains("1 sales"), "{taken:?}");
    let made = put(
        "acme",
        json!({ "title": "A", "takes_over": true, "domains": ["b", "a", "a"] }),
    )
    .await;
    assert_eq!(
        (made.status.as_u16(), &made.body["domains"]),
        (201, &json!(["a", "b"]))
    );
    assert_eq!(
        put("acme", json!({ "title": "A", "domains": ["a"] }))
            .await
            .status,
        200
    );
    let taken = put("other", json!({ "title": "O", "domains": ["a"] })).await;
    assert_eq!(taken.code(), "tenant_domain_taken");
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

    // Its own begin with its name and two hyphens: neither the bare name nor that of a longer one.
    let (_, key) = world.tenants_key("acme", json!({ "role": "admin" })).await;
    let seen = world.by(&key, "GET", "/sales", &Value::Null).await;
    assert_eq!(seen.body["sales"].as_array().unwrap().len(), 1, "{seen:?}");
    for (sale, status) in [("acme--old", 200), ("acme", 404), ("acme-x--s", 404)] {
        let seen = world
            .by(&key, "GET", &format!("/sales/{sale}"), &Value::Null)
            .await;
        assert_eq!(seen.status, status, "{sale}");
    }

    // Gone: its keys open nothing, and a later one of its name has none of them.
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

#[tokio::test]
async fn pages_have_all_of_a_tenants_own_and_name_nothing_of_others() {
    let (world, _, evil) = two_tenants().await;
    let (_, acme) = world.tenants_key("acme", json!({ "role": "admin" })).await;
    for n in 0..5 {
        for (tenant, key) in [("acme", &acme), ("evil", &evil)] {
            let sale = sale_json(&format!("{tenant}--{n}"), 1);
            assert_eq!(world.by(key, "POST", "/sales", &sale).await.status, 201);
            let link = json!({ "target": format!("https://{tenant}s-target.example/{n}"), "domain": format!("{tenant}s-dom"), "code": format!("{tenant}s-code-{n}"), "tags": ["x"] });
            let made = world.by(key, "POST", "/links", &link).await;
            assert_eq!(made.status, 201, "{made:?}");
        }
    }
    for (path, member, name) in [
        ("/sales?limit=2", "sales", "id"),
        ("/links?limit=2", "links", "code"),
        ("/links?limit=2&tag=x", "links", "code"),
        ("/links?limit=2&sort=clicks", "links", "code"),
        ("/links?limit=2&q=code", "links", "code"),
    ] {
        let (mut seen, mut after) = (BTreeSet::new(), String::new());
        for _ in 0..20 {
            let page = world
                .by(&evil, "GET", &format!("{path}{after}"), &Value::Null)
                .await;
            assert_eq!(page.status, 200, "{page:?}");
            assert!(!page.body.to_string().contains("acme"), "{path} {page:?}");
            for one in page.body[member].as_array().unwrap() {
                let is_first = seen.insert(one[name].as_str().unwrap().to_owned());
                assert!(is_first, "{path} {one}");
            }
            let Some(next) = page.body["next"].as_str() else {
                break;
            };
            after = format!("&after={next}");
        }
        assert_eq!(seen.len(), 5, "{path} {seen:?}");
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

    // Anybody's list of sales: everybody's, or one tenant's.
    for sale in ["acme--1", "evil--1"] {
        let path = format!("/sales/{sale}");
        let listed = world
            .admin("PATCH", &path, &json!({ "listed": true }))
            .await;
        assert_eq!(listed.status, 200, "{listed:?}");
    }
    let shown = async |path: &str| {
        let answer = world
            .public(Request::get(path).body(Body::empty()).unwrap())
            .await;
        answer.body["sales"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(shown("/sale-list?tenant=acme").await, 1);
    assert_eq!(shown("/sale-list").await, 2);
    assert_eq!(shown("/sale-list?tenant=none").await, 0);
    assert_eq!(shown("/sale-list?tenant=a--b").await, 0);
}

#[tokio::test]
async fn a_tenants_links_are_counted_and_its_idempotency_keys_are_its_own() {
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
    // It has one. Lists are made whole or not at all.
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
    // What is deleted makes room.
    let gone = world
        .by(
            &acme,
            "DELETE",
            "/links/acmes-code?domain=acmes-dom",
            &Value::Null,
        )
        .await;
    assert_eq!(gone.status, 204, "{gone:?}");
    let deadline = now_ms() + 2 * u64::try_from(FRESH_FOR.as_millis()).unwrap();
    loop {
        tokio::time::sleep(AGAIN_AFTER).await;
        let made = world.by(&acme, "POST", "/links", &link("acmes-dom")).await;
        if made.status == 201 {
            break;
        }
        assert!(now_ms() < deadline, "{made:?}");
    }

    // The same key of two tenants is two keys: neither is told the other's answer, nor kept from its own.
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
    let platform = once(crate::support::TOKEN, "evils-dom").await;
    assert_ne!(platform.body["code"], first.body["code"]);
}
