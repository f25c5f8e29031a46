//! Compiled parts of a release.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use walrus::ModuleConfig;
use weir_stack::native::Host;
use weir_stack::report::Console;
use weir_stack::tools::WasmToolchain;
use weir_stack::wasm::{self, Messages};
use weir_stack::{command, origin};

use crate::folder::Folder;

/// The path of the origin in a release.
pub const ORIGIN: &str = "bin/weir-origin";

const QUICK: Duration = Duration::from_secs(30);

/// A shipped filter.
#[derive(Debug)]
pub struct Filter {
    /// The file name without `.wasm`.
    pub name: String,
    /// The module.
    pub bytes: Vec<u8>,
}

/// The filters, stripped of function names.
///
/// # Errors
/// The filters cannot be built.
pub fn filters() -> Result<Vec<Filter>> {
    let toolchain = WasmToolchain::find_or_get(&mut Console)?;
    let built = wasm::build_filters(&toolchain, Messages::Show)?;
    let stripped = built.into_iter().map(|filter| {
        let path = filter.path.display();
        let bytes = std::fs::read(&filter.path).with_context(|| format!("cannot read {path}"))?;
        Ok(Filter {
            bytes: strip(&bytes).with_context(|| format!("cannot strip {path}"))?,
            name: filter.name,
        })
    });
    stripped.collect()
}

fn strip(wasm: &[u8]) -> Result<Vec<u8>> {
    let mut config = ModuleConfig::new();
    config
        .generate_name_section(false)
        .generate_producers_section(false);
    Ok(config.parse(wasm)?.emit_wasm())
}

/// The build of origin and native module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// For operators.
    Shipped,
    /// For quick checks: the origin's test build, which is not static, and no native module.
    Fast,
}

impl Build {
    /// `Fast` if `is_fast`, else `Shipped`.
    pub fn of(is_fast: bool) -> Self {
        match is_fast {
            true => Self::Fast,
            false => Self::Shipped,
        }
    }

    /// Builds the origin: for operators, one static binary.
    ///
    /// # Errors
    /// It cannot be built, or is not static.
    pub fn origin(self) -> Result<PathBuf> {
        if self == Self::Fast {
            return origin::ensure_built();
        }
        let binary = origin::ensure_built_static()?;
        check_static(&binary)?;
        Ok(binary)
    }

    /// Builds the native module, if it is part of this build.
    ///
    /// # Errors
    /// It cannot be built.
    pub fn native(self) -> Result<Option<PathBuf>> {
        match self {
            Self::Shipped => Host::NativeRelease.library().map(Some),
            Self::Fast => Ok(None),
        }
    }
}

/// Checks that a binary needs no shared libraries, so that it runs on a bare kernel.
fn check_static(binary: &Path) -> Result<()> {
    let mut readelf = Command::new("readelf");
    readelf.args(["--program-headers", "--dynamic", "--wide"]);
    let output = command::succeed(readelf.arg(binary), QUICK);
    let output = output
        .context("cannot run readelf, which checks that a binary is static (Debian: apt-get install binutils)")?;
    let path = binary.display();
    ensure!(!output.contains("INTERP"), "{path} needs a dynamic linker");
    ensure!(
        !output.contains("(NEEDED)"),
        "{path} needs a shared library"
    );
    Ok(())
}

/// Checks that `--version` prints version, commit and compiler. Only a quick build may lack a commit, without git.
///
/// # Errors
/// The output differs.
pub fn check_version(folder: &Folder, build: Build) -> Result<()> {
    let mut version = Command::new(folder.at(ORIGIN));
    let output = command::succeed(version.arg("--version").env_clear(), QUICK)?;
    let start = format!("weir-origin {} (commit ", weir_version::VERSION);
    let commit = output.strip_prefix(&start).and_then(|rest| rest.get(..12));
    let is_commit =
        commit.is_some_and(|commit| commit.bytes().all(|byte| byte.is_ascii_hexdigit()));
    ensure!(
        output.starts_with(&start) && output.contains(", rustc "),
        "weir-origin --version says {output:?}"
    );
    let is_without_git = build == Build::Fast && output.contains("(commit unknown,");
    ensure!(
        is_commit || is_without_git,
        "weir-origin --version has no commit: {output:?}; build in a git clone, or set WEIR_COMMIT to 12 digits"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripped_module_behaves_the_same_and_names_no_function() {
        let mut module = walrus::Module::default();
        let mut function = walrus::FunctionBuilder::new(&mut module.types, &[], &[]);
        function.name("weir::secret_name".to_owned());
        let id = function.finish(vec![], &mut module.funcs);
        module.exports.add("proxy_on_tick", id);
        let named = module.emit_wasm();
        let holds = |bytes: &[u8], text: &str| {
            bytes
                .windows(text.len())
                .any(|window| window == text.as_bytes())
        };
        let stripped = strip(&named).unwrap();
        assert!(holds(&named, "secret_name") && !holds(&stripped, "secret_name"));
        assert!(holds(&stripped, "proxy_on_tick"));
        assert_eq!(strip(&stripped).unwrap(), stripped);
    }
}
