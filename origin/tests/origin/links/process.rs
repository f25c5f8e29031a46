//! A real origin process is killed: acknowledged links exist, even though Redis has lost all data.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use weir_stack::http::{self, Connection, Method};
use weir_stack::origin::{Origin, OriginOptions};
use weir_stack::redis::RedisServer;
use weir_stack::{Secrets, ports};

use crate::support::{self, TOKEN};

pub(super) async fn start(dir: &Path, redis: &RedisServer) -> Origin {
    let domains = dir.join("links.json");
    let json = json!({"domains": [{"id": "s", "hosts": ["127.0.0.1"]}]});
    std::fs::write(&domains, json.to_string()).unwrap();
    let options = OriginOptions {
        events_log: None,
        fitment: None,
        edge_secret: None,
        port: ports::free().unwrap(),
        admin_port: ports::free().unwrap(),
        database: dir.join("weir.db"),
        redis_url: redis.url(),
        redis_ca: None,
        key_prefix: "weir".to_owned(),
        risk_rules: None,
        links: Some(domains),
        provider_port: 9,
        flags: vec![],
        secrets: Secrets {
            events: String::new(),
            room: String::new(),
            claim: support::SECRET.to_owned(),
            token: support::SECRET.to_owned(),
            payment: support::SECRET.to_owned(),
            admin_token: TOKEN.to_owned(),
        },
    };
    let log = dir.join("origin.log");
    Origin::start(&support::binary(), options, &log)
        .await
        .unwrap()
}

/// Creates links, singly and in small batches, until the origin stops answering; returns the acknowledged ones.
async fn make_until_killed(authority: String, n: u32) -> Vec<(String, String)> {
    let mut created = Vec::new();
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("authorization", bearer.as_str())];
    let Ok(mut http) = Connection::open(&authority).await else {
        return created;
    };
    for turn in 0.. {
        let one = |m: u32| json!({"target": format!("https://example.com/{n}/{turn}/{m}")});
        let body = match n % 2 {
            0 => one(0),
            _ => json!([one(0), one(1), one(2)]),
        };
        let sent = http.send(Method::POST, "/links", &headers, body.to_string());
        let Ok(answer) = sent.await else { break };
        assert_eq!(answer.status, 201, "{}", answer.text());
        let links = match answer.json().unwrap() {
            Value::Array(links) => links,
            link => vec![link],
        };
        let text = |link: &Value, field: &str| link[field].as_str().unwrap().to_owned();
        created.extend(
            links
                .iter()
                .map(|link| (text(link, "code"), text(link, "target"))),
        );
    }
    created
}

async fn leads_to(origin: &Origin, code: &str) -> Option<String> {
    let url = format!("{}/l/{code}", origin.url());
    let answer = http::send(
        Method::GET,
        &url,
        &[("host", "s.example.com")],
        String::new(),
    );
    let answer = answer.await.unwrap();
    answer.header("location").map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn acknowledged_links_survive_kill_9_and_total_redis_loss() {
    let dir = tempfile::tempdir().unwrap();
    let redis = support::redis(&dir).await;
    let mut origin = start(dir.path(), &redis).await;
    let mut created = Vec::new();
    for round in 0..3 {
        let authority = origin.admin_url().trim_start_matches("http://").to_owned();
        let makers: Vec<_> = (0..8)
            .map(|n| tokio::spawn(make_until_killed(authority.clone(), 8 * round + n)))
            .collect();
        // The exact time does not matter: some acknowledged links are always missing in the cold store.
        tokio::time::sleep(Duration::from_millis(300)).await;
        origin.process().kill();
        for maker in makers {
            created.extend(maker.await.unwrap());
        }
        let mut connection = redis.connection().await.unwrap();
        let flush = redis::cmd("FLUSHALL");
        let (): () = flush.query_async(&mut connection).await.unwrap();
        origin.start_again().await.unwrap();
    }
    assert!(created.len() > 100, "{}", created.len());
    let codes: std::collections::BTreeSet<_> = created.iter().map(|(code, _)| code).collect();
    assert_eq!(codes.len(), created.len(), "a code was handed out twice");
    for (code, target) in &created {
        assert_eq!(
            leads_to(&origin, code).await.as_ref(),
            Some(target),
            "{code}"
        );
    }
}
