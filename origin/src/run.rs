//! Puts the origin together, runs it, and takes it down in order.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;
use tracing_subscriber::EnvFilter;
use weir_link::domain::DomainsConfig;
use weir_link::scramble::Numbering;

use crate::Origin;
use crate::config::{Config, Secrets};
use crate::http;
use crate::jobs;
use crate::ledger::Ledger;
use crate::links;
use crate::links::clicks::{ClickCounter, consumer_name};
use crate::links::geo::Geo;
use crate::orders::SqlLimits;
use crate::risk::{HttpScorer, HttpSettings, RiskScorer, RiskWorker, Rules};
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
    let secrets = Secrets::read(
        |name| std::env::var_os(name),
        &config.claim_key_id,
        &config.claim_previous_key_id,
    )?;
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
    let geo = Geo::open(config.geo_city_db.as_deref(), config.geo_asn_db.as_deref())?;
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
    let mut background = vec![
        tokio::spawn(async move { publisher.run(publishing).await }),
        tokio::spawn(reconciler.run(reconciling)),
        tokio::spawn(jobs::run(origin.clone(), stop.clone())),
    ];
    if let Some(links) = &origin.links {
        background.extend(links.spawn(&stop));
        let name = consumer_name().context("the system gives no random numbers")?;
        let counter = ClickCounter::new(&origin, links.clone(), geo, name);
        background.push(tokio::spawn(counter.run(stop.clone())));
    }
    if let Some(scorer) = scorer(config)? {
        let worker = RiskWorker::new(origin.clone(), scorer, config.risk_threshold);
        background.push(tokio::spawn(worker.run(stop.clone())));
    }
    told.await.context("waiting for signals")?;
    info!("stopping");
    stop.cancel();
    let ended = tokio::time::timeout(STOP_LIMIT, end(&origin, servers, background)).await;
    ensure!(ended.is_ok(), "requests did not end within {STOP_LIMIT:?}");
    info!("stopped");
    Ok(())
}

async fn open(config: &Config, secrets: &Secrets) -> Result<Origin> {
    let (store, links) = store::open_with_links(&config.database_url)
        .await
        .context("--database-url")?;
    let ledger = Ledger::new(&config.redis_url, &config.key_prefix).context("--redis-url")?;
    let limits = SqlLimits {
        working_max: config.sql_working_max,
        waiting_max: config.sql_waiting_max,
    };
    let keys = secrets.claim_keys.clone();
    let origin = Origin::with_limits(store, ledger, keys, limits);
    let Some(path) = &config.links else {
        return Ok(origin);
    };
    let settings = link_settings(config, secrets, path).context("--links")?;
    let origin = origin.with_links(settings, links).await;
    origin.context("short links")
}

fn link_settings(config: &Config, secrets: &Secrets, path: &Path) -> Result<links::Settings> {
    let json = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut json = serde_json::Deserializer::from_slice(&json);
    let domains: DomainsConfig = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| anyhow!("{}: {error}", path.display()))?;
    let domains = domains
        .checked()
        .with_context(|| path.display().to_string())?;
    let mut settings = links::Settings::new(domains, config.links_log.clone());
    settings.sync = config.links_log_sync;
    settings.times.quarantine_ms = config.links_quarantine_s.saturating_mul(1_000);
    if let Some(scramble) = &secrets.link_scramble {
        settings.numbering = Numbering::scrambled(scramble.clone());
    }
    Ok(settings)
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
async fn end(origin: &Origin, servers: [JoinHandle<()>; 2], background: Vec<JoinHandle<()>>) {
    for task in servers.into_iter().chain(background) {
        // A task that panicked has ended, too.
        let _ = task.await;
    }
    origin.orders.finish().await;
    origin.store.close().await;
}

/// The risk check that the flags name; without one, nobody is scored.
fn scorer(config: &Config) -> Result<Option<Arc<dyn RiskScorer>>> {
    if let Some(url) = &config.risk_url {
        let scorer = HttpScorer::new(url, HttpSettings::default());
        let scorer = scorer.context("--risk-url: must be http://<host>[:<port>]/…")?;
        return Ok(Some(Arc::new(scorer)));
    }
    let Some(path) = &config.risk_rules else {
        return Ok(None);
    };
    let rules = Rules::read(path).context("--risk-rules")?;
    Ok(Some(Arc::new(rules)))
}
