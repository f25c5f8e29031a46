//! `cargo xtask dist`: makes the folder that a release is, and tries it as it is.
//!
//! | module | |
//! |---|---|
//! | [`folder`] | what is where in it; sums |
//! | [`binaries`] | filters, origin, native module |
//! | [`twice`] | whether another build gives the same filters |
//! | [`sbom`] | what they are made of |
//! | [`oci`] | the filters as OCI images, written and read back |
//! | [`chart`] | the Helm chart, and what helm says of it |
//! | [`five_minutes`] | the first five minutes of somebody who has only this folder |

mod binaries;
mod chart;
mod five_minutes;
mod folder;
mod oci;
mod sbom;
mod twice;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use weir_stack::report::{Console, Reporter};
use weir_stack::workspace;

use crate::folder::Folder;

/// Makes target/dist: filters, origin, native module, Envoy files, images, chart, documents, sums.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask dist", bin_name = "cargo xtask dist")]
struct Arguments {
    /// Try the folder afterwards: limits, links and a sale, by nothing but its files, Envoy and Redis
    #[arg(long)]
    check: bool,

    /// Take the origin as tests run it, which is not static, and leave the native module out: for a check, not for a release
    #[arg(long)]
    fast: bool,

    /// Build the filters a second time, from a copy of the sources elsewhere, and compare the bytes
    #[arg(long)]
    twice: bool,

    #[command(subcommand)]
    step: Option<Step>,
}

#[derive(Debug, Subcommand)]
enum Step {
    /// Build the filters of the workspace that CARGO_MANIFEST_DIR is in, and print their sums
    #[command(hide = true)]
    Filters,
}

fn main() -> ExitCode {
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
        print!("{}", twice::sums(&binaries::filters()?)?);
        return Ok(());
    }
    let folder = make(arguments)?;
    if arguments.twice {
        twice::check(&folder)?;
        Console.line("twice", "a second build elsewhere gave the same filters");
    }
    if arguments.check {
        oci::check(&folder)?;
        Console.line("check", "the images read back as the filters");
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(five_minutes::check(&folder))?;
    }
    Ok(())
}

fn make(arguments: &Arguments) -> Result<Folder> {
    let folder = Folder::empty(&workspace::root().join("target/dist"))?;
    for filter in binaries::filters()? {
        folder.write(&format!("filters/{}.wasm", filter.name), &filter.bytes)?;
        oci::add(&folder, &filter)?;
    }
    let build = binaries::Build::of(arguments.fast);
    folder.copy_program("bin/weir-origin", &build.origin()?)?;
    if let Some(library) = build.native()? {
        folder.copy("native/libweir_native.so", &library)?;
    }
    folder.copy_documents()?;
    folder.write("sbom.cdx.json", sbom::make()?.as_bytes())?;
    chart::write(&folder)?;
    Console.line("chart", &chart::lint(&folder)?);
    let count = folder.write_sums()?;
    let text = format!("{} ({count} files)", folder.path().display());
    Console.line("dist", &text);
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_defined() {
        Arguments::command().debug_assert();
    }
}
