//! A rolling update with the chart's commands as local processes: clients on keep-alive connections see no reset and no
//! 5xx, and no acknowledged order is lost.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::task::JoinSet;
use weir_dist::binaries::Build;
use weir_dist::folder::Folder;
use weir_dist::make;
use weir_stack::http::{self, Connection, Method};
use weir_stack::process::Process;
use weir_stack::redis::RedisServer;
use weir_stack::report::Console;
use weir_stack::sale::{known_at, sale_json};
use weir_stack::{ports, tools};

use super::gateway::Gateway;
use super::{KUBERNETES, Manifests, PROBE, READY_LIMIT, texts};

const VALUES: &str = "
gateway: { drainSeconds: 3 }
origin: { replicas: 2, databaseUrlSecret: database, drainSeconds: 7 }
";

const CLIENTS: u64 = 4;
/// A health check of a gateway, and orders that it has sent before.
const CHECKED: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread")]
async fn rolling_update_loses_no_request() -> Result<()> {
    let Some(charts) = super::tools("1 test of rolling updates") else {
        return Ok(());
    };
    let temp = tempfile::tempdir()?;
    let folder = make(&temp.path().join("dist"), Build::Fast)?;
    let manifests = Manifests::parse(&charts.render(&folder, KUBERNETES, VALUES)?)?;
    let mut cluster = Cluster::start(&folder, &manifests, temp.path()).await?;
    cluster.open_sale().await?;

    let traffic = Arc::new(Traffic::new(&cluster.gateways));
    let mut tasks = JoinSet::new();
    tasks.spawn(traffic.clone().probe());
    for client in 0..CLIENTS {
        tasks.spawn(traffic.clone().shop(client));
    }
    tokio::time::sleep(PROBE * 2).await;
    for origin in &mut cluster.origins {
        origin.replace().await.context("origin")?;
    }
    for gateway in &mut cluster.gateways {
        let before = traffic.closed.load(Ordering::Relaxed);
        gateway.replace().await.context("gateway")?;
        let closed = traffic.closed.load(Ordering::Relaxed);
        assert!(closed > before, "the drain closed no connection");
    }
    traffic.is_over.store(true, Ordering::Relaxed);
    while let Some(done) = tasks.join_next().await {
        done??;
    }

    let bought = traffic.bought.load(Ordering::Relaxed);
    assert!(bought > 100, "{bought} orders");
    let books = cluster.admin(Method::GET, "/sales/s/audit", "").await?;
    assert_eq!(books["balanced"], true, "{books}");
    assert_eq!(books["terms"]["orders"], bought, "{books}");
    Ok(())
}

/// The requests of all clients.
struct Traffic {
    gateways: Vec<(String, String)>,
    /// Whether the last probe of each gateway succeeded, as a service's list of endpoints.
    ready: Vec<AtomicBool>,
    is_over: AtomicBool,
    bought: AtomicU64,
    /// Connections that a gateway has asked to close.
    closed: AtomicU64,
}

impl Traffic {
    fn new(gateways: &[Gateway]) -> Self {
        let addresses = gateways.iter();
        let addresses = addresses.map(|gateway| (gateway.address.clone(), gateway.ready.clone()));
        Self {
            gateways: addresses.collect(),
            ready: gateways.iter().map(|_| AtomicBool::new(true)).collect(),
            is_over: AtomicBool::new(false),
            bought: AtomicU64::new(0),
            closed: AtomicU64::new(0),
        }
    }

    async fn probe(self: Arc<Self>) -> Result<()> {
        while !self.is_over.load(Ordering::Relaxed) {
            for ((_, probe), ready) in self.gateways.iter().zip(&self.ready) {
                ready.store(http::is_ok(probe).await, Ordering::Relaxed);
            }
            tokio::time::sleep(PROBE).await;
        }
        Ok(())
    }

    /// Buys one unit after another on one connection, until a gateway closes it.
    async fn shop(self: Arc<Self>, client: u64) -> Result<()> {
        let mut connection = None;
        for number in 0_u64.. {
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            let mut open = match connection.take() {
                Some(open) => open,
                None => self.connect(client).await?,
            };
            let user = format!("user-{client}-{number}");
            let headers = [("x-user-id", user.as_str())];
            let answer = open.send(Method::POST, "/sales/s/orders", &headers, "");
            let answer = answer.await.with_context(|| format!("{user} was reset"))?;
            ensure!(answer.status == 201, "{user}: {answer:?}");
            self.bought.fetch_add(1, Ordering::Relaxed);
            match answer.header("connection") {
                Some("close") => {
                    self.closed.fetch_add(1, Ordering::Relaxed);
                }
                _ => connection = Some(open),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Connects to a ready gateway.
    async fn connect(&self, client: u64) -> Result<Connection> {
        let mut order: Vec<_> = self.gateways.iter().zip(&self.ready).collect();
        let first = usize::try_from(client)? % order.len();
        order.rotate_left(first);
        for ((address, _), ready) in order {
            if ready.load(Ordering::Relaxed) {
                return Connection::open(address).await;
            }
        }
        bail!("no gateway is ready")
    }
}

struct Cluster {
    origins: Vec<Origin>,
    gateways: Vec<Gateway>,
    token: String,
    _redis: RedisServer,
}

impl Cluster {
    async fn start(folder: &Folder, manifests: &Manifests, dir: &Path) -> Result<Self> {
        let redis = tools::Redis::find_or_get(&mut Console)?;
        let (port, data) = (ports::free()?, dir.join("redis"));
        let redis = RedisServer::start(&redis, port, &data, &dir.join("redis.log")).await?;
        let mut origins = Vec::new();
        for number in 0..2 {
            let dir = dir.join(format!("origin-{number}"));
            origins.push(Origin::start(folder, manifests, &dir, &redis.url()).await?);
        }
        let addresses: Vec<_> = origins.iter().map(|origin| origin.address).collect();
        let mut gateways = Vec::new();
        for number in 0..2 {
            let dir = dir.join(format!("gateway-{number}"));
            let (filters, addresses) = (folder.at("filters"), addresses.as_slice());
            gateways.push(Gateway::start(manifests, &filters, &dir, port, addresses).await?);
        }
        Ok(Self {
            origins,
            gateways,
            token: "WEIR_ADMIN_TOKEN".repeat(3),
            _redis: redis,
        })
    }

    async fn admin(&self, method: Method, path: &str, body: &str) -> Result<Value> {
        let token = format!("Bearer {}", self.token);
        let headers = [
            ("authorization", token.as_str()),
            ("content-type", "application/json"),
        ];
        let url = format!("{}{path}", self.origins[0].admin);
        let answer = http::send(method, &url, &headers, body.to_owned()).await?;
        ensure!(answer.status < 300, "{path}: {answer:?}");
        answer.json()
    }

    /// Opens a sale and waits until both gateways know it.
    async fn open_sale(&self) -> Result<()> {
        let sale = sale_json("s", 100_000, 4)?.to_string();
        self.admin(Method::POST, "/sales", &sale).await?;
        self.admin(Method::POST, "/sales/s/warm", "").await?;
        for gateway in &self.gateways {
            known_at(&format!("http://{}", gateway.address), "s").await?;
        }
        Ok(())
    }
}

struct Origin {
    process: Option<Process>,
    address: std::net::SocketAddr,
    admin: String,
}

impl Origin {
    /// Starts the container's command. Both origins share a SQLite file, on one machine.
    async fn start(
        folder: &Folder,
        manifests: &Manifests,
        dir: &Path,
        redis: &str,
    ) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], ports::free()?));
        let admin = format!("127.0.0.1:{}", ports::free()?);
        let arguments = texts(&manifests.origin()?["args"])?;
        let arguments = arguments
            .into_iter()
            .map(|argument| match argument.as_str() {
                "0.0.0.0:8080" => address.to_string(),
                "0.0.0.0:8081" => admin.clone(),
                _ => argument,
            });
        let arguments: Vec<_> = arguments.collect();
        let mut variables = manifests.parts(&folder.at("filters"), dir)?.origin;
        let database = dir.with_file_name("weir.db");
        let database = format!("sqlite://{}", database.display());
        variables.push(("WEIR_DATABASE_URL".to_owned(), database));
        variables.push(("WEIR_REDIS_URL".to_owned(), redis.to_owned()));
        let (binary, cwd) = (folder.at(weir_dist::binaries::ORIGIN), dir.to_path_buf());
        let process = Process::start("origin", &dir.join("origin.log"), move || {
            let mut origin = Command::new(&binary);
            origin.env_clear().envs(variables.iter().cloned());
            origin.current_dir(&cwd).args(&arguments);
            origin
        })?;
        let admin = format!("http://{admin}");
        let mut origin = Self {
            process: Some(process),
            address,
            admin,
        };
        origin.wait_ready().await?;
        Ok(origin)
    }

    async fn wait_ready(&mut self) -> Result<()> {
        let ready = format!("{}/readyz", self.admin);
        let is_ready = || http::is_ok(&ready);
        let process = self.process.as_mut().context("it has not started")?;
        process.wait_ready(READY_LIMIT, is_ready).await
    }

    /// Stops it with SIGTERM, and starts it again. Before it stops accepting, gateways stop sending.
    async fn replace(&mut self) -> Result<()> {
        let mut process = self.process.take().context("it has not started")?;
        let stopped = tokio::task::spawn_blocking(move || {
            process.stop();
            process
        });
        tokio::time::sleep(CHECKED).await;
        let before = self.orders().await.context("it does not drain")?;
        ensure!(!before.is_empty(), "it had no orders");
        tokio::time::sleep(PROBE).await;
        let after = self.orders().await.context("it drains too shortly")?;
        ensure!(
            before == after,
            "gateways send orders to an origin that drains"
        );
        let mut process = stopped.await?;
        let log = std::fs::read_to_string(process.log())?;
        ensure!(log.contains("\"stopped\""), "it was killed: {log}");
        process.start_again()?;
        self.process = Some(process);
        self.wait_ready().await?;
        tokio::time::sleep(CHECKED).await;
        Ok(())
    }

    /// The counters of its orders.
    async fn orders(&self) -> Result<Vec<String>> {
        let metrics = http::get(&format!("{}/metrics", self.admin)).await?.text();
        let start = "weir_origin_requests_total{route=\"/orders\",";
        let lines = metrics.lines().filter(|line| line.starts_with(start));
        Ok(lines.map(str::to_owned).collect())
    }
}
