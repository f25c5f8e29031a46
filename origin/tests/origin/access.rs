//! Keys, roles, sessions, and the audit trail.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use weir_origin::access::Settings;
use weir_origin::clock::now_ms;

use crate::support::{Answer, TOKEN, World, sale_json};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Admin routes that need no key: probes, pages, and the sign-in.
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

impl World {
    /// Creates a key and returns its id and secret.
    pub(crate) async fn key(&self, members: Value) -> (String, String) {
        let mut new = json!({ "name": "a key" });
        for (name, value) in members.as_object().unwrap() {
            new[name] = value.clone();
        }
        let response = self.admin("POST", "/access/keys", &new).await;
        assert_eq!(response.status, 201, "{response:?}");
        let text = |name: &str| response.body[name].as_str().unwrap().to_owned();
        (text("id"), text("key"))
    }

    pub(crate) async fn with_key(
        &self,
        key: &str,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Answer {
        let bearer = format!("Bearer {key}");
        self.admin_as(method, path, &body.to_string(), Some(&bearer))
            .await
    }

    /// A request to the admin port as a browser sends it.
    async fn browse(
        &self,
        method: &str,
        path: &str,
        body: &Value,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.admin_request(request.body(Body::from(body.to_string())).unwrap())
            .await
    }

    async fn sign_in(&self, key: &str) -> Answer {
        let headers = [("x-weir-console", "1"), ("origin", "http://desk")];
        self.browse("POST", "/access/session", &json!({ "key": key }), &headers)
            .await
    }

    async fn trail(&self, query: &str) -> (Vec<Value>, Value) {
        let path = format!("/access/audit{query}");
        let answer = self.admin("GET", &path, &Value::Null).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let entries = answer.body["entries"].as_array().unwrap().clone();
        (entries, answer.body["next"].clone())
    }
}

/// The cookie of an answer, as a browser returns it.
fn cookie(answer: &Answer) -> String {
    let set = answer.headers["set-cookie"].to_str().unwrap();
    set.split(';').next().unwrap().to_owned()
}

fn path_of(route: &str) -> String {
    let at = route.replace("{id}", "s").replace("{user}", "u");
    let at = at.replace("{code}", "abc").replace("{group}", "store");
    let at = at.replace("{name}", "view").replace("{window}", "last");
    let at = at.replace("{room}", "shop").replace("{sku}", "7");
    let at = at.replace("{vehicle}", "1000001");
    assert!(!at.contains('{'), "{at}: what is this named by?");
    at
}

#[tokio::test]
async fn every_route_needs_a_key_and_changes_refuse_viewers() {
    let world = World::new().await;
    let (_, viewer) = world.key(json!({ "role": "viewer" })).await;
    let document = weir_origin::openapi::document();
    let mut changes = 0;
    for (route, operations) in document["paths"].as_object().unwrap() {
        if OPEN.contains(&route.as_str()) {
            continue;
        }
        for (method, operation) in operations.as_object().unwrap() {
            let tags = operation["tags"].as_array().cloned().unwrap_or_default();
            if !tags.contains(&json!("admin")) {
                continue;
            }
            let (method, path) = (method.to_uppercase(), path_of(route));
            let unknown = world.admin_as(&method, &path, "null", None).await;
            assert_eq!(unknown.status, 401, "{method} {route}: {unknown:?}");
            let response = world.with_key(&viewer, &method, &path, &Value::Null).await;
            let is_picture = method == "POST" && route.contains("/qr.");
            let is_question = route == "/fitment/check" || is_picture;
            let is_of_access = ["/access/", "/tenants"]
                .iter()
                .any(|of| route.starts_with(of));
            if method == "GET" && !is_of_access || is_question {
                assert!(
                    ![401, 403].contains(&response.status.as_u16()),
                    "{method} {route}"
                );
            } else {
                assert_eq!(
                    (response.status.as_u16(), response.code()),
                    (403, "forbidden"),
                    "{method} {route}"
                );
                changes += 1;
            }
        }
    }
    assert!(changes > 40, "{changes}");
}

#[tokio::test]
async fn key_grants_its_scopes_until_it_expires() {
    let world = World::new().await;
    let (_, rooms) = world.key(json!({ "scopes": ["rooms:write"] })).await;
    let pace = json!({ "mode": "open", "per_minute": 60 });
    let set = world.with_key(&rooms, "PUT", "/rooms/shop", &pace).await;
    assert_eq!(set.status, 200, "{set:?}");
    for path in ["/rooms", "/sales", "/access/keys"] {
        let refused = world.with_key(&rooms, "GET", path, &Value::Null).await;
        assert_eq!(refused.status, 403, "{path}");
    }
    assert!(
        world
            .with_key(&rooms, "GET", "/rooms", &Value::Null)
            .await
            .detail()
            .contains("rooms:read")
    );

    // The secret is shown once and stored nowhere.
    let (id, operator) = world.key(json!({ "role": "operator" })).await;
    for path in ["/access/keys".to_owned(), format!("/access/keys/{id}")] {
        let listed = world.admin("GET", &path, &Value::Null).await;
        assert_eq!(listed.status, 200);
        assert!(listed.body.to_string().contains(&id));
        assert!(
            !listed
                .body
                .to_string()
                .contains(operator.rsplit('_').next().unwrap())
        );
    }
    let retained = "SELECT COUNT(*) FROM access_keys WHERE LENGTH(hash) = 32";
    let retained = world.number(retained).await;
    assert_eq!(retained, 2);

    // A key cannot grant scopes that it lacks, and cut or changed keys are refused.
    let (_, giver) = world
        .key(json!({ "scopes": ["access:write", "sales:read"] }))
        .await;
    for (new, status) in [
        (json!({ "name": "n", "scopes": ["sales:read"] }), 201),
        (json!({ "name": "n", "scopes": ["sales:write"] }), 403),
        (json!({ "name": "n", "role": "admin" }), 403),
        (json!({ "name": "n" }), 422),
        (json!({ "name": "n", "role": "king" }), 422),
        (json!({ "name": "n", "scopes": [] }), 422),
        (json!({ "name": "n", "scopes": ["sales:all"] }), 422),
        (
            json!({ "name": "n", "role": "viewer", "scopes": ["sales:read"] }),
            422,
        ),
        (json!({ "name": "", "role": "viewer" }), 422),
        (
            json!({ "name": "n", "scopes": ["sales:read"], "expires_at_ms": 1 }),
            422,
        ),
        (
            json!({ "name": "n", "scopes": ["sales:read"], "tags": [""] }),
            422,
        ),
    ] {
        let response = world.with_key(&giver, "POST", "/access/keys", &new).await;
        assert_eq!(response.status, status, "{new} {response:?}");
    }
    let other = format!("{}0", &operator[..operator.len() - 1]);
    let wrong = if other == operator {
        format!("{}1", &operator[..operator.len() - 1])
    } else {
        other
    };
    for wrong in [wrong.as_str(), &operator[1..], ""] {
        let refused = world.with_key(wrong, "GET", "/sales", &Value::Null).await;
        assert_eq!(refused.status, 401, "{wrong}");
    }

    // Revoked, and expired.
    assert_eq!(
        world
            .with_key(&operator, "GET", "/sales", &Value::Null)
            .await
            .status,
        200
    );
    let path = format!("/access/keys/{id}");
    for _ in 0..2 {
        let revoked = world.admin("DELETE", &path, &Value::Null).await;
        assert_eq!(
            (revoked.status.as_u16(), &revoked.body["good"]),
            (200, &json!(false))
        );
    }
    assert_eq!(
        world
            .with_key(&operator, "GET", "/sales", &Value::Null)
            .await
            .status,
        401
    );
    let none = world
        .admin("DELETE", "/access/keys/none", &Value::Null)
        .await;
    assert_eq!(none.code(), "unknown_key");
    let soon = now_ms() + 400;
    let (_, short) = world
        .key(json!({ "role": "viewer", "expires_at_ms": soon }))
        .await;
    assert_eq!(
        world
            .with_key(&short, "GET", "/sales", &Value::Null)
            .await
            .status,
        200
    );
    while now_ms() < soon {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(
        world
            .with_key(&short, "GET", "/sales", &Value::Null)
            .await
            .status,
        401
    );
}

#[tokio::test]
async fn session_is_opened_by_key_and_rejects_other_sites() {
    let world = World::new().await;
    let (id, operator) = world
        .key(json!({ "name": "Olga", "role": "operator" }))
        .await;
    let entered = world.sign_in(&operator).await;
    assert_eq!(entered.status, 201, "{entered:?}");
    assert_eq!(entered.body["name"], "Olga");
    let set = entered.headers["set-cookie"].to_str().unwrap();
    assert!(
        set.ends_with("; Path=/; HttpOnly; SameSite=Strict"),
        "{set}"
    );
    let cookie = cookie(&entered);
    let headers = [("cookie", cookie.as_str()), ("x-weir-console", "1")];
    let user = world
        .browse("GET", "/access/session", &Value::Null, &headers[..1])
        .await;
    assert_eq!(
        (&user.body["id"], &user.body["session"]),
        (&json!(id), &json!(true))
    );
    let switch = json!({ "state": "closed" });
    let foreign = world.browse("PUT", "/switch", &switch, &headers[..1]).await;
    assert_eq!(
        (foreign.status.as_u16(), foreign.code()),
        (403, "not_from_console")
    );
    let own = world.browse("PUT", "/switch", &switch, &headers).await;
    assert_eq!(own.status, 200, "{own:?}");
    // A session id with another session's secret.
    let (name, _) = cookie.split_once('.').unwrap();
    let forged = format!("{name}.{}", "0".repeat(64));
    let refused = world
        .browse(
            "GET",
            "/sales",
            &Value::Null,
            &[("cookie", forged.as_str())],
        )
        .await;
    assert_eq!(refused.status, 401);

    // Signed out.
    let out = world
        .browse("DELETE", "/access/session", &Value::Null, &headers)
        .await;
    assert_eq!(out.status, 204);
    assert!(
        out.headers["set-cookie"]
            .to_str()
            .unwrap()
            .contains("Max-Age=0")
    );
    assert_eq!(
        world
            .browse("GET", "/sales", &Value::Null, &headers)
            .await
            .status,
        401
    );

    // A session ends with its key, and the token's session with the token.
    let again = self::cookie(&world.sign_in(&operator).await);
    let path = format!("/access/keys/{id}");
    world.admin("DELETE", &path, &Value::Null).await;
    let headers = [("cookie", again.as_str())];
    assert_eq!(
        world
            .browse("GET", "/sales", &Value::Null, &headers)
            .await
            .status,
        401
    );
    let admin = self::cookie(&world.sign_in(TOKEN).await);
    let headers = [("cookie", admin.as_str())];
    assert_eq!(
        world
            .browse("GET", "/access/keys", &Value::Null, &headers)
            .await
            .status,
        200
    );
    let world = world.with_token("another-token-another-token-another");
    assert_eq!(
        world
            .browse("GET", "/access/keys", &Value::Null, &headers)
            .await
            .status,
        401
    );
}

#[tokio::test]
async fn wrong_keys_throttle_the_address() {
    let world = World::new().await;
    for _ in 0..10 {
        let refused = world.sign_in("guessed").await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (401, "wrong_key")
        );
    }
    let waits = world.sign_in(TOKEN).await;
    assert_eq!(
        (waits.status.as_u16(), waits.code()),
        (429, "too_many_attempts")
    );
    let seconds: u64 = waits.headers["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=6).contains(&seconds), "{seconds}");
    // Programs that send keys still work.
    assert_eq!(world.admin("GET", "/sales", &Value::Null).await.status, 200);
    let bare = world
        .browse("POST", "/access/session", &json!({ "key": TOKEN }), &[])
        .await;
    assert_eq!(bare.code(), "not_from_console");
}

#[tokio::test]
async fn audit_trail_records_a_change_before_it_is_applied() {
    let world = World::new().await;
    let (id, key) = world
        .key(json!({ "name": "Olga", "role": "operator" }))
        .await;
    let sale = sale_json("s", 5);
    assert_eq!(
        world.with_key(&key, "POST", "/sales", &sale).await.status,
        201
    );
    world
        .with_key(&key, "PUT", "/sales/s/switch", &json!({ "state": "drain" }))
        .await;
    world
        .with_key(
            &key,
            "PUT",
            "/sales/none/switch",
            &json!({ "state": "drain" }),
        )
        .await;
    world
        .with_key(&key, "DELETE", &format!("/access/keys/{id}"), &Value::Null)
        .await;
    world.with_key(&key, "GET", "/sales", &Value::Null).await;

    let (entries, next) = world.trail(&format!("?actor={id}")).await;
    let observed = |entry: &Value| {
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let status = entry["status"].as_u64().unwrap();
        (
            text("method"),
            text("route"),
            text("path"),
            status,
            text("created"),
        )
    };
    let text = |method: &str, route: &str, path: &str, status, created: &str| {
        (
            method.to_owned(),
            route.to_owned(),
            path.to_owned(),
            status,
            created.to_owned(),
        )
    };
    let expected = vec![
        text(
            "DELETE",
            "/access/keys/{id}",
            &format!("/access/keys/{id}"),
            403,
            "",
        ),
        text("PUT", "/sales/{id}/switch", "/sales/none/switch", 404, ""),
        text("PUT", "/sales/{id}/switch", "/sales/s/switch", 200, ""),
        text("POST", "/sales", "/sales", 201, "/sales/s"),
    ];
    assert_eq!(entries.iter().map(observed).collect::<Vec<_>>(), expected);
    assert!(entries.iter().all(|entry| entry["actor_name"] == "Olga"));
    // What was set, from and to; only of changes that were made.
    let details: Vec<&Value> = entries.iter().map(|entry| &entry["detail"]).collect();
    let switched = json!("state: open to drain");
    assert_eq!(
        details,
        [&Value::Null, &Value::Null, &switched, &Value::Null]
    );
    assert!(next.is_null());

    // Page by page, each entry once.
    let mut after = String::new();
    let mut count = 0;
    loop {
        let (page, next) = world.trail(&format!("?actor={id}&limit=2{after}")).await;
        count += page.len();
        let Some(next) = next.as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(count, 4);

    // Old entries are deleted with their outcomes.
    let access = world.origin.access();
    access.forget(now_ms()).await.unwrap();
    assert_eq!(world.trail(&format!("?actor={id}")).await.0.len(), 4);
    let kept_ms = Settings::default().audit_ms.unwrap();
    assert_eq!(kept_ms, 400 * DAY_MS);
    assert!(!access.forget(now_ms() + kept_ms + 1).await.unwrap());
    assert!(world.trail("").await.0.is_empty());
    let verdicts = world.number("SELECT COUNT(*) FROM audit_verdicts").await;
    assert_eq!(verdicts, 0);

    // An action that cannot be audited is not performed.
    let mut sql = world.sql().await;
    sql.execute("DROP TABLE audit_trail", &[]).await;
    let refused = world
        .admin("PUT", "/switch", &json!({ "state": "closed" }))
        .await;
    assert_eq!(refused.status, 503);
    let state = world.admin("GET", "/switch", &Value::Null).await;
    assert_eq!(state.body["state"], "open");
}

#[tokio::test]
async fn scoped_key_is_confined_to_links_of_its_domain_and_tag() {
    let domains = json!({ "domains": [
        { "id": "a", "hosts": ["a.example"] }, { "id": "b", "hosts": ["b.example"] },
    ] });
    let world = World::with_links(domains, |_| {}).await;
    let link = |domain: &str, code: &str, tag: &str| json!({ "target": "https://t.example/", "domain": domain, "code": code, "tags": [tag] });
    for (domain, code, tag) in [("a", "one", "x"), ("b", "two", "x"), ("b", "three", "y")] {
        let response = world
            .admin("POST", "/links", &link(domain, code, tag))
            .await;
        assert_eq!(response.status, 201, "{response:?}");
    }
    let scopes = json!(["links:read", "links:write"]);
    let (_, key) = world
        .key(json!({ "scopes": scopes, "domains": ["b"], "tags": ["x"] }))
        .await;
    let codes = |answer: &Answer| -> Vec<String> {
        let links = answer.body["links"].as_array().unwrap();
        links
            .iter()
            .map(|link| link["code"].as_str().unwrap().to_owned())
            .collect()
    };
    let listed = world.with_key(&key, "GET", "/links", &Value::Null).await;
    assert_eq!(codes(&listed), ["two"]);
    for format in ["csv", "ndjson"] {
        let path = format!("/links.{format}");
        let exported = world.with_key(&key, "GET", &path, &Value::Null).await;
        let text = exported.body.to_string();
        let has = |code: &str| text.contains(code);
        assert_eq!(
            [has("one"), has("two"), has("three")],
            [false, true, false],
            "{exported:?}"
        );
    }
    for (method, path, body, status) in [
        ("GET", "/links/two?domain=b", json!(null), 200),
        ("GET", "/links/one?domain=a", json!(null), 404),
        ("GET", "/links/three?domain=b", json!(null), 404),
        ("GET", "/links/three/stats?domain=b", json!(null), 404),
        ("GET", "/links/three/history?domain=b", json!(null), 404),
        ("DELETE", "/links/three?domain=b", json!(null), 404),
        (
            "PATCH",
            "/links/three?domain=b",
            json!({ "disabled": true }),
            404,
        ),
        (
            "PATCH",
            "/links/two?domain=b",
            json!({ "tags": ["y"] }),
            403,
        ),
        (
            "PATCH",
            "/links/two?domain=b",
            json!({ "tags": ["x", "y"] }),
            200,
        ),
        ("POST", "/links", link("b", "four", "x"), 201),
        ("POST", "/links", link("b", "five", "y"), 403),
        ("POST", "/links", link("a", "five", "x"), 403),
        // The first domain, which is outside the key's scope.
        (
            "POST",
            "/links",
            json!({ "target": "https://t.example/", "tags": ["x"] }),
            403,
        ),
        ("GET", "/link-domains", json!(null), 200),
        ("DELETE", "/link-domains/b", json!(null), 403),
    ] {
        let answer = world.with_key(&key, method, path, &body).await;
        assert_eq!(answer.status, status, "{method} {path} {answer:?}");
    }
    let many = json!([link("b", "six", "x"), link("a", "seven", "x")]);
    let response = world.with_key(&key, "POST", "/links", &many).await;
    assert_eq!(response.status, 207);
    assert_eq!(response.body[1]["error"], "forbidden");
    assert_eq!(
        world
            .admin("GET", "/links/seven?domain=a", &Value::Null)
            .await
            .status,
        404
    );

    // Link creations are audited after the answer.
    world.origin.access().finish().await;
    let (entries, _) = world.trail("").await;
    let response = entries
        .iter()
        .filter(|entry| entry["route"] == "/links" && entry["status"] == 201);
    assert_eq!(response.count(), 4);
    assert!(
        entries
            .iter()
            .any(|entry| entry["created"] == "/links/four?domain=b")
    );
}
