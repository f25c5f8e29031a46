//! A user's first five minutes with only this folder, Envoy and Redis. Runs the steps of the release's README in an
//! empty folder, without PATH and environment variables. Requests are read from the README itself.
//!
//! Only ports differ, because the default ones may be in use.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON and YAML that this module has made"
)]

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use http_body_util::Full;
use hyper::Request;
use serde_json::{Value, json};
use weir_stack::envoy::EnvoyConfig;
use weir_stack::http::{self, Connection, Method, Response};
use weir_stack::native::Host;
use weir_stack::process::Process;
use weir_stack::redis::RedisServer;
use weir_stack::report::Console;
use weir_stack::sale::verdict;
use weir_stack::tools;
use weir_stack::{command, ports};

use crate::binaries::ORIGIN;
use crate::folder::Folder;

const INIT_LIMIT: Duration = Duration::from_secs(30);
const READY_LIMIT: Duration = Duration::from_secs(60);
/// The time limit for a change to reach every worker.
const KNOWN_LIMIT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(100);

/// More than a user's burst of 40, at 20 per second, even on a slow machine.
const REQUESTS_MAX: u32 = 2_000;

const LINK_HOST: &str = "link.localhost:10000";

/// Environment variables.
pub type Variables = Vec<(String, String)>;

/// The parts to start, from a folder that `init` wrote or from a chart.
#[derive(Debug)]
pub struct Parts {
    /// Envoy's configuration.
    pub envoy: String,
    /// Envoy's complete environment.
    pub gateway: Variables,
    /// The origin's complete environment, except its listen addresses and the Redis URL.
    pub origin: Variables,
}

/// All running processes.
struct SetUp {
    gateway: String,
    admin: String,
    token: String,
    _processes: Vec<Process>,
    _redis: Option<RedisServer>,
}

/// Runs the README's steps with this Envoy, and sends requests to the filters that it does not cover.
///
/// # Errors
/// Names the failed step and the response.
pub async fn check(folder: &Folder, envoy: &tools::Envoy) -> Result<()> {
    folder.check_sums()?;
    let readme = Readme::read(folder)?;
    let temp = tempfile::tempdir().context("cannot create a folder for testing the release")?;
    let parts = init(folder, &readme, temp.path())?;
    run(folder, &parts, &temp.path().join("shop"), envoy).await
}

/// Starts these parts in a folder, and runs the same steps.
///
/// # Errors
/// Names the failed step and the response.
pub async fn run(folder: &Folder, parts: &Parts, dir: &Path, envoy: &tools::Envoy) -> Result<()> {
    let readme = Readme::read(folder)?;
    let set_up = start(folder, parts, dir, envoy).await?;
    limits(&set_up).await.context("limits")?;
    links(&set_up, &readme).await.context("links")?;
    sale(&set_up, &readme).await.context("a sale")?;
    room(&set_up).await.context("a waiting room")?;
    events(&set_up).await.context("events")?;
    fitment(&set_up).await.context("fitment")
}

/// Starts everything with the one command `up`, and sends the README's requests. PATH has only Envoy and Redis. Returns the
/// time from the command to the first order.
///
/// # Errors
/// Names the failed step and the response.
pub async fn check_up(folder: &Folder, envoy: &tools::Envoy) -> Result<Duration> {
    let readme = Readme::read(folder)?;
    let temp = tempfile::tempdir().context("cannot create a folder for testing the release")?;
    let path = temp.path().join("path");
    std::fs::create_dir(&path)?;
    let redis = tools::Redis::find_or_get(&mut Console)?;
    for (name, program) in [("envoy", &envoy.path), ("redis-server", &redis.path)] {
        std::os::unix::fs::symlink(std::path::absolute(program)?, path.join(name))?;
    }
    let (gateway, admin) = (ports::free()?, ports::free()?);
    let mut arguments = vec!["up".to_owned(), "shop".to_owned()];
    for (flag, port) in [
        ("--gateway-port", gateway),
        ("--origin-admin-port", admin),
        ("--origin-port", ports::free()?),
        ("--envoy-admin-port", ports::free()?),
        ("--redis-port", ports::free()?),
    ] {
        arguments.extend([flag.to_owned(), port.to_string()]);
    }
    let started = Instant::now();
    let program = folder.at(ORIGIN);
    let variables = vec![("PATH".to_owned(), path.display().to_string())];
    let mut up = alone("up", temp.path(), variables, move || {
        let mut command = Command::new(&program);
        command.args(&arguments);
        command
    })?;
    let gateway = format!("http://127.0.0.1:{gateway}");
    // The shop needs origin, Redis and Envoy, and its sale is created last.
    let has_sale = async || {
        let sales = http::get(&format!("{gateway}/public-sales")).await?;
        anyhow::Ok(sales.status == 200 && sales.text().contains("drop-"))
    };
    up.wait_ready(READY_LIMIT * 3, || async {
        has_sale().await.unwrap_or(false)
    })
    .await?;
    let shop = http::get(&format!("{gateway}/")).await?;
    ensure!(shop.text().contains("<main"), "no shop: {shop:?}");
    let token = variables_of(&temp.path().join("shop/origin.env"), "WEIR_ADMIN_TOKEN")?;
    let set_up = SetUp {
        gateway,
        admin: format!("http://127.0.0.1:{admin}"),
        token,
        _processes: Vec::new(),
        _redis: None,
    };
    limits(&set_up).await.context("limits")?;
    links(&set_up, &readme).await.context("links")?;
    sale(&set_up, &readme).await.context("a sale")?;
    let took = started.elapsed();
    up.stop();
    let log = up.tail(20);
    ensure!(log.contains("stopping"), "it did not stop in order:\n{log}");
    let left = http::get(&format!("{}/readyz", set_up.admin)).await;
    ensure!(left.is_err(), "the origin still runs after up has stopped");
    Ok(took)
}

/// The commands in the release's README.
struct Readme {
    init: Vec<String>,
    link: Value,
    sale: Value,
}

impl Readme {
    fn read(folder: &Folder) -> Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        Self::parse(&std::fs::read_to_string(folder.at("README.md"))?, now)
    }

    fn parse(text: &str, now: u64) -> Result<Self> {
        let after = |start: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(start));
            line.with_context(|| format!("the release's README has no line {start:?}"))
        };
        let link = after("admin /links '")?.trim_end_matches('\'');
        let sale = after("admin /sales \"")?.trim_end_matches('"');
        // The text after shell expansion.
        let sale = sale
            .replace("\\\"", "\"")
            .replace("${now}", &now.to_string())
            .replace("$((now + 3600))", &(now + 3_600).to_string());
        let json = |text: &str| serde_json::from_str(text).with_context(|| text.to_owned());
        Ok(Self {
            init: after("./bin/weir-origin ")?
                .split(' ')
                .map(str::to_owned)
                .collect(),
            link: json(link)?,
            sale: json(&sale)?,
        })
    }
}

fn init(folder: &Folder, readme: &Readme, cwd: &Path) -> Result<Parts> {
    let filters = folder.at("filters").display().to_string();
    let words = readme.init.iter();
    let words = words.map(|word| match word.as_str() {
        "\"$PWD/filters\"" => filters.clone(),
        word => word.to_owned(),
    });
    let mut init = Command::new(folder.at(ORIGIN));
    init.env_clear().current_dir(cwd).args(words);
    command::succeed(&mut init, INIT_LIMIT).context("weir-origin init")?;
    let shop = cwd.join("shop");
    Ok(Parts {
        envoy: std::fs::read_to_string(shop.join("envoy.yaml"))?,
        gateway: variables(&shop.join("gateway.env"))?,
        origin: variables(&shop.join("origin.env"))?,
    })
}

async fn start(folder: &Folder, parts: &Parts, dir: &Path, envoy: &tools::Envoy) -> Result<SetUp> {
    let redis_port = ports::free()?;
    let redis = tools::Redis::find_or_get(&mut Console)?;
    let redis = RedisServer::start(
        &redis,
        redis_port,
        &dir.join("redis"),
        &dir.join("redis.log"),
    )
    .await?;
    let mut token = parts.origin.iter();
    let token = token.find(|(name, _)| name == "WEIR_ADMIN_TOKEN");
    let token = token.context("WEIR_ADMIN_TOKEN is missing")?.1.clone();
    let address = SocketAddr::from(([127, 0, 0, 1], ports::free()?));
    let admin = format!("127.0.0.1:{}", ports::free()?);
    let mut variables = parts.origin.clone();
    let mut set = |name: &str, value: String| variables.push((name.to_owned(), value));
    set("WEIR_REDIS_URL", format!("redis://127.0.0.1:{redis_port}"));
    set("WEIR_LISTEN", address.to_string());
    set("WEIR_ADMIN_LISTEN", admin.clone());
    let binary = folder.at(ORIGIN);
    let mut origin = alone("origin", dir, variables, move || Command::new(&binary))?;
    let admin = format!("http://{admin}");
    let ready = format!("{admin}/readyz");
    origin
        .wait_ready(READY_LIMIT, || http::is_ok(&ready))
        .await?;
    let (gateway, envoy) = start_envoy(parts, dir, redis_port, address, envoy).await?;
    Ok(SetUp {
        gateway,
        admin,
        token,
        _processes: vec![envoy, origin],
        _redis: Some(redis),
    })
}

/// A process with exactly these environment variables.
fn alone(
    name: &str,
    dir: &Path,
    variables: Variables,
    program: impl Fn() -> Command + Send + Sync + 'static,
) -> Result<Process> {
    let cwd = dir.to_path_buf();
    Process::start(name, &dir.join(format!("{name}.log")), move || {
        let mut command = program();
        command
            .env_clear()
            .envs(variables.iter().cloned())
            .current_dir(&cwd);
        command
    })
}

async fn start_envoy(
    parts: &Parts,
    dir: &Path,
    redis_port: u16,
    origin: SocketAddr,
    tool: &tools::Envoy,
) -> Result<(String, Process)> {
    let config = EnvoyConfig::parse(&parts.envoy)?
        .host(Host::Wasm)
        .gateway_port(ports::free()?)?
        .admin_port(ports::free()?)?
        .redis("127.0.0.1", redis_port)?
        .origin(origin)?;
    let file = dir.join("envoy.json");
    std::fs::write(&file, config.render()?)?;
    let binary = tool.path.clone();
    let mut envoy = alone("envoy", dir, parts.gateway.clone(), move || {
        let mut envoy = Command::new(&binary);
        envoy.arg("--config-path").arg(&file);
        // Other Envoys may run on this machine.
        envoy.args(["--concurrency", "1", "--disable-hot-restart"]);
        envoy
    })?;
    let ready = format!("http://127.0.0.1:{}/ready", config.chosen_admin_port());
    envoy
        .wait_ready(READY_LIMIT, || http::is_ok(&ready))
        .await?;
    let gateway = format!("http://127.0.0.1:{}", config.chosen_gateway_port());
    Ok((gateway, envoy))
}

/// The `NAME=VALUE` lines that `init` wrote.
fn variables(path: &Path) -> Result<Variables> {
    let text = std::fs::read_to_string(path)?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.map(|line| {
        let (name, value) = line.split_once('=').context("line without =")?;
        Ok((name.to_owned(), value.to_owned()))
    });
    pairs.collect()
}

fn variables_of(path: &Path, name: &str) -> Result<String> {
    let mut all = variables(path)?.into_iter();
    let found = all.find(|(other, _)| other == name);
    Ok(found.with_context(|| format!("{name} is missing"))?.1)
}

/// A user who sends too many requests gets 429.
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
        // With the shop or without it.
        ensure!(matches!(answer.status, 200 | 404), "{answer:?}");
    }
    anyhow::bail!("{REQUESTS_MAX} requests of one user without a 429")
}

async fn links(set_up: &SetUp, readme: &Readme) -> Result<()> {
    let response = set_up.admin("/links", &readme.link, 201).await?;
    ensure!(response["code"] == "hello", "{response}");
    let authority = set_up.gateway.trim_start_matches("http://");
    let follow = async || -> Result<Response> {
        let request = Request::builder().uri("/hello").header("host", LINK_HOST);
        let mut connection = Connection::open(authority).await?;
        connection
            .send_request(request.body(Full::default())?)
            .await
    };
    let answer = retry_until(follow, |answer| answer.status == 302).await?;
    let target = readme.link["target"].as_str();
    ensure!(answer.header("location") == target, "{answer:?}");
    Ok(())
}

async fn sale(set_up: &SetUp, readme: &Readme) -> Result<()> {
    set_up.admin("/sales", &readme.sale, 201).await?;
    set_up.admin("/sales/first/warm", &Value::Null, 200).await?;
    let order = format!("{}/sales/first/orders", set_up.gateway);
    let buy = async |user: &str| http::send(Method::POST, &order, &[("x-user-id", user)], "").await;
    let answer = retry_until(async || buy("alice").await, |answer| answer.status == 201).await?;
    ensure!(verdict(&answer) == "granted", "{answer:?}");
    retry_until(
        async || buy("bob").await,
        |answer| verdict(answer) == "sold_out",
    )
    .await?;
    Ok(())
}

/// A visitor gets a position, inside or in the queue.
async fn room(set_up: &SetUp) -> Result<()> {
    let shop = format!("{}/shop/", set_up.gateway);
    let visit = async || http::send(Method::GET, &shop, &[("accept", "text/html")], "").await;
    retry_until(visit, |answer| answer.header("set-cookie").is_some()).await?;
    Ok(())
}

/// An event is accepted if its type is registered.
async fn events(set_up: &SetUp) -> Result<()> {
    let view = set_up.ask(
        Method::PUT,
        "/events/types/view",
        "application/json",
        "{}".into(),
    );
    let existing = view.await?;
    ensure!(existing.status < 300, "{}", existing.text());
    let url = format!("{}/events", set_up.gateway);
    let headers = [
        ("content-type", "application/json"),
        ("origin", "http://localhost:10000"),
        ("x-weir-write-key", "wk_shop_web"),
    ];
    let body = json!([{ "id": "e1", "type": "view", "attributes": { "sku": "a1" } }]).to_string();
    let send = async || http::send(Method::POST, &url, &headers, body.clone()).await;
    let answer = retry_until(send, |answer| answer.status == 202).await?;
    ensure!(answer.json()?["rejected"] == 0, "{answer:?}");
    Ok(())
}

/// A part fits the vehicle that the catalogue lists.
async fn fitment(set_up: &SetUp) -> Result<()> {
    for (kind, table) in [
        (
            "vehicles",
            "vehicle,make,model,year\n1000001,Make,Model,2020\n",
        ),
        ("products", "sku,spu,type,merchant\nS1,P1,tyre,m1\n"),
        ("relations", "sku,vehicle\nS1,1000001\n"),
    ] {
        set_up.import(kind, table).await.context(kind)?;
    }
    let url = format!("{}/fitment/check", set_up.gateway);
    let body = json!({ "vehicles": ["1000001"], "skus": ["S1"] }).to_string();
    let headers = [("content-type", "application/json")];
    let ask = async || http::send(Method::POST, &url, &headers, body.clone()).await;
    let fits = |answer: &Response| {
        let document = answer.json().unwrap_or_default();
        document["skus"][0]["answers"] == json!(["fits"])
    };
    retry_until(ask, fits).await?;
    Ok(())
}

/// Repeats the request until the answer is right: a worker sees changes at its next poll.
async fn retry_until(
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
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let answer = self
            .ask(Method::POST, path, "application/json", body)
            .await?;
        ensure!(
            answer.status == status,
            "POST {path}: {} {}",
            answer.status,
            answer.text()
        );
        answer.json()
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: String,
    ) -> Result<Response> {
        let token = format!("Bearer {}", self.token);
        let headers = [("authorization", &*token), ("content-type", content_type)];
        http::send(method, &format!("{}{path}", self.admin), &headers, body).await
    }

    /// Imports a fitment table, and waits until it is applied.
    async fn import(&self, kind: &str, table: &str) -> Result<()> {
        let path = format!("/fitment/imports?kind={kind}&format=csv");
        let accepted = self.ask(Method::POST, &path, "text/csv", table.to_owned());
        let accepted = accepted.await?;
        ensure!(accepted.status == 202, "{}", accepted.text());
        let path = format!("/fitment/imports/{}", accepted.json()?["id"]);
        let look = async || {
            self.ask(Method::GET, &path, "text/csv", String::new())
                .await
        };
        retry_until(look, |answer| {
            answer.json().unwrap_or_default()["state"] == "done"
        })
        .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_the_readme_are_sent() {
        let path = weir_stack::workspace::root().join("dev/dist/files/README.md");
        let text = std::fs::read_to_string(path).unwrap();
        let readme = Readme::parse(&text, 1_800_000_000).unwrap();
        assert_eq!(readme.init[..4], ["init", "shop", "--for", "all"]);
        assert_eq!(readme.link["code"], "hello");
        assert_eq!(readme.sale["starts_at_ms"], 1_800_000_000_000_u64);
        assert_eq!(readme.sale["ends_at_ms"], 1_800_003_600_000_u64);
        let without = text.replace("admin /links", "admin /else");
        assert!(Readme::parse(&without, 0).is_err());
    }
}
