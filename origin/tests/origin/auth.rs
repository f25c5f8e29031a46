//! Authentication of admin routes, routes without a token, and unknown routes.

use axum::body::Body;
use axum::http::Request;

use crate::support::{TOKEN, World};

#[tokio::test]
async fn admin_routes_require_the_token() {
    let world = World::new().await;
    let (upper, long) = (TOKEN.to_uppercase(), TOKEN.repeat(2));
    let displayed = [
        None,
        Some(String::new()),
        Some("Bearer".to_owned()),
        Some("Bearer ".to_owned()),
        Some(TOKEN.to_owned()),
        Some(format!("Basic {TOKEN}")),
        Some(format!("Bearer {upper}")),
        Some(format!("Bearer {long}")),
        Some(format!("Bearer {}", &TOKEN[1..])),
    ];
    for (method, path) in [
        ("POST", "/sales"),
        ("GET", "/sales"),
        ("GET", "/sales/s"),
        ("POST", "/sales/s/warm"),
    ] {
        for displayed in &displayed {
            let answer = world
                .admin_as(method, path, "{}", displayed.as_deref())
                .await;
            assert_eq!(answer.status, 401, "{method} {path} {displayed:?}");
            assert_eq!(answer.code(), "unauthorized");
            assert_eq!(answer.headers["www-authenticate"], "Bearer");
            assert!(!answer.body.to_string().contains(TOKEN));
        }
    }
    let lower = format!("bearer {TOKEN}");
    let answer = world.admin_as("GET", "/sales", "", Some(&lower)).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn probes_need_no_token_and_name_the_missing_dependency() {
    let world = World::new().await;
    for path in ["/healthz", "/readyz"] {
        let answer = world.admin_as("GET", path, "", None).await;
        assert_eq!(answer.status, 200, "{path}");
    }
    let request = Request::get("/healthz").body(Body::empty()).unwrap();
    assert_eq!(world.public(request).await.status, 200);

    let port = weir_stack::ports::free().unwrap();
    let world = World::on(&format!("redis://127.0.0.1:{port}")).await;
    assert_eq!(
        world.admin_as("GET", "/healthz", "", None).await.status,
        200
    );
    let answer = world.admin_as("GET", "/readyz", "", None).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (503, "not_ready"));
    assert_eq!(answer.detail(), "Redis does not answer");
    world.origin.finish().await;
    let answer = world.admin_as("GET", "/readyz", "", None).await;
    assert_eq!(answer.detail(), "neither the database nor Redis answers");
}

#[tokio::test]
async fn unknown_route_or_method_returns_a_problem_document() {
    let world = World::new().await;
    for (method, path, status, code) in [
        ("GET", "/", 404, "no_route"),
        ("GET", "/orders/1/items", 404, "no_route"),
        ("GET", "/orders", 405, "no_method"),
        // The public port has no admin routes.
        ("GET", "/sales", 404, "no_route"),
        ("GET", "/readyz", 404, "no_route"),
    ] {
        let request = Request::builder().method(method).uri(path);
        let answer = world.public(request.body(Body::empty()).unwrap()).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (status, code),
            "{path}"
        );
    }
    let answer = world.admin_as("DELETE", "/readyz", "", None).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (405, "no_method"));
}
