//! Links with a silent database: SQLite readers never wait, readers of a server may.

use axum::body::Body;
use axum::http::Request;
use serde_json::json;

use crate::support::{Backing, World, backing};

/// It answers before the general request timeout, whose answer has no page.
#[tokio::test]
async fn silent_sql_shows_browsers_the_page_of_the_domain() {
    let domains = json!({"domains": [
        {"id": "s", "hosts": ["s.example.com"], "unavailable_page": "<p>later"},
    ]});
    let world = World::with_links(domains, |_| ()).await;
    let target = json!({"target": "https://example.com/", "code": "a-code"});
    let response = world.admin("POST", "/links", &target).await;
    assert_eq!(response.status, 201, "{response:?}");
    let follow = async || {
        let request = Request::builder().uri("/l/a-code");
        let request = request.header("host", "s.example.com");
        world.public(request.body(Body::empty()).unwrap()).await
    };
    assert_eq!(follow().await.status, 302);
    let mut other = world.sql().await;
    let (lock, unlock) = match backing() {
        Backing::PostgresAndSingle => ("BEGIN; LOCK TABLE links", "ROLLBACK"),
        _ => ("LOCK TABLES links WRITE", "UNLOCK TABLES"),
    };
    other.execute(lock, &[]).await;
    let answer = follow().await;
    assert_eq!(
        (answer.status.as_u16(), answer.body.as_str()),
        (503, Some("<p>later"))
    );
    other.execute(unlock, &[]).await;
    assert_eq!(follow().await.status, 302);
}
