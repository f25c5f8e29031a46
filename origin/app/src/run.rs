//! Starts the origin, runs it, and stops it in order.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use tracing_subscriber::EnvFilter;
use weir_base::key::{KEY_LEN_MIN, KeyRing, SigningKey};

use crate::change_events::{self, ChangeEvents};
use crate::config::{Command, Config, EDGE_SECRET, Hidden, Secrets};
use crate::doctor;
use crate::fitment::Fitment;
use crate::fitment::import::command::{self, ImportCommand};
use crate::fitment::metrics::FitmentMetrics;
use crate::http::{self, server::serve};
use crate::init;
use crate::links;
use crate::metrics::Metrics;
use crate::openapi;
use crate::origin::{Origin, open_database};
use crate::outbox::SinkName;
use crate::redis::Redis;
use crate::sales::config::CLAIM_SECRET;
use crate::sales::draw::check;
use crate::shard_proxy;
use crate::sql::Database;
use crate::traces::Traces;
use crate::views;

/// The pause before the next look for a database that is away.
const DATABASE_PAUSE: Duration = Duration::from_secs(1);

/// How long requests that run may take to end once the origin is told to stop.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Runs the origin until SIGTERM or Ctrl-C, or does what a command says. Logs go to stderr. The code is the process' own.
///
/// # Errors
/// When it cannot start, or when requests did not end in time after it was told to stop.
pub fn run(config: &Config) -> Result<ExitCode> {
    match &config.command {
        // What it finds is its answer; a log would stand in between.
        Some(Command::Doctor(command)) => {
            let examined = doctor::run(config, command, &|name| std::env::var_os(name));
            return Ok(runtime()?.block_on(examined));
        }
        Some(Command::Init(command)) => init::run(command)?,
        // Likewise: it logs nothing.
        Some(Command::Links(command)) => {
            let done = links::cli::run(command, &|name| std::env::var_os(name));
            runtime()?.block_on(done)?;
        }
        Some(Command::CheckDraw(command)) => {
            let says = check::run(command)?;
            std::io::Write::write_all(&mut std::io::stdout(), says.as_bytes())?;
        }
        Some(Command::Openapi) => {
            std::io::Write::write_all(&mut std::io::stdout(), openapi::text().as_bytes())?;
        }
        Some(Command::ShardProxy(command)) => {
            start_logs()?;
            let keys = config.edge_keys(&|name| std::env::var_os(name))?;
            let keys = keys.with_context(|| format!("{EDGE_SECRET} is not set"))?;
            runtime()?.block_on(shard_proxy::run(
                &config.redis_url,
                &config.key_prefix,
                command,
                keys,
            ))?;
        }
        Some(Command::Import(command)) => {
            start_logs()?;
            runtime()?.block_on(import_file(config, command))?;
        }
        None => {
            start_logs()?;
            let secrets = Secrets::read(&|name| std::env::var_os(name), config)?;
            let runtime = runtime()?;
            let traces = Traces::start(&config.traces, runtime.handle()).context("--otlp-url")?;
            let ended = runtime.block_on(run_until_told(config, secrets));
            if let Some(traces) = traces {
                traces.end();
            }
            ended?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// An error with its causes, in one line. Many of them end with their own cause already: that is not told twice.
pub fn told(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

/// What `weir-origin import` does. It needs the database and the folder of imports, and no secrets.
async fn import_file(config: &Config, command: &ImportCommand) -> Result<()> {
    let settings = config.fitment.settings(&config.key_prefix)?;
    let settings = settings.context("--fitment names the folder of imports")?;
    let database = open_database(&config.database_url)
        .await
        .context("--database-url")?;
    let redis = Redis::new(&config.redis_url, &config.key_prefix).context("--redis-url")?;
    let metrics = FitmentMetrics::register(&Metrics::default());
    let fitment = Fitment::new(settings, database.clone(), redis, metrics);
    let ended = command::run(command, &fitment).await;
    database.close().await;
    ended
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
    // First, so that an early signal is not lost.
    let mut told = told_to_stop()?;
    let (geo, scorer) = (config.links.geo()?, config.sales.scorer()?);
    let token = secrets.admin_token.clone();
    let admin = listen("--admin-listen", config.admin_listen).await?;
    let (admin, starting) = twice(admin).context("--admin-listen")?;
    let database = tokio::select! {
        database = database(config, starting) => database?,
        _ = &mut told => return Ok(()),
    };
    let origin = open(config, secrets, database).await?;
    let stop = CancellationToken::new();
    let public = listen("--listen", config.listen).await?;
    info!(version = weir_version::LONG, listen = %public.local_addr()?, admin_listen = %admin.local_addr()?, "listening");
    let servers = [
        tokio::spawn(serve(public, origin.public_routes(), stop.clone())),
        tokio::spawn(serve(admin, origin.admin_routes(token), stop.clone())),
    ];
    let background = origin.spawn(scorer, config.sales.risk_threshold, geo, &stop)?;
    told.await.context("waiting for signals")?;
    info!("stopping");
    stop.cancel();
    let ended = tokio::time::timeout(STOP_LIMIT, end(&origin, servers, background)).await;
    ensure!(ended.is_ok(), "requests did not end within {STOP_LIMIT:?}");
    info!("stopped");
    Ok(())
}

/// Opens the database, and waits for one that is away. Probes hear meanwhile, on `probed`, that the process is alive and not
/// ready.
async fn database(config: &Config, probed: TcpListener) -> Result<Database> {
    let there = CancellationToken::new();
    let mut probes = Some((probed, http::starting()));
    let mut served = None;
    loop {
        match open_database(&config.database_url).await {
            Err(error) if error.is_away() => {
                warn!(%error, "the database is away: trying again");
                if let Some((probed, routes)) = probes.take() {
                    served = Some(tokio::spawn(serve(probed, routes, there.clone())));
                }
                tokio::time::sleep(DATABASE_PAUSE).await;
            }
            opened => {
                there.cancel();
                if let Some(served) = served {
                    // Its connections have ended, in whatever way.
                    let _ = served.await;
                }
                return opened.context("--database-url");
            }
        }
    }
}

async fn open(config: &Config, secrets: Secrets, database: Database) -> Result<Origin> {
    let redis = Redis::new(&config.redis_url, &config.key_prefix).context("--redis-url")?;
    let limits = config.sales.sql_limits();
    let store = config.sales.store(database.clone())?;
    let has_sales = secrets.claim_keys.is_some();
    let keys = secrets.claim_keys.map_or_else(unknown_key, Ok)?;
    let origin = Origin::with_store(database, store, redis, keys, limits);
    let origin = match has_sales {
        true => origin,
        false => {
            info!("{CLAIM_SECRET} is not set: there are no sales");
            origin.without_sales()
        }
    };
    let origin = origin.with_access(config.access.settings());
    let origin = origin.with_payments(secrets.payments);
    let origin = origin.with_edges(secrets.edge_keys);
    let origin = origin.with_cors(config.cors());
    let origin = origin.with_stock_in_objects(config.sales.stock_in_objects);
    let origin = origin.with_maxima_in_objects(config.links.maxima_in_objects);
    let origin = origin.with_holds(config.sales.hold_rules());
    let origin = origin.with_archive(config.sales.archive_rules());
    let settings = config.links.settings(secrets.link_scramble);
    let origin = match settings.context("--links")? {
        Some(mut settings) => {
            settings.click_keys = secrets.click_keys.clone();
            origin.with_links(settings).await.context("short links")?
        }
        None => origin,
    };
    let window_ms = config.links.link_click_window.ms;
    let origin = match secrets.click_keys {
        Some(keys) => origin.with_conversions(keys, window_ms),
        None => origin,
    };
    let origin = match config.history.settings()? {
        Some(settings) => origin.with_history(settings),
        None => origin,
    };
    let origin = match config.fitment.settings(&config.key_prefix)? {
        Some(settings) => origin.with_fitment(settings),
        None => origin,
    };
    let secret = secrets.orders_webhook.map(|secret| secret.0);
    let origin = match config.sales.orders_webhook(secret.as_deref())? {
        Some(webhook) => {
            let times = config.sales.outbox_times();
            origin.with_receiver(SinkName::Webhook, Arc::new(webhook), times)
        }
        None => origin,
    };
    let secret = secrets.links_webhook.map(|secret| secret.0);
    let origin = match config.links.webhook(secret.as_deref())? {
        Some(webhook) => {
            let times = config.links.outbox_times();
            origin.with_link_receiver(SinkName::Webhook, Arc::new(webhook), times)
        }
        None => origin,
    };
    let origin = with_events(origin, config, secrets.webhook).await?;
    with_changes_in_events(origin, config)
}

/// Changes of orders and links go into the log of events, if the flags say so.
fn with_changes_in_events(mut origin: Origin, config: &Config) -> Result<Origin> {
    let events = origin.events().cloned();
    let log = |flag: &str| {
        let events = events.clone();
        events.with_context(|| format!("{flag} needs --events-log or --events"))
    };
    if config.sales.orders_events {
        let sink = ChangeEvents::new(log("--orders-events")?, change_events::ORDERS);
        let times = config.sales.outbox_times();
        origin = origin.with_receiver(SinkName::Events, Arc::new(sink), times);
    }
    if config.links.links_events {
        ensure!(config.links.links.is_some(), "--links-events needs --links");
        let sink = ChangeEvents::new(log("--links-events")?, change_events::LINKS);
        let times = config.links.outbox_times();
        origin = origin.with_link_receiver(SinkName::Events, Arc::new(sink), times);
    }
    Ok(origin)
}

async fn with_events(origin: Origin, config: &Config, secret: Option<Hidden>) -> Result<Origin> {
    let webhook = secret.map(|secret| secret.0);
    let Some(mut settings) = config.events.settings(webhook)? else {
        return Ok(origin);
    };
    let history = origin.history().cloned();
    settings.groups.extend(history.map(views::group));
    let flag = match config.events.events_log {
        Some(_) => "--events-log",
        None => "--events",
    };
    origin.with_events(settings).await.context(flag)
}

/// A key that no gateway has: whatever is signed is refused.
fn unknown_key() -> Result<KeyRing> {
    let mut secret = [0; KEY_LEN_MIN];
    let filled = SystemRandom::new().fill(&mut secret);
    filled.map_err(|_| anyhow::anyhow!("the system gives no random numbers"))?;
    Ok(SigningKey::new("none", &secret)?.into())
}

async fn listen(flag: &str, address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("{flag}: cannot listen on {address}"))
}

/// Two handles of one listener, to be used one after the other.
fn twice(listener: TcpListener) -> std::io::Result<(TcpListener, TcpListener)> {
    let first = listener.into_std()?;
    let second = first.try_clone()?;
    Ok((
        TcpListener::from_std(first)?,
        TcpListener::from_std(second)?,
    ))
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

/// Answers first, then the background, then the connections to SQL.
async fn end(origin: &Origin, servers: [JoinHandle<()>; 2], background: Vec<JoinHandle<()>>) {
    for task in servers.into_iter().chain(background) {
        // A task that panicked has ended, too.
        let _ = task.await;
    }
    origin.finish().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cause_is_told_twice() {
        let cause = || std::io::Error::other("no such file");
        let error = anyhow::Error::from(cause()).context("cannot open the database: no such file");
        let error = error.context("--database-url");
        let expected = "--database-url: cannot open the database: no such file";
        assert_eq!(told(&error), expected);
        let plain = anyhow::Error::from(cause()).context("--risk-rules: r.json");
        assert_eq!(told(&plain), "--risk-rules: r.json: no such file");
    }
}
