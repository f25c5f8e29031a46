//! `weir-origin up`: Redis, origin, Envoy and the sample shop with one command, on this machine only.
//!
//! The shop and the gateway are one site: Envoy sends what it has no other route for to the shop's files.

mod storefront;

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};

use crate::config::ADMIN_TOKEN;
use crate::init::{self, InitCommand, Purpose};

/// The longest start of one program: Envoy compiles the filters.
const READY_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);
/// How long one request to the own programs may take.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// How long a program may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// The longest error that is shown of a program's log.
const LOG_TAIL_BYTES: usize = 2_000;

/// Ports in the shipped Envoy file.
const GATEWAY_PORT: u16 = 10_000;
const ENVOY_ADMIN_PORT: u16 = 9_901;
const ORIGIN_PORT: u16 = 8_080;
const REDIS_PORT: u16 = 6_379;

/// The route of the shipped Envoy file that answers everything else.
const LAST_ROUTE: &str = "nothing";
const SHOP: &str = "weir_storefront";

/// Arguments of `up`.
#[derive(Clone, Debug, Args)]
pub struct UpCommand {
    /// Folder of settings, data and logs; created with new secrets if missing
    #[arg(default_value = "weir")]
    pub folder: PathBuf,

    /// Folder of the filters [default: filters in the release folder of this program]
    #[arg(long, value_name = "DIR")]
    pub filters: Option<PathBuf>,

    /// Envoy [default: envoy on PATH]
    #[arg(long, value_name = "FILE")]
    pub envoy: Option<PathBuf>,

    /// Redis or Valkey [default: redis-server or valkey-server on PATH, else one that runs on the port]
    #[arg(long, value_name = "FILE")]
    pub redis: Option<PathBuf>,

    /// Port of the gateway and the shop
    #[arg(long, default_value_t = GATEWAY_PORT)]
    pub gateway_port: u16,

    /// Public port of the origin
    #[arg(long, default_value_t = ORIGIN_PORT)]
    pub origin_port: u16,

    /// Admin port of the origin, with the console
    #[arg(long, default_value_t = 8_081)]
    pub origin_admin_port: u16,

    /// Admin port of Envoy
    #[arg(long, default_value_t = ENVOY_ADMIN_PORT)]
    pub envoy_admin_port: u16,

    /// Port of Redis
    #[arg(long, default_value_t = REDIS_PORT)]
    pub redis_port: u16,
}

/// Runs everything until Ctrl-C, SIGTERM, or the end of one program.
///
/// # Errors
/// A program is missing, cannot start, or ended.
pub async fn run(command: &UpCommand) -> Result<()> {
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    let mut programs = Programs::default();
    let ended = tokio::select! {
        ended = start_and_watch(command, &mut programs) => ended,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    eprintln!("stopping…");
    programs.stop();
    ended
}

async fn start_and_watch(command: &UpCommand, programs: &mut Programs) -> Result<()> {
    let envoy = match &command.envoy {
        Some(path) => path.clone(),
        None => on_path(&["envoy"]).context("cannot find envoy on PATH: install it (https://www.envoyproxy.io/docs/envoy/latest/start/install), or set --envoy")?,
    };
    if !command.folder.join("envoy.yaml").exists() {
        init::write_files(&InitCommand {
            folder: command.folder.clone(),
            purpose: Purpose::All,
            filters: command.filters()?,
        })?;
    }
    let folder = fs::canonicalize(&command.folder)?;
    let origin_variables = variables(&folder.join("origin.env"))?;
    let token = origin_variables
        .iter()
        .find(|(name, _)| name == ADMIN_TOKEN);
    let token = token.with_context(|| format!("origin.env lacks {ADMIN_TOKEN}"))?;
    let token = token.1.clone();

    start_redis(command, &folder, programs).await?;
    start_origin(command, &folder, programs, origin_variables).await?;

    let shop = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let shop_port = shop.local_addr()?.port();
    tokio::spawn(storefront::serve(shop));
    let config = command.envoy_config(&folder, shop_port)?;
    let mut start = Command::new(envoy);
    start
        .arg("--config-path")
        .arg(config)
        .args(["--concurrency", "2", "--disable-hot-restart"])
        .env_clear()
        .envs(variables(&folder.join("gateway.env"))?);
    programs.start("envoy", start, &folder)?;
    let ready = address(command.envoy_admin_port);
    programs.wait(async || is_ok(ready, "/ready").await).await?;

    storefront::create(address(command.origin_admin_port), &token).await?;
    println!("{}", command.text());
    loop {
        programs.check()?;
        tokio::time::sleep(POLL).await;
    }
}

async fn start_redis(command: &UpCommand, folder: &Path, programs: &mut Programs) -> Result<()> {
    let redis = address(command.redis_port);
    let is_up = async || is_redis(redis).await;
    let named = command.redis.clone();
    let Some(program) = named.or_else(|| on_path(&["redis-server", "valkey-server"])) else {
        ensure!(
            is_up().await,
            "cannot find redis-server or valkey-server on PATH, and no Redis answers at {redis}: install one, or set --redis"
        );
        println!("using the Redis at {redis}");
        return Ok(());
    };
    let data = folder.join("redis");
    fs::create_dir_all(&data)?;
    let mut start = Command::new(program);
    start
        .args(["--bind", "127.0.0.1", "--appendonly", "yes", "--dir"])
        .arg(data)
        .args(["--port", &command.redis_port.to_string()]);
    programs.start("redis", start, folder)?;
    programs.wait(is_up).await
}

async fn start_origin(
    command: &UpCommand,
    folder: &Path,
    programs: &mut Programs,
    variables: Vec<(String, String)>,
) -> Result<()> {
    let admin = address(command.origin_admin_port);
    let mut start = Command::new(std::env::current_exe()?);
    start
        .env_clear()
        .envs(variables)
        .env(
            "WEIR_REDIS_URL",
            format!("redis://{}", address(command.redis_port)),
        )
        .env("WEIR_LISTEN", address(command.origin_port).to_string())
        .env("WEIR_ADMIN_LISTEN", admin.to_string())
        .current_dir(folder);
    programs.start("origin", start, folder)?;
    programs.wait(async || is_ok(admin, "/readyz").await).await
}

impl UpCommand {
    fn filters(&self) -> Result<PathBuf> {
        if let Some(filters) = &self.filters {
            return Ok(fs::canonicalize(filters)?);
        }
        let program = std::env::current_exe()?;
        let release = program.parent().and_then(Path::parent);
        let filters = release.map(|release| release.join("filters"));
        filters
            .filter(|filters| filters.is_dir())
            .context("cannot find the filters: set --filters to the folder filters of a release")
    }

    /// Writes Envoy's configuration with the shop and these ports, only for this machine. Returns its path.
    fn envoy_config(&self, folder: &Path, shop_port: u16) -> Result<PathBuf> {
        let yaml = folder.join("envoy.yaml");
        let text = fs::read_to_string(&yaml)?;
        let tree: Value =
            yaml_serde::from_str(&text).with_context(|| format!("invalid {}", yaml.display()))?;
        let tree = self.edited(tree, shop_port)?;
        let file = folder.join("envoy.up.json");
        fs::write(&file, tree.to_string())?;
        Ok(file)
    }

    fn edited(&self, mut tree: Value, shop_port: u16) -> Result<Value> {
        let ports = [
            (GATEWAY_PORT, self.gateway_port),
            (ENVOY_ADMIN_PORT, self.envoy_admin_port),
            (ORIGIN_PORT, self.origin_port),
            (REDIS_PORT, self.redis_port),
        ];
        let mut has_shop = false;
        visit(&mut tree, &mut |object| {
            if let Some(port) = object.get("port_value").and_then(Value::as_u64) {
                let new = ports
                    .iter()
                    .find(|(shipped, _)| u64::from(*shipped) == port);
                if let Some((_, new)) = new {
                    object.insert("port_value".into(), (*new).into());
                }
                // Without authentication, the gateway must not be reached from elsewhere.
                if object.get("address") == Some(&json!("0.0.0.0")) {
                    object.insert("address".into(), json!("127.0.0.1"));
                }
            }
            if object.get("name") == Some(&json!(LAST_ROUTE)) {
                object.remove("direct_response");
                object.remove("response_headers_to_add");
                object.insert("route".into(), json!({ "cluster": SHOP }));
                has_shop = true;
            }
        });
        ensure!(has_shop, "envoy.yaml has no route named \"{LAST_ROUTE}\"");
        let address = json!({ "address": "127.0.0.1", "port_value": shop_port });
        let endpoint = json!({ "endpoint": { "address": { "socket_address": address } } });
        let clusters = tree.pointer_mut("/static_resources/clusters");
        let clusters = clusters.and_then(Value::as_array_mut);
        clusters.context("envoy.yaml has no clusters")?.push(json!({
            "name": SHOP,
            "type": "STATIC",
            "load_assignment": { "cluster_name": SHOP, "endpoints": [{ "lb_endpoints": [endpoint] }] },
        }));
        Ok(tree)
    }

    fn text(&self) -> String {
        let folder = self.folder.display();
        format!(
            "\n\
             shop          http://localhost:{}/ (the sale starts in half a minute)\n\
             console       http://localhost:{}/ui (WEIR_ADMIN_TOKEN in {folder}/origin.env signs in)\n\
             envoy admin   http://localhost:{}\n\
             redis         redis-cli -p {}\n\
             logs          {folder}/*.log\n\n\
             Ctrl-C stops everything.",
            self.gateway_port, self.origin_admin_port, self.envoy_admin_port, self.redis_port
        )
    }
}

/// The started programs, in the order of their start.
#[derive(Default)]
struct Programs(Vec<Program>);

struct Program {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Programs {
    fn start(&mut self, name: &'static str, mut command: Command, folder: &Path) -> Result<()> {
        let log = folder.join(format!("{name}.log"));
        let output = File::create(&log)?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let program = command.get_program().to_owned();
        let child = command.spawn();
        let child = child.with_context(|| format!("cannot start \"{}\"", program.display()))?;
        self.0.push(Program { name, child, log });
        Ok(())
    }

    /// Waits until the last program is ready.
    async fn wait(&mut self, is_ready: impl AsyncFn() -> bool) -> Result<()> {
        let end = Instant::now() + READY_LIMIT;
        loop {
            self.check()?;
            if is_ready().await {
                return Ok(());
            }
            let name = self.0.last().map_or("", |program| program.name);
            ensure!(
                Instant::now() < end,
                "{name} is not ready after {READY_LIMIT:?}"
            );
            tokio::time::sleep(POLL).await;
        }
    }

    /// Checks that all still run.
    fn check(&mut self) -> Result<()> {
        for Program { name, child, log } in &mut self.0 {
            if let Some(status) = child.try_wait()? {
                let text = fs::read(&*log).unwrap_or_default();
                let tail = text.get(text.len().saturating_sub(LOG_TAIL_BYTES)..);
                let tail = String::from_utf8_lossy(tail.unwrap_or_default());
                bail!(
                    "{name} ended ({status}); the end of {}:\n{tail}",
                    log.display()
                );
            }
        }
        Ok(())
    }

    /// Stops all, the last one first.
    fn stop(&mut self) {
        while let Some(Program { mut child, .. }) = self.0.pop() {
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                kill_process(pid, Signal::TERM).ok();
            }
            let end = Instant::now() + STOP_LIMIT;
            while matches!(child.try_wait(), Ok(None)) {
                if Instant::now() > end {
                    child.kill().ok();
                }
                std::thread::sleep(POLL);
            }
        }
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Calls `each` for all objects.
fn visit(value: &mut Value, each: &mut impl FnMut(&mut serde_json::Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            each(object);
            object.values_mut().for_each(|value| visit(value, each));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| visit(value, each)),
        _ => {}
    }
}

fn on_path(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let files = names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    files.into_iter().find(|file| file.is_file())
}

/// The lines `NAME=VALUE` that `init` wrote.
fn variables(path: &Path) -> Result<Vec<(String, String)>> {
    let text = fs::read_to_string(path);
    let text = text.with_context(|| format!("cannot read \"{}\"", path.display()))?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once('='));
    Ok(pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect())
}

fn address(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn now_ms() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis()
}

async fn is_redis(address: SocketAddr) -> bool {
    let exchange = exchange(address, "PING\r\n", |reply| reply.ends_with(b"\r\n"));
    exchange.await.is_ok_and(|reply| reply.starts_with("+PONG"))
}

async fn is_ok(address: SocketAddr, path: &str) -> bool {
    let status = request(address, "GET", path, "", "").await;
    status.is_ok_and(|(status, _)| status == 200)
}

/// Sends one request. Returns the status and the whole answer.
async fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    token: &str,
    body: &str,
) -> Result<(u16, String)> {
    let length = body.len();
    let text = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    let answer = exchange(address, &text, |_| false).await?;
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Ok((status.context("no HTTP answer")?, answer))
}

/// Sends a text, and reads until the server closes the connection or `is_complete`.
async fn exchange(
    address: SocketAddr,
    text: &str,
    is_complete: impl Fn(&[u8]) -> bool,
) -> Result<String> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(text.as_bytes()).await?;
        let mut answer = Vec::new();
        while stream.read_buf(&mut answer).await? > 0 && !is_complete(&answer) {}
        anyhow::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = tokio::time::timeout(REQUEST_LIMIT, exchange).await;
    answer.with_context(|| format!("no answer from {address}"))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        up: UpCommand,
    }

    #[test]
    fn envoy_file_gets_the_ports_and_the_shop_on_this_machine() {
        let flags = [
            "up",
            "--gateway-port",
            "1",
            "--redis-port",
            "2",
            "--origin-port",
            "3",
        ];
        let command = Flags::parse_from(flags).up;
        let text = include_str!("../../../../envoy/all.yaml");
        let tree = command
            .edited(yaml_serde::from_str(text).unwrap(), 4)
            .unwrap();
        let text = tree.to_string();
        for port in [1, 2, 3, 4, ENVOY_ADMIN_PORT] {
            assert!(
                text.contains(&format!("\"port_value\":{port}}}")),
                "{port}: {text}"
            );
        }
        for gone in ["\"port_value\":10000", "\"port_value\":6379", "0.0.0.0"] {
            assert!(!text.contains(gone), "{gone}: {text}");
        }
        assert!(
            text.contains(r#""route":{"cluster":"weir_storefront"}"#),
            "{text}"
        );
        assert!(command.edited(json!({}), 4).is_err());
    }
}
