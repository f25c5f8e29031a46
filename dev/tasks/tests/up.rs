//! `cargo xtask up` as a user tries it: every printed address and command works when pasted.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use weir_stack::http::{self, Method};
use weir_stack::ports;

/// An origin that is not local.
const NAMED_ORIGIN: &str = "https://shop.test:5173";

/// Stops `up` with SIGTERM, which it handles like Ctrl-C.
struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.0.wait();
    }
}

/// Returns the output of `up` once everything runs, and its gateway's address.
fn start(data: &std::path::Path) -> (Up, String, String) {
    let gateway = ports::free().unwrap();
    let mut up = Command::new(env!("CARGO_BIN_EXE_weir-tasks"));
    up.arg("up").arg("--data").arg(data);
    up.args(["--gateway-port", &gateway.to_string()]);
    for flag in [
        "--origin-port",
        "--origin-admin-port",
        "--envoy-admin-port",
        "--redis-port",
        "--storefront-port",
    ] {
        up.args([flag, &ports::free().unwrap().to_string()]);
    }
    up.args(["--origin", NAMED_ORIGIN]);
    let mut up = Up(up.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(up.0.stdout.take().unwrap()).lines();
    let mut text = String::new();
    while !text.contains("Ctrl-C stops everything.") {
        let line = lines.next().expect("up ended early").unwrap();
        text.push_str(&line);
        text.push('\n');
    }
    (up, text, format!("http://127.0.0.1:{gateway}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_printed_by_up_work_when_pasted() {
    let data = tempfile::tempdir().unwrap();
    let (_up, text, gateway) = start(data.path());
    let (mut addresses, mut commands) = (0, 0);
    for line in text.lines() {
        let line = line.trim_start();
        if line.starts_with("curl ") {
            let command = format!("{line} --fail --silent --show-error");
            let ran = Command::new("sh").args(["-c", &command]).output().unwrap();
            assert!(ran.status.success(), "{command}: {ran:?}");
            let output = String::from_utf8_lossy(&ran.stdout);
            if line.ends_with("/shop/") {
                assert!(output.contains("You are in the shop."), "{output}");
            }
            assert!(!output.contains("\"rejected\":1"), "{command}: {output}");
            commands += 1;
        } else if let Some(at) = line.find("http://").filter(|_| !line.starts_with("for ")) {
            let url = line[at..].split_whitespace().next().unwrap();
            // Like browsers, curl resolves link.localhost to this machine. The shop's waiting room answers.
            let answer = Command::new("curl")
                .args(["-sS", "-w", "\n%{http_code}"])
                .args(["-b", "", "--retry", "9", url])
                .output()
                .unwrap();
            let answer = String::from_utf8_lossy(&answer.stdout);
            let status: u16 = answer.lines().last().unwrap().parse().unwrap();
            assert!((200..400).contains(&status), "{url}: {status}");
            addresses += 1;
        }
    }
    assert!(addresses >= 7 && commands >= 5, "{text}");
    for origin in ["http://localhost:5173", NAMED_ORIGIN] {
        pages_may_use_it(&gateway, origin).await;
    }
    let other = [("origin", "https://evil.example"), ("x-user-id", "eve")];
    let url = format!("{gateway}/history");
    let read = http::send(Method::GET, &url, &other, "").await.unwrap();
    assert_eq!(read.status, 200);
    assert_eq!(read.header("access-control-allow-origin"), None);
}

async fn pages_may_use_it(gateway: &str, origin: &str) {
    let page = ("origin", origin);
    for (path, expected) in [
        ("/events", "content-type,x-weir-write-key"),
        ("/sales/demo/orders", "idempotency-key,x-user-id"),
        ("/my-orders", "x-user-id"),
        ("/history", "content-type"),
    ] {
        let headers = [
            page,
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", expected),
        ];
        let url = format!("{gateway}{path}");
        let preflight = http::send(Method::OPTIONS, &url, &headers, "")
            .await
            .unwrap();
        assert!(preflight.status < 300, "{path}: {preflight:?}");
        let allowed = preflight.header("access-control-allow-headers").unwrap();
        for header in expected.split(',') {
            assert!(allowed.contains(header), "{path}: {allowed}");
        }
    }
    let headers = [
        page,
        ("x-weir-write-key", "wk_shop_web"),
        ("content-type", "application/json"),
    ];
    // Without an id, equal events count once.
    let event = format!(r#"{{"type":"cart","attributes":{{"page":"{origin}"}}}}"#);
    let url = format!("{gateway}/events");
    let sent = http::send(Method::POST, &url, &headers, event)
        .await
        .unwrap();
    assert_eq!(
        (sent.status, &sent.json().unwrap()["accepted"]),
        (202, &1.into())
    );
    let allowed = sent.header("access-control-allow-origin");
    assert!(allowed == Some("*") || allowed == Some(origin), "{sent:?}");
}
