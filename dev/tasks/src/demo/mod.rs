//! `cargo xtask demo`: a flash sale from its creation to the final balance check.
//!
//! `play` runs the steps. `cast` defines the participants, `acts` and `bots` their actions, and `crowd` runs many of
//! them concurrently. `report` prints the results. First, people browse products in `views`; at the end, `link` shows a
//! short link.

mod acts;
mod bots;
mod cast;
mod client;
mod counters;
mod crowd;
mod edge;
pub mod fitment;
mod link;
mod operator;
mod play;
mod qr;
mod report;
mod room;
mod sql;
mod stock_balance;
mod tally;
mod teller;
mod views;
mod visitor;

use crate::up::{self, Stop, UnnamedPorts};
use anyhow::{Context, Result};
use cast::Shares;
use client::Endpoint;
use play::SalePlay;
use report::Report;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use stock_balance::StockBalance;
use tokio::sync::Mutex;
use weir_stack::tools::Options;
use weir_stack::{Builder, Stack, ports};

/// An arbitrary fixed seed, so that the order of buyers is reproducible.
const SEED: u64 = 20_240_618;

/// The default port for short links.
const LINK_PORT: u16 = 10_001;

/// The default port for events.
const EVENT_PORT: u16 = 10_002;

/// The interval between checks of the children.
const WATCH: Duration = Duration::from_millis(100);

/// Other demos.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum OtherDemo {
    /// Import a catalogue of parts and vehicles, and query which parts fit
    ///
    /// Generates a catalogue with computable answers and imports it into SQL; the origin writes it to Redis. Sends queries
    /// through Envoy and checks every answer. Exit code 0 only if all are correct; the last line has the count. Keeps
    /// running afterwards unless --once.
    Fitment(fitment::Arguments),

    /// Run the sale with half of the buyers at an edge: workerd and Envoy share one stock
    ///
    /// Every second connection goes to the Cloudflare edge, which runs in workerd. Its objects hold the stock: the edge sells
    /// from them directly, and gateway and origin reach them through the origin's shard-proxy. Runs the checks of the demo,
    /// and checks that buyers got units through both. With --stock-in-redis the edge forwards buyers to the gateway. Exit
    /// code 0 only if all checks pass. Keeps running afterwards unless --once.
    Edge(edge::Arguments),
}

#[derive(Debug, Clone, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[expect(
    missing_docs,
    reason = "clap would print them as the task's own description"
)]
pub struct Arguments {
    #[command(subcommand)]
    other: Option<OtherDemo>,

    /// Number of people who each want one unit; some are blocked, and bots are added
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    users: u32,

    /// Units on sale
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    stock: u32,

    /// Number of stock shards in Redis
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=i64::from(weir_sale::sale::SHARDS_MAX)))]
    shards: u32,

    /// HTTP connections shared by all people; bots have their own
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,

    /// Seed for the order in which people arrive
    #[arg(long, default_value_t = SEED)]
    seed: u64,

    /// Also write the counts to this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Port of the gateway for short links [default: 10001]
    #[arg(long, value_name = "PORT")]
    link_port: Option<u16>,

    /// Port of the gateway for events [default: 10002]
    #[arg(long, value_name = "PORT")]
    event_port: Option<u16>,

    /// Stop everything afterwards; unset ports are chosen freely
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    shop: up::ShopArguments,

    #[command(flatten)]
    up: up::Arguments,
}

/// Runs a sale and checks its stock balance.
pub fn run(arguments: &Arguments, tools: Options) -> Result<ExitCode> {
    match &arguments.other {
        Some(OtherDemo::Fitment(arguments)) => return fitment::run(arguments, tools),
        Some(OtherDemo::Edge(arguments)) => return edge::run(arguments, tools),
        None => {}
    }
    let unnamed = match arguments.once {
        true => UnnamedPorts::Free,
        false => UnnamedPorts::Default,
    };
    let ports = GatewayPorts {
        links: port(arguments.link_port, LINK_PORT, "--link-port", unnamed)?,
        events: port(arguments.event_port, EVENT_PORT, "--event-port", unnamed)?,
    };
    let builder = up::prepare(&arguments.up, tools, unnamed)?
        .risk_rules(cast::RISK_RULES)
        // People who do not pay return.
        .holds_may_expire()
        .links(link::domains(ports.links))
        .edit_config(|config| config.room_before_gate(room::CONFIG));
    let builder = arguments.shop.for_pages(builder);
    let builder = match arguments.up.has_kafka() {
        true => builder,
        false => builder.events(),
    };
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        let mut stop = Stop::new()?;
        let (mut stack, report) = tokio::select! {
            done = demo(arguments, builder, ports) => done?,
            () = stop.wait_for_signal() => return Ok(ExitCode::FAILURE),
        };
        print_report(&report, arguments.report.as_deref())?;
        if !arguments.once {
            let shop = arguments.shop.serve(&stack, unnamed, false).await?;
            println!("{}", up::describe(&stack, Some(&shop), "another"));
            up::stay_up(&mut stack, &mut stop).await?;
        }
        Ok(code(&report))
    })
}

fn print_report(report: &Report, file: Option<&Path>) -> Result<()> {
    println!("{}", report.table());
    file.map_or(Ok(()), |file| write_report(report, file))
}

/// Exit code 0 if every unit was sold and paid, and none twice.
fn code(report: &Report) -> ExitCode {
    match report.is_good() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// The parameters of the sale.
#[derive(Debug, Clone, Copy)]
struct SaleArguments {
    users: u32,
    stock: u32,
    shards: u32,
    connections: u32,
    seed: u64,
    workers: u32,
}

impl SaleArguments {
    fn shares(&self) -> Shares {
        Shares::for_people(self.users, self.stock)
    }
}

/// The ports of additional gateways.
#[derive(Debug, Clone, Copy)]
struct GatewayPorts {
    links: u16,
    events: u16,
}

fn port(named: Option<u16>, usual: u16, flag: &str, unnamed: UnnamedPorts) -> Result<u16> {
    let port = match (named, unnamed) {
        (Some(named), _) => named,
        (None, UnnamedPorts::Default) => usual,
        (None, UnnamedPorts::Free) => return ports::free(),
    };
    ports::check(port, flag)?;
    Ok(port)
}

fn write_report(report: &Report, file: &Path) -> Result<()> {
    let text = serde_json::to_string_pretty(&report.json())?;
    std::fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))
}

/// Starts the stack, runs the sale, and reads the stock balance.
async fn demo(
    arguments: &Arguments,
    builder: Builder,
    ports: GatewayPorts,
) -> Result<(Stack, Report)> {
    // Shared between the play, which queries it, and the monitor of its children.
    let stack = Mutex::new(up::start(builder).await?);
    let sale = new_name()?;
    let report = tokio::select! {
        report = hold(arguments, &stack, &sale, ports) => report?,
        died = first_death(&stack) => return Err(died),
    };
    Ok((stack.into_inner(), report))
}

/// A unique name, so that a kept --data folder supports several demos.
fn new_name() -> Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(format!("demo-{}", now.as_millis()))
}

async fn hold(
    arguments: &Arguments,
    stack: &Mutex<Stack>,
    sale: &str,
    ports: GatewayPorts,
) -> Result<Report> {
    let wanted = SaleArguments {
        users: arguments.users,
        stock: arguments.stock,
        shards: arguments.shards,
        connections: arguments.connections,
        seed: arguments.seed,
        workers: arguments.up.workers(),
    };
    let endpoint = Endpoint::gateway(&stack.lock().await.gateway_url());
    let mut play = SalePlay::new(stack, sale, &wanted, vec![endpoint]).await?;
    play.has_room = true;
    let people = cast::people(&wanted.shares(), wanted.seed);
    let browsing = views::play(stack, ports.events, &people, &mut play.teller).await?;
    let mut report = sell(&mut play, sale, &wanted).await?;
    report.browsing = Some(browsing);
    report.link = Some(link::play(stack, ports.links, &mut play.teller).await?);
    report.phases = play.teller.json();
    Ok(report)
}

/// Runs the sale, and reads its stock balance.
async fn sell(play: &mut SalePlay<'_>, sale: &str, arguments: &SaleArguments) -> Result<Report> {
    let played = play.run().await?;
    let balance = StockBalance::read(&*play.stack.lock().await, sale, arguments.shards).await?;
    Ok(Report {
        stock: arguments.stock.into(),
        shards: arguments.shards,
        shares: arguments.shares(),
        workers: arguments.workers,
        connections: arguments.connections,
        seed: arguments.seed,
        phases: play.teller.json(),
        reserved: played.reserved,
        rushes: played.rushes,
        observed: play.observed.clone(),
        audit: played.audit,
        balance,
        room: played.room,
        browsing: None,
        link: None,
        has_edge: false,
    })
}

/// Completes only when a child ends unexpectedly: otherwise, a crowd would retry at a dead gateway for minutes.
async fn first_death(stack: &Mutex<Stack>) -> anyhow::Error {
    loop {
        if let Err(died) = stack.lock().await.check_children() {
            return died.into();
        }
        tokio::time::sleep(WATCH).await;
    }
}
