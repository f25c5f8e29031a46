//! `cargo xtask test`.

use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Write};
use std::process::{ExitCode, Stdio};
use weir_stack::report::Console;
use weir_stack::tools::{self, Options};
use weir_stack::{build, command, workspace};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Arguments for `cargo test`, like `-p weir-sale` or `-- --nocapture`
    #[arg(last = true, value_name = "CARGO TEST ARGUMENTS")]
    rest: Vec<String>,
}

/// What cargo's `test result:` lines add up to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    passed: u64,
    failed: u64,
    skipped: u64,
}

pub(crate) fn run(arguments: &Arguments, options: &Options) -> Result<ExitCode> {
    let everything = everything(&arguments.rest);
    let on_java = everything.map(|_| on_java());
    let mut command = command::cargo();
    command.args(["test", "--no-fail-fast"]).args(everything);
    if let Some(Ok(())) = &on_java {
        let features = JAVA_FEATURES.trim();
        command
            .args(["--features", features])
            .env(build::FEATURES, features);
    }
    command
        .args(&arguments.rest)
        .current_dir(workspace::root())
        .stdout(Stdio::piped());
    if let Some(envoy) = &options.envoy {
        command.env("WEIR_ENVOY", std::path::absolute(envoy)?);
    }
    let mut child = command.spawn().context("cannot start cargo test")?;
    let mut totals = Totals::default();
    if let Some(output) = child.stdout.take() {
        pass_on(output, &mut totals)?;
    }
    let status = child.wait().context("cannot wait for cargo test")?;
    println!();
    if let Some(Err(why)) = on_java {
        println!("left out: tests on Apache Kafka and Cassandra ({why:#})");
    }
    println!("{}", totals.line());
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// Features whose tests need Java and Maven. Without them each has one test that is skipped and says so.
const JAVA_FEATURES: &str = include_str!("../../java-features.txt");

/// Whether servers on Java can be run here.
fn on_java() -> Result<()> {
    tools::Kafka::find_or_get(&mut Console)?;
    tools::Cassandra::find_or_get(&mut Console)?;
    Ok(())
}

/// `--workspace`, unless packages are named: cargo lets it override them.
fn everything(rest: &[String]) -> Option<&'static str> {
    let for_cargo = rest.iter().take_while(|argument| *argument != "--");
    let names_package = |argument: &String| {
        let long = argument == "--package" || argument.starts_with("--package=");
        long || (argument.starts_with("-p") && !argument.starts_with("--"))
    };
    let named = for_cargo.into_iter().any(names_package);
    (!named).then_some("--workspace")
}

/// Prints what cargo prints, as it comes, and counts.
fn pass_on(output: impl std::io::Read, totals: &mut Totals) -> Result<()> {
    let mut output = BufReader::new(output);
    let mut stdout = std::io::stdout().lock();
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        stdout.write_all(&line)?;
        totals.add(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok(())
}

impl Totals {
    /// "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; …".
    fn add(&mut self, line: &str) {
        let Some(counts) = line.trim_start().strip_prefix("test result: ") else {
            return;
        };
        let count = |what: &str| {
            let number = |part: &str| {
                let before = part.trim().strip_suffix(what)?;
                before
                    .rsplit(' ')
                    .find(|word| !word.is_empty())?
                    .parse::<u64>()
                    .ok()
            };
            counts.split(';').find_map(number).unwrap_or(0)
        };
        self.passed += count(" passed");
        self.failed += count(" failed");
        self.skipped += count(" ignored");
    }

    fn line(&self) -> String {
        let Self {
            passed,
            failed,
            skipped,
        } = self;
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_packages_are_tested_alone() {
        let of = |words: &str| {
            let rest: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            everything(&rest).is_some()
        };
        assert!(of("") && of("--test storm") && of("-- -p"));
        assert!(!of("-p weir-sale") && !of("-pweir-sale") && !of("--package=weir-sale"));
    }

    #[test]
    fn result_lines_add_up_and_others_do_not_count() {
        let mut totals = Totals::default();
        let output = "running 4 tests\ntest a ... ok\n\
            test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s\n\
            test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 5 filtered out; finished in 1s\n";
        output.lines().for_each(|line| totals.add(line));
        assert_eq!(totals.line(), "13 passed, 2 failed, 1 skipped");
    }
}
