//! Observability of an origin: probes, metrics, logs. Real processes, and a real full disk.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use axum::http::Request;
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use weir_stack::origin::{Origin, OriginOptions};
use weir_stack::{Secrets, http, ports};

use crate::support::{self, TOKEN, World};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A separate file system, unmounted at the end. It requires root.
pub struct SmallDisk(pub std::path::PathBuf);

impl SmallDisk {
    /// `size` in the format of `mount`.
    pub fn new(path: &Path, size: &str) -> Option<Self> {
        std::fs::create_dir_all(path).unwrap();
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(path);
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then(|| Self(path.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

/// Starts an origin with its database in `data`.
pub(crate) async fn start(dir: &TempDir, data: &Path, flags: &[String]) -> Origin {
    let world = World::new().await;
    let options = OriginOptions {
        events_log: None,
        fitment: None,
        edge_secret: None,
        port: ports::free().unwrap(),
        admin_port: ports::free().unwrap(),
        database: data.join("weir.db"),
        redis_url: world.redis_url.clone(),
        redis_ca: None,
        key_prefix: world.prefix.clone(),
        risk_rules: None,
        links: None,
        provider_port: 9,
        flags: flags.to_vec(),
        secrets: Secrets {
            events: String::new(),
            claim: support::SECRET.to_owned(),
            token: support::SECRET.to_owned(),
            payment: support::SECRET.to_owned(),
            admin_token: TOKEN.to_owned(),
            room: support::SECRET.to_owned(),
        },
    };
    let log = dir.path().join("origin.log");
    Origin::start(&support::binary(), options, &log)
        .await
        .unwrap()
}

/// The status and body of `/readyz`.
async fn ready(origin: &Origin) -> (u16, String) {
    let url = format!("{}/readyz", origin.admin_url());
    let answer = http::get(&url).await.unwrap();
    (answer.status, answer.text())
}

#[tokio::test]
async fn full_disk_or_lost_database_makes_the_origin_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::new(&dir.path().join("disk"), "16m") else {
        eprintln!("left out: only root can mount a small disk");
        return;
    };
    let origin = start(&dir, &disk.0, &[]).await;
    assert_eq!(
        ready(&origin).await,
        (200, r#"{"status":"ok","sales":"ok"}"#.to_owned())
    );

    let ballast = disk.0.join("ballast");
    let filled = std::fs::write(&ballast, vec![1; 32 << 20]);
    assert!(filled.is_err(), "the disk has no end");
    let (status, text) = ready(&origin).await;
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("the disk of the database is full"), "{text}");
    let url = format!("{}/metrics", origin.admin_url());
    let metrics = http::get(&url).await.unwrap().text();
    let free = metrics
        .lines()
        .find_map(|line| line.strip_prefix("weir_origin_disk_free_bytes{disk=\"database\"} "));
    assert!(free.unwrap().parse::<u64>().unwrap() < 1 << 20, "{free:?}");
    std::fs::remove_file(&ballast).unwrap();
    assert_eq!(ready(&origin).await.0, 200);

    // SQLite would continue to use a deleted file.
    let database = origin.database().to_owned();
    let aside = database.with_extension("aside");
    std::fs::rename(&database, &aside).unwrap();
    let (status, text) = ready(&origin).await;
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("the database does not answer"), "{text}");
    std::fs::copy(&aside, &database).unwrap();
    assert_eq!(ready(&origin).await.0, 503, "it is another file");
    std::fs::rename(&aside, &database).unwrap();
    assert_eq!(ready(&origin).await.0, 200);
}

#[tokio::test]
async fn stuck_reconciler_makes_the_origin_not_ready() {
    const SILENCE_MAX: Duration = Duration::from_secs(3);
    let world = World::with_silence_max(SILENCE_MAX).await;
    let status = async || world.admin_as("GET", "/readyz", "", None).await;
    assert_eq!(status().await.status, 200, "nobody has begun it");

    let stop = CancellationToken::new();
    let tasks = world.origin.sales().spawn(&stop);
    tokio::time::sleep(SILENCE_MAX + Duration::from_secs(1)).await;
    assert_eq!(status().await.status, 200, "it works once a second");
    for task in tasks {
        task.abort();
    }
    let limit = Instant::now() + Duration::from_secs(30);
    let answer = loop {
        let answer = status().await;
        if answer.status != 200 {
            break answer;
        }
        assert!(Instant::now() < limit, "it is ready without a reconciler");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!((answer.status.as_u16(), answer.code()), (503, "not_ready"));
    assert_eq!(answer.detail(), "the reconciler is stuck");
    let metrics = world.admin_as("GET", "/metrics", "", None).await;
    let text = metrics.body.as_str().unwrap();
    let silent = text
        .lines()
        .find_map(|line| line.strip_prefix("weir_origin_silent_seconds{loop=\"reconciler\"} "));
    assert!(silent.unwrap().parse::<f64>().unwrap() > 3.0, "{text}");
}

#[tokio::test]
async fn request_is_logged_with_its_trace_id() {
    let dir = tempfile::tempdir().unwrap();
    let mut origin = start(&dir, dir.path(), &[]).await;
    let url = format!("{}/sales", origin.admin_url());
    let sound = format!("00-{TRACE}-00f067aa0ba902b7-01");
    for parent in [sound.as_str(), "00-evil"] {
        let headers = [("traceparent", parent), ("x-request-id", "r-17")];
        let method = "GET".parse().unwrap();
        http::send(method, &url, &headers, "").await.unwrap();
    }
    let log = std::fs::read_to_string(origin.process().log()).unwrap();
    let of_trace: Vec<Value> = log
        .lines()
        .filter(|line| line.contains(TRACE))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(of_trace.len(), 1, "{log}");
    assert_eq!(of_trace[0]["fields"]["message"], "answered");
    assert_eq!(of_trace[0]["fields"]["status"], 401);
    assert_eq!(of_trace[0]["span"]["trace_id"], TRACE);
    assert_eq!(of_trace[0]["span"]["request_id"], "r-17");
    assert_eq!(of_trace[0].get("spans"), None, "it is said once");
    assert!(!log.contains("evil"), "{log}");
}

#[tokio::test]
async fn access_lines_are_sampled_and_all_requests_counted() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--access-log-share", "0.1"].map(str::to_owned);
    let mut origin = start(&dir, dir.path(), &flags).await;
    let answered = |log: &str| log.matches(r#""message":"answered""#).count();
    let read = |origin: &mut Origin| std::fs::read_to_string(origin.process().log()).unwrap();
    let before = answered(&read(&mut origin));
    let url = format!("{}/sales", origin.admin_url());
    for _ in 0..50 {
        let method = "GET".parse().unwrap();
        http::send(method, &url, &[], "").await.unwrap();
    }
    let lines = answered(&read(&mut origin)) - before;
    assert_eq!(lines, 5);
    let metrics = http::get(&format!("{}/metrics", origin.admin_url())).await;
    let text = metrics.unwrap().text();
    let counted = r#"weir_origin_requests_total{route="/sales",status="401"} 50"#;
    assert!(text.contains(counted), "{text}");
}

#[tokio::test]
async fn metrics_format_follows_the_accept_header() {
    let world = World::new().await;
    let ask = async |accept: &str| {
        let request = Request::get("/metrics").header("accept", accept);
        let request = request.body(axum::body::Body::empty()).unwrap();
        let answer = world.admin_request(request).await;
        let kind = answer.headers["content-type"].to_str().unwrap().to_owned();
        (kind, answer.body.as_str().unwrap().to_owned())
    };
    let prometheus =
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    for accept in [prometheus, "*/*", "application/openmetrics-text"] {
        let (kind, text) = ask(accept).await;
        assert_eq!(
            kind,
            "application/openmetrics-text; version=1.0.0; charset=utf-8"
        );
        assert!(text.ends_with("# EOF\n"));
    }
    let (kind, text) = ask("text/plain;version=0.0.4;q=0.5,*/*;q=0.1").await;
    assert_eq!(kind, "text/plain; version=0.0.4");
    assert!(
        text.contains("# TYPE weir_origin_requests_total counter\n"),
        "{text}"
    );
}

#[tokio::test]
async fn build_process_and_latencies_are_shown_on_private_routes() {
    let world = World::with_sale("s", 4).await;
    world.order(&world.claim("s", "alice").await).await;
    for path in ["/a", "/b?c=d", "/orders/one/two"] {
        let request = Request::get(path).body(axum::body::Body::empty()).unwrap();
        world.public(request).await;
    }
    let metrics = world.admin_as("GET", "/metrics", "", None).await;
    let text = metrics.body.as_str().unwrap();
    for line in [
        "weir_origin_build_info{version=\"",
        "weir_origin_request_seconds_count{route=\"/orders\"} 1\n",
        "weir_origin_request_seconds_bucket{le=\"0.001\",route=\"none\"} ",
        "weir_origin_request_seconds_count{route=\"none\"} 3\n",
        "process_start_time_seconds 1",
        "process_open_fds ",
        "process_cpu_seconds_total ",
    ] {
        let has = |text: &str| text.contains(line);
        assert!(has(text), "{line} is not in\n{text}");
    }
    assert_eq!(text.matches("# TYPE process_open_fds gauge").count(), 1);
}

#[tokio::test]
async fn ended_sale_is_removed_from_metrics() {
    let world = World::with_sale("s", 4).await;
    world.claim("s", "alice").await;
    let mut reconciler = world.origin.sales().reconciler();
    let displayed = async || {
        let metrics = world.admin_as("GET", "/metrics", "", None).await;
        metrics.body.as_str().unwrap().to_owned()
    };
    reconciler.round().await.unwrap();
    let text = displayed().await;
    for (state, units) in [("stock", 3), ("held", 1), ("ordered", 0)] {
        let line = format!("weir_origin_sale_units{{sale=\"s\",state=\"{state}\"}} {units}\n");
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
    let mut sql = world.sql().await;
    sql.execute("UPDATE sales SET starts_at_ms = 1, ends_at_ms = 2", &[])
        .await;
    reconciler.round().await.unwrap();
    let text = displayed().await;
    assert!(!text.contains("sale=\"s\""), "{text}");
}

#[tokio::test]
async fn traffic_counts_new_orders() {
    let world = World::with_sale("s", 4).await;
    let orders = async || {
        let answer = world.admin_as("GET", "/traffic", "", None).await;
        assert_eq!(answer.status, 200);
        let samples = answer.body["samples"].as_array().unwrap().clone();
        samples.last().unwrap()["orders"].clone()
    };
    assert_eq!(orders().await, 0);
    let claim = world.claim("s", "alice").await;
    for status in [201, 200] {
        assert_eq!(world.order(&claim).await.status, status);
    }
    assert_eq!(orders().await, 1, "a repeated claim is not a new order");
}
