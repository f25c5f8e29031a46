//! The OpenAPI document matches the routes.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::support::{Answer, World, contract, sale_json};

const METHODS: [&str; 5] = ["get", "put", "post", "delete", "patch"];

async fn document(world: &World) -> Value {
    world.admin_as("GET", "/openapi.json", "", None).await.body
}

/// The error code of a request without a body, for existing and missing routes.
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
async fn each_documented_route_exists_without_further_methods() {
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
                    // The public port does not serve the page: there it is a SKU.
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

#[tokio::test]
async fn responses_have_the_documented_fields() {
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
        ("/sales/{id}/rebuild", "post"),
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

/// Each operation, with its method and path.
fn operations() -> impl Iterator<Item = (String, &'static Value)> {
    let paths = contract::DOCUMENT["paths"].as_object().unwrap();
    paths.iter().flat_map(|(path, item)| {
        let operations = item.as_object().unwrap().iter();
        let operations = operations.filter(|(method, _)| METHODS.contains(&method.as_str()));
        operations.map(move |(method, operation)| (format!("{method} {path}"), operation))
    })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[test]
fn each_operation_has_a_name_a_description_and_named_types() {
    let mut names = BTreeSet::new();
    for (operation, expected) in operations() {
        let id = text(&expected["operationId"]);
        assert!(!id.is_empty() && names.insert(id), "{operation}: {id:?}");
        let description = text(&expected["description"]);
        assert!(description.ends_with('.'), "{operation}: {description:?}");
        assert!(!text(&expected["summary"]).is_empty(), "{operation}");
        for parameter in expected["parameters"].as_array().into_iter().flatten() {
            let name = &parameter["name"];
            assert!(
                !text(&parameter["description"]).is_empty(),
                "{operation}: {name}"
            );
        }
        let responses = expected["responses"].as_object().unwrap();
        let bodies = responses.values().chain([&expected["requestBody"]]);
        for (kind, body) in bodies
            .filter_map(|body| body["content"].as_object())
            .flatten()
        {
            let has_name = body["schema"]["$ref"].is_string();
            assert!(
                has_name || !kind.ends_with("json"),
                "{operation}: {kind} has no name"
            );
        }
    }
}

/// Every field of every schema has a description, and every schema has a name.
#[test]
fn every_schema_and_field_is_described() {
    let schemas = contract::DOCUMENT["components"]["schemas"]
        .as_object()
        .unwrap();
    for (name, schema) in schemas {
        assert!(!text(&schema["description"]).is_empty(), "{name}");
        for (member, expected) in schema["properties"].as_object().into_iter().flatten() {
            let is_said =
                expected["$ref"].is_string() || !text(&expected["description"]).is_empty();
            assert!(is_said, "{name}.{member}");
            let inner = ["oneOf", "anyOf"].map(|key| expected[key].as_array());
            let inner = inner.into_iter().flatten().flatten();
            for part in inner.chain([expected, &expected["items"]]) {
                assert!(part["properties"].is_null(), "{name}.{member} has no name");
            }
        }
    }
}

/// Each refusal lists its possible codes; each code is explained and exists in the source.
#[test]
fn every_error_response_lists_its_codes() {
    let explained = contract::DOCUMENT["info"]["x-error-codes"]
        .as_object()
        .unwrap();
    let mut named = BTreeSet::from(["no_method", "no_route"]);
    for (operation, expected) in operations() {
        for (status, response) in expected["responses"].as_object().unwrap() {
            if response["content"]["application/problem+json"].is_null() {
                continue;
            }
            let codes = response["x-error-codes"].as_array().unwrap();
            assert!(!codes.is_empty(), "{operation} {status}");
            for code in codes {
                assert!(
                    explained.contains_key(text(code)),
                    "{operation} {status} {code}"
                );
                named.insert(text(code));
            }
        }
    }
    let all: BTreeSet<&str> = explained.keys().map(String::as_str).collect();
    assert_eq!(all, named);
    let sources = sources();
    for code in named {
        assert!(
            sources.contains(&format!("\"{code}\"")),
            "nothing says {code}"
        );
    }
}

/// The sources that may contain refusals.
fn sources() -> String {
    let root = weir_stack::workspace::root();
    let mut folders: Vec<_> = ["origin", "crates"].map(|folder| root.join(folder)).into();
    let mut text = String::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("tests") {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                text += &std::fs::read_to_string(path).unwrap();
            }
        }
    }
    text
}

/// The limits in the document match those in the code.
#[test]
fn documented_sale_limits_match_the_code() {
    use weir_origin::sales::model::sale::{
        INSTANT_MS_MAX, PAY_WITHIN_MS_MAX, TITLE_LEN_MAX, TOTAL_MAX,
    };
    use weir_sale::sale::{SHARDS_MAX, USER_CAP_MAX};
    let schemas = &contract::DOCUMENT["components"]["schemas"];
    let of = |schema: &str, member: &str, bound: &str| {
        schemas[schema]["properties"][member][bound]
            .as_u64()
            .unwrap()
    };
    for schema in ["NewSale", "SaleChanges"] {
        assert_eq!(of(schema, "title", "maxLength"), TITLE_LEN_MAX as u64);
        assert_eq!(of(schema, "total", "maximum"), TOTAL_MAX);
        assert_eq!(of(schema, "shards", "maximum"), u64::from(SHARDS_MAX));
        assert_eq!(of(schema, "user_cap", "maximum"), u64::from(USER_CAP_MAX));
        assert_eq!(of(schema, "ends_at_ms", "maximum"), INSTANT_MS_MAX);
    }
    assert_eq!(
        of("PayHoldTime", "pay_within_ms", "maximum"),
        PAY_WITHIN_MS_MAX
    );
}

#[tokio::test]
async fn validation_error_lists_all_mistakes_at_once() {
    let world = World::new().await;
    let pointers = |answer: &Answer| -> Vec<String> {
        let errors = answer.body["errors"].as_array().unwrap();
        let mut all: Vec<String> = errors
            .iter()
            .map(|e| text(&e["pointer"]).to_owned())
            .collect();
        all.sort();
        all
    };
    // Requests that cannot be parsed.
    let empty = world
        .admin("POST", "/sales", &json!({ "total": "4", "colour": 1 }))
        .await;
    assert_eq!(empty.status, 400);
    let expected = "/colour /ends_at_ms /id /shards /starts_at_ms /title /total /user_cap";
    assert_eq!(pointers(&empty).join(" "), expected);
    // Requests that can be parsed but are invalid.
    let mut sale = sale_json("s", 1);
    for member in ["shards", "user_cap"] {
        sale[member] = 0.into();
    }
    sale["title"] = "".into();
    let wrong = world.admin("POST", "/sales", &sale).await;
    assert_eq!(wrong.status, 422);
    assert_eq!(pointers(&wrong).join(" "), "/shards /title /user_cap");
    let room = json!({ "mode": "open", "per_minute": 1u64 << 60, "active_max": 1u64 << 60 });
    let room = world.admin("PUT", "/rooms/shop", &room).await;
    assert_eq!(pointers(&room).join(" "), "/active_max /per_minute");
}

/// Every sale is on exactly one page, for any page size.
#[tokio::test]
async fn next_page_continues_after_the_last_entry() {
    let world = World::new().await;
    for sale in ["a", "b", "c"] {
        assert_eq!(
            world
                .admin("POST", "/sales", &sale_json(sale, 1))
                .await
                .status,
            201
        );
    }
    let (mut observed, mut next) = (Vec::new(), String::new());
    loop {
        let path = format!("/sales?limit=2{next}");
        let page = world.admin("GET", &path, &Value::Null).await;
        let sales = page.body["sales"].as_array().unwrap();
        observed.extend(sales.iter().map(|sale| text(&sale["id"]).to_owned()));
        match page.body["next"].as_str() {
            Some(place) => next = format!("&after={place}"),
            None => break,
        }
    }
    // They end one millisecond apart, or at the same time.
    observed.sort();
    assert_eq!(observed, ["a", "b", "c"]);
    for wrong in [
        "/sales?limit=0",
        "/sales?after=1",
        "/sales?pages=1",
        "/links?limit=999",
    ] {
        let refused = world.admin("GET", wrong, &Value::Null).await;
        assert!(refused.status.is_client_error(), "{wrong}: {refused:?}");
    }
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
    // A problem has it only if there are errors to list.
    let is_told = |member: &&String| *member != "errors" || body.get("errors").is_some();
    let documented: Vec<&String> = properties.keys().filter(is_told).collect();
    let observed: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(observed, documented, "{method} {path} {status}");
}

/// A route without a description can only be mounted with axum's own routing, which no domain uses.
#[test]
fn every_route_is_mounted_with_its_description() {
    // Static files, and the probes of an origin that waits for its database.
    let own = [
        "origin/core/src/http/files.rs",
        "origin/core/src/http/health.rs",
    ];
    let root = weir_stack::workspace::root();
    let mut folders = vec![root.join("origin")];
    let mut found = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_source = path.extension().is_some_and(|extension| extension == "rs");
            if path.is_dir() && !path.ends_with("origin/tests") {
                folders.push(path);
            } else if is_source
                && std::fs::read_to_string(&path)
                    .unwrap()
                    .contains("axum::routing::")
            {
                found.insert(path.strip_prefix(&root).unwrap().display().to_string());
            }
        }
    }
    assert_eq!(found, own.map(str::to_owned).into());
}
