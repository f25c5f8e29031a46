//! Edges: built by cargo from the workspace in `edge/`, for their own targets.

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

/// Names the variable with the secret that origin, gateways and edges share.
pub const SECRET: &str = "WEIR_EDGE_SECRET";

/// Names the variables of a Worker that say what it does, and where feeds and gateways are.
pub(crate) const CONFIG: &str = "WEIR_EDGE_CONFIG";
pub(crate) const ORIGIN: &str = "WEIR_EDGE_ORIGIN";
pub(crate) const GATEWAY: &str = "WEIR_EDGE_GATEWAY";

/// How long a reply of an object may take, in milliseconds: on a busy machine longer than one of Redis.
pub(crate) const OBJECTS_DEADLINE_MS: u64 = 2_000;

/// The keys of edges, as their configuration and that of gateways has them. The origin calls its own so unless it is told.
pub(crate) fn keys() -> Value {
    json!([{ "id": "e1", "secret": { "env": SECRET } }])
}

/// Which edge is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// The one that is shipped.
    Shipped,
    /// The one whose configuration, clock and client come with each request: for the conformance suite.
    Conformance,
}

/// The target of `wasi:http` components.
pub const WASI_TARGET: &str = "wasm32-wasip2";

/// Fastly's target, and Cloudflare's.
pub const FASTLY_TARGET: &str = "wasm32-wasip1";
/// See [`FASTLY_TARGET`].
pub const CLOUDFLARE_TARGET: &str = "wasm32-unknown-unknown";

/// The profile of what is shipped, in `edge/Cargo.toml`.
const PROFILE: &str = "edge";

/// The `wasi:http` component, built if it isn't up to date (cargo decides).
///
/// # Errors
/// When there is no compiler for its target, or it does not compile.
pub fn wasi_component() -> Result<PathBuf> {
    let built = module("weir-edge-wasi", WASI_TARGET, Build::Shipped)?;
    ship(&built, "weir-edge.wasm")
}

/// The edge for Fastly, built if it isn't up to date.
///
/// # Errors
/// As [`wasi_component`].
pub fn fastly_module(build: Build) -> Result<PathBuf> {
    let _lock = workspace::lock("edge-fastly")?;
    let built = module("weir-edge-fastly", FASTLY_TARGET, build)?;
    ship(
        &built,
        &format!("{}/weir-edge.wasm", build.folder("fastly")),
    )
}

/// The folder of the Worker for Cloudflare, built if it isn't up to date: its module, and the JavaScript around it.
///
/// # Errors
/// As [`wasi_component`].
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

/// The files of the Worker that are uploaded.
///
/// # Errors
/// As [`wasi_component`].
pub fn worker_files(build: Build) -> Result<Vec<PathBuf>> {
    let folder = worker(build)?;
    let own = ["index.js", "weir_edge.js", "weir_edge_bg.wasm"];
    let mut files: Vec<PathBuf> = own.iter().map(|name| folder.join(name)).collect();
    // What crates bring of JavaScript, a folder a crate.
    for crates in std::fs::read_dir(folder.join("snippets"))? {
        for file in std::fs::read_dir(crates?.path())? {
            files.push(file?.path());
        }
    }
    Ok(files)
}

/// How many bytes files are, each compressed as `gzip -9` does.
///
/// # Errors
/// When a file cannot be read, or there is no gzip.
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
    /// In a folder of its own: what is shipped must not be what believes its clients.
    fn folder(self, platform: &str) -> String {
        match self {
            Self::Shipped => platform.into(),
            Self::Conformance => format!("{platform}-conformance"),
        }
    }
}

/// A package of the profile that is shipped.
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

/// How the headers begin by which only the conformance suite's build goes.
const BELIEVES: &[u8] = b"x-conformance-";

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Copies what was built to where it is found.
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

/// The program that runs components in tests. It brings a runtime, most of which the tests of filters have compiled already.
///
/// # Errors
/// When it does not compile.
pub fn wasi_host() -> Result<PathBuf> {
    build::binary("weir-edge-host", &[], Some("weir-conformance/wasi"))
}

/// Without rustup, cargo says what is missing.
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

/// Builds one package; its file with this ending.
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
{"reason":"compiler-artifact","executable":"/t/weir-edge-bindgen","filenames":["/t/weir-edge-bindgen"]}
{"reason":"build-finished","success":true}"#;
        let path = |path| Some(PathBuf::from(path));
        assert_eq!(built(messages, "wasm"), path("/t/weir_edge_wasi.wasm"));
        assert_eq!(built(messages, ""), path("/t/weir-edge-bindgen"));
        assert_eq!(built(messages, "so"), None);
    }

    #[test]
    fn what_believes_its_clients_is_told_from_what_does_not() {
        assert!(contains(b"\0ax-conformance-variables", BELIEVES));
        assert!(!contains(b"\0ax-conformanc", BELIEVES));
    }
}
