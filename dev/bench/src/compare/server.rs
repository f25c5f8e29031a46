//! Starts the systems, each with one worker on one core.

use super::cores::{self, Cores};
use super::peers::Peers;
use super::request::{ADMIN_TOKEN, HOST, Kind, TOKEN_SECRET, VISITORS, Writer, code};
use super::store::Store;
use super::system::System;
use anyhow::{Context, Result, ensure};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weir_sale::redis::{claim, release};
use weir_scripts::keys::DEFAULT_PREFIX;
use weir_stack::envoy::{Envoy, EnvoyConfig, EnvoyOptions, GATE, set};
use weir_stack::native::Host;
use weir_stack::origin::{Origin, OriginOptions};
use weir_stack::process::Process;
use weir_stack::tools::Tools;
use weir_stack::wasm::{self, Messages};
use weir_stack::{Secrets, ports, workspace};

/// A room without admissions: each visitor is new and gets a position.
const ROOM: &str = r#"{ "redis": { "cluster": "weir_redis", "key_prefix": "weir", "deadline_ms": 200 },
    "keys": [{ "id": "k1", "secret": { "env": "WEIR_ROOM_SECRET" } }], "user_header": "x-user-id",
    "rooms": [{ "name": "shop", "match": { "path": { "prefix": "/" } }, "mode": "paused", "status": 202,
        "per_address": { "places": 1000000 } }] }"#;

/// One rule per user that never refuses, so only the decision is measured. It has four slots per user.
const USER_LIMIT: &str = r#"{ "user_header": "x-user-id", "rules": [{ "name": "per-user", "key": ["user"],
    "slots": 32768, "limit": { "rate": 1000000, "per": "1s" } }] }"#;

/// Envoy's own answer to orders that pass.
const ORDERED: &str = r#"{"order":"made"}"#;

/// Claims outlive every run, so no unit returns meanwhile.
const CLAIM_TTL_MS: u64 = 3_600_000;

const READY_LIMIT: Duration = Duration::from_secs(30);

/// The environment for starting systems.
pub(super) struct BenchEnv<'a> {
    pub(super) tools: &'a Tools,
    pub(super) peers: &'a Peers,
    pub(super) cores: Cores,
    pub(super) dir: &'a Path,
    /// Returns the origin's binary; called only when needed.
    pub(super) origin: fn() -> Result<PathBuf>,
    /// The native module's build.
    pub(super) native: Host,
}

/// A running system.
pub(super) struct Server {
    pub(super) system: System,
    pub(super) address: SocketAddr,
    /// All processes of the system on its core, including sidecars.
    pub(super) pids: Vec<u32>,
    /// Its own Redis, if it has one.
    pub(super) store: Option<Store>,
    /// The gateway, for its stats and memory, if it is Envoy.
    pub(super) envoy: Option<Envoy>,
    origin: Option<Origin>,
    processes: Vec<Process>,
}

impl Server {
    /// Returns an error if a process of the system ended.
    pub(super) fn check(&mut self) -> Result<()> {
        if let Some(envoy) = &mut self.envoy {
            envoy.check()?;
        }
        if let Some(origin) = &mut self.origin {
            origin.check()?;
        }
        for process in &mut self.processes {
            process.check()?;
        }
        Ok(())
    }
}

impl BenchEnv<'_> {
    /// Starts `system` for requests of `kind`.
    pub(super) async fn start(&self, system: System, kind: Kind) -> Result<Server> {
        let dir = self.dir.join(format!("{system:?}"));
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        match system {
            System::NginxLua | System::NginxFair | System::NginxLimit | System::NginxReturn => {
                self.nginx(system, kind, &dir).await
            }
            System::EnvoyWebdis => self.webdis(kind, &dir).await,
            System::EnvoyLeast => self.least(&dir).await,
            System::Weir if kind == Kind::MakeLink => self.origin(&dir).await,
            System::Weir | System::WeirNative | System::WeirNativeHttp
                if kind != Kind::UserLimit =>
            {
                let store = self.store(kind, &dir).await?;
                let config = weir(kind)?.redis("127.0.0.1", store.port())?;
                let server = self.envoy(system, config, Some(store), &dir).await?;
                if kind == Kind::Position {
                    join(server.address).await?;
                }
                Ok(server)
            }
            _ => {
                self.envoy(system, without_redis(system, kind)?, None, &dir)
                    .await
            }
        }
    }

    /// The host of the filters.
    fn host(&self, system: System) -> Host {
        match system {
            System::WeirNative | System::WeirNativeHttp => self.native,
            _ => Host::Wasm,
        }
    }

    async fn store(&self, kind: Kind, dir: &Path) -> Result<Store> {
        Store::start(&self.tools.redis, self.cores.redis, dir, kind).await
    }

    async fn envoy(
        &self,
        system: System,
        config: EnvoyConfig,
        store: Option<Store>,
        dir: &Path,
    ) -> Result<Server> {
        let port = ports::free()?;
        let secret = |name: &str| (name.to_owned(), TOKEN_SECRET.to_owned());
        let config = config
            .host(self.host(system))
            .gateway_port(port)?
            .admin_port(ports::free()?)?;
        let config = match system {
            System::WeirNativeHttp => config.without_fast_path()?,
            _ => config,
        };
        let options = EnvoyOptions {
            clock_ahead_ms: None,
            drain_s: None,
            config,
            workers: 1,
            log_level: "error".to_owned(),
            variables: ["WEIR_CLAIM_SECRET", "WEIR_TOKEN_SECRET", "WEIR_ROOM_SECRET"]
                .map(secret)
                .to_vec(),
            dir: dir.to_path_buf(),
        };
        let mut envoy = Envoy::start(&self.tools.envoy, &options).await?;
        let pid = envoy.process().pid().context("Envoy has ended")?;
        cores::pin(pid, self.cores.server)?;
        Ok(Server {
            system,
            address: ([127, 0, 0, 1], port).into(),
            pids: vec![pid],
            store,
            envoy: Some(envoy),
            origin: None,
            processes: Vec::new(),
        })
    }

    /// Runs as operators run it, with Redis and SQLite.
    async fn origin(&self, dir: &Path) -> Result<Server> {
        let store = self.store(Kind::MakeLink, dir).await?;
        let domains = dir.join("links.json");
        let json = format!(r#"{{"domains":[{{"id":"b","hosts":["{HOST}"]}}]}}"#);
        std::fs::write(&domains, json).context("cannot write links.json")?;
        let options = OriginOptions {
            events_log: None,
            fitment: None,
            edge_secret: None,
            port: ports::free()?,
            admin_port: ports::free()?,
            database: dir.join("weir.db"),
            redis_url: store.url(),
            redis_ca: None,
            key_prefix: DEFAULT_PREFIX.to_owned(),
            risk_rules: None,
            links: Some(domains),
            // No payments occur.
            provider_port: 9,
            flags: vec![],
            secrets: Secrets {
                admin_token: ADMIN_TOKEN.to_owned(),
                ..Secrets::random()?
            },
        };
        let port = options.admin_port;
        let binary = (self.origin)()?;
        let mut origin = Origin::start(&binary, options, &dir.join("origin.log")).await?;
        let pid = origin.process().pid().context("the origin has ended")?;
        cores::pin(pid, self.cores.server)?;
        Ok(Server {
            system: System::Weir,
            address: ([127, 0, 0, 1], port).into(),
            pids: vec![pid],
            store: Some(store),
            envoy: None,
            origin: Some(origin),
            processes: Vec::new(),
        })
    }

    async fn least(&self, dir: &Path) -> Result<Server> {
        let module = wat::parse_str(peer_file("least.wat")?).context("least.wat")?;
        let file = dir.join("least.wasm");
        std::fs::write(&file, module).context("cannot write least.wasm")?;
        let http = peer_file("envoy-least.yaml")?.replace("@LEAST@", &file.to_string_lossy());
        let config = EnvoyConfig::shipped()?.with_http_of(&http)?;
        self.envoy(System::EnvoyLeast, config, None, dir).await
    }

    async fn webdis(&self, kind: Kind, dir: &Path) -> Result<Server> {
        let webdis = self.peers.webdis()?.path.clone();
        let store = self.store(kind, dir).await?;
        let (port, redis_port) = (ports::free()?, store.port());
        let config = peer_file("webdis.json")?
            .replace(
                "\"redis_port\": 6379",
                &format!("\"redis_port\": {redis_port}"),
            )
            .replace("\"http_port\": 7379", &format!("\"http_port\": {port}"));
        let file = dir.join("webdis.json");
        std::fs::write(&file, config).context("cannot write webdis.json")?;
        let make = move || {
            let mut command = Command::new(&webdis);
            command.arg(&file);
            command
        };
        let mut process = Process::start("webdis", &dir.join("webdis.log"), make)?;
        wait_for(&mut process, port).await?;
        let pid = process.pid().context("Webdis has ended")?;
        cores::pin(pid, self.cores.server)?;
        let built = wasm::build_peers(&self.tools.wasm, Messages::Keep)?;
        let gate = built.iter().find(|module| module.name == "webdis-gate");
        let gate = gate.context("there is no bench/peers/webdis-gate")?;
        let http = peer_file("envoy-webdis.yaml")?
            .replace("@WEBDIS_GATE@", &gate.path.to_string_lossy())
            .replace("port_value: 7379", &format!("port_value: {port}"));
        let config = EnvoyConfig::shipped()?.with_http_of(&http)?;
        let mut server = self
            .envoy(System::EnvoyWebdis, config, Some(store), dir)
            .await?;
        server.pids.push(pid);
        server.processes.push(process);
        Ok(server)
    }

    async fn nginx(&self, system: System, kind: Kind, dir: &Path) -> Result<Server> {
        let nginx = self.peers.nginx()?.path.clone();
        let asks_redis = matches!(
            kind,
            Kind::Claim
                | Kind::TokenClaim
                | Kind::Sale
                | Kind::Redirect
                | Kind::RedirectRedis
                | Kind::Fitment
        );
        let store = match asks_redis && matches!(system, System::NginxLua | System::NginxFair) {
            true => Some(self.store(kind, dir).await?),
            false => None,
        };
        let port = ports::free()?;
        let sha = store.as_ref().map_or("", Store::claim_sha);
        let redis_port = store.as_ref().map_or(6379, Store::port);
        let config = peer_file("nginx.conf")?
            .replace("127.0.0.1:10000", &format!("127.0.0.1:{port}"))
            .replace(
                "\"127.0.0.1\", 6379",
                &format!("\"127.0.0.1\", {redis_port}"),
            )
            .replace("@LEAN_SHA@", sha)
            .replace("@CLAIM_SHA@", &claim::SCRIPT.sha1_hex())
            .replace("@RELEASE_SHA@", &release::SCRIPT.sha1_hex())
            .replace(
                "@FITMENT_SHA@",
                &weir_fitment::redis::fit_query::SCRIPT.sha1_hex(),
            )
            .replace("@PEERS@", &peers().display().to_string());
        let file = dir.join("nginx.conf");
        std::fs::write(&file, config).context("cannot write nginx.conf")?;
        let (path, prefix, core) = (nginx, dir.to_path_buf(), self.cores.server);
        let make = move || {
            // The worker starts pinned to the core.
            let mut command = Command::new("taskset");
            command.args(["--cpu-list", &core.to_string()]).arg(&path);
            command.arg("-p").arg(&prefix).arg("-c").arg(&file);
            command.env("WEIR_TOKEN_SECRET", TOKEN_SECRET);
            command
        };
        let mut process = Process::start("nginx", &dir.join("nginx.log"), make)?;
        let pid = process.pid().context("nginx has ended")?;
        // The server listens before it starts the worker, whose CPU time is measured.
        let works = || async { !cores::children(pid).is_empty() };
        process.wait_ready(READY_LIMIT, works).await?;
        wait_for(&mut process, port).await?;
        Ok(Server {
            system,
            address: ([127, 0, 0, 1], port).into(),
            pids: [vec![pid], cores::children(pid)].concat(),
            store,
            envoy: None,
            origin: None,
            processes: vec![process],
        })
    }
}

/// The shipped gateway, with Envoy itself in place of the origin. Limits are a separate scenario.
fn weir(kind: Kind) -> Result<EnvoyConfig> {
    if kind == Kind::Fitment {
        // The same timeout as its peer: on a busy machine, answers are late but equal.
        return EnvoyConfig::fitment()?.edit_filter("weir.fitment", |json| {
            set(json, "/redis/deadline_ms", 5_000)
        });
    }
    if matches!(kind, Kind::Join | Kind::Position) {
        return EnvoyConfig::waiting_room()?.room_config(ROOM);
    }
    if kind.links() > 0 {
        return EnvoyConfig::shortlink()?.edit_filter("weir.shortlink_redirect", |json| {
            if kind == Kind::RedirectRedis {
                set(json, "/cache/entries_max", 0)?;
            }
            Ok(())
        });
    }
    let config = EnvoyConfig::shipped()?.edit_filter(GATE, |json| {
        set(json, "/claim/ttl_ms", CLAIM_TTL_MS)?;
        if kind != Kind::Sale
            && let Some(fields) = json.as_object_mut()
        {
            fields.remove("limits");
        }
        Ok(())
    })?;
    config.orders_answered(ORDERED)
}

fn without_redis(system: System, kind: Kind) -> Result<EnvoyConfig> {
    match (system, kind) {
        (System::Weir | System::WeirNative, _) => {
            EnvoyConfig::ratelimit(false)?.limiter_config(USER_LIMIT)
        }
        (System::EnvoyDirect, Kind::Redirect) => EnvoyConfig::shortlink()?.redirecting(),
        (System::EnvoyRoutes, kind) => {
            let codes = (0..kind.links()).filter_map(code);
            let paths = codes.map(|code| format!("/{}", code.as_str()));
            EnvoyConfig::shortlink()?.redirecting_each(paths)
        }
        (System::EnvoyDirect, Kind::UserLimit) => EnvoyConfig::ratelimit(false)?.without_limiter(),
        (System::EnvoyLua, _) => of_peer("envoy-lua.yaml"),
        (System::EnvoyLimit, _) => of_peer("envoy-local-ratelimit.yaml"),
        _ => of_peer("envoy-direct.yaml"),
    }
}

fn of_peer(file: &str) -> Result<EnvoyConfig> {
    EnvoyConfig::shipped()?.with_http_of(&peer_file(file)?)
}

fn peers() -> PathBuf {
    workspace::root().join("bench/peers")
}

/// Reads a file in `bench/peers`.
pub(super) fn peer_file(name: &str) -> Result<String> {
    let path = peers().join(name);
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Lets the visitors of [`Kind::Position`] join the queue, in order.
async fn join(address: SocketAddr) -> Result<()> {
    let mut writer = Writer::new(Kind::Join, System::Weir, 0, 0)?;
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    for visitor in 0..VISITORS {
        let (mut request, mut answer) = (Vec::new(), Vec::new());
        writer.write(visitor, &mut request);
        stream.write_all(&request).await?;
        while !answer.ends_with(b"}") {
            let count = stream.read_buf(&mut answer).await?;
            ensure!(count > 0, "the gateway has closed the connection");
        }
        ensure!(
            answer.starts_with(b"HTTP/1.1 202"),
            "visitor {visitor} cannot join: {}",
            String::from_utf8_lossy(&answer)
        );
    }
    Ok(())
}

async fn wait_for(process: &mut Process, port: u16) -> Result<()> {
    let ready = || async {
        tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .is_ok()
    };
    process.wait_ready(READY_LIMIT, ready).await
}
