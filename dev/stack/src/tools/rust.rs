//! The compiler of the filters: a rustc with a standard library for `wasm32-unknown-unknown`.

use super::{apt, cache};
use crate::command;
use crate::report::Reporter;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The target of the filters. Their modules import only `env.proxy_*`.
pub const TARGET: &str = "wasm32-unknown-unknown";

/// A closed network responds immediately or never; an open one transfers 20 MB.
const RUSTUP_LIMIT: Duration = Duration::from_secs(120);
const QUICK: Duration = Duration::from_secs(30);

/// Debian's compiler and sources, from the packages `rustc-web` and `rust-web-src`.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_SOURCES: &str = "/usr/lib/rustlib/src/rust";
const DEBIAN_PACKAGES: [&str; 2] = ["rustc-web", "rust-web-src"];

/// A compiler for the filters, and the origin of its standard library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WasmToolchain {
    /// The cargo to run.
    pub cargo: PathBuf,
    /// The compiler itself, not rustup's proxy.
    pub rustc: PathBuf,
    /// The complete output of `rustc -vV`: it determines the built filters.
    pub rustc_version: String,
    /// The path of the standard library's sources, which may not exist; it is removed from built files.
    pub std_sources: PathBuf,
    /// The origin of the standard library for wasm.
    pub source: Source,
}

/// The origin of the standard library for wasm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// The compiler's sysroot, where rustup installs it.
    Sysroot,
    /// Cargo builds it from the distribution's sources (`-Zbuild-std`) and links with `linker`.
    BuildStd {
        /// `rust-lld` or `wasm-ld`.
        linker: PathBuf,
    },
}

impl WasmToolchain {
    /// Finds the active toolchain with the target, else adds the target with rustup, else uses Debian's compiler and
    /// builds the standard library from source.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        let _lock = super::lock()?;
        let active = Active::find()?;
        if active.has_target() {
            return active.toolchain(Source::Sysroot, reporter, "found");
        }
        // The following steps are slow. Their result is cached until the active compiler or the result's files change.
        let key = format!("wasm toolchain next to {}", cache::identity(&active.rustc));
        if let Some(existing) = cached_toolchain(&key) {
            existing.report_toolchain(reporter, "found");
            return Ok(existing);
        }
        if rustup_target_add(&active, reporter) && active.has_target() {
            return active.toolchain(Source::Sysroot, reporter, "added by rustup");
        }
        let debian = debian(&active, reporter)?;
        cache::put(&key, &serde_json::to_string(&debian)?)?;
        debian.report_toolchain(reporter, "found");
        Ok(debian)
    }

    fn report_toolchain(&self, reporter: &mut dyn Reporter, how: &str) {
        let version = self.rustc_version.lines().next().unwrap_or_default();
        let std = match &self.source {
            Source::Sysroot => String::new(),
            Source::BuildStd { linker } => {
                format!(
                    ", std built from {}, linked by {}",
                    self.std_sources.display(),
                    linker.display()
                )
            }
        };
        reporter.line(
            "wasm target",
            &format!("{how}: {} ({version}){std}", self.rustc.display()),
        );
    }

    /// Whether the files that it was created from are unchanged.
    fn still_holds(&self) -> bool {
        let linker = match &self.source {
            Source::Sysroot => true,
            Source::BuildStd { linker } => command::is_executable(linker),
        };
        let version = rustc_version(&self.rustc);
        linker && self.std_sources.is_dir() && version.is_ok_and(|now| now == self.rustc_version)
    }
}

fn cached_toolchain(key: &str) -> Option<WasmToolchain> {
    let toolchain: WasmToolchain = serde_json::from_str(&cache::get(key)?).ok()?;
    toolchain.still_holds().then_some(toolchain)
}

/// The toolchain of Weir's own build.
struct Active {
    cargo: PathBuf,
    rustc: PathBuf,
    sysroot: PathBuf,
}

impl Active {
    /// Finds it: cargo passes its own path to child processes, and its rustc is in the same folder, which bypasses
    /// rustup's proxy. Otherwise, the rustc on `PATH` reports its real path.
    fn find() -> Result<Self> {
        let cargo = match std::env::var_os("CARGO") {
            Some(cargo) => PathBuf::from(cargo),
            None => command::on_path("cargo").context("no cargo on PATH; see https://rustup.rs")?,
        };
        let beside = cargo.with_file_name("rustc");
        let rustc = match command::is_executable(&beside) {
            true => beside,
            false => {
                command::on_path("rustc").context("no rustc on PATH; see https://rustup.rs")?
            }
        };
        let sysroot = sysroot(&rustc)?;
        let real = sysroot.join("bin/rustc");
        let rustc = if command::is_executable(&real) {
            real
        } else {
            rustc
        };
        Ok(Self {
            cargo,
            rustc,
            sysroot,
        })
    }

    fn has_target(&self) -> bool {
        self.sysroot
            .join("lib/rustlib")
            .join(TARGET)
            .join("lib")
            .is_dir()
    }

    fn toolchain(
        self,
        source: Source,
        reporter: &mut dyn Reporter,
        how: &str,
    ) -> Result<WasmToolchain> {
        let toolchain = WasmToolchain {
            rustc_version: rustc_version(&self.rustc)?,
            std_sources: self.sysroot.join("lib/rustlib/src/rust"),
            cargo: self.cargo,
            rustc: self.rustc,
            source,
        };
        toolchain.report_toolchain(reporter, how);
        Ok(toolchain)
    }

    /// rustup's name for this toolchain, if rustup installed it.
    fn rustup_name(&self) -> Option<&str> {
        let parent = self.sysroot.parent()?;
        let name = self.sysroot.file_name()?.to_str()?;
        (parent.file_name()? == "toolchains").then_some(name)
    }
}

fn sysroot(rustc: &Path) -> Result<PathBuf> {
    // These two select the toolchain behind a rustup proxy.
    let toolchain = std::env::var("RUSTUP_TOOLCHAIN").unwrap_or_default();
    let settings = rustup_home().join("settings.toml");
    let key = format!(
        "sysroot of {} {toolchain} {}",
        cache::identity(rustc),
        cache::identity(&settings)
    );
    let output = cache::remember(&key, || {
        command::succeed(Command::new(rustc).args(["--print", "sysroot"]), QUICK)
    })?;
    Ok(PathBuf::from(output.trim()))
}

fn rustup_home() -> PathBuf {
    let home = || std::env::home_dir().unwrap_or_default().join(".rustup");
    std::env::var_os("RUSTUP_HOME").map_or_else(home, PathBuf::from)
}

fn rustc_version(rustc: &Path) -> Result<String> {
    cache::remember(
        &format!("rustc version of {}", cache::identity(rustc)),
        || command::succeed(Command::new(rustc).arg("-vV"), QUICK),
    )
}

/// Whether rustup added the target. On a closed network it fails, which is not an error, because there is a fallback.
fn rustup_target_add(active: &Active, reporter: &mut dyn Reporter) -> bool {
    let (Some(rustup), Some(name)) = (command::on_path("rustup"), active.rustup_name()) else {
        return false;
    };
    reporter.line("wasm target", &format!("rustup target add {TARGET}…"));
    let mut add = Command::new(rustup);
    add.args(["target", "add", "--toolchain", name, TARGET]);
    let added = command::succeed(&mut add, RUSTUP_LIMIT).is_ok();
    if !added {
        reporter.line(
            "wasm target",
            "rustup could not add it; trying Debian's compiler",
        );
    }
    added
}

/// Debian's compiler with the sources of its own version.
fn debian(active: &Active, reporter: &mut dyn Reporter) -> Result<WasmToolchain> {
    if let Err(missing) = debian_std_sources() {
        let packages = DEBIAN_PACKAGES.join(" ");
        reporter.line("wasm target", &format!("{missing}; installing {packages}…"));
        apt::install(&DEBIAN_PACKAGES).with_context(|| {
            format!(
                "no rustc for {TARGET}: run `rustup target add {TARGET}`, or install {packages}"
            )
        })?;
    }
    let std_sources = debian_std_sources()?;
    let rustc = PathBuf::from(DEBIAN_RUSTC);
    Ok(WasmToolchain {
        cargo: active.cargo.clone(),
        rustc_version: rustc_version(&rustc)?,
        rustc,
        std_sources,
        source: Source::BuildStd {
            linker: linker(active, reporter)?,
        },
    })
}

/// The folder of the standard library's sources, verified to match the compiler's version. A compiler refuses or
/// miscompiles a library of another version.
fn debian_std_sources() -> Result<PathBuf> {
    let rustc = Path::new(DEBIAN_RUSTC);
    ensure!(command::is_executable(rustc), "there is no {DEBIAN_RUSTC}");
    let version = rustc_version(rustc)?;
    let release = version
        .lines()
        .find_map(|line| line.strip_prefix("release: "))
        .with_context(|| format!("{DEBIAN_RUSTC} -vV names no release"))?;
    let sources = std::fs::canonicalize(DEBIAN_SOURCES)
        .with_context(|| format!("there is no {DEBIAN_SOURCES}"))?;
    ensure!(
        sources.join("library/std").is_dir(),
        "{} holds no standard library",
        sources.display()
    );
    // The package unpacks to /usr/src/rustc-<release>.
    let name = sources.file_name().unwrap_or_default().to_string_lossy();
    ensure!(
        name == format!("rustc-{release}"),
        "{DEBIAN_RUSTC} is {release}, but its sources are {}",
        sources.display()
    );
    Ok(sources)
}

fn linker(active: &Active, reporter: &mut dyn Reporter) -> Result<PathBuf> {
    if let Some(found) = rust_lld(&active.sysroot).or_else(|| command::on_path("wasm-ld")) {
        return Ok(found);
    }
    reporter.line("wasm target", "installing Debian's lld for wasm-ld…");
    apt::install(&["lld"]).context("no rust-lld and no wasm-ld to link the filters with")?;
    match command::on_path("wasm-ld") {
        Some(found) => Ok(found),
        None => bail!("the package lld did not install wasm-ld on PATH"),
    }
}

/// `<sysroot>/lib/rustlib/<host>/bin/rust-lld`.
fn rust_lld(sysroot: &Path) -> Option<PathBuf> {
    let hosts = std::fs::read_dir(sysroot.join("lib/rustlib")).ok()?;
    hosts
        .filter_map(Result::ok)
        .map(|host| host.path().join("bin/rust-lld"))
        .find(|path| command::is_executable(path))
}
