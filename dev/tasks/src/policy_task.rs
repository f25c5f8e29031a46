//! `cargo xtask policy`: checks GitHub workflows with actionlint, and dependencies with cargo-deny and `deny.toml`.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Result, ensure};
use weir_stack::report::{Console, Reporter};
use weir_stack::tools::{Actionlint, CARGO_DENY};
use weir_stack::{command, workspace};

/// The workspaces, relative to the root. Both use the same `deny.toml`.
const WORKSPACES: [&str; 2] = [".", "edge"];

/// The checks that need no advisory database.
const WITHOUT_DATABASE: [&str; 3] = ["bans", "licenses", "sources"];

/// Set where the advisory database, which is no package registry, can be reached.
const ADVISORIES_REQUIRED: &str = "WEIR_ADVISORIES_REQUIRED";

/// Includes a first download of crates for other platforms.
const LIMIT: Duration = Duration::from_secs(300);

pub(crate) fn run() -> Result<ExitCode> {
    let workflows = Actionlint::find_or_get(&mut Console);
    if let Some(actionlint) = found(workflows, "workflows")? {
        let count = actionlint.check()?;
        Console.line("policy", &format!("{count} workflows, no alerts"));
    }
    let deny = found(CARGO_DENY.find_or_get(&mut Console), "dependencies")?;
    let Some(deny) = deny.map(Deny) else {
        return Ok(ExitCode::SUCCESS);
    };
    deny.check(&WITHOUT_DATABASE)?;
    Console.line("policy", "licenses, bans and sources of dependencies: ok");
    match deny.fetch() {
        Ok(()) => {
            deny.check(&["advisories"])?;
            Console.line("policy", "advisories: ok");
        }
        Err(error) if std::env::var_os(ADVISORIES_REQUIRED).is_some() => return Err(error),
        Err(error) => Console.line("policy", &format!("advisories not checked: {error:#}")),
    }
    Ok(ExitCode::SUCCESS)
}

/// What is available. CI reaches the package registries; elsewhere, prints what is not checked without them.
fn found<T>(tool: Result<T>, what: &str) -> Result<Option<T>> {
    match tool {
        Err(error) if std::env::var_os("CI").is_none() => {
            Console.line("policy", &format!("{what} not checked: {error:#}"));
            Ok(None)
        }
        tool => tool.map(Some),
    }
}

/// The program cargo-deny.
struct Deny(PathBuf);

impl Deny {
    /// Downloads the advisory database.
    fn fetch(&self) -> Result<()> {
        let mut fetch = self.in_workspace(".");
        command::succeed(fetch.args(["fetch", "db"]), LIMIT)?;
        Ok(())
    }

    /// Runs these checks on all workspaces.
    fn check(&self, checks: &[&str]) -> Result<()> {
        for folder in WORKSPACES {
            let mut check = self.in_workspace(folder);
            check.args(["check", "--hide-inclusion-graph"]);
            let checked = command::run(check.args(checks), LIMIT)?;
            let is_ok = checked.status.success();
            ensure!(is_ok, "cargo-deny in {folder}: {}", checked.stderr);
        }
        Ok(())
    }

    fn in_workspace(&self, folder: &str) -> Command {
        let root = workspace::root();
        let mut deny = Command::new(&self.0);
        deny.arg("--locked").arg("--manifest-path");
        deny.arg(root.join(folder).join("Cargo.toml"));
        deny.arg("--config").arg(root.join("deny.toml"));
        deny
    }
}
