//! The origin process: start, refusals to start, and shutdown.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_stack::fault::{Fault, FaultProxy};
use weir_stack::http::{self, Connection as Http};
use weir_stack::origin::{Origin, OriginOptions};
use weir_stack::{Secrets, ports};

use crate::support::{self, TOKEN, World, claim_headers, sale_json};

/// Runs the program with these arguments and only these environment variables.
fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(support::binary())
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

#[test]
fn origin_does_not_start_without_valid_secrets() {
    let claim = ("WEIR_CLAIM_SECRET", support::SECRET);
    let token = ("WEIR_ADMIN_TOKEN", TOKEN);
    let check = |variables: &[(&str, &str)], expected: &str| {
        let output = run(&[], variables);
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains(expected), "{printed}");
        assert!(
            !printed.contains(support::SECRET) && !printed.contains(TOKEN),
            "{printed}"
        );
    };
    check(&[token], "WEIR_CLAIM_SECRET is not set");
    check(&[claim], "WEIR_ADMIN_TOKEN is not set");
    check(
        &[("WEIR_CLAIM_SECRET", "x"), token],
        "WEIR_CLAIM_SECRET has 1 bytes",
    );
    check(
        &[claim, token, ("WEIR_CLAIM_KEY_ID", "K")],
        "WEIR_CLAIM_KEY_ID",
    );
    check(&[claim, token, ("RUST_LOG", "a=b=c")], "RUST_LOG");
    let database = ("WEIR_DATABASE_URL", "oracle://u:hush@h/d");
    check(
        &[claim, token, database],
        "--database-url: not a database URL",
    );
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/weir.db", dir.path().display());
    let database = ("WEIR_DATABASE_URL", url.as_str());
    check(
        &[claim, token, database, ("WEIR_REDIS_URL", "http://h")],
        "--redis-url",
    );
}

#[test]
fn help_shows_no_password_and_names_the_secrets() {
    let variables = [
        ("WEIR_REDIS_URL", "redis://:hush@h"),
        ("WEIR_ADMIN_TOKEN", TOKEN),
    ];
    let output = run(&["--help"], &variables);
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.contains("WEIR_CLAIM_SECRET"), "{help}");
    assert!(!help.contains("hush") && !help.contains(TOKEN), "{help}");
}

/// Starts the program on free ports and waits until it is ready.
async fn start(dir: &Path, redis_url: &str, key_prefix: &str) -> Origin {
    let options = options(dir, redis_url, key_prefix);
    Origin::start(&support::binary(), options, &dir.join("origin.log"))
        .await
        .unwrap()
}

/// Options of the program in its tests.
pub fn options(dir: &Path, redis_url: &str, key_prefix: &str) -> OriginOptions {
    OriginOptions {
        events_log: None,
        fitment: None,
        edge_secret: None,
        port: ports::free().unwrap(),
        admin_port: ports::free().unwrap(),
        database: dir.join("weir.db"),
        redis_url: redis_url.to_owned(),
        redis_ca: None,
        key_prefix: key_prefix.to_owned(),
        risk_rules: None,
        links: None,
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
    }
}

async fn admin(origin: &Origin, path: &str, body: &Value) -> http::Response {
    let bearer = format!("Bearer {TOKEN}");
    let url = format!("{}{path}", origin.admin_url());
    let method = if body.is_null() { "GET" } else { "POST" };
    let headers = [("authorization", bearer.as_str())];
    http::send(method.parse().unwrap(), &url, &headers, body.to_string())
        .await
        .unwrap()
}

fn terminate(origin: &mut Origin) {
    let pid = origin.process().pid().unwrap();
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
}

async fn wait_until_ended(origin: &mut Origin) -> std::process::ExitStatus {
    let limit = Instant::now() + Duration::from_secs(20);
    while Instant::now() < limit {
        if let Some(status) = origin.process().try_wait().unwrap() {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it still runs\n{}", origin.process().tail(20));
}

/// C2: a connection goes silent but stays open. New connections work.
#[tokio::test(flavor = "multi_thread")]
async fn silent_redis_connection_is_replaced() {
    let world = World::new().await;
    let port = world.redis_url.rsplit(':').next().unwrap();
    let port = port.split('/').next().unwrap().parse().unwrap();
    let redis = SocketAddr::from(([127, 0, 0, 1], port));
    let proxy = FaultProxy::start(ports::free().unwrap(), redis).await;
    let proxy = proxy.unwrap();
    let url = format!("redis://{}", proxy.address());
    let origin = start(world.dir.path(), &url, &world.prefix).await;
    proxy.set(Fault::Freeze);
    let is_ready = || async {
        let url = format!("{}/readyz", origin.admin_url());
        let answer = http::send("GET".parse().unwrap(), &url, &[], "").await;
        answer.unwrap().status == 200
    };
    let limit = Instant::now() + Duration::from_secs(20);
    let mut requested = 0;
    // Redis is probed about once per second: the first answers may be from before.
    let mut in_turn = 0;
    while in_turn < 5 {
        requested += 1;
        in_turn = if is_ready().await { in_turn + 1 } else { 0 };
        assert!(Instant::now() < limit, "not ready, asked {requested} times");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// C12: more connections than permitted, which never send a request.
#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_block_other_clients() {
    let world = World::new().await;
    let origin = start(world.dir.path(), &world.redis_url, &world.prefix).await;
    let address = origin.admin_url().replace("http://", "");
    let mut silent = vec![];
    for n in 0..1_100 {
        let connection = tokio::net::TcpStream::connect(&address).await.unwrap();
        if n % 2 == 0 {
            connection.try_write(b"GET /healthz HT").unwrap();
        }
        silent.push(connection);
    }
    let alive = format!("{}/healthz", origin.admin_url());
    for _ in 0..20 {
        let answer = tokio::time::timeout(Duration::from_secs(10), http::get(&alive)).await;
        let answer = answer.expect("a probe is let in");
        assert_eq!(answer.unwrap().status, 200);
    }
}

/// C12: several origins start with the same missing database file.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_origins_all_start_on_a_new_database() {
    let world = World::new().await;
    let dir = tempfile::tempdir().unwrap();
    let mut starting = tokio::task::JoinSet::new();
    for n in 0..6 {
        let options = options(dir.path(), &world.redis_url, &world.prefix);
        let log = dir.path().join(format!("origin-{n}.log"));
        starting.spawn(async move {
            let origin = Origin::start(&support::binary(), options, &log).await;
            origin.map_err(|error| format!("{error:#}"))
        });
    }
    while let Some(started) = starting.join_next().await {
        let mut origin = started.unwrap().unwrap();
        assert!(origin.process().is_running());
    }
}

/// C12: the database starts after the origin.
#[tokio::test(flavor = "multi_thread")]
async fn origin_waits_for_the_database_and_probes_report_the_wait() {
    let admin = format!("127.0.0.1:{}", ports::free().unwrap());
    let mut origin = Command::new(support::binary())
        .env_clear()
        .env("WEIR_CLAIM_SECRET", support::SECRET)
        .env("WEIR_ADMIN_TOKEN", TOKEN)
        .env(
            "WEIR_LISTEN",
            format!("127.0.0.1:{}", ports::free().unwrap()),
        )
        .env("WEIR_ADMIN_LISTEN", &admin)
        // No server listens there.
        .env(
            "WEIR_DATABASE_URL",
            format!("mysql://weir@127.0.0.1:{}/weir", ports::free().unwrap()),
        )
        .spawn()
        .unwrap();
    let alive = format!("http://{admin}/healthz");
    let limit = Instant::now() + Duration::from_secs(20);
    while !http::is_ok(&alive).await {
        assert!(Instant::now() < limit, "it is not alive");
        assert!(origin.try_wait().unwrap().is_none(), "it has ended");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let ready = format!("http://{admin}/readyz");
    let answer = http::get(&ready).await.unwrap();
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains("the database does not answer"));
    // When stopped, it does not wait any longer.
    let pid = Pid::from_raw(origin.id().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert!(origin.wait().unwrap().success());
}

/// When stopped during an order, it finishes the order and answers.
#[tokio::test(flavor = "multi_thread")]
async fn origin_finishes_open_requests_before_it_stops() {
    // A world on the same Redis and database plays the gateway.
    let world = World::new().await;
    let mut origin = start(world.dir.path(), &world.redis_url, &world.prefix).await;
    let created = admin(&origin, "/sales", &sale_json("s", 8)).await;
    assert_eq!(created.status, 201, "{}", created.text());
    assert_eq!(
        admin(&origin, "/sales/s/warm", &serde_json::json!({}))
            .await
            .status,
        200
    );
    let ticket = world.claim("s", "alice").await;

    let other = world.lock_database().await;
    let address = origin.url().replace("http://", "");
    let request = tokio::spawn(async move {
        let headers = claim_headers(&ticket).map(|(n, v)| (n, String::from_utf8(v).unwrap()));
        let headers = headers
            .each_ref()
            .map(|(name, value)| (*name, value.as_str()));
        let mut connection = Http::open(&address).await?;
        let method = "POST".parse().unwrap();
        connection.send(method, "/orders", &headers, "").await
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    terminate(&mut origin);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(origin.process().is_running());
    other.unlock().await;

    assert_eq!(request.await.unwrap().unwrap().status, 201);
    assert!(wait_until_ended(&mut origin).await.success());
    assert_eq!(world.rows().await, [1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_origin_fails_its_probes_and_answers_requests() {
    let world = World::new().await;
    let mut options = options(world.dir.path(), &world.redis_url, &world.prefix);
    options.flags = ["--drain-seconds", "3"].map(str::to_owned).to_vec();
    let log = world.dir.path().join("origin.log");
    let origin = Origin::start(&support::binary(), options, &log).await;
    let mut origin = origin.unwrap();
    let status = async |url: String| http::get(&url).await.unwrap().status;
    let ready = format!("{}/readyz", origin.admin_url());
    let serving = format!("{}/serving", origin.url());
    let sales = format!("{}/public-sales", origin.url());
    let alive = format!("{}/healthz", origin.admin_url());
    assert_eq!(status(ready.clone()).await, 200);
    assert_eq!(status(serving.clone()).await, 200);

    let begin = Instant::now();
    terminate(&mut origin);
    while status(serving.clone()).await == 200 {
        assert!(begin.elapsed() < Duration::from_secs(2));
    }
    let answer = http::get(&ready).await.unwrap();
    assert_eq!(answer.status, 503);
    assert_eq!(answer.json().unwrap()["error"], "draining");
    // On new connections.
    assert_eq!(status(sales).await, 200);
    assert_eq!(status(alive).await, 200);
    assert!(wait_until_ended(&mut origin).await.success());
    assert!(begin.elapsed() >= Duration::from_secs(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn second_signal_ends_the_drain() {
    let world = World::new().await;
    let mut options = options(world.dir.path(), &world.redis_url, &world.prefix);
    options.flags = ["--drain-seconds", "3600"].map(str::to_owned).to_vec();
    let log = world.dir.path().join("origin.log");
    let origin = Origin::start(&support::binary(), options, &log).await;
    let mut origin = origin.unwrap();
    terminate(&mut origin);
    let serving = format!("{}/serving", origin.url());
    while http::get(&serving).await.unwrap().status == 200 {}
    terminate(&mut origin);
    assert!(wait_until_ended(&mut origin).await.success());
}

#[test]
fn migrate_creates_the_tables_without_secrets_and_exits() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("weir.db");
    let url = format!("sqlite://{}", file.display());
    for _ in 0..2 {
        let output = run(&["migrate"], &[("WEIR_DATABASE_URL", &url)]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
    let stored = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned();
    assert!(stored.contains("schema_sales") && stored.contains("schema_links"));
    let output = run(
        &["migrate"],
        &[("WEIR_DATABASE_URL", "oracle://u:hush@h/d")],
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("--database-url"),
        "{said}"
    );
}

/// Uses a real connection, which breaks in the middle of the transaction.
#[tokio::test(flavor = "multi_thread")]
async fn order_completes_after_its_connection_breaks() {
    let world = World::with_sale("s", 8).await;
    let origin = start(world.dir.path(), &world.redis_url, &world.prefix).await;
    let ticket = world.claim("s", "alice").await;
    let other = world.lock_database().await;
    let address = origin.url().replace("http://", "");
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream
        .write_all(b"POST /orders HTTP/1.1\r\nhost: origin\r\n")
        .unwrap();
    for (name, value) in claim_headers(&ticket) {
        let line = [name.as_bytes(), b": ", &value, b"\r\n"].concat();
        stream.write_all(&line).unwrap();
    }
    stream.write_all(b"\r\n").unwrap();
    // Long enough for the request to be read, short enough for SQLite to wait.
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(stream);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(world.rows().await, [0, 0, 0]);
    other.unlock().await;

    let limit = Instant::now() + Duration::from_secs(10);
    while world.audit(&ticket).await.bought == 0 {
        assert!(Instant::now() < limit, "the order was not finished");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(world.rows().await, [1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn origin_starts_without_redis_and_is_ready_once_redis_answers() {
    let dir = tempfile::tempdir().unwrap();
    let redis_dir = tempfile::tempdir().unwrap();
    let mut redis = support::redis(&redis_dir).await;
    let url = redis.url();
    let mut origin = start(dir.path(), &url, "weir").await;
    admin(&origin, "/sales", &sale_json("s", 8)).await;
    assert_eq!(
        admin(&origin, "/sales/s/warm", &serde_json::json!({}))
            .await
            .status,
        200
    );
    terminate(&mut origin);
    assert!(wait_until_ended(&mut origin).await.success());

    // Redis returns empty, and only after the origin.
    redis.stop();
    std::fs::remove_dir_all(redis_dir.path().join("appendonlydir")).unwrap();
    origin.process().start_again().unwrap();
    let alive = format!("{}/healthz", origin.admin_url());
    let limit = Duration::from_secs(10);
    let is_alive = || http::is_ok(&alive);
    origin.process().wait_ready(limit, is_alive).await.unwrap();
    let readyz = format!("{}/readyz", origin.admin_url());
    let answer = http::get(&readyz).await.unwrap();
    assert_eq!(answer.status, 503);
    assert!(
        answer.text().contains("Redis does not answer"),
        "{}",
        answer.text()
    );

    redis.start_again().await.unwrap();
    let is_ready = || http::is_ok(&readyz);
    origin.process().wait_ready(limit, is_ready).await.unwrap();
    let key = weir_sale::redis::keys::catalogue("weir");
    let mut connection = redis.connection().await.unwrap();
    let published = async || -> Option<String> {
        let mut connection = connection.clone();
        redis::cmd("GET")
            .arg(&key)
            .query_async(&mut connection)
            .await
            .unwrap()
    };
    let start = Instant::now();
    let catalogue = loop {
        if let Some(catalogue) = published().await {
            break catalogue;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "no catalogue");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(catalogue.contains("\"s\""), "{catalogue}");
    let _: () = redis::cmd("PING")
        .query_async(&mut connection)
        .await
        .unwrap();
}

/// C11: the log warns about a Redis that may evict acknowledged data.
#[tokio::test(flavor = "multi_thread")]
async fn redis_eviction_policy_is_reported() {
    let (dir, redis_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let redis = support::redis(&redis_dir).await;
    let mut connection = redis.connection().await.unwrap();
    for (name, value) in [("maxmemory", "100mb"), ("maxmemory-policy", "allkeys-lru")] {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg(name).arg(value);
        let _: () = set.query_async(&mut connection).await.unwrap();
    }
    let mut origin = start(dir.path(), &redis.url(), "weir").await;
    let limit = Instant::now() + Duration::from_secs(10);
    loop {
        let log = std::fs::read_to_string(origin.process().log()).unwrap();
        if log.contains("set maxmemory-policy to noeviction") && log.contains("allkeys-lru") {
            break;
        }
        assert!(Instant::now() < limit, "{log}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_json_lines_without_secrets() {
    let world = World::new().await;
    let mut origin = start(world.dir.path(), &world.redis_url, &world.prefix).await;
    admin(&origin, "/sales", &sale_json("s", 8)).await;
    admin(&origin, "/sales/s/warm", &serde_json::json!({})).await;
    let ticket = world.claim("s", "alice").await;
    let headers = claim_headers(&ticket).map(|(n, v)| (n, String::from_utf8(v).unwrap()));
    let pairs = headers
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    let url = format!("{}/orders?secret=hush", origin.url());
    let method = "POST".parse().unwrap();
    let answer = http::send(method, &url, &pairs, "").await.unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text());
    terminate(&mut origin);
    assert!(wait_until_ended(&mut origin).await.success());

    let log = std::fs::read_to_string(origin.process().log()).unwrap();
    for secret in [
        TOKEN,
        support::SECRET,
        headers[1].1.as_str(),
        "hush",
        "alice",
    ] {
        assert!(!log.contains(secret), "{secret} in\n{log}");
    }
    let lines: Vec<Value> = log
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let answered = |line: &&Value| {
        line["fields"]["message"] == "answered" && line["span"]["path"] == "/orders"
    };
    let line = lines.iter().find(answered).unwrap();
    assert_eq!(line["span"]["method"], "POST");
    assert_eq!(line["fields"]["status"], 201);
    assert!(line["fields"]["latency_us"].is_u64());
}

#[tokio::test(flavor = "multi_thread")]
async fn links_only_origin_needs_no_claim_secret_and_has_no_sales() {
    let dir = tempfile::tempdir().unwrap();
    let redis = support::redis(&dir).await;
    let domains = dir.path().join("links.json");
    let domain = r#"{ "domains": [{ "id": "s", "hosts": ["localhost"], "scheme": "http", "port": 10000 }] }"#;
    std::fs::write(&domains, domain).unwrap();
    let (port, admin_port) = (ports::free().unwrap(), ports::free().unwrap());
    let mut child = Command::new(support::binary())
        .args(["--links", domains.to_str().unwrap()])
        .env_clear()
        .env("WEIR_ADMIN_TOKEN", TOKEN)
        .env("WEIR_REDIS_URL", redis.url())
        .env(
            "WEIR_DATABASE_URL",
            format!("sqlite://{}/weir.db", dir.path().display()),
        )
        .env("WEIR_LINKS_LOG", dir.path().join("log"))
        .env("WEIR_LISTEN", format!("127.0.0.1:{port}"))
        .env("WEIR_ADMIN_LISTEN", format!("127.0.0.1:{admin_port}"))
        .stderr(std::fs::File::create(dir.path().join("said")).unwrap())
        .spawn()
        .unwrap();
    let admin = format!("http://127.0.0.1:{admin_port}");
    let bearer = format!("Bearer {TOKEN}");
    let status = async |method: &str, path: &str, body: Value| {
        let headers = [("authorization", bearer.as_str())];
        let url = format!("{admin}{path}");
        let sent = http::send(method.parse().unwrap(), &url, &headers, body.to_string()).await;
        sent.map_or(0, |answer| answer.status)
    };
    let limit = Instant::now() + Duration::from_secs(60);
    while status("GET", "/readyz", Value::Null).await != 200 {
        assert!(child.try_wait().unwrap().is_none() && Instant::now() < limit);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let link = serde_json::json!({ "domain": "s", "target": "https://example.com/" });
    let created = status("POST", "/links", link).await;
    let sale = status("POST", "/sales", sale_json("s", 1)).await;
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((created, sale), (201, 404));
    let response = std::fs::read_to_string(dir.path().join("said")).unwrap();
    assert!(
        response.contains("WEIR_CLAIM_SECRET is not set: sales are disabled"),
        "{response}"
    );
}
