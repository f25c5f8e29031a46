//! Short-lived commands with a time limit; errors contain their output.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON and YAML that this module has made"
)]

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The result of a finished command.
#[derive(Debug)]
pub struct CommandOutput {
    /// The exit status.
    pub status: ExitStatus,
    /// Standard output, with bytes that are not UTF-8 replaced.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
}

/// The polling interval for a running command; small compared to the shortest commands (20 ms).
const POLL: Duration = Duration::from_millis(5);

/// The cargo that runs this process, or the one on `PATH`.
///
/// Variables that cargo has set for this process are removed. Otherwise, build scripts that track one of them (such as
/// ring's) would rerun whenever calls from outside and inside alternate.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        if is_of_a_package(&name) {
            command.env_remove(name);
        }
    }
    command
}

/// Whether cargo sets the variable for the running package.
fn is_of_a_package(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    ["CARGO_PKG_", "CARGO_MANIFEST_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Runs `command` without a terminal. After `limit`, kills it and returns an error. A non-zero exit code is not an
/// error here: see [`succeed`].
pub fn run(command: &mut Command, limit: Duration) -> Result<CommandOutput> {
    let displayed = show(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{displayed}`"))?;
    let stdout = read_in_background(child.stdout.take());
    let stderr = read_in_background(child.stderr.take());
    let status = wait_until(&mut child, Instant::now() + limit)?;
    let Some(status) = status else {
        child.kill().ok();
        child.wait().ok();
        bail!("`{displayed}` did not finish within {} s", limit.as_secs());
    };
    Ok(CommandOutput {
        status,
        stdout: stdout.join().unwrap_or_default(),
        stderr: stderr.join().unwrap_or_default(),
    })
}

/// As [`run`], but a non-zero exit code is an error that contains the end of the output. Returns standard output.
pub fn succeed(command: &mut Command, limit: Duration) -> Result<String> {
    let finished = run(command, limit)?;
    if !finished.status.success() {
        let output = format!("{}{}", finished.stdout, finished.stderr);
        bail!(
            "`{}` failed ({}):\n{}",
            show(command),
            finished.status,
            last_lines(&output, 25)
        );
    }
    Ok(finished.stdout)
}

/// The command as typed in a shell.
pub fn show(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The last `count` lines of `text`.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// The first executable called `name` on `PATH`.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| is_executable(file))
}

/// Whether `path` is a file with an execute bit.
pub fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path)
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

fn wait_until(child: &mut Child, deadline: Instant) -> Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for a command")? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

fn read_in_background(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // The output before an error is still useful.
            pipe.read_to_end(&mut bytes).ok();
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_runs_without_variables_of_the_outer_cargo() {
        // Cargo sets the variable for this test.
        assert!(std::env::var_os("CARGO_PKG_NAME").is_some());
        let command = cargo();
        let removed = |name: &str| {
            command
                .get_envs()
                .any(|env| env == (OsStr::new(name), None))
        };
        assert!(removed("CARGO_PKG_NAME") && removed("CARGO_MANIFEST_DIR"));
        assert!(!removed("CARGO_TARGET_DIR") && !removed("CARGO_HOME") && !removed("PATH"));
    }

    #[test]
    fn command_past_its_time_limit_is_killed_and_named() {
        let started = Instant::now();
        let error = run(Command::new("sleep").arg("20"), Duration::from_millis(100)).unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(5));
        assert!(error.to_string().contains("sleep 20"), "{error}");
    }

    #[test]
    fn failure_shows_the_output_of_the_command() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo why >&2; exit 3"]);
        let error = succeed(&mut command, Duration::from_secs(10)).unwrap_err();
        assert!(error.to_string().contains("why"), "{error}");
    }
}
