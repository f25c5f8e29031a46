//! Links that are protected by a password.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use weir_link::record::Link;
use weir_link::redis::document;
use weir_link::redis::keys::LinkKeys;

use super::id;
use crate::support::{Answer, World};

const TARGET: &str = "https://secret.example/page";

async fn world() -> World {
    let domains = json!({"domains": [
        { "id": "s", "hosts": ["s.example.com"], "app_schemes": ["openapp"] },
    ]});
    World::with_links(domains, |_| ()).await
}

/// A link `abc` with the password `open sesame` and these fields.
async fn guarded(world: &World, members: Value) -> Value {
    let mut body = json!({ "code": "abc", "target": TARGET, "password": "open sesame" });
    for (name, value) in members.as_object().unwrap() {
        body[name] = value.clone();
    }
    let response = world.admin("POST", "/links", &body).await;
    assert_eq!(response.status, 201, "{response:?}");
    response.body
}

async fn ask(world: &World, method: &str, form: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::builder().method(method).uri("/l/abc");
    request = request.header("host", "s.example.com");
    if !form.is_empty() {
        request = request.header("content-type", "application/x-www-form-urlencoded");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    world
        .public(request.body(Body::from(form.to_owned())).unwrap())
        .await
}

fn text(answer: &Answer) -> &str {
    answer.body.as_str().unwrap_or_default()
}

/// The answer to a password typed at this address.
async fn typed(world: &World, password: &str, address: &str) -> Answer {
    let form = format!("password={}", password.replace(' ', "+"));
    ask(world, "POST", &form, &[("x-forwarded-for", address)]).await
}

async fn record(world: &World) -> String {
    let key = LinkKeys::new(&world.prefix, &id("s/abc")).record();
    let record = world.redis(redis::cmd("GET").arg(key)).await;
    redis::FromRedisValue::from_redis_value(record).unwrap()
}

#[tokio::test]
async fn only_the_right_password_reveals_the_target() {
    let world = world().await;
    let created = guarded(&world, json!({ "status": 308, "pass_query": true })).await;
    assert_eq!(
        (&created["protected"], &created["password"]),
        (&json!(true), &Value::Null)
    );
    for method in ["GET", "HEAD"] {
        let response = ask(&world, method, "", &[("accept-language", "de")]).await;
        assert_eq!(response.status, 200);
        assert_eq!(response.headers["cache-control"], "no-store");
        assert!(!response.headers.contains_key("location"));
        assert!(!format!("{response:?}").contains("secret"), "{response:?}");
    }
    let page = ask(&world, "GET", "", &[("accept-language", "de")]).await;
    assert!(
        text(&page).contains("<h1>Dieser Link ist geschützt"),
        "{page:?}"
    );

    let wrong = typed(&world, "open sesam", "203.0.113.7").await;
    assert_eq!(wrong.status, 403);
    assert!(text(&wrong).contains("role=\"alert\"") && !format!("{wrong:?}").contains("secret"));
    for nothing in [
        "",
        "password=",
        "other=x",
        "password=%ff",
        &"x".repeat(2_000),
    ] {
        let refused = ask(&world, "POST", nothing, &[]).await;
        assert_eq!(refused.status, 403, "{nothing}");
    }
    let right = typed(&world, "open sesame", "203.0.113.7").await;
    assert_eq!(
        (right.status.as_u16(), &right.headers["location"]),
        (303, &TARGET.parse().unwrap())
    );
    assert_eq!(right.headers["cache-control"], "no-store");
    assert_eq!(right.headers["referrer-policy"], "no-referrer");
}

#[tokio::test]
async fn redis_and_lookups_omit_password_protected_content() {
    let world = world().await;
    let more = json!({
        "rules": [{ "platforms": ["ios"], "target": "https://secret.example/rule" }],
        "apps": [{ "platform": "android", "url": "openapp://secret" }],
        "preview": { "title": "secret" }, "tags": ["secret"],
    });
    guarded(&world, more).await;
    let hidden = |text: &str| {
        assert!(
            !text.contains("secret") && !text.contains("pbkdf2"),
            "{text}"
        );
        assert!(Link::decode(text.as_bytes()).unwrap().is_face());
    };
    hidden(&record(&world).await);
    // An edit, and a Redis that lost the link.
    let edit = json!({ "target": "https://secret.example/other" });
    let edited = world.admin("PATCH", "/links/abc", &edit).await;
    assert_eq!(edited.status, 200, "{edited:?}");
    hidden(&record(&world).await);
    let key = LinkKeys::new(&world.prefix, &id("s/abc")).record();
    world.redis(redis::cmd("DEL").arg(key)).await;
    let looked = Request::get("/link-records/s/abc?for=look");
    let looked = world.public(looked.body(Body::empty()).unwrap()).await;
    let read = document::read(text(&looked).as_bytes()).unwrap();
    hidden(std::str::from_utf8(&read.record).unwrap());
    hidden(&record(&world).await);
    // A preview also requires the password.
    let bot = [("user-agent", "WhatsApp/2.23")];
    let response = ask(&world, "GET", "", &bot).await;
    assert!(!text(&response).contains("secret"));
    // API answers and the history contain no hash.
    for path in ["/links/abc", "/links/abc/history", "/links.ndjson"] {
        let response = world.admin_bytes(path).await;
        let response = String::from_utf8(response).unwrap();
        assert!(
            response.contains("\"protected\":true") && !response.contains("pbkdf2"),
            "{response}"
        );
    }
}

#[tokio::test]
async fn password_protects_links_with_generated_codes_too() {
    let world = world().await;
    let body = json!({ "target": TARGET, "password": "open" });
    let response = world.admin("POST", "/links", &body).await;
    let code = response.body["code"].as_str().unwrap();
    let key = LinkKeys::new(&world.prefix, &id(&format!("s/{code}"))).record();
    let record: String =
        redis::FromRedisValue::from_redis_value(world.redis(redis::cmd("GET").arg(key)).await)
            .unwrap();
    assert!(!record.contains("secret"), "{record}");
    let form = Request::post(format!("/l/{code}"))
        .header("host", "s.example.com")
        .header("content-type", "application/x-www-form-urlencoded");
    let led = world
        .public(form.body("password=open".into()).unwrap())
        .await;
    assert_eq!(led.headers["location"], TARGET);
}

#[tokio::test]
async fn link_password_is_added_changed_and_removed() {
    let world = world().await;
    guarded(&world, json!({})).await;
    let edit = |body: Value| {
        let world = &world;
        async move { world.admin("PATCH", "/links/abc", &body).await }
    };
    assert_eq!(edit(json!({ "password": "new" })).await.status, 200);
    assert_eq!(
        typed(&world, "open sesame", "203.0.113.7").await.status,
        403
    );
    assert_eq!(typed(&world, "new", "203.0.113.7").await.status, 303);
    // Missing fields keep their values.
    let other = edit(json!({ "tags": ["x"] })).await;
    assert_eq!(other.body["protected"], true);
    assert_eq!(edit(json!({ "disabled": true })).await.status, 200);
    assert_eq!(typed(&world, "new", "203.0.113.7").await.status, 410);
    assert_eq!(edit(json!({ "disabled": false })).await.status, 200);
    let open = edit(json!({ "password": null })).await;
    assert_eq!(open.body["protected"], false);
    assert_eq!(
        ask(&world, "GET", "", &[]).await.headers["location"],
        TARGET
    );
    assert_eq!(ask(&world, "POST", "password=new", &[]).await.status, 405);
    assert!(record(&world).await.contains("secret.example"));
}

#[tokio::test]
async fn password_guessing_is_blocked_without_blocking_others() {
    let world = world().await;
    guarded(&world, json!({})).await;
    let guesses = (0..12).map(|n| {
        let world = &world;
        async move { typed(world, &format!("guess {n}"), "198.51.100.1, 203.0.113.7").await }
    });
    let mut statuses: Vec<u16> = Vec::new();
    for guess in guesses {
        let answer = guess.await;
        statuses.push(answer.status.as_u16());
        if answer.status == 429 {
            let wait = answer.headers["retry-after"].to_str().unwrap();
            assert!((1..=900).contains(&wait.parse::<u32>().unwrap()), "{wait}");
        }
    }
    assert_eq!(statuses, [&[403; 10][..], &[429; 2]].concat());
    // Even the right password is not checked; addresses sent by the client itself are ignored.
    assert_eq!(
        typed(&world, "open sesame", "203.0.113.7").await.status,
        429
    );
    assert_eq!(
        typed(&world, "open sesame", "198.51.100.9, 203.0.113.7")
            .await
            .status,
        429
    );
    assert_eq!(
        typed(&world, "open sesame", "203.0.113.8").await.status,
        303
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn excess_concurrent_password_checks_are_refused() {
    let world = std::sync::Arc::new(world().await);
    guarded(&world, json!({})).await;
    let tries: Vec<_> = (0..60)
        .map(|n| {
            let world = world.clone();
            tokio::spawn(async move {
                let address = format!("203.0.113.{n}");
                typed(&world, "open sesame", &address).await.status.as_u16()
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let page = ask(&world, "GET", "", &[]);
    let page = tokio::time::timeout(Duration::from_secs(2), page).await;
    assert_eq!(page.expect("the page comes").status, 200);
    let mut counts = (0, 0);
    for attempted in tries {
        match attempted.await.unwrap() {
            303 => counts.0 += 1,
            503 => counts.1 += 1,
            other => panic!("{other}"),
        }
    }
    assert!(counts.0 > 0 && counts.1 > 0, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_guesses_are_limited_per_address() {
    let world = std::sync::Arc::new(world().await);
    guarded(&world, json!({})).await;
    let tries: Vec<_> = (0..30)
        .map(|_| {
            let world = world.clone();
            tokio::spawn(async move {
                let answer = typed(&world, "guess", "203.0.113.7").await;
                answer.status.as_u16()
            })
        })
        .collect();
    let mut statuses = Vec::new();
    for attempted in tries {
        statuses.push(attempted.await.unwrap());
    }
    let refused = statuses.iter().filter(|status| **status == 429).count();
    assert_eq!(refused, 20, "{statuses:?}");
    let other = typed(&world, "open sesame", "203.0.113.8").await;
    assert_eq!(other.status, 303, "the link is open to others");
}

#[tokio::test]
async fn options_incompatible_with_a_password_are_refused() {
    let world = world().await;
    let link = |members: Value| {
        let mut body = json!({ "target": TARGET, "password": "x" });
        for (name, value) in members.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    };
    let post = |body: Value| {
        let world = &world;
        async move { world.admin("POST", "/links", &body).await }
    };
    for (body, expected) in [
        (
            link(json!({ "max_clicks": 3 })),
            "cannot be combined with max_clicks",
        ),
        (link(json!({ "password": "" })), "1 to 128 bytes"),
        (
            link(json!({ "password": "x".repeat(129) })),
            "1 to 128 bytes",
        ),
        (link(json!({ "password": 7 })), "password"),
        (json!(vec![link(json!({})); 11]), "at most 10 links"),
    ] {
        let refused = post(body).await;
        assert!(refused.status.is_client_error(), "{refused:?}");
        assert!(refused.body.to_string().contains(expected), "{refused:?}");
    }
    let keyed = [("idempotency-key", "k")];
    let refused = world
        .admin_with("POST", "/links", &link(json!({})), &keyed)
        .await;
    assert_eq!(refused.status, 400, "{refused:?}");
    guarded(&world, json!({})).await;
    let edited = json!({ "max_clicks": 3 });
    let edited = world.admin("PATCH", "/links/abc", &edited).await;
    assert_eq!(edited.status, 422, "{edited:?}");
    // An import of an exported line never creates an unprotected link.
    let export = world.admin_bytes("/links.csv").await;
    world.admin("DELETE", "/links/abc", &Value::Null).await;
    let export = String::from_utf8(export).unwrap();
    let import = "/link-imports?format=csv";
    let report = world.admin_text("POST", import, &export).await;
    assert_eq!(report.body["created"], 0, "{report:?}");
    assert_eq!(report.body["refused"][0]["error"], "link_protected");
}
