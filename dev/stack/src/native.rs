//! The native module, built by cargo, and copied to a path that no build overwrites while an Envoy has it loaded.

use crate::{build, command, workspace};
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The host of the filters in Envoy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Host {
    /// WebAssembly, as in the shipped files.
    #[default]
    Wasm,
    /// The native module.
    Native,
    /// The native module as a release build, for measurements.
    NativeRelease,
    /// A native module that panics on request.
    NativePanicking,
}

/// The variable with the host of all stacks of a run: `wasm` unless set.
pub const HOST: &str = "WEIR_HOST";

static CHOSEN: OnceLock<Host> = OnceLock::new();

/// The libraries that this process has built, by folder. Cargo runs once for each.
static BUILT: Mutex<BTreeMap<&str, PathBuf>> = Mutex::new(BTreeMap::new());

impl Host {
    /// Makes this the default host of all stacks of this process. The first call wins.
    pub fn choose(self) {
        CHOSEN.get_or_init(|| self);
    }

    /// The host with this name in [`HOST`].
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "wasm" => Self::Wasm,
            "native" => Self::Native,
            "native-release" => Self::NativeRelease,
            _ => return None,
        })
    }

    /// The host of this run.
    ///
    /// # Panics
    /// If [`HOST`] has an unknown name: a run must not silently use another host.
    pub fn of_run() -> Self {
        *CHOSEN.get_or_init(|| match std::env::var(HOST) {
            Ok(name) => Self::named(&name).unwrap_or_else(|| {
                panic!("{HOST} is \"{name}\", must be wasm, native or native-release")
            }),
            Err(_) => Self::Wasm,
        })
    }

    /// Whether this is any kind of native module.
    pub fn is_native(self) -> bool {
        self != Self::Wasm
    }

    /// The number of engines per filter for an Envoy with `workers` workers.
    pub fn engines(self, workers: u32) -> u64 {
        match self {
            Self::Wasm => workers.into(),
            _ => 1,
        }
    }

    /// Builds the host's library if it is outdated.
    pub fn ensure_built(self) -> Result<()> {
        match self {
            Self::Wasm => crate::wasm::ensure_filters().map(drop),
            _ => self.library().map(drop),
        }
    }

    /// Builds the library if cargo considers it outdated, and returns its path. Not for [`Host::Wasm`].
    pub fn library(self) -> Result<PathBuf> {
        let (name, arguments): (_, &[&str]) = match self {
            Self::Wasm => anyhow::bail!("WebAssembly filters have no library"),
            Self::Native => ("debug", &[]),
            Self::NativeRelease => ("release", &["--profile", "native"]),
            Self::NativePanicking => ("panicking", &["--features", "test-panics"]),
        };
        let mut all = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = all.get(name) {
            return Ok(library.clone());
        }
        // Builds with different features write the same file.
        let _lock = workspace::lock("native")?;
        let built = built(arguments)?;
        let folder = workspace::out_dir().join("native").join(name);
        let library = folder.join(built.file_name().context("the library has no name")?);
        std::fs::create_dir_all(&folder)?;
        let bytes = std::fs::read(&built)?;
        if std::fs::read(&library).ok().as_ref() != Some(&bytes) {
            workspace::write_atomic(&library, &bytes)?;
        }
        all.insert(name, library.clone());
        Ok(library)
    }
}

fn built(arguments: &[&str]) -> Result<PathBuf> {
    let mut build = command::cargo();
    build
        .args(["build", "--quiet", "--package", "weir-native", "--lib"])
        .args(arguments);
    let messages = build::messages(build, "the native module")?;
    library(&messages).context("cargo built the native module but printed no library")
}

/// The path in cargo's message about the library.
fn library(messages: &str) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct Message {
        target: Target,
        filenames: Vec<PathBuf>,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
    }
    let is_library = |file: &PathBuf| {
        let extension = file.extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("so" | "dylib"))
    };
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok())
        .filter(|message| message.target.name == "weir_native")
        .flat_map(|message| message.filenames)
        .find(is_library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_host_name_is_none() {
        assert_eq!(Host::named("native"), Some(Host::Native));
        assert_eq!(Host::named("nativ"), None);
        assert_eq!(Host::named(""), None);
    }

    #[test]
    fn library_path_is_read_from_cargo_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"weir_base"},"filenames":["/t/libweir_base.rlib"]}
{"reason":"compiler-artifact","target":{"name":"weir_native"},"filenames":["/t/libweir_native.rlib","/t/libweir_native.so"]}
{"reason":"build-finished","success":true}"#;
        assert_eq!(
            library(messages),
            Some(PathBuf::from("/t/libweir_native.so"))
        );
    }
}
