//! The OpenAPI document and the routes are about the same.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use weir_feed::routes::{DOMAINS, SOLD_OUT};
use weir_scripts::routes::{LINK_FOLLOW, LINK_RECORD};

use crate::support::World;

const METHODS: [&str; 5] = ["get", "put", "post", "delete", "patch"];

async fn document(world: &World) -> Value {
    world.admin_as("GET", "/openapi.json", "", None).await.body
}

/// The error code of a request without a body, with or without a route.
async fn code(world: &World, is_public: bool, method: &str, path: &str) -> String {
    let method = method.to_uppercase();
    let answer = if is_public {
        let request = Request::builder().method(method.as_str()).uri(path);
        world.public(request.body(Body::empty()).unwrap()).await
    } else {
        world.admin(&method, path, &Value::Null).await
    };
    answer.body["error"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn every_documented_route_is_there_and_no_other_method_of_its_path() {
    let world = World::with_sale("s", 1).await;
    let document = document(&world).await;
    for (path, operations) in document["paths"].as_object().unwrap() {
        let at = path.replace("{id}", "s").replace("{user}", "u");
        let at = at.replace("{file}", "main.js").replace("{code}", "abc");
        let at = at.replace("{group}", "store").replace("{name}", "view");
        let at = at.replace("{window}", "last").replace("{room}", "shop");
        let at = at.replace("{sku}", "7").replace("{vehicle}", "1000001");
        for is_public in [true, false] {
            let tag = json!(if is_public { "public" } else { "admin" });
            for method in METHODS {
                let tags = operations[method]["tags"].as_array();
                let is_documented = tags.is_some_and(|tags| tags.contains(&tag));
                if (is_public, method, path.as_str()) == (false, "delete", "/history/page") {
                    // The page is not on this port: there it is a SKU.
                    continue;
                }
                let is_health = path == "/healthz" && method == "get";
                let code = code(&world, is_public, method, &at).await;
                let is_there = code != "no_route" && code != "no_method";
                assert_eq!(
                    is_there,
                    is_documented || is_health,
                    "{is_public} {method} {path}"
                );
            }
        }
    }
}

#[test]
fn every_route_is_documented() {
    let document: Value = serde_json::from_str(include_str!("../../openapi.json")).unwrap();
    let follow = format!("{LINK_FOLLOW}{{code}}");
    let file = format!("{LINK_FOLLOW}.well-known/{{file}}");
    let record = format!("{LINK_RECORD}{{domain}}/{{code}}");
    let routes = [
        include_str!("../../src/access/http.rs"),
        include_str!("../../src/events/http/mod.rs"),
        include_str!("../../src/fitment/http/mod.rs"),
        include_str!("../../src/history/http/mod.rs"),
        include_str!("../../src/http/health.rs"),
        include_str!("../../src/limits/http.rs"),
        include_str!("../../src/links/http/mod.rs"),
        include_str!("../../src/rooms/http.rs"),
        include_str!("../../src/sales/http/mod.rs"),
    ];
    let paths: Vec<&str> = routes
        .iter()
        .flat_map(|text| text.split(".route(").skip(1))
        .filter_map(|rest| rest.split('"').nth(1))
        // Those that are spelt with the constants that gateways share.
        .map(|path| match path {
            "{LINK_FOLLOW}{{code}}" => &follow,
            "{LINK_FOLLOW}.well-known/{{file}}" => &file,
            "{LINK_RECORD}{{domain}}/{{code}}" => &record,
            path => path,
        })
        .collect();
    assert!(paths.len() > 15, "{paths:?}");
    let pages = [
        "/events/page",
        "/fitment/ui",
        "/history/page",
        "/links/ui",
        "/ui",
    ];
    let files = pages.map(|page| format!("{page}/{{file}}"));
    let files = files.iter().map(String::as_str);
    let feeds = [weir_feed::routes::LINKS, DOMAINS, SOLD_OUT];
    let paths = paths.into_iter().chain(pages).chain(files).chain(feeds);
    for path in paths {
        assert!(document["paths"][path].is_object(), "{path}");
    }
}

#[tokio::test]
async fn answers_have_the_members_that_are_documented() {
    let world = World::with_sale("s", 4).await;
    let document = document(&world).await;
    let ticket = world.claim("s", "alice").await;
    let order = world.order(&ticket).await;
    check(
        &document,
        "/orders",
        "post",
        &order.status.as_u16().to_string(),
        &order.body,
    );
    for (path, method) in [
        ("/sales", "get"),
        ("/sales/{id}", "get"),
        ("/sales/{id}/audit", "get"),
        ("/sales/{id}/warm", "post"),
        ("/sales/{id}/rewarm", "post"),
        ("/sales/{id}/close", "post"),
    ] {
        let at = path.replace("{id}", "s");
        let answer = world.admin(&method.to_uppercase(), &at, &Value::Null).await;
        check(
            &document,
            path,
            method,
            &answer.status.as_u16().to_string(),
            &answer.body,
        );
    }
    let refused = world.admin("GET", "/sales/none", &Value::Null).await;
    check(&document, "/sales/{id}", "get", "404", &refused.body);
}

fn check(document: &Value, path: &str, method: &str, status: &str, body: &Value) {
    let content = &document["paths"][path][method]["responses"][status]["content"];
    let kinds = content
        .as_object()
        .unwrap_or_else(|| panic!("{method} {path} {status}"));
    let schema = &kinds.values().next().unwrap()["schema"];
    let name = schema["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
    let properties = document["components"]["schemas"][name]["properties"]
        .as_object()
        .unwrap();
    let documented: Vec<&String> = properties.keys().collect();
    let seen: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(seen, documented, "{method} {path} {status}");
}
