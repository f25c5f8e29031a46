//! `cargo xtask dist`: builds a release folder and tests it.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use weir_dist::binaries::{self, Build};
use weir_dist::folder::Folder;
use weir_dist::metadata::Metadata;
use weir_dist::{chart, five_minutes, make, oci, packages, twice};
use weir_stack::report::{Console, Reporter};
use weir_stack::tools::{Envoy, Options};
use weir_stack::workspace;

/// Build a release in target/dist: filters, origin, native module, Envoy files, images, chart, documents and
/// checksums
#[derive(Debug, Parser)]
#[command(name = "cargo xtask dist", bin_name = "cargo xtask dist", version = weir_version::long())]
struct Arguments {
    /// Test the folder afterwards: images, chart, and a limit, a link and a sale with only its files, Envoy and
    /// Redis
    #[arg(long)]
    check: bool,

    /// Use the test build of the origin, which is not static, and skip the native module: for checks, not for
    /// releases
    #[arg(long)]
    fast: bool,

    /// Build the filters twice, the second time from a copy of the sources elsewhere, and compare the bytes
    #[arg(long)]
    twice: bool,

    /// Pack what a release publishes into target/packages: archive, chart, crates and client library
    #[arg(long)]
    packages: bool,

    /// Pack it, and print the commands that would publish it; publish nothing
    #[arg(long)]
    dry_run: bool,

    #[command(subcommand)]
    step: Option<Step>,
}

#[derive(Debug, Subcommand)]
enum Step {
    /// Build the filters of the workspace in CARGO_MANIFEST_DIR, and print their checksums
    #[command(hide = true)]
    Filters,
}

fn main() -> ExitCode {
    weir_version::set_commit(weir_version::commit!());
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    if let Some(Step::Filters) = arguments.step {
        print!("{}", twice::sums(&binaries::filters()?));
        return Ok(());
    }
    let folder = make(
        &workspace::root().join("target/dist"),
        Build::of(arguments.fast),
    )?;
    Console.line("dist", &folder.path().display().to_string());
    if arguments.twice {
        twice::check(&folder)?;
        Console.line(
            "twice",
            "a second build elsewhere produced identical filters",
        );
    }
    if arguments.check {
        check(&folder)?;
    }
    if arguments.packages || arguments.dry_run {
        pack(&folder, arguments.dry_run)?;
    }
    Ok(())
}

fn pack(folder: &Folder, is_dry_run: bool) -> Result<()> {
    let path = workspace::root().join("target/packages");
    let packages = packages::make(&path, folder, &Metadata::read()?)?;
    Console.line("packages", &packages.path().display().to_string());
    if is_dry_run {
        Console.line("dry run", "a release would run these commands:");
        print!("{}", packages::dry_run(&packages)?);
    }
    Ok(())
}

fn check(folder: &Folder) -> Result<()> {
    oci::check(folder)?;
    Console.line("check", "the images contain the filters");
    let envoy = Envoy::find_or_get(&Options::default(), &mut Console)?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(five_minutes::check(folder, &envoy))?;
    Console.line(
        "check",
        "tested from the folder alone: limits, a link and a sale",
    );
    match chart::Tools::find_or_get(&mut Console) {
        Ok(tools) => Console.line("chart", &tools.check(folder)?),
        // The check needs Go and Python, which not every release machine has.
        Err(error) => Console.line("chart", &format!("not checked: {error:#}")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_definition_is_valid() {
        Arguments::command().debug_assert();
    }
}
