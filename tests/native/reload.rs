//! A configuration that is replaced during a sale.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use weir_stack::envoy::{Envoy, EnvoyConfig, EnvoyOptions, GATE, set};
use weir_stack::http::{self, Method};
use weir_stack::native::Host;
use weir_stack::process::Process;
use weir_stack::report::SilentReporter;
use weir_stack::{DataDir, Stack, ports, tools};
use weir_tests::{PATIENCE, claim_groups, stock_balance, until};

/// More than all buyers take, so that the sale does not end.
const STOCK: u64 = 1_000_000;

const CLIENTS: usize = 16;
const REPLACEMENTS: u64 = 8;
const BETWEEN: Duration = Duration::from_millis(300);

/// After this time, Envoy drops the replaced configuration.
const DRAIN_S: u32 = 3;

/// A deadline that every call meets, however busy the machine is: a call that times out leaves a held claim.
const DEADLINE_MS: u64 = 10_000;

/// Claims outlive the test: a claim still held at its end was neither delivered nor released.
const CLAIM_TTL_MS: u64 = 10 * 60 * 1_000;

/// A configuration whose listeners Envoy reads from a file and reloads when the file is replaced, and its listener.
fn watched(config: &EnvoyConfig, file: &Path) -> Result<(EnvoyConfig, Value)> {
    let mut tree: Value = serde_json::from_str(&config.render()?)?;
    let listeners = tree["static_resources"]["listeners"].take();
    tree["static_resources"]["listeners"] = json!([]);
    tree["node"] = json!({ "id": "weir", "cluster": "weir" });
    tree["dynamic_resources"] = json!({
        "lds_config": { "path_config_source": { "path": file }, "resource_api_version": "V3" }
    });
    let admin_port = config.chosen_admin_port();
    let config = EnvoyConfig::parse(&tree.to_string())?.admin_port(admin_port)?;
    let mut listener = listeners[0].clone();
    listener["@type"] = "type.googleapis.com/envoy.config.listener.v3.Listener".into();
    Ok((config, listener))
}

/// Writes the listener to the file that Envoy monitors, with this poll interval: each is a different configuration.
fn publish(listener: &Value, file: &Path, poll_interval_ms: u64) -> Result<()> {
    let mut listener = listener.clone();
    let filter = "/filter_chains/0/filters/1/typed_config/http_filters/0/typed_config";
    let settings = listener.pointer_mut(&format!("{filter}/filter_config/value"));
    let settings = settings.context("no settings")?;
    let mut json: Value = serde_json::from_str(settings.as_str().context("no text")?)?;
    json["poll_interval_ms"] = poll_interval_ms.into();
    *settings = json.to_string().into();
    let version = poll_interval_ms.to_string();
    let text = json!({ "version_info": version, "resources": [listener] });
    // Envoy detects files that are moved into place.
    let new = file.with_extension("new");
    std::fs::write(&new, text.to_string())?;
    Ok(std::fs::rename(&new, file)?)
}

/// A gateway with a replaceable configuration, in addition to the stack's own.
struct Gateway {
    envoy: Envoy,
    listener: Value,
    data: DataDir,
}

impl Gateway {
    async fn start(stack: &Stack) -> Result<Self> {
        let server = stack.redis.server.as_ref().context("its own Redis")?;
        let origin = stack.origin_url();
        let config = EnvoyConfig::native(&Host::Native.library()?, server.port())?
            .gateway_port(ports::free()?)?
            .admin_port(ports::free()?)?
            .origin(origin.trim_start_matches("http://").parse()?)?
            .edit_native(GATE, |json| {
                set(json, "/claim/ttl_ms", CLAIM_TTL_MS)?;
                set(json, "/redis/deadline_ms", DEADLINE_MS)
            })?;
        let data = DataDir::open(None)?;
        let file = data.path.join("listeners.json");
        let (config, listener) = watched(&config, &file)?;
        publish(&listener, &file, 250)?;
        let options = EnvoyOptions {
            config,
            workers: 2,
            log_level: "info".to_owned(),
            variables: stack.gateway_variables().to_vec(),
            clock_ahead_ms: None,
            drain_s: Some(DRAIN_S),
            dir: data.path.clone(),
        };
        let tool = tools::Envoy::find_or_get(&tools::Options::default(), &mut SilentReporter)?;
        let envoy = Envoy::start(&tool, &options).await?;
        Ok(Self {
            envoy,
            listener,
            data,
        })
    }

    fn url(&self) -> Result<String> {
        let port = self.listener.pointer("/address/socket_address/port_value");
        let port = port.context("the listener has no port")?;
        Ok(format!("http://127.0.0.1:{port}/sales/reload/orders"))
    }

    fn replace(&self, poll_interval_ms: u64) -> Result<()> {
        let file = self.data.path.join("listeners.json");
        publish(&self.listener, &file, poll_interval_ms)
    }

    async fn has_dropped_all(&self) -> bool {
        let draining = "listener_manager.total_filter_chains_draining";
        self.envoy
            .stat(draining)
            .await
            .is_ok_and(|count| count == 0)
    }
}

/// Buyers who buy one after another until the end. Counts their answers by status; 0 means no answer.
struct Buyers {
    all: JoinSet<BTreeMap<u16, u64>>,
    is_over: Arc<AtomicBool>,
}

impl Buyers {
    fn start(url: &str) -> Self {
        let url: Arc<str> = url.into();
        let is_over = Arc::new(AtomicBool::new(false));
        let mut all = JoinSet::new();
        for client in 0..CLIENTS {
            all.spawn(buy_all(client, Arc::clone(&url), Arc::clone(&is_over)));
        }
        Self { all, is_over }
    }

    async fn finish(self) -> BTreeMap<u16, u64> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut received = BTreeMap::new();
        for (status, count) in self.all.join_all().await.into_iter().flatten() {
            *received.entry(status).or_default() += count;
        }
        received
    }
}

async fn buy_all(client: usize, url: Arc<str>, is_over: Arc<AtomicBool>) -> BTreeMap<u16, u64> {
    let mut received = BTreeMap::new();
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let user = format!("user-{client}-{number}");
        let headers = [("x-user-id", user.as_str())];
        let answer = http::send(Method::POST, &url, &headers, "").await;
        let status = answer.map_or(0, |answer| answer.status);
        *received.entry(status).or_default() += 1;
    }
    received
}

#[tokio::test(flavor = "multi_thread")]
async fn configuration_replaced_during_a_sale_leaves_no_claim() -> Result<()> {
    let mut stack = Stack::builder()
        .host(Host::Native)
        .workers(1)
        .start()
        .await?;
    stack.open_sale("reload", STOCK, 4).await?;
    let mut gateway = Gateway::start(&stack).await?;
    let url = gateway.url()?;
    let is_there = async || http::get(&url).await.is_ok();
    until("the gateway is there", is_there).await?;
    let buyers = Buyers::start(&url);
    for version in 1..=REPLACEMENTS {
        tokio::time::sleep(BETWEEN).await;
        let before = stock_balance(&stack, "reload").await?.orders;
        gateway.replace(250 + version)?;
        let is_sold = async || {
            stock_balance(&stack, "reload")
                .await
                .is_ok_and(|now| now.orders > before)
        };
        until("the sale goes on", is_sold).await?;
    }
    until("what was replaced is gone", async || {
        gateway.has_dropped_all().await
    })
    .await?;
    let received = buyers.finish().await;
    let is_settled = async || {
        stock_balance(&stack, "reload")
            .await
            .is_ok_and(|now| now.held == 0)
    };
    until("no claim is held", is_settled).await?;
    let sold = stock_balance(&stack, "reload").await?;
    ensure!(sold.balance(), "{sold:?}");
    ensure!(
        received.get(&201) == Some(&sold.orders),
        "{received:?}, {sold:?}"
    );
    let updates = "listener_manager.listener_in_place_updated";
    let updates = gateway.envoy.stat(updates).await?;
    ensure!(updates >= REPLACEMENTS, "it was replaced {updates} times");
    gateway.envoy.check()?;
    Ok(stack.check_children()?)
}

/// The number of requests while Redis does not answer.
const CUT_OFF: u64 = 40;

/// Longer than an idle engine survives its configuration.
const LONG: Duration = Duration::from_secs(3);

fn ask(url: &str) -> JoinSet<Result<http::Response>> {
    let mut tasks = JoinSet::new();
    for number in 0..CUT_OFF {
        let (url, user) = (url.to_owned(), format!("cut-{number}"));
        tasks.spawn(async move {
            let headers = [("x-user-id", user.as_str())];
            http::send(Method::POST, &url, &headers, "").await
        });
    }
    tasks
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_of_streams_ended_by_a_reload_are_released() -> Result<()> {
    let builder = Stack::builder().host(Host::Native).workers(1);
    let mut stack = builder.start().await?;
    stack.open_sale("reload", STOCK, 4).await?;
    let gateway = Gateway::start(&stack).await?;
    let url = gateway.url()?;
    let first = [("x-user-id", "first")];
    let sells = async || {
        let answer = http::send(Method::POST, &url, &first, "").await;
        answer.is_ok_and(|answer| answer.status == 201)
    };
    until("the gateway sells", sells).await?;
    let (before, groups) = (
        stock_balance(&stack, "reload").await?,
        claim_groups(&stack).await?,
    );
    redis(&mut stack)?.freeze();
    let requesting = ask(&url);
    let active = "http.gateway.downstream_rq_active";
    let all_wait = async || gateway.envoy.stat(active).await.is_ok_and(|n| n >= CUT_OFF);
    until("all wait", all_wait).await?;
    gateway.replace(251)?;
    let is_gone = async || gateway.has_dropped_all().await;
    until("what was replaced is gone", is_gone).await?;
    let answers = requesting.join_all().await;
    ensure!(answers.iter().all(Result::is_err), "{answers:?}");
    tokio::time::sleep(LONG).await;
    redis(&mut stack)?.thaw();
    let is_granted = async || claim_groups(&stack).await.is_ok_and(|now| now > groups);
    until("Redis has granted", is_granted).await?;
    let is_back = async || {
        stock_balance(&stack, "reload")
            .await
            .is_ok_and(|now| now == before)
    };
    until("all was given back", is_back).await?;
    Ok(stack.check_children()?)
}

fn redis(stack: &mut Stack) -> Result<&mut Process> {
    let server = stack.redis.server.as_mut().context("its own Redis")?;
    Ok(server.process())
}

const _: () = assert!(CLAIM_TTL_MS > 4 * PATIENCE.as_millis() as u64);
