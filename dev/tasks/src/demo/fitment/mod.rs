//! `cargo xtask demo fitment`: imports a catalogue of parts and vehicles, and queries it.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON and YAML that this module has made"
)]

mod catalogue;
mod questions;

use crate::up::{self, Stop, UnnamedPorts};
use anyhow::{Context, Result, bail};
use catalogue::Catalogue;
use indicatif::{ProgressBar, ProgressStyle};
use questions::QuestionReport;
use serde_json::Value;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weir_stack::Stack;
use weir_stack::http::Method;
use weir_stack::report::{Console, Reporter};
use weir_stack::tools::Options;

/// The default port for queries.
const FITMENT_PORT: u16 = 10_003;

/// Relations per file.
const FILE_RELATIONS: u64 = 5_000_000;

/// The maximum time for an import or for writing Redis, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(900);
const POLL: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, clap::Args)]
#[expect(
    missing_docs,
    reason = "clap would print them as the task's own description"
)]
pub struct Arguments {
    /// Number of vehicles, rounded up to thousands
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    vehicles: u64,

    /// Number of SKUs
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(2..=1_000_000))]
    skus: u64,

    /// Approximate number of relations between them
    #[arg(long, default_value_t = 50_000_000)]
    relations: u64,

    /// Number of queries, with 1 to 5 vehicles and 1 to 200 SKUs each
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    queries: u64,

    /// HTTP connections for the queries
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,

    /// Port of the gateway that answers them [default: 10003]
    #[arg(long, value_name = "PORT")]
    fitment_port: Option<u16>,

    /// Stop everything afterwards; unset ports are chosen freely
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    up: up::Arguments,
}

/// Imports a catalogue, queries it, and checks every answer.
pub fn run(arguments: &Arguments, tools: Options) -> Result<ExitCode> {
    let unnamed = match arguments.once {
        true => UnnamedPorts::Free,
        false => UnnamedPorts::Default,
    };
    let port = super::port(
        arguments.fitment_port,
        FITMENT_PORT,
        "--fitment-port",
        unnamed,
    )?;
    let builder = up::prepare(&arguments.up, tools, unnamed)?.fitment();
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        let mut stop = Stop::new()?;
        let mut stack = up::start(builder).await?;
        let requested = tokio::select! {
            requested = play(arguments, &mut stack, port) => requested?,
            () = stop.wait_for_signal() => return Ok(ExitCode::FAILURE),
        };
        print_report(arguments, &requested);
        if !arguments.once {
            println!("{}", urls(&stack));
            up::stay_up(&mut stack, &mut stop).await?;
        }
        Ok(match requested.is_good(arguments.queries) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    })
}

async fn play(arguments: &Arguments, stack: &mut Stack, port: u16) -> Result<QuestionReport> {
    let catalogue = Catalogue::new(arguments.vehicles, arguments.skus, arguments.relations);
    import(stack, &catalogue).await?;
    let gateway = stack.start_fitment_gateway(port).await?;
    let authority = gateway.trim_start_matches("http://").to_owned();
    let bar = bar(arguments.queries, "questions")?;
    let requested = questions::ask(
        &authority,
        catalogue,
        arguments.queries,
        arguments.connections,
        |count| bar.set_position(count),
    )
    .await?;
    bar.finish_and_clear();
    Ok(requested)
}

/// Imports vehicles, products and relations, and waits until Redis has all of them.
async fn import(stack: &Stack, catalogue: &Catalogue) -> Result<()> {
    let began = Instant::now();
    upload(stack, "vehicles", catalogue.vehicles_csv()).await?;
    upload(stack, "products", catalogue.products_csv()).await?;
    let text = format!(
        "{} vehicles, {} SKUs in {:.1} s",
        catalogue.vehicles,
        catalogue.skus,
        began.elapsed().as_secs_f64()
    );
    Console.line("imported", &text);
    let began = Instant::now();
    let relations = catalogue.relations();
    let bar = bar(relations, "relations")?;
    let each = (FILE_RELATIONS * catalogue.skus / relations).clamp(2, catalogue.skus);
    let mut first = 0;
    let mut working = Duration::ZERO;
    while first < catalogue.skus {
        let last = (first + each).min(catalogue.skus);
        let (catalogue, range) = (*catalogue, first..last);
        let file = tokio::task::spawn_blocking(move || catalogue.relations_csv(range)).await?;
        let count = file.lines().count() as u64 - 1;
        let sent = Instant::now();
        upload(stack, "relations", file).await?;
        working += sent.elapsed();
        bar.inc(count);
        first = last;
    }
    bar.finish_and_clear();
    let rate = relations as f64 / working.as_secs_f64();
    Console.line(
        "imported",
        &format!("{relations} relations into SQL, {rate:.0}/s"),
    );
    written(stack).await?;
    let text = format!("complete after {:.1} s", began.elapsed().as_secs_f64());
    Console.line("redis has", &text);
    Ok(())
}

/// Uploads a file, and waits until it is applied.
async fn upload(stack: &Stack, kind: &str, file: String) -> Result<()> {
    let path = format!("/fitment/imports?kind={kind}&format=csv");
    let accepted = stack.admin(Method::POST, &path, &file, 202).await?;
    drop(file);
    let id = accepted["id"].as_u64().context("import without an id")?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let path = format!("/fitment/imports/{id}");
        let import = stack.admin(Method::GET, &path, "", 200).await?;
        match import["state"].as_str() {
            Some("done") => return Ok(()),
            Some("failed") => bail!("the import of {kind} failed: {import}"),
            _ if Instant::now() >= deadline => {
                bail!("timeout of the import of {kind}: {import}")
            }
            _ => tokio::time::sleep(POLL).await,
        }
    }
}

/// Waits until Redis matches SQL.
async fn written(stack: &Stack) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let state: Value = stack
            .admin(Method::GET, "/fitment/rebuild", "", 200)
            .await?;
        if state["waiting"] == 0 && state["rebuilding"] == false {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!("Redis does not match SQL: {state}");
        }
        tokio::time::sleep(POLL).await;
    }
}

fn bar(length: u64, subject: &'static str) -> Result<ProgressBar> {
    let bar = ProgressBar::new(length).with_message(subject);
    let style = "{msg:10} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}";
    bar.set_style(ProgressStyle::with_template(style).context("the bar")?);
    Ok(bar)
}

fn print_report(arguments: &Arguments, report: &QuestionReport) {
    let at = |quantile: f64| report.latencies.value_at_quantile(quantile) as f64 / 1_000.0;
    let rate = report.queries as f64 / report.elapsed.as_secs_f64().max(f64::EPSILON);
    let pairs = report.pairs;
    println!(
        "pairs          {} fit, {} do not, {} are unknown",
        pairs.fits, pairs.does_not, pairs.unknown
    );
    println!(
        "took           {:.1} s, {rate:.0} queries/s; p50 {:.1} ms, p99.9 {:.1} ms",
        report.elapsed.as_secs_f64(),
        at(0.5),
        at(0.999)
    );
    if report.again > 0 {
        println!("retried        {}: the gateway answered 503", report.again);
    }
    if let Some(wrong) = &report.first_wrong {
        println!("wrong          {wrong}");
    }
    println!(
        "{} of {} queries were answered correctly, {} pairs",
        report.right,
        arguments.queries,
        pairs.all()
    );
}

fn urls(stack: &Stack) -> String {
    let gateway = stack.fitment_gateway.as_ref().map(|envoy| envoy.url());
    format!(
        "\nTry it:\n  curl -d '{{\"vehicles\":[\"{}\"],\"skus\":[\"{}\"]}}' {}/fitment/check\nThe console, with the token {}:\n  \
         {}/ui#/fitment\nCtrl-C stops everything.",
        Catalogue::vehicle(0),
        Catalogue::sku(1),
        gateway.unwrap_or_default(),
        stack.admin_token,
        stack.origin_admin_url()
    )
}
