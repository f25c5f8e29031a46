//! `cargo xtask demo`: a flash sale from its creation to the books being checked.

mod books;
mod counters;
mod report;
mod storm;

use crate::up::{self, Stop, Unnamed};
use anyhow::{Context, Result};
use books::Books;
use counters::Counters;
use report::Report;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_stack::tools::Options;
use weir_stack::{Builder, Stack};

/// Any fixed number would do: the same one gives the same order of buyers.
const SEED: u64 = 20_240_618;

/// A settle runs after the buyer has the answer, so the last ones may still be under way
/// when the storm is over.
const SETTLE_LIMIT: Duration = Duration::from_secs(10);
const SETTLE_POLL: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Arguments {
    /// Buyers, each of whom tries to buy one unit
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    users: u32,

    /// Units on sale
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    stock: u32,

    /// Parts of the stock in Redis
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=i64::from(weir_core::sale::SHARDS_MAX)))]
    shards: u32,

    /// HTTP connections that the buyers share
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,

    /// Chooses the order in which buyers come
    #[arg(long, default_value_t = SEED)]
    seed: u64,

    /// Write what was counted to this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Stop everything afterwards; ports that are not named are free ones
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    up: up::Arguments,
}

pub(crate) fn run(arguments: &Arguments, tools: Options) -> Result<ExitCode> {
    let unnamed = match arguments.once {
        true => Unnamed::Free,
        false => Unnamed::Default,
    };
    let builder = up::prepare(&arguments.up, tools, unnamed)?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        let mut stop = Stop::new()?;
        let (mut stack, report) = tokio::select! {
            done = demo(arguments, builder) => done?,
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
        // Exit code 0 says: every unit was sold, and none twice.
        let good = report.is_good();
        Ok(if good {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    })
}

fn write_report(report: &Report, file: &Path) -> Result<()> {
    let text = serde_json::to_string_pretty(&report.json())?;
    std::fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))
}

/// Starts the stack, holds the sale, and reads the books.
async fn demo(arguments: &Arguments, builder: Builder) -> Result<(Stack, Report)> {
    let mut stack = up::start(builder).await?;
    // A name of its own, so that a kept --data folder takes one demo after another.
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let sale = format!("demo-{}", now.as_millis());
    let stock = arguments.stock.into();
    stack.open_sale(&sale, stock, arguments.shards).await?;

    let before = Counters::read(&stack).await?;
    let plan = storm::Plan {
        gateway: stack.gateway_url.clone(),
        path: format!("/sales/{sale}/orders"),
        users: arguments.users,
        connections: arguments.connections,
        seed: arguments.seed,
    };
    let storm = tokio::select! {
        storm = storm::run(&plan) => storm?,
        died = first_death(&mut stack) => return Err(died),
    };
    stack.check_children()?;
    let counters = Counters::read(&stack).await?.since(&before);
    let books = settled_books(&stack, &sale, arguments.shards).await?;
    let report = Report {
        stock: arguments.stock.into(),
        shards: arguments.shards,
        users: arguments.users.into(),
        workers: arguments.up.workers(),
        connections: arguments.connections,
        seed: arguments.seed,
        storm,
        counters,
        books,
    };
    Ok((stack, report))
}

/// Ends only when a child has ended by itself: a storm against a dead gateway would go on
/// retrying for minutes.
async fn first_death(stack: &mut Stack) -> anyhow::Error {
    loop {
        if let Err(died) = stack.check_children() {
            return died.into();
        }
        tokio::time::sleep(SETTLE_POLL).await;
    }
}

/// The books once no claim is open any more, or as they are after a while.
async fn settled_books(stack: &Stack, sale: &str, shards: u32) -> Result<Books> {
    let deadline = Instant::now() + SETTLE_LIMIT;
    loop {
        let books = Books::read(stack, sale, shards).await?;
        if books.held() == 0 || Instant::now() >= deadline {
            return Ok(books);
        }
        tokio::time::sleep(SETTLE_POLL).await;
    }
}
