//! Edges in their platforms' runtimes, for tests: Viceroy for Fastly, workerd for Cloudflare.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Build, fastly_module, worker_files};
use crate::process::{DiedChild, Process};
use crate::tools::npm;
use crate::{command, ports, workspace};

/// Longer than a runtime takes to compile the edge on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The command that installs Viceroy.
const GET_VICEROY: &str = "cargo install viceroy --version 0.22.0 --locked";

/// The compatibility date of Workers.
const COMPATIBLE_WITH: &str = "2026-07-01";

/// A runtime that serves an edge.
#[derive(Debug)]
pub struct Server {
    /// The address on which it listens.
    pub address: SocketAddr,
    process: Process,
    _folder: TempDir,
}

impl Server {
    fn start(
        name: &str,
        port: u16,
        folder: TempDir,
        make: impl Fn() -> Command + Send + Sync + 'static,
    ) -> Result<Self> {
        let log = folder.path().join("log");
        let mut server = Self {
            address: ([127, 0, 0, 1], port).into(),
            process: Process::start(name, &log, make)?,
            _folder: folder,
        };
        server.wait()?;
        Ok(server)
    }

    fn wait(&mut self) -> Result<()> {
        let started = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            self.check()?;
            ensure!(started.elapsed() < START_LIMIT, "nothing is listening");
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Kills the runtime, and starts it again with its persisted data.
    ///
    /// # Errors
    /// It does not start.
    pub fn crash(&mut self) -> Result<()> {
        self.process.kill();
        self.wait_until_gone()?;
        self.process.start_again()?;
        self.wait()
    }

    /// Waits until the address is free. Node has ended, but the kernel may still be closing the sockets of its child
    /// workerd. A client that connects meanwhile is accepted and reset, and could mistake the old process for the new
    /// one.
    fn wait_until_gone(&self) -> Result<()> {
        let started = Instant::now();
        while TcpStream::connect(self.address).is_ok() {
            ensure!(started.elapsed() < START_LIMIT, "it still listens");
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// # Errors
    /// It has ended; the error contains the end of its log.
    pub fn check(&mut self) -> Result<(), DiedChild> {
        self.process.check()
    }

    /// Stops it with SIGTERM.
    pub fn stop(&mut self) {
        self.process.stop();
    }

    /// The end of its log.
    pub fn log(&self) -> String {
        self.process.tail(40)
    }
}

// --- Fastly

/// Finds Viceroy: `WEIR_VICEROY`, on `PATH`, or in `target/weir/tools`.
///
/// # Errors
/// It is missing. It takes too long to compile without being requested.
pub fn viceroy() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("WEIR_VICEROY") {
        return Ok(path.into());
    }
    let retained = workspace::out_dir().join("tools/viceroy/bin/viceroy");
    let found = command::on_path("viceroy").or(Some(retained).filter(|retained| retained.exists()));
    found.with_context(|| {
        let root = workspace::out_dir().join("tools/viceroy");
        format!(
            "viceroy is missing; `{GET_VICEROY} --root {}` compiles it",
            root.display()
        )
    })
}

/// Starts the edge for Fastly in Viceroy. Both its backends are at `world`.
///
/// # Errors
/// The edge cannot be built, or Viceroy is missing.
pub fn fastly(
    build: Build,
    world: SocketAddr,
    variables: &BTreeMap<String, String>,
) -> Result<Server> {
    let viceroy = viceroy()?;
    let module = fastly_module(build)?;
    let folder = tempfile::tempdir()?;
    let manifest = folder.path().join("fastly.toml");
    std::fs::write(&manifest, fastly_toml(world, variables)?)?;
    let port = ports::free()?;
    Server::start("viceroy", port, folder, move || {
        let mut command = Command::new(&viceroy);
        let address = format!("--addr=127.0.0.1:{port}");
        command
            .arg("serve")
            .arg(&module)
            .arg("-C")
            .arg(&manifest)
            .arg(address);
        command
    })
}

/// The service description in `fastly.toml` for Viceroy. Variables may be secret, so they are in both stores.
fn fastly_toml(world: SocketAddr, variables: &BTreeMap<String, String>) -> Result<String> {
    let mut text = String::from(
        "manifest_version = 3\nname = \"weir-edge\"\nlanguage = \"rust\"\n\n[local_server]\n",
    );
    for name in ["origin", "gateway"] {
        write!(
            text,
            "[local_server.backends.{name}]\nurl = \"http://{world}\"\n"
        )?;
    }
    text += "[[local_server.kv_stores.weir]]\nkey = \"-\"\ndata = \"-\"\n";
    text += "[local_server.config_stores.weir]\nformat = \"inline-toml\"\n";
    text += "[local_server.config_stores.weir.contents]\n\"-\" = \"-\"\n";
    let is_secret = |name: &str| name.ends_with("_SECRET");
    for (name, value) in variables.iter().filter(|(name, _)| !is_secret(name)) {
        writeln!(text, "{name} = {}", quoted(value))?;
    }
    text += "[[local_server.secret_stores.weir]]\nkey = \"-\"\ndata = \"-\"\n";
    for (name, value) in variables.iter().filter(|(name, _)| is_secret(name)) {
        let value = quoted(value);
        write!(
            text,
            "[[local_server.secret_stores.weir]]\nkey = \"{name}\"\ndata = {value}\n"
        )?;
    }
    Ok(text)
}

/// A TOML string: JSON strings are valid TOML.
fn quoted(text: &str) -> Value {
    json!(text)
}

/// Packs the edge with Fastly's tool, which then validates the package offline.
///
/// # Errors
/// The tool is missing, or reports a problem.
pub fn pack(module: &Path) -> Result<PathBuf> {
    let tool = npm::installed("fastly-cli", "edge/fastly/cli")?.join("node_modules/.bin/fastly");
    let folder = module.parent().context("a file is in a folder")?;
    let manifest = workspace::root().join("edge/fastly/fastly.toml");
    std::fs::copy(manifest, folder.join("fastly.toml"))?;
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&tool);
        command
            .args(arguments)
            .arg("--non-interactive")
            .current_dir(folder);
        command::succeed(&mut command, PACK_LIMIT)
    };
    let name = module.file_name().and_then(|name| name.to_str());
    run(&[
        "compute",
        "pack",
        "--wasm-binary",
        name.context("a module has a name")?,
    ])?;
    run(&["compute", "validate", "--package", PACKAGE])?;
    Ok(folder.join(PACKAGE))
}

/// The output path of the tool.
const PACKAGE: &str = "pkg/weir-edge.tar.gz";
const PACK_LIMIT: Duration = Duration::from_secs(60);

// --- Cloudflare

/// Finds or installs workerd with Miniflare, which includes the KV simulators and needs Node.
///
/// # Errors
/// npm is missing, or the installation fails.
pub fn workerd() -> Result<PathBuf> {
    let folder = npm::installed("workerd", "edge/cloudflare/runtime")?;
    let run = workspace::root().join("edge/cloudflare/runtime/run.mjs");
    std::fs::copy(run, folder.join("run.mjs"))?;
    Ok(folder)
}

/// Starts the edge for Cloudflare in workerd.
///
/// # Errors
/// The edge cannot be built, or workerd is missing.
pub fn cloudflare(build: Build, variables: &BTreeMap<String, String>) -> Result<Server> {
    cloudflare_at(build, ports::free()?, variables)
}

/// Starts the edge for Cloudflare on a port of 127.0.0.1.
///
/// # Errors
/// As for [`cloudflare`].
pub fn cloudflare_at(
    build: Build,
    port: u16,
    variables: &BTreeMap<String, String>,
) -> Result<Server> {
    let (runtime, files) = (workerd()?, worker_files(build)?);
    let folder = tempfile::tempdir()?;
    let options = miniflare(&files, folder.path(), port, variables)?.to_string();
    let node = runtime.join("node_modules/.bin/node");
    if !node.exists() {
        bail!("npm did not install Node: {}", node.display());
    }
    Server::start("workerd", port, folder, move || {
        let mut command = Command::new(&node);
        // Passed in the environment, because they contain secrets.
        command
            .arg("run.mjs")
            .env("MINIFLARE_OPTIONS", &options)
            .current_dir(&runtime);
        command
    })
}

/// The configuration of `edge/cloudflare/wrangler.toml`, for Miniflare.
fn miniflare(
    files: &[PathBuf],
    folder: &Path,
    port: u16,
    variables: &BTreeMap<String, String>,
) -> Result<Value> {
    let root = files.first().and_then(|file| file.parent());
    let module = |file: &PathBuf| {
        let is_wasm = file.extension().is_some_and(|ending| ending == "wasm");
        let kind = if is_wasm { "CompiledWasm" } else { "ESModule" };
        json!({ "type": kind, "path": file })
    };
    let modules: Vec<Value> = files.iter().map(module).collect();
    Ok(json!({
        "host": "127.0.0.1",
        "port": port,
        "modulesRoot": root.context("a Worker has files")?,
        "modules": modules,
        "compatibilityDate": COMPATIBLE_WITH,
        "bindings": variables,
        "kvNamespaces": ["WEIR_LINKS"],
        "durableObjects": {
            "WEIR_FEED": { "className": "Feed", "useSQLite": true },
            "WEIR_LIMITS": { "className": "Limits", "useSQLite": true },
            "WEIR_SHARDS": { "className": "ShardObject", "useSQLite": true },
        },
        "defaultPersistRoot": folder.join("state"),
        "cf": false,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_written_only_to_the_secret_store() {
        let variables = BTreeMap::from([
            ("A".to_owned(), "say \"a\"".to_owned()),
            ("B_SECRET".to_owned(), "hush".to_owned()),
        ]);
        let text = fastly_toml(([127, 0, 0, 1], 80).into(), &variables).unwrap();
        assert!(text.contains("\nA = \"say \\\"a\\\"\"\n"), "{text}");
        let (before, after) = text.split_once("secret_stores").unwrap();
        assert!(!before.contains("hush") && after.contains("key = \"B_SECRET\"\ndata = \"hush\""));
    }
}
