//! Builds the workspace's programs with cargo.

use crate::{command, workspace};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The variable with features to enable. These are the features of the run that built the calling binary; otherwise
/// cargo would compile everything twice.
pub const FEATURES: &str = "WEIR_FEATURES";

/// Builds the binary `name` if cargo considers it outdated, and returns its path.
///
/// The build is the same as `cargo xtask`'s: it uses the features of the whole workspace, so that no dependency is
/// compiled once per feature set. `features` adds more, such as `weir-origin/kafka`. Another profile recompiles
/// everything anyway, so it ignores the features of the run.
pub fn binary(name: &str, profile: &[&str], features: Option<&str>) -> Result<PathBuf> {
    // Cargo has its own lock, but prints "Blocking waiting for file lock" while it waits.
    let _lock = workspace::lock(name)?;
    let of_run = std::env::var(FEATURES).ok().filter(|_| profile.is_empty());
    let mut build = command::cargo();
    build
        .args(["build", "--quiet", "--workspace", "--bin", name])
        .args(profile)
        .args(features_with(of_run, features));
    binary_of(build, name)
}

/// Builds an origin with only these of its features, such as `links` or `sales,limits`. It uses its own target folder,
/// because the features of the whole workspace would enable all of them.
///
/// # Errors
/// Cargo fails to build it.
pub fn origin_with(features: &str) -> Result<PathBuf> {
    let _lock = workspace::lock("small-origin")?;
    let mut cargo = command::cargo();
    let target = workspace::root().join("target/features");
    cargo
        .args(["build", "--quiet", "--package", "weir-origin"])
        .args(["--no-default-features", "--features", features])
        .arg("--target-dir")
        .arg(target);
    let built = binary_of(cargo, "weir-origin")?;
    // The next build writes the same file name.
    let own = built.with_file_name(format!("weir-origin-{features}"));
    std::fs::copy(&built, &own).with_context(|| format!("cannot copy {}", built.display()))?;
    Ok(own)
}

/// The crates of such an origin.
///
/// # Errors
/// `cargo metadata` fails.
pub fn origin_crates(features: &str) -> Result<Vec<String>> {
    let output = command::cargo()
        .args(["tree", "--package", "weir-origin", "--edges", "normal"])
        .args(["--no-default-features", "--features", features])
        .args(["--prefix", "none", "--format", "{p}"])
        .current_dir(workspace::root())
        .output()
        .context("cannot start cargo tree")?;
    ensure!(output.status.success(), "cargo tree: {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = text.lines().filter_map(|line| line.split(' ').next());
    Ok(names.map(str::to_owned).collect())
}

/// Runs a cargo build and returns the path of its binary `name`.
pub(crate) fn binary_of(build: Command, name: &str) -> Result<PathBuf> {
    let messages = messages(build, name)?;
    executable(&messages, name).with_context(|| format!("cargo built {name} but printed no binary"))
}

/// Runs a cargo build and returns its JSON messages.
pub(crate) fn messages(mut build: Command, subject: &str) -> Result<String> {
    let output = build
        .arg("--message-format=json-render-diagnostics")
        .current_dir(workspace::root())
        .stdin(Stdio::null())
        .output()
        .context("cannot start cargo")?;
    ensure!(
        output.status.success(),
        "building {subject} failed ({})\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The features of the run and those that this build needs.
fn features_with(of_run: Option<String>, needed: Option<&str>) -> Option<String> {
    let all = [of_run.as_deref(), needed];
    let all: Vec<&str> = all
        .into_iter()
        .flatten()
        .filter(|some| !some.is_empty())
        .collect();
    (!all.is_empty()).then(|| format!("--features={}", all.join(",")))
}

/// The path in cargo's message about the binary.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct Message {
        target: Target,
        executable: Option<PathBuf>,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
    }
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok())
        .filter(|message| message.target.name == name)
        .find_map(|message| message.executable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_of_the_run_and_of_the_build_add_up() {
        let of_run = |text: &str| Some(text.to_owned());
        assert_eq!(features_with(None, None), None);
        assert_eq!(features_with(of_run(""), None), None);
        assert_eq!(
            features_with(of_run("a/b,c/d"), None),
            of_run("--features=a/b,c/d")
        );
        assert_eq!(
            features_with(of_run("a/b"), Some("e/f")),
            of_run("--features=a/b,e/f")
        );
    }

    #[test]
    fn binary_path_is_read_from_cargo_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"weir_sale"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"weir-origin"},"executable":"/t/debug/weir-origin"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(
            executable(messages, "weir-origin"),
            Some(PathBuf::from("/t/debug/weir-origin"))
        );
    }
}
