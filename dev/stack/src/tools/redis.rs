//! Redis or Valkey.

use super::{apt, cache};
use crate::report::Reporter;
use crate::{command, workspace};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A server binary that speaks RESP and runs Lua.
#[derive(Debug, Clone)]
pub struct Redis {
    /// The binary.
    pub path: PathBuf,
    /// As the binary itself says, like `7.0.15`.
    pub version: String,
}

/// Debian keeps the server's binary in `redis-tools` under this name and lets
/// `redis-server`, the package, add a link to it and a system service. The binary acts on
/// the name it is called by.
const DEBIAN_BINARY: &str = "/usr/bin/redis-check-rdb";

impl Redis {
    /// `redis-server` or `valkey-server` on `PATH`, else Debian's.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        let _lock = super::lock()?;
        let path = match found() {
            Some(path) => path,
            None => get(reporter).context(
                "no redis-server or valkey-server was found; install one of them so that it is \
                 on PATH (Debian: apt-get install redis-server; macOS: brew install redis), or \
                 name a running one with --redis-url",
            )?,
        };
        let version = version(&path)?;
        reporter.line("redis", &format!("{} ({version})", path.display()));
        Ok(Self { path, version })
    }
}

fn found() -> Option<PathBuf> {
    ["redis-server", "valkey-server"]
        .into_iter()
        .find_map(command::on_path)
        .or_else(|| Some(own_link()).filter(|link| command::is_executable(link)))
}

fn own_link() -> PathBuf {
    workspace::out_dir().join("tools/redis/redis-server")
}

/// Installs `redis-tools`, not `redis-server`: the latter would start a service on port
/// 6379, which is not ours to start.
fn get(reporter: &mut dyn Reporter) -> Result<PathBuf> {
    reporter.line("redis", "installing Debian's redis-tools…");
    apt::install(&["redis-tools"])?;
    if !command::is_executable(Path::new(DEBIAN_BINARY)) {
        bail!("the package redis-tools has no {DEBIAN_BINARY}");
    }
    let link = own_link();
    std::fs::create_dir_all(link.parent().context("a link without a folder")?)?;
    std::fs::remove_file(&link).ok();
    std::os::unix::fs::symlink(DEBIAN_BINARY, &link)
        .with_context(|| format!("cannot link {}", link.display()))?;
    Ok(link)
}

/// "Redis server v=7.0.15 sha=…" or "Valkey server v=8.0.1 …".
fn version(path: &Path) -> Result<String> {
    cache::remember(
        &format!("redis version of {}", cache::identity(path)),
        || {
            let said =
                command::succeed(Command::new(path).arg("--version"), Duration::from_secs(10))?;
            let version = said
                .split_whitespace()
                .find_map(|word| word.strip_prefix("v="));
            version.map(str::to_owned).with_context(|| {
                format!(
                    "{} --version says {said:?}: not Redis or Valkey",
                    path.display()
                )
            })
        },
    )
}
