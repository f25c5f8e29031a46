//! Edges, built by cargo from the workspace in `edge/` for their own targets.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::build::{self, messages};
use crate::{command, workspace};

mod server;

pub use server::{Server, cloudflare, cloudflare_at, fastly, pack, viceroy, workerd};

/// The variable with the secret shared by origin, gateways and edges.
pub const SECRET: &str = "WEIR_EDGE_SECRET";

/// A Worker's variables with its configuration, and with the URLs of origin and gateway.
pub(crate) const CONFIG: &str = "WEIR_EDGE_CONFIG";
pub(crate) const ORIGIN: &str = "WEIR_EDGE_ORIGIN";
pub(crate) const GATEWAY: &str = "WEIR_EDGE_GATEWAY";

/// The timeout for a Durable Object's reply, in milliseconds: on a busy machine longer than for Redis.
pub(crate) const OBJECTS_DEADLINE_MS: u64 = 2_000;

/// The edge keys in the configuration of edges and gateways. The ID is the origin's default.
pub(crate) fn keys() -> Value {
    json!([{ "id": "e1", "secret": { "env": SECRET } }])
}

/// The kind of edge build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// The shipped edge.
    Shipped,
    /// The conformance suite's edge, which reads configuration, clock and client from each request.
    Conformance,
}

/// The target of `wasi:http` components.
pub const WASI_TARGET: &str = "wasm32-wasip2";

/// The target of Fastly.
pub const FASTLY_TARGET: &str = "wasm32-wasip1";
/// The target of Cloudflare.
pub const CLOUDFLARE_TARGET: &str = "wasm32-unknown-unknown";

/// The profile of shipped edges, in `edge/Cargo.toml`.
const PROFILE: &str = "edge";

/// Builds the `wasi:http` component if cargo considers it outdated, and returns its path.
///
/// # Errors
/// The target is missing, or compilation fails.
pub fn wasi_component() -> Result<PathBuf> {
    let built = module("weir-edge-wasi", WASI_TARGET, Build::Shipped)?;
    ship(&built, "weir-edge.wasm")
}

/// Builds the edge for Fastly if it is outdated.
///
/// # Errors
/// As for [`wasi_component`].
pub fn fastly_module(build: Build) -> Result<PathBuf> {
    let _lock = workspace::lock("edge-fastly")?;
    let built = module("weir-edge-fastly", FASTLY_TARGET, build)?;
    ship(
        &built,
        &format!("{}/weir-edge.wasm", build.folder("fastly")),
    )
}

/// Builds the Worker for Cloudflare if it is outdated, and returns its folder: its module and the JavaScript around it.
///
/// # Errors
/// As for [`wasi_component`].
pub fn worker(build: Build) -> Result<PathBuf> {
    let _lock = workspace::lock("edge-cloudflare")?;
    let built = module("weir-edge-cloudflare", CLOUDFLARE_TARGET, build)?;
    let bindgen = cargo_build(&["--package=weir-edge-bindgen".to_owned()], "")?;
    let folder = workspace::out_dir()
        .join("edge")
        .join(build.folder("cloudflare"));
    std::fs::create_dir_all(&folder)?;
    let mut bind = Command::new(bindgen);
    command::succeed(bind.arg(&built).arg(&folder), BINDGEN_LIMIT)?;
    let glue = workspace::root().join("edge/cloudflare/index.js");
    std::fs::copy(glue, folder.join("index.js"))?;
    Ok(folder)
}

/// The files of the Worker to upload.
///
/// # Errors
/// As for [`wasi_component`].
pub fn worker_files(build: Build) -> Result<Vec<PathBuf>> {
    let folder = worker(build)?;
    let own = ["index.js", "weir_edge.js", "weir_edge_bg.wasm"];
    let mut files: Vec<PathBuf> = own.iter().map(|name| folder.join(name)).collect();
    // JavaScript that crates contribute, one folder per crate.
    for crates in std::fs::read_dir(folder.join("snippets"))? {
        for file in std::fs::read_dir(crates?.path())? {
            files.push(file?.path());
        }
    }
    Ok(files)
}

/// The total size of the files, each compressed with `gzip -9`.
///
/// # Errors
/// A file cannot be read, or gzip is missing.
pub fn gzipped(files: &[PathBuf]) -> Result<usize> {
    let mut bytes = 0;
    for file in files {
        let mut gzip = Command::new("gzip");
        let gzip = gzip.args(["-9", "--stdout"]).arg(file).output();
        let output = gzip.context("cannot start gzip")?;
        ensure!(
            output.status.success(),
            "gzip cannot read {}",
            file.display()
        );
        bytes += output.stdout.len();
    }
    Ok(bytes)
}

/// Longer than it takes on a busy machine.
const BINDGEN_LIMIT: Duration = Duration::from_secs(60);

impl Build {
    /// A separate folder, so that the conformance build, which trusts its clients, never replaces the shipped one.
    fn folder(self, platform: &str) -> String {
        match self {
            Self::Shipped => platform.into(),
            Self::Conformance => format!("{platform}-conformance"),
        }
    }
}

/// Builds a package with the shipped profile.
fn module(package: &str, target: &str, build_of: Build) -> Result<PathBuf> {
    add_target(target)?;
    let mut arguments = vec![
        format!("--package={package}"),
        format!("--target={target}"),
        format!("--profile={PROFILE}"),
    ];
    if build_of == Build::Conformance {
        arguments.push("--features=conformance".into());
    }
    let built = cargo_build(&arguments, "wasm")?;
    let is_believing = contains(&std::fs::read(&built)?, BELIEVES);
    ensure!(
        is_believing != (build_of == Build::Shipped),
        "{} is not the requested build",
        built.display()
    );
    Ok(built)
}

/// The prefix of headers that only the conformance build reads.
const BELIEVES: &[u8] = b"x-conformance-";

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Copies the built file to its final place.
fn ship(built: &Path, name: &str) -> Result<PathBuf> {
    let shipped = workspace::out_dir().join("edge").join(name);
    let folder = shipped.parent().context("a file is in a folder")?;
    std::fs::create_dir_all(folder)?;
    let bytes = std::fs::read(built)?;
    if std::fs::read(&shipped).ok().as_ref() != Some(&bytes) {
        workspace::write_atomic(&shipped, &bytes)?;
    }
    Ok(shipped)
}

/// Builds the program that runs components in tests. It contains a runtime that shares most compiled dependencies with
/// the filter tests.
///
/// # Errors
/// Compilation fails.
pub fn wasi_host() -> Result<PathBuf> {
    build::binary("weir-edge-host", &[], Some("weir-conformance/wasi"))
}

/// Without rustup, cargo reports the missing target.
fn add_target(target: &str) -> Result<()> {
    let Some(rustup) = command::on_path("rustup") else {
        return Ok(());
    };
    let added = Command::new(rustup)
        .args(["target", "add", target])
        .current_dir(workspace::root())
        .stdin(Stdio::null())
        .output()
        .context("cannot start rustup")?;
    ensure!(
        added.status.success(),
        "rustup cannot add {target}: {}",
        String::from_utf8_lossy(&added.stderr).trim_end()
    );
    Ok(())
}

/// Builds one package and returns its file with this extension.
fn cargo_build(arguments: &[String], ending: &str) -> Result<PathBuf> {
    let _lock = workspace::lock("edge")?;
    let mut build = command::cargo();
    build
        .args(["build", "--quiet", "--locked", "--manifest-path"])
        .arg(workspace::root().join("edge/Cargo.toml"))
        .args(arguments)
        .arg("--target-dir")
        .arg(workspace::root().join("target/edge"));
    let messages = messages(build, "an edge")?;
    built(&messages, ending).context("cargo built an edge but printed no file")
}

/// The last file with this extension in cargo's messages: dependencies come first.
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
    fn edge_artifacts_are_read_from_cargo_messages() {
        let messages = r#"{"reason":"compiler-artifact","executable":null,"filenames":["/t/libweir_edge.rlib"]}
{"reason":"compiler-artifact","executable":null,"filenames":["/t/weir_edge_wasi.wasm"]}
{"reason":"compiler-artifact","executable":"/t/weir-edge-bindgen","filenames":["/t/weir-edge-bindgen"]}
{"reason":"build-finished","success":true}"#;
        let path = |path| Some(PathBuf::from(path));
        assert_eq!(built(messages, "wasm"), path("/t/weir_edge_wasi.wasm"));
        assert_eq!(built(messages, ""), path("/t/weir-edge-bindgen"));
        assert_eq!(built(messages, "so"), None);
    }

    #[test]
    fn build_that_trusts_client_headers_is_recognized() {
        assert!(contains(b"\0ax-conformance-variables", BELIEVES));
        assert!(!contains(b"\0ax-conformanc", BELIEVES));
    }
}
