//! `cargo xtask test`.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;
use weir_stack::report::Console;
use weir_stack::tools::{self, Options};
use weir_stack::{build, command, native, workspace};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Fail if a test passes only at its second try
    #[arg(long)]
    strict: bool,
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
    /// Which ones failed.
    failed_names: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments, options: &Options) -> Result<ExitCode> {
    let envoy = options.envoy.as_deref().map(std::path::absolute);
    let envoy = envoy.transpose()?;
    if !arguments.rest.is_empty() {
        return some(&arguments.rest, envoy.as_deref());
    }
    let on_java = on_java();
    let features = features(on_java.is_ok());
    let cargo = || {
        let mut command = cargo_test(envoy.as_deref());
        command.args(["--workspace", "--features", &features]);
        command.env(build::FEATURES, &features);
        command
    };
    let built = cargo().arg("--no-run").status();
    if !built.context("cannot start cargo test")?.success() {
        return Ok(ExitCode::FAILURE);
    }
    let (mut totals, mut parts) = (Totals::default(), Vec::new());
    let targets = targets()?;
    let beside = Beside::start(with_targets(cargo(), &beside_targets()))?;
    let own = || with_targets(cargo(), &targets);
    parts.push(Part::run(own(), &mut totals)?.with(own()));
    println!("\nEnd-to-end tests on the native module:");
    let native = || {
        let mut command = cargo();
        command.env(native::HOST, "native");
        with_targets(command, &["--test", "e2e"].map(str::to_owned))
    };
    let mut some_native = native();
    some_native.arg("--").args(ON_NATIVE);
    parts.push(Part::run(some_native, &mut totals)?.with(native()));
    let mut documentation = cargo();
    documentation.arg("--doc");
    parts.push(Part::run(documentation, &mut totals)?);
    let beside = beside.end(&mut totals)?;
    parts.push(beside.with(with_targets(cargo(), &beside_targets())));
    let (is_good, flaky) = second_tries(parts, &mut totals, &mut stdout())?;
    println!();
    if let Err(why) = on_java {
        println!("left out: tests on Apache Kafka and Cassandra ({why:#})");
    }
    for name in &flaky {
        println!("passed at the second try, by itself: {name}");
    }
    println!("{}", totals.line());
    Ok(match is_success(is_good, &flaky, arguments.strict) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// A strict run does not accept a test that needed its second try.
fn is_success(is_good: bool, flaky: &[String], is_strict: bool) -> bool {
    is_good && (!is_strict || flaky.is_empty())
}

/// The most tests that are tried again: more of them are no accident.
const SECOND_TRIES_MAX: usize = 6;

/// What one run of cargo came to.
struct Part {
    is_good: bool,
    /// Its tests that failed.
    failed: Vec<String>,
    /// What runs its tests again, once it is told which.
    again: Option<Command>,
}

impl Part {
    fn run(mut command: Command, totals: &mut Totals) -> Result<Self> {
        let mut own = Totals::default();
        let is_good = pass(&mut command, &mut own, &mut stdout())?;
        Ok(Self::of(own, is_good, totals))
    }

    fn of(own: Totals, is_good: bool, totals: &mut Totals) -> Self {
        totals.passed += own.passed;
        totals.failed += own.failed;
        totals.skipped += own.skipped;
        Self {
            is_good,
            failed: own.failed_names,
            again: None,
        }
    }

    fn with(self, again: Command) -> Self {
        Self {
            again: Some(again),
            ..self
        }
    }
}

/// Runs tests that failed once more, when nothing runs beside them. On a busy machine a real server may miss what a test waits for;
/// who is wrong fails again. Whether all is good now, and which tests passed only so.
fn second_tries(
    parts: Vec<Part>,
    totals: &mut Totals,
    shown: &mut impl Write,
) -> Result<(bool, Vec<String>)> {
    let count: usize = parts.iter().map(|part| part.failed.len()).sum();
    // A test binary that died has no names to tell.
    let is_known = totals.failed == count as u64;
    if !is_known || count > SECOND_TRIES_MAX {
        return Ok((parts.iter().all(|part| part.is_good), Vec::new()));
    }
    let (mut is_good, mut flaky) = (true, Vec::new());
    for part in parts.into_iter().filter(|part| !part.is_good) {
        let Some(mut again) = part.again.filter(|_| !part.failed.is_empty()) else {
            is_good = false;
            continue;
        };
        writeln!(shown, "\nOnce more: {}", part.failed.join(", "))?;
        again.args(["--", "--exact"]).args(&part.failed);
        let mut second = Totals::default();
        let is_mended = pass(&mut again, &mut second, shown)?;
        is_good &= is_mended && second.passed == part.failed.len() as u64;
        let failed = &second.failed_names;
        let passed = part
            .failed
            .into_iter()
            .filter(|name| !failed.contains(name));
        flaky.extend(passed.take(usize::try_from(second.passed).unwrap_or(usize::MAX)));
    }
    totals.passed += flaky.len() as u64;
    totals.failed -= flaky.len() as u64;
    Ok((is_good, flaky))
}

fn with_targets(mut command: Command, targets: &[String]) -> Command {
    command.args(targets);
    command
}

fn beside_targets() -> Vec<String> {
    let flags = BESIDE.iter().flat_map(|name| ["--test", name]);
    flags.map(str::to_owned).collect()
}

/// What the person asked for, in one run of cargo.
fn some(rest: &[String], envoy: Option<&Path>) -> Result<ExitCode> {
    let mut command = cargo_test(envoy);
    if is_everywhere(rest) {
        let features = features(on_java().is_ok());
        command.args(["--workspace", "--features", &features]);
        command.env(build::FEATURES, features);
    }
    let mut totals = Totals::default();
    let is_good = pass(command.args(rest), &mut totals, &mut stdout())?;
    println!("\n{}", totals.line());
    Ok(match is_good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn cargo_test(envoy: Option<&Path>) -> Command {
    let mut command = command::cargo();
    command
        .args(["test", "--no-fail-fast"])
        .current_dir(workspace::root());
    if let Some(envoy) = envoy {
        command.env("WEIR_ENVOY", envoy);
    }
    command
}

/// Shows what a run of cargo prints, and counts; whether all of it was good.
fn pass(command: &mut Command, totals: &mut Totals, shown: &mut impl Write) -> Result<bool> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo test")?;
    if let Some(output) = child.stdout.take() {
        pass_on(output, totals, shown)?;
    }
    Ok(child
        .wait()
        .context("cannot wait for cargo test")?
        .success())
}

/// Tests that wait for servers on Java and for processes that are killed, most of the time: they run beside the others.
const BESIDE: [&str; 4] = [
    "kafka",
    "origin_archive",
    "origin_on_cassandra",
    "origin_on_kafka",
];

/// What of the end-to-end tests runs on the native module as well, beside its own tests and the conformance suite: its
/// sales, limits, links, waiting rooms and what becomes of them when something fails. The rest is about what is behind the filters, and
/// takes minutes more; `WEIR_HOST=native cargo xtask test -- --test e2e` runs all of it.
const ON_NATIVE: [&str; 8] = [
    "storm::",
    "whole_sale::",
    "disconnect::",
    "limits::",
    "ratelimit::",
    "links::",
    "outage::",
    "waiting_room::",
];

/// They run, and what they print is kept until the others have ended.
struct Beside {
    child: Child,
    output: PathBuf,
}

impl Beside {
    fn start(mut cargo: Command) -> Result<Self> {
        let output = workspace::out_dir().join("tests-beside.log");
        let file =
            File::create(&output).with_context(|| format!("cannot write {}", output.display()))?;
        let errors = file.try_clone().context("the file of what they print")?;
        let child = cargo.stdout(file).stderr(errors).spawn();
        Ok(Self {
            child: child.context("cannot start cargo test")?,
            output,
        })
    }

    fn end(mut self, totals: &mut Totals) -> Result<Part> {
        let status = self.child.wait().context("cannot wait for cargo test")?;
        let output = File::open(&self.output)
            .with_context(|| format!("cannot read {}", self.output.display()))?;
        let mut own = Totals::default();
        pass_on(output, &mut own, &mut stdout())?;
        Ok(Part::of(own, status.success(), totals))
    }
}

impl Drop for Beside {
    /// Nobody waits for them any more.
    fn drop(&mut self) {
        // If it has ended, that is as good.
        let _ = self.child.kill();
    }
}

/// The flags that name all tests but those.
fn targets() -> Result<Vec<String>> {
    let mut metadata = command::cargo();
    metadata
        .args(["metadata", "--no-deps", "--format-version=1"])
        .current_dir(workspace::root());
    let text = command::succeed(&mut metadata, METADATA_LIMIT)?;
    let metadata: Metadata = serde_json::from_str(&text).context("cargo metadata")?;
    Ok(flags(&metadata))
}

fn flags(metadata: &Metadata) -> Vec<String> {
    let targets = metadata
        .packages
        .iter()
        .flat_map(|package| &package.targets);
    let tests = targets.filter(|target| target.kind.iter().any(|kind| kind == "test"));
    let names: BTreeSet<&str> = tests.map(|target| target.name.as_str()).collect();
    let names = names.into_iter().filter(|name| !BESIDE.contains(name));
    let tests = names.flat_map(|name| ["--test", name]);
    ["--lib", "--bins", "--examples"]
        .into_iter()
        .chain(tests)
        .map(str::to_owned)
        .collect()
}

/// It reads some files.
const METADATA_LIMIT: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

/// Features that are off for those who only want to see the demo.
const FEATURES: &str = include_str!("../../test-features.txt");

/// Features whose tests need Java and Maven. Without them each has one test that is skipped and says so.
const JAVA_FEATURES: &str = include_str!("../../java-features.txt");

/// What a run of all tests turns on.
fn features(on_java: bool) -> String {
    let of_java = on_java.then_some(JAVA_FEATURES.trim());
    let all: Vec<&str> = [FEATURES.trim()].into_iter().chain(of_java).collect();
    all.join(",")
}

/// Whether servers on Java can be run here.
fn on_java() -> Result<()> {
    tools::Kafka::find_or_get(&mut Console)?;
    tools::Cassandra::find_or_get(&mut Console)?;
    Ok(())
}

/// Whether no package is named.
fn is_everywhere(rest: &[String]) -> bool {
    let for_cargo = rest.iter().take_while(|argument| *argument != "--");
    let names_package = |argument: &String| {
        let long = argument == "--package" || argument.starts_with("--package=");
        long || (argument.starts_with("-p") && !argument.starts_with("--"))
    };
    !for_cargo.into_iter().any(names_package)
}

/// Prints what cargo prints, as it comes, and counts.
fn pass_on(output: impl std::io::Read, totals: &mut Totals, shown: &mut impl Write) -> Result<()> {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        shown.write_all(&line)?;
        totals.add(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok(())
}

impl Totals {
    /// "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; …", and "test a::b ... FAILED".
    fn add(&mut self, line: &str) {
        let failed = line.strip_prefix("test ").map(str::trim_end);
        if let Some(name) = failed.and_then(|line| line.strip_suffix(" ... FAILED")) {
            self.failed_names.push(name.to_owned());
        }
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
            ..
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
            is_everywhere(&rest)
        };
        assert!(of("") && of("--test storm") && of("-- -p"));
        assert!(!of("-p weir-sale") && !of("-pweir-sale") && !of("--package=weir-sale"));
    }

    #[test]
    fn without_java_its_features_alone_are_off() {
        let (without, with) = (features(false), features(true));
        assert!(with.starts_with(&format!("{without},weir-log/")));
        assert!(!without.contains("kafka"), "{without}");
    }

    #[test]
    fn every_test_runs_once_here_or_beside() {
        let here = targets().unwrap();
        assert!(here.contains(&"e2e".to_owned()) && here.contains(&"--lib".to_owned()));
        for name in BESIDE {
            assert!(!here.contains(&name.to_owned()), "{name}");
        }
        let known = |name: &&str| {
            let all = ["crates/log", "origin"].map(|dir| workspace::root().join(dir));
            all.iter().any(|dir| dir.join("tests").join(name).is_dir())
        };
        assert!(BESIDE.iter().all(known));
    }

    #[test]
    fn what_runs_on_the_native_module_is_there() {
        let dir = workspace::root().join("tests/e2e");
        for name in ON_NATIVE {
            let module = name.trim_end_matches("::");
            let is_there = |path: String| dir.join(path).is_file();
            assert!(
                is_there(format!("{module}.rs")) || is_there(format!("{module}/mod.rs")),
                "{name}"
            );
        }
    }

    /// A part whose tests of these names failed, and whose second run prints so much.
    fn part(failed: &[&str], second: &str, is_good: bool) -> Part {
        let mut again = Command::new("sh");
        let ending = if is_good { "true" } else { "false" };
        again.args(["-c", &format!("printf '%s\n' \"$0\"; {ending}"), second]);
        Part {
            is_good: failed.is_empty(),
            failed: failed.iter().map(|name| (*name).to_owned()).collect(),
            again: Some(again),
        }
    }

    fn tried(parts: Vec<Part>, failed: u64) -> (bool, Vec<String>, String) {
        let mut totals = Totals {
            passed: 10,
            failed,
            ..Totals::default()
        };
        let (is_good, flaky) = second_tries(parts, &mut totals, &mut std::io::sink()).unwrap();
        (is_good, flaky, totals.line())
    }

    #[test]
    fn a_test_that_fails_has_a_second_try_and_no_third() {
        let one = "test result: ok. 1 passed; 0 failed; 0 ignored";
        let none = "test a ... FAILED\ntest result: FAILED. 0 passed; 1 failed; 0 ignored";
        let line = |passed, failed| format!("{passed} passed, {failed} failed, 0 skipped");
        let good = || part(&[], "", true);
        let mended = tried(vec![good(), part(&["a"], one, true)], 1);
        assert_eq!(mended, (true, vec!["a".to_owned()], line(11, 0)));
        let wrong = tried(vec![part(&["a"], none, false), good()], 1);
        assert_eq!(wrong, (false, vec![], line(10, 1)));
        // Nothing ran, as if the name were another: it is no pass.
        let lost = "test result: ok. 0 passed; 0 failed; 0 ignored";
        assert_eq!(
            tried(vec![part(&["a"], lost, true)], 1),
            (false, vec![], line(10, 1))
        );
        // A binary that died, and more than can be chance, stay as they are.
        assert_eq!(
            tried(vec![part(&["a"], one, true)], 2),
            (false, vec![], line(10, 2))
        );
        let many = ["a", "b", "c", "d", "e", "f", "g"];
        assert_eq!(
            tried(vec![part(&many, one, true)], 7),
            (false, vec![], line(10, 7))
        );
    }

    #[test]
    fn second_try_fails_a_strict_run_alone() {
        let one = "test result: ok. 1 passed; 0 failed; 0 ignored";
        let (is_good, flaky, _) = tried(vec![part(&["a"], one, true)], 1);
        assert!(is_success(is_good, &flaky, false));
        assert!(!is_success(is_good, &flaky, true));
        // Without a second try a strict run is like any other.
        assert!(is_success(true, &[], true));
        assert!(!is_success(false, &[], false));
    }

    #[test]
    fn result_lines_add_up_and_others_do_not_count() {
        let mut totals = Totals::default();
        let output = "running 4 tests\ntest a ... ok\ntest b::c ... FAILED\n\
            test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s\n\
            test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 5 filtered out; finished in 1s\n";
        output.lines().for_each(|line| totals.add(line));
        assert_eq!(totals.line(), "13 passed, 2 failed, 1 skipped");
        assert_eq!(totals.failed_names, ["b::c"]);
    }
}
