//! `cargo xtask mutants`: checks that a test fails when the code is wrong.
//!
//! [cargo-mutants](https://mutants.rs) changes one expression at a time and runs the tests of that crate. A mutant that
//! no test detects could be a real mistake.
//!
//! It works on a copy of the sources, so these may be edited meanwhile. A mutant takes one to three seconds on an idle
//! machine: it is compiled without optimisation, benchmarks are excluded, properties are tested on few cases, and slow
//! tests are skipped.

use anyhow::{Context, Result};
use std::path::Path;
use std::process::{Command, ExitCode};
use weir_stack::report::Console;
use weir_stack::tools::CARGO_MUTANTS;
use weir_stack::workspace;

/// The crates that make decisions. Hosts, tools and the origin have end-to-end tests instead, which are too slow for
/// this.
const PACKAGES: [&str; 5] = [
    "weir-base",
    "weir-engine",
    "weir-limit",
    "weir-link",
    "weir-sale",
];

/// Features that a crate needs to compile all its code; mutants in uncompiled code are never detected.
const FEATURES: [(&str, &str); 1] = [("weir-link", "origin")];

/// Parts of the names of tests that take seconds. Mutants that only they detect are listed as missed.
const SLOW: [&str; 2] = ["a_million_keys", "in_a_year"];

/// The environment of cargo and the tests: each mutant is compiled and run only once.
const SETTINGS: [(&str, &str); 5] = [
    ("CARGO_PROFILE_DEV_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_DEV_DEBUG", "false"),
    ("CARGO_PROFILE_DEV_INCREMENTAL", "true"),
    ("CARGO_PROFILE_DEV_CODEGEN_UNITS", "16"),
    ("PROPTEST_CASES", "32"),
];

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only this crate; repeatable [default: all crates named above]
    #[arg(short, long, value_name = "CRATE")]
    package: Vec<String>,

    /// Only this part of each crate's mutants, such as 1/8
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,

    /// Further arguments for `cargo mutants`, such as `--list`, `--iterate` or `-f crates/engine/src/pump.rs`
    #[arg(last = true, value_name = "CARGO MUTANTS ARGUMENTS")]
    rest: Vec<String>,
}

/// Runs one crate after the other. The exit code is the first non-zero one of cargo-mutants; 2 means that a test is
/// missing.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let tool = CARGO_MUTANTS.find_or_get(&mut Console)?;
    let mut first_bad = 0;
    for package in packages(arguments) {
        let code = run_package(&tool, package, arguments)?;
        if first_bad == 0 {
            first_bad = code;
        }
    }
    Ok(ExitCode::from(first_bad))
}

fn packages(arguments: &Arguments) -> Vec<&str> {
    match arguments.package.is_empty() {
        true => PACKAGES.to_vec(),
        false => arguments.package.iter().map(String::as_str).collect(),
    }
}

fn run_package(tool: &Path, package: &str, arguments: &Arguments) -> Result<u8> {
    let folder = workspace::out_dir().join("mutants");
    let out = folder.join(package);
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    println!("{package}");
    let mut command = Command::new(tool);
    command
        .arg("mutants")
        .arg("--output")
        .arg(&out)
        .args(words(package, has_tests_folder(package), arguments))
        .envs(SETTINGS)
        // Separate from other builds, which are optimised.
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .current_dir(workspace::root());
    let status = command.status().context("cannot start cargo-mutants")?;
    println!("lists and logs: {}\n", out.join("mutants.out").display());
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.unwrap_or(1))
}

/// Whether a crate has a `tests` folder: cargo fails if it is told to run such tests and there are none.
fn has_tests_folder(package: &str) -> bool {
    let name = package.strip_prefix("weir-").unwrap_or(package);
    let folder = workspace::root().join("crates").join(name);
    folder.join("tests").is_dir()
}

/// The arguments of cargo-mutants, including those for cargo and the tests.
fn words(package: &str, has_tests_folder: bool, arguments: &Arguments) -> Vec<String> {
    let mut words = vec!["--package", package];
    for (_, feature) in FEATURES.iter().filter(|(name, _)| *name == package) {
        words.extend(["--features", feature]);
    }
    if let Some(shard) = &arguments.shard {
        words.extend(["--shard", shard]);
    }
    words.extend(arguments.rest.iter().map(String::as_str));
    // Excludes benchmarks, which `cargo test` would run, too.
    words.extend(["--", "--lib"]);
    if has_tests_folder {
        words.extend(["--test", "*"]);
    }
    words.push("--");
    words.extend(SLOW.iter().flat_map(|name| ["--skip", name]));
    words.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(package: &[&str], shard: Option<&str>) -> Arguments {
        Arguments {
            package: package.iter().map(|&name| name.to_owned()).collect(),
            shard: shard.map(str::to_owned),
            rest: vec!["--list".to_owned()],
        }
    }

    #[test]
    fn all_listed_crates_are_mutated_unless_one_is_named() {
        assert_eq!(packages(&arguments(&[], None)), PACKAGES);
        let one = arguments(&["weir-sale"], Some("1/8"));
        assert_eq!(packages(&one), ["weir-sale"]);
        assert_eq!(
            words("weir-sale", false, &one).join(" "),
            "--package weir-sale --shard 1/8 --list -- --lib -- --skip a_million_keys --skip in_a_year"
        );
    }

    #[test]
    fn mutants_of_a_crate_run_its_lib_and_integration_tests() {
        let all = arguments(&[], None);
        let link = words("weir-link", has_tests_folder("weir-link"), &all).join(" ");
        assert!(link.contains("--features origin"), "{link}");
        assert!(link.contains("-- --lib --test * --"), "{link}");
    }
}
