//! Edges: built by cargo from the workspace in `edge/`, for their own targets.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::{command, workspace};

/// The target of `wasi:http` components.
pub const WASI_TARGET: &str = "wasm32-wasip2";

/// The profile of what is shipped, in `edge/Cargo.toml`.
const PROFILE: &str = "edge";

/// The `wasi:http` component, built if it isn't up to date (cargo decides).
///
/// # Errors
/// When there is no compiler for its target, or it does not compile.
pub fn wasi_component() -> Result<PathBuf> {
    add_target()?;
    let target = format!("--target={WASI_TARGET}");
    let profile = format!("--profile={PROFILE}");
    let built = build(&["--package=weir-edge-wasi", &target, &profile], "wasm")?;
    let shipped = workspace::out_dir().join("edge/weir-edge.wasm");
    std::fs::create_dir_all(workspace::out_dir().join("edge"))?;
    let bytes = std::fs::read(&built)?;
    if std::fs::read(&shipped).ok().as_ref() != Some(&bytes) {
        workspace::write_atomic(&shipped, &bytes)?;
    }
    Ok(shipped)
}

/// The program that runs components in tests. The first build takes minutes: it brings a runtime.
///
/// # Errors
/// When it does not compile.
pub fn wasi_host() -> Result<PathBuf> {
    build(&["--package=weir-edge-host"], "")
}

/// Without rustup, cargo says what is missing.
fn add_target() -> Result<()> {
    let Some(rustup) = command::on_path("rustup") else {
        return Ok(());
    };
    let added = Command::new(rustup)
        .args(["target", "add", WASI_TARGET])
        .current_dir(workspace::root())
        .stdin(Stdio::null())
        .output()
        .context("cannot start rustup")?;
    ensure!(
        added.status.success(),
        "rustup cannot add {WASI_TARGET}: {}",
        String::from_utf8_lossy(&added.stderr).trim_end()
    );
    Ok(())
}

/// Builds one package; its file with this ending.
fn build(arguments: &[&str], ending: &str) -> Result<PathBuf> {
    let _lock = workspace::lock("edge")?;
    let folder = workspace::root().join("edge");
    let output = command::cargo()
        .args(["build", "--quiet", "--locked"])
        .args(arguments)
        .arg("--message-format=json-render-diagnostics")
        .arg("--target-dir")
        .arg(workspace::root().join("target/edge"))
        .current_dir(&folder)
        .stdin(Stdio::null())
        .output()
        .context("cannot start cargo")?;
    ensure!(
        output.status.success(),
        "building an edge failed ({})\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    let stdout = String::from_utf8_lossy(&output.stdout);
    built(&stdout, ending).context("cargo built an edge but named no file")
}

/// The last file of this ending in cargo's messages: dependencies come before what needs them.
fn built(messages: &str, ending: &str) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
        #[serde(default)]
        filenames: Vec<PathBuf>,
    }
    let is_it = |file: &Path| {
        let extension = file.extension().and_then(|extension| extension.to_str());
        extension.unwrap_or_default() == ending
    };
    let files = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok())
        .flat_map(|message| message.executable.into_iter().chain(message.filenames));
    files.filter(|file| is_it(file)).reduce(|_, last| last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_built_is_read_from_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","executable":null,"filenames":["/t/libweir_edge.rlib"]}
{"reason":"compiler-artifact","executable":null,"filenames":["/t/weir_edge_wasi.wasm"]}
{"reason":"compiler-artifact","executable":"/t/weir-edge-host","filenames":["/t/weir-edge-host"]}
{"reason":"build-finished","success":true}"#;
        let path = |path| Some(PathBuf::from(path));
        assert_eq!(built(messages, "wasm"), path("/t/weir_edge_wasi.wasm"));
        assert_eq!(built(messages, ""), path("/t/weir-edge-host"));
        assert_eq!(built(messages, "so"), None);
    }
}
