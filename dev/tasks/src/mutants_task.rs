//! `cargo xtask mutants`: does a test fail when the code is wrong?
//!
//! [cargo-mutants](https://mutants.rs) changes one expression at a time and runs the tests of that crate. A mutant that no
//! test notices is one that a person could have written.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use weir_stack::command;
use weir_stack::workspace;

/// The crates that decide. Hosts, tools and the origin have end-to-end tests instead, which are too slow for this.
const PACKAGES: [&str; 8] = [
    "weir-base",
    "weir-engine",
    "weir-engine-gate",
    "weir-engine-limiter",
    "weir-engine-links",
    "weir-limit",
    "weir-link",
    "weir-sale",
];

/// The version that is installed if there is none.
const VERSION: &str = "27.1.0";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only this crate; may be repeated [default: all engines and domains]
    #[arg(short, long, value_name = "CRATE")]
    package: Vec<String>,

    /// Only one part of the mutants, as in 1/8
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,

    /// Further arguments for `cargo mutants`, like `--list` or `-f crates/engine/src/pump.rs`
    #[arg(last = true, value_name = "CARGO MUTANTS ARGUMENTS")]
    rest: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let tool = find_or_get()?;
    let out = workspace::out_dir().join("mutants");
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let mut command = Command::new(tool);
    command
        .args(words(arguments))
        .arg("--output")
        .arg(&out)
        .current_dir(workspace::root());
    let status = command.status().context("cannot start cargo-mutants")?;
    println!("\nlists and logs: {}", out.join("mutants.out").display());
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// What cargo-mutants is told.
fn words(arguments: &Arguments) -> Vec<String> {
    let mut words = vec!["mutants".to_owned()];
    let named = &arguments.package;
    let all = PACKAGES.map(str::to_owned);
    let packages = if named.is_empty() { &all[..] } else { named };
    for package in packages {
        words.extend(["--package".to_owned(), package.clone()]);
    }
    if let Some(shard) = &arguments.shard {
        words.extend(["--shard".to_owned(), shard.clone()]);
    }
    words.extend(arguments.rest.iter().cloned());
    words
}

/// cargo-mutants, on `PATH` or in `target/weir/tools`, installed there first if need be.
fn find_or_get() -> Result<PathBuf> {
    if let Some(found) = on_path("cargo-mutants") {
        return Ok(found);
    }
    let root = workspace::out_dir().join("tools/cargo-mutants");
    let tool = root.join("bin/cargo-mutants");
    if !tool.is_file() {
        install(&root)?;
    }
    Ok(tool)
}

fn install(root: &Path) -> Result<()> {
    println!(
        "cargo-mutants   installing {VERSION} into {}…",
        root.display()
    );
    let status = command::cargo()
        .args(["install", "cargo-mutants", "--locked", "--version", VERSION])
        .arg("--root")
        .arg(root)
        .status()
        .context("cannot start cargo install")?;
    ensure!(
        status.success(),
        "cargo-mutants cannot be installed; install it by hand: cargo install cargo-mutants"
    );
    Ok(())
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&path).map(|folder| folder.join(name));
    files.find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(package: &[&str], shard: Option<&str>) -> String {
        let arguments = Arguments {
            package: package.iter().map(|&name| name.to_owned()).collect(),
            shard: shard.map(str::to_owned),
            rest: vec!["--list".to_owned()],
        };
        words(&arguments).join(" ")
    }

    #[test]
    fn all_that_decides_is_mutated_unless_a_crate_is_named() {
        let all = words_of(&[], None);
        assert!(PACKAGES.iter().all(|name| all.contains(name)), "{all}");
        assert_eq!(
            words_of(&["weir-sale"], Some("1/8")),
            "mutants --package weir-sale --shard 1/8 --list"
        );
    }
}
