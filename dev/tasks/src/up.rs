//! `cargo xtask up`: Redis, origin and Envoy until Ctrl-C.

pub mod everything;

use anyhow::{Context, Result, anyhow};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::signal::unix::{Signal, SignalKind, signal};
use weir_stack::native::Host;
use weir_stack::report::{Console, ProgressReporter};
use weir_stack::storefront::Storefront;
use weir_stack::tools::{self, Options, WasmToolchain};
use weir_stack::wasm::{self, Messages};
use weir_stack::{Builder, Stack, ports};

/// The interval between checks of the children.
const WATCH: Duration = Duration::from_millis(200);

/// More workers would compete with Redis, the origin and clients for cores.
const WORKERS_DEFAULT_MAX: usize = 2;

// The default ports of `up`. Redis avoids 6379, where another Redis may run.
const GATEWAY_PORT: u16 = 10_000;
const ORIGIN_PORT: u16 = 8080;
const ORIGIN_ADMIN_PORT: u16 = 8081;
const ENVOY_ADMIN_PORT: u16 = 9901;
const REDIS_PORT: u16 = 6390;
const STOREFRONT_PORT: u16 = 10_010;

/// Time to look at the countdown of the sample shop.
const DROP_STARTS_IN: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, clap::Args)]
#[expect(
    missing_docs,
    reason = "clap would print them as the task's own description"
)]
// Flattened into the demo's arguments, where a group with this struct's name would exist twice.
#[group(skip)]
pub struct Arguments {
    /// Port of the gateway [default: 10000]
    #[arg(long, value_name = "PORT")]
    gateway_port: Option<u16>,

    /// Public port of the origin [default: 8080]
    #[arg(long, value_name = "PORT")]
    origin_port: Option<u16>,

    /// Admin port of the origin [default: 8081]
    #[arg(long, value_name = "PORT")]
    origin_admin_port: Option<u16>,

    /// Admin port of Envoy [default: 9901]
    #[arg(long, value_name = "PORT")]
    envoy_admin_port: Option<u16>,

    /// Port of the Redis to start [default: 6390]
    #[arg(long, value_name = "PORT", conflicts_with = "redis_url")]
    redis_port: Option<u16>,

    /// Use this running Redis instead, as redis://HOST:PORT
    #[arg(long, value_name = "URL")]
    redis_url: Option<String>,

    /// Store events in this Kafka, as kafka://HOST:PORT,HOST:PORT/TOPIC
    ///
    /// Builds the origin with the Kafka client, which takes a minute once. For a single broker:
    /// kafka://127.0.0.1:9092/events?replicas=1
    #[arg(long, value_name = "URL")]
    events: Option<String>,

    /// Host of the filters: WebAssembly or the native module [default: WEIR_HOST, else wasm]
    #[arg(long, value_name = "HOST", value_parser = ["wasm", "native"])]
    host: Option<String>,

    /// Worker threads of Envoy [default: the number of cores, at most 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    workers: Option<u32>,

    /// Folder for data, logs and secrets [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Debug, Clone, clap::Args)]
#[expect(
    missing_docs,
    reason = "clap would print them as the task's own description"
)]
#[group(skip)]
pub struct ShopArguments {
    /// Port of the sample shop [default: 10010]
    #[arg(long, value_name = "PORT")]
    storefront_port: Option<u16>,

    /// Let pages of this origin use the gateway, such as `https://shop.test:5173`; repeatable
    ///
    /// Pages of any port of localhost and 127.0.0.1 already may.
    #[arg(long = "origin", value_name = "URL", value_parser = page_origin)]
    origins: Vec<String>,
}

#[derive(Debug, Clone, clap::Args)]
#[expect(
    missing_docs,
    reason = "clap would print them as the task's own description"
)]
pub struct UpArguments {
    #[command(flatten)]
    stack: Arguments,

    #[command(flatten)]
    shop: ShopArguments,
}

/// The default for unset ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnnamedPorts {
    /// The fixed ports of `up`.
    Default,
    /// Free ports.
    Free,
}

/// Runs everything until it is stopped.
pub fn run(arguments: &UpArguments, tools: Options) -> Result<ExitCode> {
    let UpArguments { stack, shop } = arguments;
    let mut builder = prepare(stack, tools, UnnamedPorts::Default)?;
    // There is no native file with all filters yet.
    let has_all = Host::of_run() == Host::Wasm;
    builder = match has_all {
        true => everything::of(builder, stack),
        false => builder,
    };
    builder = shop.for_pages(builder);
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        let mut stop = Stop::new()?;
        let mut stack = tokio::select! {
            stack = start(builder) => stack?,
            () = stop.wait_for_signal() => return Ok(ExitCode::SUCCESS),
        };
        let shop = shop.serve(&stack, UnnamedPorts::Default, has_all).await?;
        match has_all {
            true => println!("{}", everything::begin(&stack, &shop).await?),
            false => println!("{}", describe(&stack, Some(&shop), "demo")),
        }
        stay_up(&mut stack, &mut stop).await
    })
}

/// Checks the ports and builds outdated programs.
///
/// This runs before [`Stop`] is created: it can take minutes, in which Ctrl-C and SIGTERM must end the process as
/// usual. Nothing is running yet that must be stopped in order.
pub fn prepare(arguments: &Arguments, tools: Options, unnamed: UnnamedPorts) -> Result<Builder> {
    if let Some(host) = arguments.host.as_deref().and_then(Host::named) {
        host.choose();
    }
    let builder = arguments.builder(unnamed)?.tools(tools.clone());
    let needs_redis = arguments.redis_url.is_none();
    // Downloads and compilation run in parallel, because downloads use little CPU.
    std::thread::scope(|scope| {
        let got = scope.spawn(|| get_tools(&tools, needs_redis));
        build_filters()?;
        let got = got.join();
        got.unwrap_or_else(|_| Err(anyhow!("the thread that finds tools panicked")))
    })?;
    match arguments.events {
        Some(_) => weir_stack::origin::ensure_built_with_kafka(&[])?,
        None => weir_stack::origin::ensure_built()?,
    };
    Ok(builder)
}

fn build_filters() -> Result<()> {
    match Host::of_run() {
        Host::Wasm => {
            let toolchain = WasmToolchain::find_or_get(&mut ProgressReporter)?;
            wasm::build_filters(&toolchain, Messages::Show).map(drop)
        }
        native => native.ensure_built(),
    }
}

fn get_tools(options: &Options, needs_redis: bool) -> Result<()> {
    tools::Envoy::find_or_get(options, &mut ProgressReporter)?;
    if needs_redis {
        tools::Redis::find_or_get(&mut ProgressReporter)?;
    }
    Ok(())
}

/// Starts everything.
pub async fn start(builder: Builder) -> Result<Stack> {
    builder.start_reporting(&mut Console).await
}

/// Waits for Ctrl-C or a child's unexpected end.
pub async fn stay_up(stack: &mut Stack, stop: &mut Stop) -> Result<ExitCode> {
    loop {
        tokio::select! {
            () = stop.wait_for_signal() => break,
            () = tokio::time::sleep(WATCH) => stack.check_children()?,
        }
    }
    eprintln!("stopping…");
    stack.stop();
    Ok(ExitCode::SUCCESS)
}

impl Arguments {
    /// Whether events are stored in Kafka.
    pub(crate) fn has_kafka(&self) -> bool {
        self.events.is_some()
    }

    /// The number of Envoy's worker threads.
    pub fn workers(&self) -> u32 {
        self.workers.unwrap_or_else(|| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            cores.min(WORKERS_DEFAULT_MAX) as u32
        })
    }

    /// The gateway's port.
    fn chosen_gateway_port(&self) -> u16 {
        self.gateway_port.unwrap_or(GATEWAY_PORT)
    }

    fn builder(&self, unnamed: UnnamedPorts) -> Result<Builder> {
        let port = |named: Option<u16>, default: u16, flag: &str| -> Result<Option<u16>> {
            let port = match (named, unnamed) {
                (Some(named), _) => named,
                (None, UnnamedPorts::Default) => default,
                (None, UnnamedPorts::Free) => return Ok(None),
            };
            ports::check(port, flag)?;
            Ok(Some(port))
        };
        let mut builder = Stack::builder().workers(self.workers());
        if let Some(port) = port(self.gateway_port, GATEWAY_PORT, "--gateway-port")? {
            builder = builder.gateway_port(port);
        }
        if let Some(port) = port(self.origin_port, ORIGIN_PORT, "--origin-port")? {
            builder = builder.origin_port(port);
        }
        let flag = "--origin-admin-port";
        if let Some(port) = port(self.origin_admin_port, ORIGIN_ADMIN_PORT, flag)? {
            builder = builder.origin_admin_port(port);
        }
        let flag = "--envoy-admin-port";
        if let Some(port) = port(self.envoy_admin_port, ENVOY_ADMIN_PORT, flag)? {
            builder = builder.envoy_admin_port(port);
        }
        if let Some(url) = &self.redis_url {
            builder = builder.redis_url(url);
        } else if let Some(port) = port(self.redis_port, REDIS_PORT, "--redis-port")? {
            builder = builder.redis_port(port);
        }
        if let Some(url) = &self.events {
            builder = builder.events_on_kafka(url);
        }
        if let Some(dir) = &self.data {
            builder = builder.data_dir(dir);
        }
        Ok(builder)
    }
}

impl ShopArguments {
    /// Lets pages of local ports and of `--origin` use the gateway.
    pub(crate) fn for_pages(&self, builder: Builder) -> Builder {
        let origins = self.origins.clone();
        builder.edit_config(move |config| config.cors_for_local_pages(&origins))
    }

    /// Creates the sample shop's sale and serves the shop for the stack's gateway, with events if `has_events`.
    pub(crate) async fn serve(
        &self,
        stack: &Stack,
        unnamed: UnnamedPorts,
        has_events: bool,
    ) -> Result<Storefront> {
        let port = match (self.storefront_port, unnamed) {
            (Some(port), _) => port,
            (None, UnnamedPorts::Default) => STOREFRONT_PORT,
            (None, UnnamedPorts::Free) => 0,
        };
        if port > 0 {
            ports::check(port, "--storefront-port")?;
        }
        stack.open_storefront(DROP_STARTS_IN).await?;
        Storefront::start(port, &stack.gateway_url(), has_events).await
    }
}

/// An origin as browsers send it: scheme and host without a path.
fn page_origin(text: &str) -> Result<String, String> {
    let host = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"));
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']);
    match host.is_some_and(is_host) {
        true => Ok(text.to_lowercase()),
        false => Err("must be a scheme and a host, such as http://localhost:5173".to_owned()),
    }
}

/// A request to stop: Ctrl-C or SIGTERM.
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Starts to catch both signals.
    pub fn new() -> Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("cannot watch for Ctrl-C")?,
            terminate: signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?,
        })
    }

    /// Waits for either signal.
    pub async fn wait_for_signal(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// The URLs, and three commands to try with a sale named `sale`.
pub fn describe(stack: &Stack, shop: Option<&Storefront>, sale: &str) -> String {
    let shop = shop.map_or_else(String::new, |shop| {
        format!(
            "\na shop        {} (its drop starts in half a minute)\n",
            shop.url()
        )
    });
    let (gateway_url, origin_url) = (stack.gateway_url(), stack.origin_url());
    let (origin_admin_url, envoy_admin_url) = (stack.origin_admin_url(), stack.envoy_admin_url());
    let redis_url = stack.redis_url();
    let dir = stack.data_dir().display();
    // Reads the token from its file, because a secret on the screen may end up in a log.
    let token = "-H \"authorization: Bearer $WEIR_ADMIN_TOKEN\"";
    let sale_json = sale_json(sale);
    format!(
        "{shop}\n\
         gateway       {gateway_url}\n\
         origin        {origin_url}\n\
         origin admin  {origin_admin_url}\n\
         envoy admin   {envoy_admin_url}\n\
         redis         {redis_url}\n\
         data, logs    {dir}\n\n\
         Create a sale, put its stock into Redis, buy:\n\n  \
         . {dir}/secrets.env\n  \
         curl {token} -H 'content-type: application/json' {origin_admin_url}/sales \\\n    \
         -d '{sale_json}'\n  \
         curl {token} -X POST {origin_admin_url}/sales/{sale}/warm\n  \
         sleep 1 # gateways learn of it within a quarter of a second\n  \
         curl -i -H 'x-user-id: ada' -X POST {gateway_url}/sales/{sale}/orders\n\n\
         Ctrl-C stops everything."
    )
}

/// The body of a sale that is open for the next hour.
fn sale_json(sale: &str) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let hour = Duration::from_secs(3600);
    format!(
        r#"{{"id":"{sale}","title":"Demo","total":500,"shards":4,"user_cap":1,"starts_at_ms":{},"ends_at_ms":{}}}"#,
        now.as_millis(),
        (now + hour).as_millis()
    )
}
