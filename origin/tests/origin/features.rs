//! Origins with a subset of domains: each one builds, starts and works, without traces of the disabled domains.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;
use weir_stack::process::Process;
use weir_stack::{build, http, ports};

use crate::support::{self, TOKEN, sale_json};

const READY_LIMIT: Duration = Duration::from_secs(30);

/// A running origin with these features.
struct FeatureOrigin {
    process: Process,
    program: PathBuf,
    public: String,
    admin: String,
    database: String,
}

impl FeatureOrigin {
    async fn start(features: &str, dir: &Path, redis_url: &str, flags: &[&str]) -> Self {
        let program = build::origin_with(features).unwrap();
        let (port, admin_port) = (ports::free().unwrap(), ports::free().unwrap());
        let database = format!("sqlite://{}/weir.db", dir.display());
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let make = {
            let (program, database) = (program.clone(), database.clone());
            let redis_url = redis_url.to_owned();
            move || {
                let mut command = Command::new(&program);
                command
                    .args(&flags)
                    .env_clear()
                    .env("WEIR_ADMIN_TOKEN", TOKEN)
                    .env("WEIR_CLAIM_SECRET", support::SECRET)
                    .env("WEIR_REDIS_URL", &redis_url)
                    .env("WEIR_DATABASE_URL", &database)
                    .env("WEIR_LISTEN", format!("127.0.0.1:{port}"))
                    .env("WEIR_ADMIN_LISTEN", format!("127.0.0.1:{admin_port}"));
                command
            }
        };
        let process = Process::start("weir-origin", &dir.join("origin.log"), make).unwrap();
        let mut small = Self {
            process,
            program,
            public: format!("http://127.0.0.1:{port}"),
            admin: format!("http://127.0.0.1:{admin_port}"),
            database,
        };
        let ready = format!("{}/readyz", small.admin);
        let ready = || http::is_ok(&ready);
        small.process.wait_ready(READY_LIMIT, ready).await.unwrap();
        small
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let bearer = format!("Bearer {TOKEN}");
        let headers = [("authorization", bearer.as_str())];
        let url = format!("{}{path}", self.admin);
        let sent = http::send(method.parse().unwrap(), &url, &headers, body.to_string());
        let answer = sent.await.unwrap();
        (answer.status, answer.json().unwrap())
    }

    /// Asserts that a disabled domain has no routes, permissions, tables or flags.
    async fn has_nothing_of(&self, routes: &[&str], area: &str, table: &str, flag: &str) {
        for route in routes {
            let (status, answer) = self.ask("GET", route, &Value::Null).await;
            assert_eq!(
                (status, &answer["error"]),
                (404, &json!("no_route")),
                "{route}"
            );
        }
        let (_, user) = self.ask("GET", "/access/session", &Value::Null).await;
        let scope = json!(format!("{area}:read"));
        assert!(
            !user["scopes"].as_array().unwrap().contains(&scope),
            "{user}"
        );
        assert!(!self.has_table(table).await, "{table}");
        let help = Command::new(&self.program).arg("--help").output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        assert!(!help.contains(flag), "{help}");
    }

    async fn has_table(&self, name: &str) -> bool {
        let mut sql = SqliteConnection::connect(&self.database).await.unwrap();
        let count = "SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table' AND name = ?";
        let count = sqlx::query_scalar::<_, i64>(count).bind(name);
        count.fetch_one(&mut sql).await.unwrap() == 1
    }
}

#[tokio::test]
async fn origin_with_links_alone_creates_and_resolves_links() {
    let dir = tempfile::tempdir().unwrap();
    let redis = support::redis(&dir).await;
    let domains = dir.path().join("links.json");
    let domain = json!({ "domains": [{ "id": "s", "hosts": ["127.0.0.1"] }] });
    std::fs::write(&domains, domain.to_string()).unwrap();
    let log = dir.path().join("log");
    let flags = ["--links", domains.to_str().unwrap(), "--links-log"];
    let flags = [flags.as_slice(), &[log.to_str().unwrap()]].concat();
    let origin = FeatureOrigin::start("links", dir.path(), &redis.url(), &flags).await;
    let target = json!({ "target": "https://example.com/a" });
    let (status, link) = origin.ask("POST", "/links", &target).await;
    assert_eq!(status, 201, "{link}");
    let url = format!("{}/l/{}", origin.public, link["code"].as_str().unwrap());
    let answer = http::get(&url).await.unwrap();
    assert_eq!(answer.header("location"), Some("https://example.com/a"));
    assert!(origin.has_table("links").await);
    let routes = ["/sales", "/orders", "/rooms", "/limits", "/history"];
    origin
        .has_nothing_of(&routes, "sales", "sales", "--risk-rules")
        .await;
}

#[tokio::test]
async fn origin_with_sales_and_limits_warms_a_sale_and_shows_limits() {
    let dir = tempfile::tempdir().unwrap();
    let redis = support::redis(&dir).await;
    let origin = FeatureOrigin::start("sales,limits", dir.path(), &redis.url(), &[]).await;
    let (status, sale) = origin.ask("POST", "/sales", &sale_json("s", 8)).await;
    assert_eq!(status, 201, "{sale}");
    let (status, warm) = origin.ask("POST", "/sales/s/warm", &json!({})).await;
    assert_eq!(status, 200, "{warm}");
    let (status, limits) = origin.ask("GET", "/limits", &Value::Null).await;
    assert_eq!((status, &limits["document"]), (200, &Value::Null));
    assert!(origin.has_table("sales").await);
    let routes = ["/links", "/rooms", "/groups", "/history", "/links/ui"];
    origin
        .has_nothing_of(&routes, "links", "links", "--links")
        .await;
}

/// Features exclude crates from the binary, not only routes.
#[test]
fn disabled_domain_is_not_compiled() {
    let crates = build::origin_crates("links").unwrap();
    let has = |name: &str| crates.iter().any(|one| one == name);
    assert!(has("weir-origin-links") && has("weir-link"), "{crates:?}");
    let off = [
        "weir-origin-sales",
        "weir-origin-events",
        "weir-sale",
        "weir-doctor",
        "weir-shard-proxy",
    ];
    for name in off {
        assert!(!has(name), "{name} is compiled");
    }
}
