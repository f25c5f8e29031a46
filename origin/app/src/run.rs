//! Starts the origin, runs it, and stops it in order.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use tracing_subscriber::EnvFilter;

use crate::config::{Command, Config, Secrets};
use crate::domains::{self, Files};
use crate::http::{self, AccessLog, server::serve};
use crate::origin::{Origin, open_database};
use crate::redis::Redis;
use crate::sql::Database;
use crate::traces::Traces;

/// The pause between two attempts to open the database.
const DATABASE_PAUSE: Duration = Duration::from_secs(1);

/// How long running requests may take to end after a shutdown signal.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Runs the origin until SIGTERM or Ctrl-C, or runs a command. Logs go to stderr. Returns the exit code of the process.
///
/// # Errors
/// When it cannot start, or when requests do not end in time after a shutdown signal.
pub fn run(config: &Config) -> Result<ExitCode> {
    match &config.command {
        // The findings are the output; logs would interrupt it.
        #[cfg(feature = "doctor")]
        Some(Command::Doctor(command)) => {
            let examined = crate::doctor::run(config, command, &|name| std::env::var_os(name));
            return Ok(runtime()?.block_on(examined));
        }
        #[cfg(feature = "init")]
        Some(Command::Init(command)) => crate::init::run(command)?,
        #[cfg(feature = "init")]
        Some(Command::KubernetesSecret(command)) => {
            start_logs()?;
            runtime()?.block_on(crate::kubernetes_secret::run(command))?;
        }
        Some(Command::Migrate) => {
            start_logs()?;
            runtime()?.block_on(migrate(config))?;
        }
        // This command logs nothing either.
        #[cfg(feature = "links-cli")]
        Some(Command::Links(command)) => {
            let done = crate::links::cli::run(command, &|name| std::env::var_os(name));
            runtime()?.block_on(done)?;
        }
        #[cfg(feature = "sales")]
        Some(Command::CheckDraw(command)) => {
            let output = crate::sales::draw::check::run(command)?;
            std::io::Write::write_all(&mut std::io::stdout(), output.as_bytes())?;
        }
        #[cfg(feature = "sales")]
        Some(Command::LostOrders(command)) => {
            let done = crate::sales::lost_orders::cli::run(command, &|name| std::env::var_os(name));
            let output = runtime()?.block_on(done)?;
            std::io::Write::write_all(&mut std::io::stdout(), output.as_bytes())?;
        }
        #[cfg(feature = "sales")]
        Some(Command::Site(command)) => {
            let done = domains::sales::site(config, command);
            let output = runtime()?.block_on(done)?;
            std::io::Write::write_all(&mut std::io::stdout(), output.as_bytes())?;
        }
        Some(Command::Openapi) => {
            std::io::Write::write_all(&mut std::io::stdout(), crate::openapi::text().as_bytes())?;
        }
        #[cfg(feature = "shard-proxy")]
        Some(Command::ShardProxy(command)) => {
            start_logs()?;
            let keys = config.edge_keys(&|name| std::env::var_os(name))?;
            let keys =
                keys.with_context(|| format!("{} is not set", crate::config::EDGE_SECRET))?;
            runtime()?.block_on(crate::shard_proxy::run(
                &config.redis_url,
                &config.key_prefix,
                command,
                keys,
            ))?;
        }
        #[cfg(feature = "fitment")]
        Some(Command::Import(command)) => {
            start_logs()?;
            runtime()?.block_on(domains::fitment::import(config, command))?;
        }
        #[cfg(all(feature = "archive", feature = "history"))]
        Some(Command::RebuildHistory(command)) => {
            start_logs()?;
            runtime()?.block_on(crate::rebuild_history::run(config, command))?;
        }
        #[cfg(all(not(feature = "archive"), feature = "history"))]
        Some(Command::RebuildHistory(_)) => anyhow::bail!(
            "this weir-origin was built without archives; build it with cargo build --features archive"
        ),
        None => {
            start_logs()?;
            for variable in crate::variables::idle(std::env::vars_os()) {
                warn!("{variable}");
            }
            let secrets = Secrets::read(&|name| std::env::var_os(name), config)?;
            let runtime = runtime()?;
            let traces = Traces::start(&config.traces, runtime.handle()).context("--otlp-url")?;
            let ended = runtime.block_on(run_until_stopped(config, secrets));
            if let Some(traces) = traces {
                traces.end();
            }
            ended?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

fn start_logs() -> Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => {
            EnvFilter::try_new(text).context("RUST_LOG is not a valid log filter")?
        }
        _ => EnvFilter::new("info"),
    };
    tracing_subscriber::fmt()
        .json()
        // Spans do not nest; the current span contains all fields.
        .with_span_list(false)
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init()
        .map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}

async fn run_until_stopped(config: &Config, secrets: Secrets) -> Result<()> {
    // Install the signal handlers first, so that no early signal is lost.
    let mut stop_signal = stop_requested()?;
    let files = Files::read(config)?;
    let token = secrets.admin_token.clone();
    let admin = listen("--admin-listen", config.admin_listen).await?;
    let (admin, starting) = two_handles(admin).context("--admin-listen")?;
    let database = tokio::select! {
        database = database(config, starting) => database?,
        _ = &mut stop_signal => return Ok(()),
    };
    let origin = open(config, secrets, files, database).await?;
    let stop = CancellationToken::new();
    let public = listen("--listen", config.listen).await?;
    info!(version = weir_version::long(), listen = %public.local_addr()?, admin_listen = %admin.local_addr()?, "listening");
    let servers = [
        tokio::spawn(serve(public, origin.public_routes(), stop.clone())),
        tokio::spawn(serve(admin, origin.admin_routes(token), stop.clone())),
    ];
    let background = origin.spawn(&stop)?;
    stop_signal.await.context("cannot listen for signals")?;
    drain(&origin, Duration::from_secs(config.drain_seconds)).await?;
    info!("stopping");
    stop.cancel();
    let ended = tokio::time::timeout(STOP_LIMIT, end(&origin, servers, background)).await;
    ensure!(ended.is_ok(), "requests still running after {STOP_LIMIT:?}");
    info!("stopped");
    Ok(())
}

/// Fails the probes for this time, so that gateways and load balancers stop sending requests. A further signal ends it.
async fn drain(origin: &Origin, time: Duration) -> Result<()> {
    if time.is_zero() {
        return Ok(());
    }
    let again = stop_requested()?;
    origin.drain();
    info!(seconds = time.as_secs(), "draining");
    // The timeout is the usual case.
    let _ = tokio::time::timeout(time, again).await;
    Ok(())
}

/// Applies all migrations. Fails if the database does not answer.
async fn migrate(config: &Config) -> Result<()> {
    let database = open_database(&config.database_url).await;
    database.context("--database-url")?.close().await;
    info!("all migrations are applied");
    Ok(())
}

/// Opens the database, and retries while it does not answer. Meanwhile, `probed` serves the health probes: alive, not
/// ready.
async fn database(config: &Config, probed: TcpListener) -> Result<Database> {
    let there = CancellationToken::new();
    let mut probes = Some((probed, http::starting()));
    let mut served = None;
    loop {
        match open_database(&config.database_url).await {
            Err(error) if error.is_away() => {
                warn!(%error, "the database does not answer; retrying");
                if let Some((probed, routes)) = probes.take() {
                    served = Some(tokio::spawn(serve(probed, routes, there.clone())));
                }
                tokio::time::sleep(DATABASE_PAUSE).await;
            }
            opened => {
                there.cancel();
                if let Some(served) = served {
                    // Either way, its connections have ended.
                    let _ = served.await;
                }
                return opened.context("--database-url");
            }
        }
    }
}

async fn open(
    config: &Config,
    mut secrets: Secrets,
    files: Files,
    database: Database,
) -> Result<Origin> {
    let redis = Redis::new(&config.redis_url, &config.key_prefix).context("--redis-url")?;
    let edges = secrets.edge_keys.take();
    let origin = domains::open(config, &mut secrets, files, database, redis).await?;
    let origin = origin.with_access(config.access.settings());
    let log = AccessLog::new(config.access_log.access_log_share);
    let origin = origin.with_edges(edges).with_cors(config.cors());
    Ok(origin.with_access_log(log))
}

async fn listen(flag: &str, address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("{flag}: cannot listen on {address}"))
}

/// Duplicates a listener, to be used one after the other.
fn two_handles(listener: TcpListener) -> std::io::Result<(TcpListener, TcpListener)> {
    let first = listener.into_std()?;
    let second = first.try_clone()?;
    Ok((
        TcpListener::from_std(first)?,
        TcpListener::from_std(second)?,
    ))
}

/// Installs handlers for SIGTERM and SIGINT. The task ends at the first signal.
fn stop_requested() -> Result<JoinHandle<()>> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    Ok(tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }))
}

/// Ends the servers first, then the background jobs, then the SQL connections.
async fn end(origin: &Origin, servers: [JoinHandle<()>; 2], background: Vec<JoinHandle<()>>) {
    for task in servers.into_iter().chain(background) {
        // A panicked task has ended, too.
        let _ = task.await;
    }
    origin.finish().await;
}
