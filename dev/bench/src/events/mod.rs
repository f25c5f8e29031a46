//! `cargo xtask bench events`: how fast events are acknowledged, compared with nginx with Lua on the same Kafka, and
//! how soon and how fast browse history shows them.

mod append;
mod groups;
mod kafka;
mod list;
mod traffic;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;
use weir_stack::report::Console;
use weir_stack::tools::{Options, Removals};
use weir_stack::{Stack, http, ports};
use weir_tasks::up::Stop;

/// The filter's configuration: servers send events, and nothing is limited.
const COLLECT: &str = r#"{
  "keys": [{ "name": "shop", "kind": "server", "secret": { "env": "WEIR_EVENTS_KEY_SHOP" } }],
  "collect": {}
}"#;

/// The number of connections in all measurements.
const CONNECTIONS: usize = 128;

/// Turns per compared system.
const ROUNDS: usize = 3;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Measure only these parts
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    only: Vec<EventBenchmark>,

    /// Duration of each turn, in seconds
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(3..=600))]
    seconds: u64,

    /// Let apt remove packages if nginx with Lua conflicts with them
    #[arg(long)]
    allow_removals: bool,

    /// Also write all numbers to this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EventBenchmark {
    /// Append to the log on disk, with and without waiting for the disk
    Append,
    /// Append to Kafka, compared with nginx and Lua on the same brokers
    Kafka,
    /// Delay until a view is in its list, with and without another group that always fails
    Groups,
    /// Lists of 200 entries through Envoy
    List,
}

/// The results.
#[derive(Debug, Default, Serialize)]
struct EventFigures {
    #[serde(skip_serializing_if = "Option::is_none")]
    append: Option<append::AppendFigures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kafka: Option<kafka::KafkaFigures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<groups::GroupFigures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<list::ListFigures>,
    /// Skipped measurements, with reasons.
    left_out: Vec<String>,
}

impl Arguments {
    fn asks_for(&self, part: EventBenchmark) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    fn turn(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    fn removals(&self) -> Removals {
        match self.allow_removals {
            true => Removals::Allow,
            false => Removals::Refuse,
        }
    }
}

pub(super) fn run(arguments: &Arguments, tools: &Options) -> Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let measured = runtime.block_on(async {
        let mut stop = Stop::new()?;
        tokio::select! {
            measured = measure(arguments, tools) => measured,
            () = stop.wait_for_signal() => anyhow::bail!("stopped"),
        }
    })?;
    if let Some(file) = &arguments.report {
        std::fs::write(file, serde_json::to_string_pretty(&measured)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    for one in &measured.left_out {
        println!("NOT MEASURED: {one}");
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure(arguments: &Arguments, tools: &Options) -> Result<EventFigures> {
    let mut measured = EventFigures::default();
    if arguments.asks_for(EventBenchmark::Append) {
        measured.append = Some(append::measure(arguments, tools).await?);
    }
    if arguments.asks_for(EventBenchmark::Groups) {
        measured.groups = Some(groups::measure(arguments, tools).await?);
    }
    if arguments.asks_for(EventBenchmark::List) {
        measured.list = Some(list::measure(arguments, tools).await?);
    }
    if arguments.asks_for(EventBenchmark::Kafka) {
        // Needs Java, nginx and a library; without them the other measurements still run.
        match kafka::measure(arguments, tools).await {
            Ok(kafka) => measured.kafka = Some(kafka),
            Err(error) => measured.left_out.push(format!("kafka: {error:#}")),
        }
    }
    Ok(measured)
}

/// A stack whose event gateway accepts events from its servers, without limits.
struct Shop {
    stack: Stack,
    gateway: String,
}

impl Shop {
    async fn open(
        tools: &Options,
        prefix: &str,
        configure: impl FnOnce(weir_stack::Builder) -> weir_stack::Builder,
    ) -> Result<Self> {
        let builder = Stack::builder().tools(tools.clone()).workers(1);
        let builder = builder.key_prefix(prefix).release_origin();
        let mut stack = configure(builder).start_reporting(&mut Console).await?;
        let gateway = stack
            .start_event_gateway_with(ports::free()?, Some(COLLECT))
            .await?;
        let shop = Self { stack, gateway };
        let view = r#"{"schema": {"type": "object", "required": ["sku"]}}"#;
        let types = "/events/types/view";
        shop.admin_with(http::Method::PUT, types, view).await?;
        Ok(shop)
    }

    /// The address of the gateway.
    fn server(&self) -> Result<std::net::SocketAddr> {
        let authority = self.gateway.trim_start_matches("http://");
        authority.parse().context("the gateway's address")
    }

    async fn admin(&self, method: http::Method, path: &str) -> Result<()> {
        self.admin_with(method, path, "").await
    }

    async fn admin_with(&self, method: http::Method, path: &str, body: &'static str) -> Result<()> {
        let bearer = format!("Bearer {}", self.stack.admin_token);
        let url = format!("{}{path}", self.stack.origin_admin_url());
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
        ];
        let answer = http::send(method, &url, &headers, body).await?;
        anyhow::ensure!(answer.status < 300, "{path}: {}", answer.text());
        Ok(())
    }

    /// Pauses these groups, so that only appends are measured.
    async fn pause(&self, groups: &[&str]) -> Result<()> {
        for group in groups {
            self.admin(http::Method::POST, &format!("/groups/{group}/pause"))
                .await?;
        }
        Ok(())
    }
}

/// The median.
fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = numbers.into_iter().collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}
