//! The first five minutes of somebody who has this folder, Envoy and Redis, and nothing else: the steps of the release's README,
//! in an empty folder, without a PATH and without variables.
//!
//! Only ports differ from what the README says: those may be taken here.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http_body_util::Full;
use hyper::Request;
use serde_json::{Value, json};
use weir_stack::envoy::{Envoy, EnvoyConfig, EnvoyOptions};
use weir_stack::http::{self, Connection, Method, Response};
use weir_stack::native::Host;
use weir_stack::process::Process;
use weir_stack::redis::RedisServer;
use weir_stack::report::{Console, Reporter};
use weir_stack::sale::{sale_json, verdict};
use weir_stack::tools::{self, Options};
use weir_stack::{command, ports};

use crate::folder::Folder;

const INIT_LIMIT: Duration = Duration::from_secs(30);
const READY_LIMIT: Duration = Duration::from_secs(60);
/// For what every worker must hear of.
const KNOWN_LIMIT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(100);

/// More than a user's burst of 40, at 20 a second, however slow this machine is.
const REQUESTS_MAX: u32 = 2_000;

const SALE: &str = "first";
const LINK_HOST: &str = "link.localhost:10000";
const TARGET: &str = "https://www.envoyproxy.io/";

/// Everything that runs.
struct SetUp {
    gateway: String,
    admin: String,
    token: String,
    _envoy: Envoy,
    _origin: Process,
    _redis: RedisServer,
}

/// Does what the README says.
///
/// # Errors
/// Says which step failed, and what was answered.
pub(crate) async fn check(folder: &Folder) -> Result<()> {
    folder.check_sums()?;
    let temp = tempfile::tempdir().context("no folder to try the release in")?;
    let shop = init(folder, temp.path())?;
    let set_up = start(folder, &shop).await?;
    limits(&set_up).await.context("limits")?;
    links(&set_up).await.context("links")?;
    sale(&set_up).await.context("a sale")?;
    Console.line("check", "from the folder alone: limits, a link and a sale");
    Ok(())
}

/// A program of the release, with nothing of this machine's environment.
fn program(folder: &Folder, cwd: &Path) -> Command {
    let mut program = Command::new(folder.at("bin/weir-origin"));
    program.env_clear().current_dir(cwd);
    program
}

fn init(folder: &Folder, cwd: &Path) -> Result<PathBuf> {
    let mut init = program(folder, cwd);
    init.args(["init", "shop", "--for", "all", "--filters"])
        .arg(folder.at("filters"));
    command::succeed(&mut init, INIT_LIMIT).context("weir-origin init")?;
    Ok(cwd.join("shop"))
}

async fn start(folder: &Folder, shop: &Path) -> Result<SetUp> {
    let redis_port = ports::free()?;
    let redis = tools::Redis::find_or_get(&mut Console)?;
    let log = shop.join("redis.log");
    let redis = RedisServer::start(&redis, redis_port, &shop.join("redis"), &log).await?;
    let variables = variables(&shop.join("origin.env"))?;
    let token = variables
        .iter()
        .find(|(name, _)| name == "WEIR_ADMIN_TOKEN");
    let token = token.context("init wrote no WEIR_ADMIN_TOKEN")?.1.clone();
    let (address, admin_port) = (
        SocketAddr::from(([127, 0, 0, 1], ports::free()?)),
        ports::free()?,
    );
    let command = {
        let (folder, shop) = (folder.path().to_path_buf(), shop.to_path_buf());
        move || {
            let mut origin = Command::new(folder.join("bin/weir-origin"));
            origin
                .env_clear()
                .current_dir(&shop)
                .envs(variables.iter().cloned())
                .env("WEIR_REDIS_URL", format!("redis://127.0.0.1:{redis_port}"))
                .args(["--listen", &address.to_string()])
                .args(["--admin-listen", &format!("127.0.0.1:{admin_port}")]);
            origin
        }
    };
    let mut origin = Process::start("origin", &shop.join("origin.log"), command)?;
    let admin = format!("http://127.0.0.1:{admin_port}");
    let ready = format!("{admin}/readyz");
    origin
        .wait_ready(READY_LIMIT, || http::is_ok(&ready))
        .await?;
    let envoy = start_envoy(shop, redis_port, address).await?;
    Ok(SetUp {
        gateway: envoy.url(),
        admin,
        token,
        _envoy: envoy,
        _origin: origin,
        _redis: redis,
    })
}

async fn start_envoy(shop: &Path, redis_port: u16, origin: SocketAddr) -> Result<Envoy> {
    let written = std::fs::read_to_string(shop.join("envoy.yaml"))?;
    let config = EnvoyConfig::parse(&written)?
        .host(Host::Wasm)
        .gateway_port(ports::free()?)?
        .admin_port(ports::free()?)?
        .redis("127.0.0.1", redis_port)?
        .origin(origin)?;
    let tool = tools::Envoy::find_or_get(&Options::default(), &mut Console)?;
    let options = EnvoyOptions {
        config,
        workers: 1,
        log_level: "info".into(),
        variables: variables(&shop.join("gateway.env"))?,
        clock_ahead_ms: None,
        drain_s: None,
        dir: shop.to_path_buf(),
    };
    Envoy::start(&tool, &options).await
}

/// The lines `NAME=VALUE` that init has written.
fn variables(path: &Path) -> Result<Vec<(String, String)>> {
    let text = std::fs::read_to_string(path)?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.map(|line| {
        let (name, value) = line.split_once('=').context("a line without =")?;
        Ok((name.to_owned(), value.to_owned()))
    });
    pairs.collect()
}

/// Somebody who asks too often is told to wait.
async fn limits(set_up: &SetUp) -> Result<()> {
    let url = format!("{}/", set_up.gateway);
    for _ in 0..REQUESTS_MAX {
        let answer = http::send(Method::GET, &url, &[("x-user-id", "often")], "").await?;
        if answer.status == 429 {
            ensure!(
                answer.header("retry-after").is_some(),
                "429 without Retry-After"
            );
            return Ok(());
        }
        ensure!(answer.status == 404, "{answer:?}");
    }
    anyhow::bail!("{REQUESTS_MAX} requests of one user, and no 429")
}

async fn links(set_up: &SetUp) -> Result<()> {
    let made = set_up
        .admin("/links", &json!({ "target": TARGET, "code": "hello" }), 201)
        .await?;
    ensure!(made["code"] == "hello", "{made}");
    let authority = set_up.gateway.trim_start_matches("http://");
    let follow = async || -> Result<Response> {
        let request = Request::builder().uri("/hello").header("host", LINK_HOST);
        let mut connection = Connection::open(authority).await?;
        connection
            .send_request(request.body(Full::default())?)
            .await
    };
    let answer = until(follow, |answer| answer.status == 302).await?;
    ensure!(answer.header("location") == Some(TARGET), "{answer:?}");
    Ok(())
}

async fn sale(set_up: &SetUp) -> Result<()> {
    set_up.admin("/sales", &sale_json(SALE, 1, 1)?, 201).await?;
    set_up
        .admin(&format!("/sales/{SALE}/warm"), &Value::Null, 200)
        .await?;
    let order = format!("{}/sales/{SALE}/orders", set_up.gateway);
    let buy = async |user: &str| http::send(Method::POST, &order, &[("x-user-id", user)], "").await;
    let answer = until(async || buy("alice").await, |answer| answer.status == 201).await?;
    ensure!(verdict(&answer) == "granted", "{answer:?}");
    until(
        async || buy("bob").await,
        |answer| verdict(answer) == "sold_out",
    )
    .await?;
    Ok(())
}

/// Asks until the answer is right: a worker hears of what is new with its next poll.
async fn until(
    ask: impl AsyncFn() -> Result<Response>,
    is_right: impl Fn(&Response) -> bool,
) -> Result<Response> {
    let end = Instant::now() + KNOWN_LIMIT;
    loop {
        let answer = ask().await?;
        if is_right(&answer) {
            return Ok(answer);
        }
        ensure!(
            Instant::now() < end,
            "still {} after {KNOWN_LIMIT:?}: {}",
            answer.status,
            answer.text()
        );
        tokio::time::sleep(PAUSE).await;
    }
}

impl SetUp {
    /// Posts to the origin's admin port.
    async fn admin(&self, path: &str, body: &Value, status: u16) -> Result<Value> {
        let token = format!("Bearer {}", self.token);
        let headers = [
            ("authorization", &*token),
            ("content-type", "application/json"),
        ];
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let url = format!("{}{path}", self.admin);
        let answer = http::send(Method::POST, &url, &headers, body).await?;
        ensure!(
            answer.status == status,
            "POST {path}: {} {}",
            answer.status,
            answer.text()
        );
        answer.json()
    }
}
