//! `weir-origin doctor` and `init` as programs, with a real Redis.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection};
use weir_stack::certificates::Certificates;
use weir_stack::envoy::EnvoyConfig;
use weir_stack::native::Host;
use weir_stack::redis::{Lock, RedisOptions, RedisServer};
use weir_stack::report::SilentReporter;
use weir_stack::{ports, tools};

use crate::support::{self, SECRET, TOKEN};

/// A folder with `envoy/weir.yaml` that points to the Redis of the tests.
struct SetUp {
    dir: tempfile::TempDir,
    redis_url: String,
    /// The CA that the origin trusts, if Redis uses TLS.
    ca: Option<PathBuf>,
    _redis: RedisServer,
}

impl SetUp {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let redis = support::redis(&dir).await;
        let redis_url = redis.url();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../envoy/weir.yaml");
        let port = redis_url.rsplit(':').next().unwrap().trim_end_matches('/');
        let text = std::fs::read_to_string(path).unwrap();
        let text = text.replace("port_value: 6379", &format!("port_value: {port}"));
        std::fs::write(dir.path().join("envoy.yaml"), text).unwrap();
        Self {
            dir,
            redis_url,
            ca: None,
            _redis: redis,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn edit(&self, from: &str, to: &str) {
        let path = self.path("envoy.yaml");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from}");
        std::fs::write(path, text.replace(from, to)).unwrap();
    }

    fn doctor(&self, flags: &[&str]) -> Output {
        let variables = [
            ("WEIR_CLAIM_SECRET", SECRET),
            ("WEIR_ADMIN_TOKEN", TOKEN),
            ("WEIR_REDIS_URL", &self.redis_url),
        ];
        let output = Command::new(support::binary())
            .args(["doctor", "--envoy"])
            .arg(self.path("envoy.yaml"))
            .args(flags)
            .env_clear()
            .envs(variables)
            .envs(self.ca.iter().map(|path| ("SSL_CERT_FILE", path)))
            .output()
            .unwrap();
        let printed = [output.stdout.as_slice(), &output.stderr].concat();
        let printed = String::from_utf8(printed).unwrap();
        assert!(
            !printed.contains(SECRET) && !printed.contains(TOKEN),
            "{printed}"
        );
        output
    }
}

fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn correct_setup_has_no_finding_and_each_mistake_has_one() {
    let set_up = SetUp::new().await;
    let right = set_up.doctor(&[]);
    assert_eq!(lines(&right), [""; 0]);
    assert_eq!(right.status.code(), Some(0), "{right:?}");
    let output = String::from_utf8(right.stderr).unwrap();
    assert!(
        output.contains("no findings") && output.contains("Redis at "),
        "{output}"
    );

    // A warning only.
    set_up.edit("idle_timeout: 0s", "idle_timeout: 60s");
    let warned = set_up.doctor(&[]);
    let [line] = <[String; 1]>::try_from(lines(&warned)).unwrap();
    assert!(
        line.starts_with("warning: ") && line.ends_with("[bridge-idle]"),
        "{line}"
    );
    assert_eq!(warned.status.code(), Some(1));

    // Then an error, as JSON.
    set_up.edit("substitution: /orders", "substitution: /buy");
    let failed = set_up.doctor(&["--json"]);
    assert_eq!(failed.status.code(), Some(2));
    let report: Value = serde_json::from_slice(&failed.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap().iter();
    let checks: Vec<_> = findings.map(|finding| &finding["check"]).collect();
    assert_eq!(checks, ["orders-route", "bridge-idle"]);
    assert_eq!(report["claim_fingerprints"][0]["id"], "k1");

    // Ignored findings do not count.
    let existing = set_up.doctor(&["--ignore", "bridge-idle", "--ignore", "orders-route"]);
    assert_eq!(
        (lines(&existing).len(), existing.status.code()),
        (0, Some(0))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_compares_secrets_of_gateway_and_origin() {
    let set_up = SetUp::new().await;
    let file = set_up.path("gateway.env");
    let with = |claim: &str| {
        let text = format!("WEIR_CLAIM_SECRET={claim}\nWEIR_TOKEN_SECRET={SECRET}\n");
        std::fs::write(&file, text).unwrap();
        set_up.doctor(&["--gateway-env", file.to_str().unwrap()])
    };
    assert_eq!(with(SECRET).status.code(), Some(0));
    let other = with(&SECRET.to_uppercase());
    assert_eq!(other.status.code(), Some(2));
    let [line] = <[String; 1]>::try_from(lines(&other)).unwrap();
    assert!(line.ends_with("[claim-secret]"), "{line}");
    std::fs::write(&file, "nonsense\n").unwrap();
    let broken = set_up.doctor(&["--gateway-env", file.to_str().unwrap()]);
    let output = String::from_utf8(broken.stderr).unwrap();
    assert!(output.contains("line 1 is not NAME=VALUE"), "{output}");
    assert_eq!(broken.status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_checks_the_redis_configuration() {
    let set_up = SetUp::new().await;
    // The default in Redis is 128.
    let history = Command::new(support::binary())
        .args(["--history", "doctor"])
        .env_clear()
        .env("WEIR_REDIS_URL", &set_up.redis_url)
        .output()
        .unwrap();
    let [line] = <[String; 1]>::try_from(lines(&history)).unwrap();
    assert!(line.ends_with("[redis-listpack]"), "{line}");
    let away = Command::new(support::binary())
        .arg("doctor")
        .env_clear()
        .env("WEIR_REDIS_URL", "redis://:hush@127.0.0.1:1")
        .output()
        .unwrap();
    let [line] = <[String; 1]>::try_from(lines(&away)).unwrap();
    assert!(line.starts_with("error: Redis at 127.0.0.1:1: "), "{line}");
    assert!(
        line.ends_with("[redis-away]") && !line.contains("hush"),
        "{line}"
    );
}

async fn set(redis_url: &str, command: &str) {
    let mut redis = weir_stack::redis::connect(redis_url).await.unwrap();
    let mut words = command.split(' ');
    let mut sent = redis::cmd(words.next().unwrap());
    sent.arg(words.collect::<Vec<_>>());
    let _: redis::Value = sent.query_async(&mut redis).await.unwrap();
}

/// The name of the single finding; empty if there is none.
fn check_of(output: &Output) -> String {
    let lines = lines(output);
    assert!(lines.len() <= 1, "{lines:?}");
    let line = lines.first().map(String::as_str).unwrap_or_default();
    let check = line.rsplit_once('[').map(|(_, check)| check);
    check.unwrap_or_default().trim_end_matches(']').to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_that_refuses_writes_is_found_by_a_test_write() {
    for (command, check) in [
        ("REPLICAOF 127.0.0.1 1", "redis-refuses"),
        ("CONFIG SET maxmemory 1", "redis-refuses"),
        ("ACL SETUSER default -evalsha", "redis-acl"),
        ("ACL SETUSER default -hset -xadd", "redis-acl"),
        ("ACL SETUSER default resetkeys ~other:*", "redis-refuses"),
        ("ACL SETUSER default -info", "redis-acl"),
        ("CONFIG SET maxmemory 1gb", ""),
    ] {
        let set_up = SetUp::new().await;
        set(&set_up.redis_url, command).await;
        let output = set_up.doctor(&[]);
        let lines = lines(&output);
        let found = lines
            .iter()
            .filter(|line| !line.ends_with("[redis-check-refused]"));
        let found: Vec<_> = found.cloned().collect();
        match check {
            "" => assert_eq!(found, [""; 0], "{command}"),
            check => {
                let [line] = &found[..] else {
                    panic!("{command}: {lines:?}");
                };
                assert!(line.ends_with(&format!("[{check}]")), "{line}");
                assert_eq!(output.status.code(), Some(2));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_checks_that_could_not_run() {
    let set_up = SetUp::new().await;
    set(&set_up.redis_url, "ACL SETUSER default -info").await;
    let output = set_up.doctor(&["--ignore", "redis-acl"]);
    let lines = lines(&output);
    assert_eq!(lines.len(), 3, "memory, role and topology: {lines:?}");
    assert!(
        lines
            .iter()
            .all(|line| line.ends_with("[redis-check-refused]")),
        "{lines:?}"
    );
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(
        printed.contains("not examined: the gateways' secrets"),
        "{printed}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_tests_the_redis_password_of_the_gateway() {
    let set_up = SetUp::new().await;
    set(
        &set_up.redis_url,
        "ACL SETUSER gate on >right ~weir:* +@all",
    )
    .await;
    set_up.edit(
        "{ \"request_bytes_max\": 1048576,",
        "{ \"auth\": { \"username\": \"gate\", \"password\": { \"env\": \"WEIR_REDIS_PASSWORD\" } }, \"request_bytes_max\": 1048576,",
    );
    let file = set_up.path("gateway.env");
    let with = |password: &str| {
        let text = format!(
            "WEIR_CLAIM_SECRET={SECRET}\nWEIR_TOKEN_SECRET={SECRET}\nWEIR_REDIS_PASSWORD={password}\n"
        );
        std::fs::write(&file, text).unwrap();
        set_up.doctor(&["--gateway-env", file.to_str().unwrap()])
    };
    assert_eq!(check_of(&with("right")), "");
    let wrong = with("wrong");
    assert_eq!(check_of(&wrong), "redis-refuses");
    assert!(
        lines(&wrong)[0].contains("gateways' user \"gate\""),
        "{wrong:?}"
    );
    set(&set_up.redis_url, "ACL SETUSER gate -hmget").await;
    assert_eq!(check_of(&with("right")), "redis-acl");
}

#[test]
fn unused_environment_variables_are_reported() {
    let output = Command::new(support::binary())
        .args(["doctor", "--no-redis"])
        .env_clear()
        .env("WEIR_HOLD_COOLDOWN", "5")
        .env("WEIR_EDGE_SECRET", "")
        .env("WEIR_EDGE_SECRET_FILE", "/f")
        .output()
        .unwrap();
    let found = lines(&output);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found.iter().all(|line| line.ends_with("[variables]")),
        "{found:?}"
    );
    assert!(
        found
            .iter()
            .any(|line| line.contains("WEIR_HOLD_COOLDOWN_MS")),
        "{found:?}"
    );
    assert_eq!(output.status.code(), Some(1));
}

/// What doctor finds in this database.
fn doctor_of_database(set_up: &SetUp, url: &str) -> Vec<String> {
    let output = Command::new(support::binary())
        .args(["--database-url", url, "doctor"])
        .env_clear()
        .env("WEIR_REDIS_URL", &set_up.redis_url)
        .output();
    lines(&output.unwrap())
}

mod postgres {
    use super::*;
    use sqlx::postgres::PgConnection;

    #[tokio::test(flavor = "multi_thread")]
    async fn database_settings_that_lose_commits_are_reported() {
        let set_up = SetUp::new().await;
        let dir = tempfile::tempdir().unwrap();
        let server = support::postgres(&dir).await;
        let url = server.url("postgres");
        assert_eq!(doctor_of_database(&set_up, &url), [""; 0]);
        let mut sql = PgConnection::connect(&url).await.unwrap();
        let database = url.rsplit('/').next().unwrap();
        let set = format!("ALTER DATABASE {database} SET synchronous_commit = off");
        let set = sqlx::raw_sql(AssertSqlSafe(set));
        set.execute(&mut sql).await.unwrap();
        let found = doctor_of_database(&set_up, &url);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].ends_with("[sql-flush]"), "{found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn database_settings_that_lose_commits_are_reported() {
    let set_up = SetUp::new().await;
    let doctor = |url: &str| doctor_of_database(&set_up, url);
    let url = support::mysql_url().await;
    assert_eq!(doctor(&url), [""; 0]);
    let mut sql = MySqlConnection::connect(&url).await.unwrap();
    for (value, check) in [(2, "[sql-flush]"), (1, "")] {
        let set = format!("SET GLOBAL innodb_flush_log_at_trx_commit = {value}");
        let set = sqlx::raw_sql(AssertSqlSafe(set));
        set.execute(&mut sql).await.unwrap();
        let found = doctor(&url);
        assert_eq!(found.len(), usize::from(!check.is_empty()), "{found:?}");
        assert!(found.iter().all(|line| line.ends_with(check)), "{found:?}");
    }
    let away = doctor("mysql://weir:hush@127.0.0.1:1/weir");
    assert!(
        away[0].starts_with("error: SQL: it does not answer: "),
        "{away:?}"
    );
    assert!(away[0].ends_with("[sql-away]") && !away[0].contains("hush"));
    let absent = set_up.path("absent.db");
    assert_eq!(doctor(&format!("sqlite://{}", absent.display())), [""; 0]);
    assert!(!absent.exists(), "it has made the file");
}

#[test]
fn init_writes_a_setup_and_version_shows_the_build() {
    let dir = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str], in_: &Path| {
        let mut command = Command::new(support::binary());
        command.args(arguments).env_clear().current_dir(in_);
        command.output().unwrap()
    };
    let written = run(&["init", "shop", "--for", "links"], dir.path());
    assert!(written.status.success(), "{written:?}");
    assert!(
        lines(&written)
            .iter()
            .any(|line| line.contains("exec /") && line.contains("weir-origin"))
    );
    for name in ["envoy.yaml", "links.json", "origin.env", "gateway.env"] {
        assert!(dir.path().join("shop").join(name).is_file(), "{name}");
    }
    let again = run(&["init", "shop", "--for", "links"], dir.path());
    assert_eq!(again.status.code(), Some(1));
    let [version] = <[String; 1]>::try_from(lines(&run(&["--version"], dir.path()))).unwrap();
    let (_, commit) = version.split_once(" (commit ").unwrap();
    let (commit, compiler) = commit.split_once(", ").unwrap();
    let is_commit = commit.len() == 12 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    let git = Command::new("git").args(["rev-parse", "HEAD"]).output();
    let has_git = git.is_ok_and(|git| git.status.success());
    assert!(is_commit || !has_git, "{version}");
    assert!(compiler.starts_with("rustc 1."), "{version}");
}

/// `weir.yaml` with a Redis over TLS whose certificate is for `localhost` and 127.0.0.1.
async fn tls_set_up() -> (SetUp, Certificates) {
    let dir = tempfile::tempdir().unwrap();
    let certificates = Certificates::kept_in(&dir.path().join("tls")).unwrap();
    let (port, password) = (ports::free().unwrap(), "a-password-for-tests".to_owned());
    let lock = Lock {
        password,
        certificates: certificates.clone(),
    };
    let log = dir.path().join("redis.log");
    let options = RedisOptions {
        lock: Some(lock),
        ..RedisOptions::durable(port, &dir.path().join("redis"), &log)
    };
    let tool = tools::Redis::find_or_get(&mut SilentReporter).unwrap();
    let redis = RedisServer::start_with(&tool, &options).await.unwrap();
    let config = EnvoyConfig::shipped().and_then(|config| {
        let config = config.host(Host::Wasm).redis_tls(&certificates.ca)?;
        config.redis("127.0.0.1", port)?.render()
    });
    std::fs::write(dir.path().join("envoy.yaml"), config.unwrap()).unwrap();
    let redis_url = redis.url();
    let ca = dir.path().join("origin-ca.pem");
    std::fs::copy(&certificates.ca, &ca).unwrap();
    let set_up = SetUp {
        dir,
        redis_url,
        ca: Some(ca),
        _redis: redis,
    };
    (set_up, certificates)
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_hostname_or_ca_of_redis_is_found_by_a_tls_handshake() {
    let (set_up, certificates) = tls_set_up().await;
    let checks = || {
        let output = set_up.doctor(&["--no-sql"]);
        lines(&output)
    };
    let of_tls = |lines: Vec<String>| -> Vec<String> {
        let is_tls = |line: &String| line.ends_with("[redis-tls]");
        lines.into_iter().filter(is_tls).collect()
    };
    assert_eq!(of_tls(checks()), [""; 0]);

    set_up.edit("\"exact\": \"localhost\"", "\"exact\": \"redis.internal\"");
    let [line] = <[String; 1]>::try_from(of_tls(checks())).unwrap();
    assert!(line.contains("redis.internal"), "{line}");
    set_up.edit("\"exact\": \"redis.internal\"", "\"exact\": \"localhost\"");

    let other = set_up.path("other");
    let other = Certificates::kept_in(&other).unwrap();
    std::fs::copy(other.ca, certificates.ca).unwrap();
    let [line] = <[String; 1]>::try_from(of_tls(checks())).unwrap();
    assert!(line.starts_with("error: "), "{line}");
}
