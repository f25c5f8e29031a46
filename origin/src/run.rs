//! Puts the origin together, runs it, and takes it down in order.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;
use tracing_subscriber::EnvFilter;

use crate::Origin;
use crate::config::{Config, Secrets};
use crate::http;
use crate::ledger::Ledger;
use crate::server::serve;
use crate::store;

/// How long requests that run may take to end once the origin is told to stop.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Runs the origin until SIGTERM or Ctrl-C. Logs go to stderr.
///
/// # Errors
/// When it cannot start, or when requests did not end in time after it was told to stop.
pub fn run(config: &Config) -> Result<()> {
    start_logs()?;
    let secrets = Secrets::read(|name| std::env::var_os(name), &config.claim_key_id)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(run_until_told(config, secrets))
}

fn start_logs() -> Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => {
            EnvFilter::try_new(text).context("RUST_LOG is not a log filter")?
        }
        _ => EnvFilter::new("info"),
    };
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init()
        .map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}

async fn run_until_told(config: &Config, secrets: Secrets) -> Result<()> {
    // First, so that a signal that comes early is not lost.
    let told = told_to_stop()?;
    let origin = open(config, &secrets).await?;
    let stop = CancellationToken::new();
    let public = listen("--listen", config.listen).await?;
    let admin = listen("--admin-listen", config.admin_listen).await?;
    info!(listen = %public.local_addr()?, admin_listen = %admin.local_addr()?, "listening");
    let admin_routes = http::admin(origin.clone(), secrets.admin_token);
    let servers = [
        tokio::spawn(serve(public, http::app(origin.clone()), stop.clone())),
        tokio::spawn(serve(admin, admin_routes, stop.clone())),
    ];
    let publisher = origin.publisher.clone();
    let reconciler = origin.reconciler();
    let publishing = stop.clone();
    let reconciling = stop.clone();
    let jobs = [
        tokio::spawn(async move { publisher.run(publishing).await }),
        tokio::spawn(reconciler.run(reconciling)),
    ];
    told.await.context("waiting for signals")?;
    info!("stopping");
    stop.cancel();
    let ended = tokio::time::timeout(STOP_LIMIT, end(&origin, servers, jobs)).await;
    ensure!(ended.is_ok(), "requests did not end within {STOP_LIMIT:?}");
    info!("stopped");
    Ok(())
}

async fn open(config: &Config, secrets: &Secrets) -> Result<Origin> {
    let store = store::open(&config.database_url)
        .await
        .context("--database-url")?;
    let ledger = Ledger::new(&config.redis_url, &config.key_prefix).context("--redis-url")?;
    let claim_key = secrets.claim_key.clone();
    Ok(Origin::new(store, ledger, claim_key))
}

async fn listen(flag: &str, address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("{flag}: cannot listen on {address}"))
}

/// Ends when SIGTERM or SIGINT comes; they are caught from now on.
fn told_to_stop() -> Result<JoinHandle<()>> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    Ok(tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }))
}

/// Answers first, then what nobody waits for, then the connections to SQL.
async fn end(origin: &Origin, servers: [JoinHandle<()>; 2], jobs: [JoinHandle<()>; 2]) {
    let ([public, admin], [publishing, reconciling]) = (servers, jobs);
    // A task that panicked has ended, too.
    let _ = tokio::join!(public, admin, publishing, reconciling);
    origin.orders.finish().await;
    origin.store.close().await;
}
