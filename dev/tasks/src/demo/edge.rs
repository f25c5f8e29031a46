//! `cargo xtask demo edge`: the sale with half of its buyers at an edge.

use super::client::Endpoint;
use super::play::SalePlay;
use super::report::Report;
use super::{SaleArguments, cast, code, first_death, new_name, print_report, sell};
use crate::up::{self, Stop, UnnamedPorts};
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::sync::Mutex;
use weir_stack::edge::{self, Build};
use weir_stack::report::{ProgressReporter, Reporter};
use weir_stack::tools::Options;
use weir_stack::{Builder, Stack};

/// The default port of the edge.
const EDGE_PORT: u16 = 10_004;

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Number of people who each want one unit; some are blocked, and bots are added
    #[arg(long, default_value_t = 6_000, value_parser = clap::value_parser!(u32).range(1..))]
    users: u32,

    /// Units on sale
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    stock: u32,

    /// Number of stock shards, one edge object each
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=i64::from(weir_sale::sale::SHARDS_MAX)))]
    shards: u32,

    /// HTTP connections shared by all people, half of them to the edge; bots have their own
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    connections: u32,

    /// Seed for the order in which people arrive
    #[arg(long, default_value_t = super::SEED)]
    seed: u64,

    /// Also write the counts to this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Port of the edge [default: 10004]
    #[arg(long, value_name = "PORT")]
    edge_port: Option<u16>,

    /// Keep the stock in Redis: the edge forwards buyers to the gateway instead of selling from its objects
    #[arg(long)]
    stock_in_redis: bool,

    /// Stop everything afterwards; unset ports are chosen freely
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    up: up::Arguments,
}

impl Arguments {
    fn sale_arguments(&self) -> SaleArguments {
        SaleArguments {
            users: self.users,
            stock: self.stock,
            shards: self.shards,
            connections: self.connections,
            seed: self.seed,
            workers: self.up.workers(),
        }
    }
}

/// Runs the sale and checks its stock balance.
pub(super) fn run(arguments: &Arguments, tools: Options) -> Result<ExitCode> {
    let unnamed = match arguments.once {
        true => UnnamedPorts::Free,
        false => UnnamedPorts::Default,
    };
    let port = super::port(arguments.edge_port, EDGE_PORT, "--edge-port", unnamed)?;
    let builder = up::prepare(&arguments.up, tools, unnamed)?
        .risk_rules(cast::RISK_RULES)
        // People who do not pay return.
        .holds_may_expire();
    let builder = match arguments.stock_in_redis {
        true => builder.edges(),
        false => builder.stock_in_objects(port),
    };
    get_edge()?;
    let requested = arguments.sale_arguments();
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        let mut stop = Stop::new()?;
        let (mut stack, report) = tokio::select! {
            done = hold(&requested, builder, port) => done?,
            () = stop.wait_for_signal() => return Ok(ExitCode::FAILURE),
        };
        print_report(&report, arguments.report.as_deref())?;
        if !arguments.once {
            let edge = stack.worker.as_ref().map(|worker| worker.address);
            let edge = edge.context("the edge has stopped")?;
            println!("{}", up::describe(&stack, None, "another"));
            println!("The edge is at http://{edge} and accepts the same requests as the gateway.");
            up::stay_up(&mut stack, &mut stop).await?;
        }
        Ok(code(&report))
    })
}

/// Builds the edge and gets its runtime before anything starts: that can take minutes.
fn get_edge() -> Result<()> {
    ProgressReporter.line("edge", "workerd, with npm, and the Worker…");
    edge::workerd()?;
    edge::worker(Build::Shipped)?;
    Ok(())
}

/// Starts the stack with its edge, runs the sale, and reads the stock balance.
async fn hold(arguments: &SaleArguments, builder: Builder, port: u16) -> Result<(Stack, Report)> {
    let mut stack = up::start(builder).await?;
    let gateway = Endpoint::gateway(&stack.gateway_url());
    let edge = match &stack.worker {
        Some(worker) => format!("http://{}", worker.address),
        None => stack.start_worker(port).await?,
    };
    let endpoints = vec![gateway, Endpoint::edge(&edge)];
    let (stack, sale) = (Mutex::new(stack), new_name()?);
    let report = tokio::select! {
        report = play(arguments, &stack, &sale, endpoints) => report?,
        died = first_death(&stack) => return Err(died),
    };
    Ok((stack.into_inner(), report))
}

async fn play(
    arguments: &SaleArguments,
    stack: &Mutex<Stack>,
    sale: &str,
    endpoints: Vec<Endpoint>,
) -> Result<Report> {
    let is_in_objects = stack.lock().await.shard_proxy.is_some();
    let mut play = SalePlay::new(stack, sale, arguments, endpoints).await?;
    play.teller
        .tell("edge", "every second connection goes through workerd");
    if is_in_objects {
        let text = "the stock is in its objects; gateway and origin reach it through shard-proxy";
        play.teller.tell("stock", text);
    }
    let mut report = sell(&mut play, sale, arguments).await?;
    report.has_edge = true;
    Ok(report)
}
