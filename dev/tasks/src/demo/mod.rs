//! `cargo xtask demo`: a flash sale from its creation to the books being checked.
//!
//! `play` goes from step to step; `cast` says who takes part, `acts` and `bots` what they do, `crowd`
//! lets many do it at once, and `report` says what came of it. Before, people look around in `views`; at the end `link` plays
//! with a short link.

mod acts;
mod books;
mod bots;
mod cast;
mod client;
mod counters;
mod crowd;
pub mod fitment;
mod link;
mod operator;
mod play;
mod qr;
mod report;
mod sql;
mod tally;
mod teller;
mod views;
mod visitor;

use crate::up::{self, Stop, Unnamed};
use anyhow::{Context, Result};
use books::Books;
use cast::Shares;
use play::Play;
use report::Report;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Mutex;
use weir_stack::tools::Options;
use weir_stack::{Builder, Stack, ports};

/// Any fixed number would do: the same one gives the same order of buyers.
const SEED: u64 = 20_240_618;

/// Where short links are answered unless told otherwise.
const LINK_PORT: u16 = 10_001;

/// Where events are taken unless told otherwise.
const EVENT_PORT: u16 = 10_002;

/// How often the children are looked at.
const WATCH: Duration = Duration::from_millis(100);

/// What `cargo xtask demo` shows.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Other {
    /// Import a catalogue of parts and vehicles, and ask which fit which
    ///
    /// Makes a catalogue of which everything can be computed, imports it into SQL, lets the origin write Redis, asks through
    /// Envoy, and compares every answer. Exit code 0 only if all are right; the last line says how many. Stays up afterwards
    /// unless --once.
    Fitment(fitment::Arguments),
}

#[derive(Debug, Clone, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[expect(
    missing_docs,
    reason = "clap would print them as the task's own description"
)]
pub struct Arguments {
    #[command(subcommand)]
    other: Option<Other>,

    /// People, each of whom wants one unit; some may not buy, and bots come beside them
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    users: u32,

    /// Units on sale
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    stock: u32,

    /// Parts of the stock in Redis
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=i64::from(weir_sale::sale::SHARDS_MAX)))]
    shards: u32,

    /// HTTP connections that people share; bots have some of their own
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,

    /// Chooses the order in which people come
    #[arg(long, default_value_t = SEED)]
    seed: u64,

    /// Write what was counted to this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// The port of the gateway that answers short links [default: 10001]
    #[arg(long, value_name = "PORT")]
    link_port: Option<u16>,

    /// The port of the gateway that takes events [default: 10002]
    #[arg(long, value_name = "PORT")]
    event_port: Option<u16>,

    /// Stop everything afterwards; ports that are not named are free ones
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    up: up::Arguments,
}

/// Holds a sale and checks its books.
pub fn run(arguments: &Arguments, tools: Options) -> Result<ExitCode> {
    if let Some(Other::Fitment(arguments)) = &arguments.other {
        return fitment::run(arguments, tools);
    }
    let unnamed = match arguments.once {
        true => Unnamed::Free,
        false => Unnamed::Default,
    };
    let ports = GatewayPorts {
        links: port(arguments.link_port, LINK_PORT, "--link-port", unnamed)?,
        events: port(arguments.event_port, EVENT_PORT, "--event-port", unnamed)?,
    };
    let builder = up::prepare(&arguments.up, tools, unnamed)?
        .risk_rules(cast::RISK_RULES)
        // Who forgets to pay comes again.
        .holds_may_expire()
        .links(link::domains(ports.links));
    let builder = match arguments.up.has_kafka() {
        true => builder,
        false => builder.events(),
    };
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        let mut stop = Stop::new()?;
        let (mut stack, report) = tokio::select! {
            done = demo(arguments, builder, ports) => done?,
            () = stop.asked() => return Ok(ExitCode::FAILURE),
        };
        println!("{}", report.table());
        if let Some(file) = &arguments.report {
            write_report(&report, file)?;
        }
        if !arguments.once {
            println!("{}", up::describe(&stack, "another"));
            up::stay_up(&mut stack, &mut stop).await?;
        }
        // Exit code 0 says: every unit was sold and paid, and none twice.
        let good = report.is_good();
        Ok(if good {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    })
}

/// The ports of gateways beside the first.
#[derive(Debug, Clone, Copy)]
struct GatewayPorts {
    links: u16,
    events: u16,
}

fn port(named: Option<u16>, usual: u16, flag: &str, unnamed: Unnamed) -> Result<u16> {
    let port = match (named, unnamed) {
        (Some(named), _) => named,
        (None, Unnamed::Default) => usual,
        (None, Unnamed::Free) => return ports::free(),
    };
    ports::check(port, flag)?;
    Ok(port)
}

fn write_report(report: &Report, file: &Path) -> Result<()> {
    let text = serde_json::to_string_pretty(&report.json())?;
    std::fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))
}

/// Starts the stack, holds the sale, and reads the books.
async fn demo(
    arguments: &Arguments,
    builder: Builder,
    ports: GatewayPorts,
) -> Result<(Stack, Report)> {
    // The play asks it things, and the watch looks after its children in between.
    let stack = Mutex::new(up::start(builder).await?);
    // A name of its own, so that a kept --data folder takes one demo after another.
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let sale = format!("demo-{}", now.as_millis());
    let report = tokio::select! {
        report = hold(arguments, &stack, &sale, ports) => report?,
        died = first_death(&stack) => return Err(died),
    };
    Ok((stack.into_inner(), report))
}

async fn hold(
    arguments: &Arguments,
    stack: &Mutex<Stack>,
    sale: &str,
    ports: GatewayPorts,
) -> Result<Report> {
    let shares = Shares::of(arguments.users, arguments.stock);
    let mut play = Play::new(stack, sale, shares, arguments).await?;
    let people = cast::people(&shares, arguments.seed);
    let browsing = views::play(stack, ports.events, &people, &mut play.teller).await?;
    let played = play.run().await?;
    let books = Books::read(&*stack.lock().await, sale, arguments.shards).await?;
    let link = link::play(stack, ports.links, &mut play.teller).await?;
    Ok(Report {
        stock: arguments.stock.into(),
        shards: arguments.shards,
        shares,
        workers: arguments.up.workers(),
        connections: arguments.connections,
        seed: arguments.seed,
        phases: play.teller.json(),
        reserved: played.reserved,
        rushes: played.rushes,
        seen: play.seen,
        audit: played.audit,
        books,
        browsing,
        link,
    })
}

/// Ends only when a child has ended by itself: a crowd before a dead gateway would go on retrying for
/// minutes.
async fn first_death(stack: &Mutex<Stack>) -> anyhow::Error {
    loop {
        if let Err(died) = stack.lock().await.check_children() {
            return died.into();
        }
        tokio::time::sleep(WATCH).await;
    }
}
