//! A real origin process: killed at any time, on a full disk, on another origin's folder.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use weir_stack::http::{self, Connection, Method};
use weir_stack::origin::{Origin, OriginOptions};
use weir_stack::{Secrets, ports};

use crate::probes::SmallDisk;
use crate::support::{self, TOKEN};

fn options(dir: &Path, log: &Path, redis_url: String) -> OriginOptions {
    OriginOptions {
        events_log: None,
        fitment: None,
        edge_secret: None,
        port: ports::free().unwrap(),
        admin_port: ports::free().unwrap(),
        database: dir.join("weir.db"),
        redis_url,
        redis_ca: None,
        key_prefix: "weir".to_owned(),
        risk_rules: None,
        links: None,
        provider_port: 9,
        flags: vec!["--events-log".to_owned(), log.display().to_string()],
        secrets: Secrets {
            events: String::new(),
            room: String::new(),
            claim: support::SECRET.to_owned(),
            token: support::SECRET.to_owned(),
            payment: support::SECRET.to_owned(),
            admin_token: TOKEN.to_owned(),
        },
    }
}

pub fn options_of(dir: &Path, redis_url: String) -> OriginOptions {
    options(dir, &dir.join("events"), redis_url)
}

async fn start(dir: &Path, log: &Path, redis_url: String) -> Origin {
    start_with(options(dir, log, redis_url), dir).await
}

pub async fn start_with(options: OriginOptions, dir: &Path) -> Origin {
    let log = dir.join("origin.log");
    let binary = support::binary();
    let started = Origin::start(&binary, options, &log);
    started.await.unwrap()
}

/// Waits until a condition holds.
pub async fn until(subject: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so().await {
        assert!(Instant::now() < deadline, "never: {subject}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub async fn admin(origin: &Origin, method: Method, path: &str, body: &Value) -> http::Response {
    let bearer = format!("Bearer {TOKEN}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    let url = format!("{}{path}", origin.admin_url());
    http::send(method, &url, &headers, body.to_string())
        .await
        .unwrap()
}

pub async fn register(origin: &Origin) {
    let put = admin(origin, Method::PUT, "/events/types/view", &json!({})).await;
    assert_eq!(put.status, 201, "{}", put.text());
}

/// Sends batches until the origin stops answering; returns the acknowledged ids.
async fn send_until_killed(authority: String, n: u32) -> Vec<String> {
    let mut accepted = Vec::new();
    let received_ms = weir_origin::clock::now_ms().to_string();
    let headers = [
        ("content-type", "application/json"),
        ("x-weir-event-key", "shop"),
        ("x-weir-event-kind", "server"),
        ("x-weir-received-ms", received_ms.as_str()),
        ("x-weir-consent", "full"),
    ];
    let Ok(mut http) = Connection::open(&authority).await else {
        return accepted;
    };
    for turn in 0.. {
        let event = |m: u32| json!({"id": format!("{n}-{turn}-{m}"), "type": "view", "customer": format!("c{n}")});
        let body: Vec<Value> = (0..1 + 4 * (n % 2)).map(event).collect();
        let sent = http.send(Method::POST, "/events", &headers, json!(body).to_string());
        let Ok(answer) = sent.await else { break };
        assert_eq!(answer.status, 202, "{}", answer.text());
        for verdict in answer.json().unwrap()["verdicts"].as_array().unwrap() {
            assert_eq!(verdict["verdict"], "accepted");
            accepted.push(verdict["id"].as_str().unwrap().to_owned());
        }
    }
    accepted
}

/// Waits until the metrics contain these lines: groups are measured every few seconds.
async fn until_metrics(origin: &Origin, lines: &[&str]) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let metrics = admin(origin, Method::GET, "/metrics", &Value::Null)
            .await
            .text();
        let Some(missing) = lines.iter().find(|line| !metrics.contains(**line)) else {
            return;
        };
        assert!(Instant::now() < deadline, "{missing}: {metrics}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The ids of a customer's events in SQL.
async fn stored(origin: &Origin, customer: &str) -> Vec<String> {
    let (mut ids, mut page) = (Vec::new(), String::new());
    loop {
        let path = format!("/customers/{customer}/events?limit=1000{page}");
        let answer = admin(origin, Method::GET, &path, &Value::Null).await;
        let body = answer.json().unwrap();
        let events = body["events"].as_array().unwrap().iter();
        ids.extend(events.map(|event| event["id"].as_str().unwrap().to_owned()));
        let Some(next) = body["next_page"].as_str() else {
            return ids;
        };
        page = format!("&page={next}");
    }
}

async fn until_stored_all(origin: &Origin) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let group = admin(origin, Method::GET, "/groups/store", &Value::Null).await;
        let group = group.json().unwrap();
        if group["lag_bytes"] == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "{group}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_acknowledged_event_survives_kill_9_and_is_stored_once() {
    let dir = tempfile::tempdir().unwrap();
    let redis = support::redis(&dir).await;
    let mut origin = start(dir.path(), &dir.path().join("events"), redis.url()).await;
    register(&origin).await;
    let mut accepted = Vec::new();
    for round in 0..3 {
        let authority = origin.url().trim_start_matches("http://").to_owned();
        let senders: Vec<_> = (0..8)
            .map(|n| tokio::spawn(send_until_killed(authority.clone(), 8 * round + n)))
            .collect();
        // The exact time does not matter: events are always being appended, and some are not in SQL yet.
        tokio::time::sleep(Duration::from_millis(400)).await;
        origin.process().kill();
        for sender in senders {
            accepted.extend(sender.await.unwrap());
        }
        origin.start_again().await.unwrap();
    }
    assert!(accepted.len() > 100, "{}", accepted.len());
    until_stored_all(&origin).await;
    let mut retained = Vec::new();
    for n in 0..24 {
        retained.extend(stored(&origin, &format!("c{n}")).await);
    }
    let distinct: BTreeSet<&String> = retained.iter().collect();
    assert_eq!(distinct.len(), retained.len(), "an event is stored twice");
    for id in &accepted {
        assert!(distinct.contains(id), "{id} was acknowledged and is lost");
    }
    let lines = [
        "weir_origin_event_group_lag_bytes{group=\"store\"} 0",
        "weir_origin_event_group_oldest_seconds{group=\"store\"} 0",
        "weir_origin_event_group_state{group=\"store\",state=\"running\"} 1",
        "weir_origin_events_stored_total{outcome=\"new\"}",
    ];
    until_metrics(&origin, &lines).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn table_pull_loses_and_duplicates_no_row_after_kill_9() {
    const ROWS: usize = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let redis = support::redis(&dir).await;
    let shop = format!("sqlite://{}", dir.path().join("shop.db").display());
    let fill = "
        CREATE TABLE clicks (id INTEGER PRIMARY KEY, customer TEXT);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
        INSERT INTO clicks SELECT i, 'c' || (i % 24) FROM n";
    let options = SqliteConnectOptions::from_str(&shop).unwrap();
    let mut sql = options.create_if_missing(true).connect().await.unwrap();
    sqlx::raw_sql(fill).execute(&mut sql).await.unwrap();
    let query = "SELECT id AS position, json_object('id', 'click-' || id, 'type', 'view', \
                 'customer', customer) AS event \
                 FROM clicks WHERE id > {cursor} ORDER BY id LIMIT {limit}";
    let pulls = json!({"pulls": [{"name": "shop", "every": "1s", "sql": {"database": shop, "query": query}}]});
    let file = dir.path().join("pulls.json");
    std::fs::write(&file, pulls.to_string()).unwrap();

    // Load the types first, otherwise its events become dead letters.
    let mut origin = start(dir.path(), &dir.path().join("events"), redis.url()).await;
    register(&origin).await;
    origin.process().kill();
    let mut options = options_of(dir.path(), redis.url());
    options
        .flags
        .extend(["--events-pulls".to_owned(), file.display().to_string()]);
    let log = dir.path().join("pulling.log");
    let mut origin = Origin::start(&support::binary(), options, &log)
        .await
        .unwrap();
    let cursor = async |origin: &Origin| -> usize {
        let reply = admin(origin, Method::GET, "/events/pulls", &Value::Null).await;
        let cursor = reply.json().unwrap()["pulls"][0]["cursor"].clone();
        cursor.as_str().unwrap().parse().unwrap_or(0)
    };
    let mut kills = 0;
    let deadline = Instant::now() + Duration::from_secs(120);
    while cursor(&origin).await < ROWS {
        assert!(Instant::now() < deadline, "never fetched");
        if kills < 4 && cursor(&origin).await > kills * 4_000 {
            origin.process().kill();
            origin.start_again().await.unwrap();
            kills += 1;
        }
    }
    assert_eq!(kills, 4);
    until_stored_all(&origin).await;
    let mut retained = BTreeSet::new();
    for n in 0..24 {
        for id in stored(&origin, &format!("c{n}")).await {
            assert!(retained.insert(id.clone()), "{id} is stored twice");
        }
    }
    assert_eq!(retained.len(), ROWS);
    let letters = admin(&origin, Method::GET, "/events/dead-letters", &Value::Null).await;
    assert_eq!(letters.json().unwrap()["dead_letters"], json!([]));
}

#[tokio::test]
async fn second_origin_on_the_log_directory_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let redis = support::redis(&dir).await;
    let log = dir.path().join("events");
    let _origin = start(dir.path(), &log, redis.url()).await;
    let other = tempfile::tempdir().unwrap();
    let options = options(other.path(), &log, redis.url());
    let output = Command::new(support::binary())
        .args(["--listen", &format!("127.0.0.1:{}", options.port)])
        .args([
            "--admin-listen",
            &format!("127.0.0.1:{}", options.admin_port),
        ])
        .args([
            "--database-url",
            &format!("sqlite://{}", options.database.display()),
        ])
        .args(&options.flags)
        .env("WEIR_CLAIM_SECRET", support::SECRET)
        .env("WEIR_ADMIN_TOKEN", TOKEN)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains("--events-log: ") && printed.contains("in use by another process"),
        "{printed}"
    );
}

#[test]
fn conflicting_options_are_refused_with_the_flag_name() {
    let dir = tempfile::tempdir().unwrap();
    let database = format!("sqlite://{}/weir.db", dir.path().display());
    let log = dir.path().join("events").display().to_string();
    let run = |flags: &[&str], secret: Option<&str>| {
        let mut command = Command::new(support::binary());
        command
            .args([
                "--database-url",
                &database,
                "--listen",
                "127.0.0.1:0",
                "--admin-listen",
                "127.0.0.1:0",
            ])
            .args(flags)
            .env_clear()
            .env("WEIR_CLAIM_SECRET", support::SECRET)
            .env("WEIR_ADMIN_TOKEN", TOKEN);
        command.envs(secret.map(|secret| ("WEIR_EVENTS_WEBHOOK_SECRET", secret)));
        let output = command.output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{printed}");
        printed
    };
    let url = "--events-webhook-url";
    let log = ["--events-log", log.as_str()];
    let check = |flags: &[&str], secret: Option<&str>, expected: &str| {
        let printed = run(flags, secret);
        assert!(printed.contains(expected), "{printed}");
    };
    check(&[url, "http://h/"], None, "needs --events-log");
    check(
        &[&log[..], &[url, "http://h/"]].concat(),
        None,
        "WEIR_EVENTS_WEBHOOK_SECRET is not set",
    );
    check(
        &[&log[..], &[url, "http://h/"]].concat(),
        Some("short"),
        "has 5 bytes, needs at least 32",
    );
    check(
        &[&log[..], &[url, "ftp://h/"]].concat(),
        Some(support::SECRET),
        "must be https://",
    );
    check(
        &[&log[..], &["--events-log-retention", "soon"]].concat(),
        None,
        "must be a duration",
    );
    check(
        &[&log[..], &["--events-log-max-bytes", "9"]].concat(),
        None,
        "must be at least 1048576",
    );
    check(
        &[&log[..], &["--events-user-header", "a b"]].concat(),
        None,
        "--events-user-header",
    );
    let topic = [
        &log[..],
        &[url, "http://h/", "--events-webhook-topics", "A"],
    ]
    .concat();
    check(&topic, Some(support::SECRET), "--events-webhook-topics");
    check(&["--events-log", "/dev/null"], None, "/dev/null");
}

#[tokio::test]
async fn full_disk_refuses_events_and_loses_none() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::new(&dir.path().join("disk"), "256k") else {
        eprintln!("left out: only root can mount a small disk");
        return;
    };
    let redis = support::redis(&dir).await;
    let mut origin = start(dir.path(), &disk.0.join("events"), redis.url()).await;
    register(&origin).await;
    let event = |n: usize| {
        json!({"id": format!("e{n}"), "type": "view", "customer": "alice",
        "attributes": {"text": "x".repeat(5_000)}})
    };
    let mut used = 0;
    let refused = loop {
        let answer = admin(&origin, Method::POST, "/events", &event(used)).await;
        if answer.status != 202 {
            break answer;
        }
        used += 1;
        assert!(used < 1_000, "the disk has no end");
    };
    assert!(used > 10, "{used}");
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(refused.json().unwrap()["error"], "events_unknown");
    assert_eq!(refused.header("retry-after"), Some("1"));
    let ready = admin(&origin, Method::GET, "/readyz", &Value::Null).await;
    assert_eq!(
        ready.json().unwrap(),
        json!({"status": "ok", "sales": "ok", "events": "failing", "events_disk": "full"})
    );
    until_stored_all(&origin).await;
    assert_eq!(stored(&origin, "alice").await.len(), used);

    // The next process reports that it cannot create a file. Once there is space again, it continues.
    origin.process().kill();
    let mut grow = Command::new("mount");
    grow.args(["-o", "remount,size=8m"]).arg(&disk.0);
    assert!(grow.status().unwrap().success());
    origin.start_again().await.unwrap();
    let again = admin(&origin, Method::POST, "/events", &event(used)).await;
    assert_eq!(again.status, 202, "{}", again.text());
    until_stored_all(&origin).await;
    assert_eq!(stored(&origin, "alice").await.len(), used + 1);
    let ready = admin(&origin, Method::GET, "/readyz", &Value::Null).await;
    assert_eq!(
        ready.json().unwrap(),
        json!({"status": "ok", "sales": "ok", "events": "ok"})
    );
}
