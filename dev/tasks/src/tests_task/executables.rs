//! Test executables built by cargo, and their tests.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use weir_stack::command;

/// Listing tests reads and starts nothing.
const LIST_LIMIT: Duration = Duration::from_secs(60);

/// A test executable.
#[derive(Clone, Debug)]
pub(super) struct Executable {
    /// The name of its target, such as `e2e` or `weir_sale`.
    pub(super) name: String,
    path: PathBuf,
    /// The folder where cargo would run it: its package.
    folder: PathBuf,
}

/// Builds test executables with this cargo command. `None` if the build fails; cargo has printed why.
pub(super) fn build(cargo: &mut Command) -> Result<Option<Vec<Executable>>> {
    cargo.args([
        "--tests",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    let output = cargo
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo test")?;
    if !output.status.success() {
        return Ok(None);
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut all: Vec<Executable> = messages.lines().filter_map(executable).collect();
    ensure!(!all.is_empty(), "cargo has built no tests");
    // Cargo's messages come in completion order, which varies.
    all.sort_by(|a, b| (&a.folder, &a.name).cmp(&(&b.folder, &b.name)));
    Ok(Some(all))
}

/// The test executable in one of cargo's messages.
fn executable(message: &str) -> Option<Executable> {
    #[derive(Deserialize)]
    struct Message {
        target: Target,
        profile: Profile,
        manifest_path: PathBuf,
        executable: Option<PathBuf>,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
    }
    #[derive(Deserialize)]
    struct Profile {
        test: bool,
    }
    let message: Message = serde_json::from_str(message).ok()?;
    let path = message.executable.filter(|_| message.profile.test)?;
    Some(Executable {
        name: message.target.name,
        path,
        folder: message.manifest_path.parent()?.to_owned(),
    })
}

impl Executable {
    /// A command that runs all its tests.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            // Without a terminal, a test that needs a tool cannot request consent.
            .stdin(Stdio::null());
        command
    }

    /// The names of its tests.
    pub(super) fn tests(&self) -> Result<Vec<String>> {
        let mut list = self.command();
        let listed = command::succeed(list.args(["--list", "--format=terse"]), LIST_LIMIT)?;
        let name = |line: &str| line.strip_suffix(": test").map(str::to_owned);
        Ok(listed.lines().filter_map(name).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_executables_are_read_from_cargo_messages() {
        let of = |is_test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/sale/Cargo.toml","target":{{"name":"gate"}},
                "profile":{{"test":{is_test}}},"executable":"/w/target/debug/deps/gate-1"}}"#
            )
        };
        let gate = executable(&of(true)).unwrap();
        assert_eq!(gate.name, "gate");
        assert_eq!(gate.folder, PathBuf::from("/w/crates/sale"));
        assert!(executable(&of(false)).is_none());
        assert!(executable(r#"{"reason":"build-finished","success":true}"#).is_none());
    }
}
