//! Tools for static Linux binaries: musl from a rustup target, and `musl-gcc` for C code.

use super::apt;
use crate::command;
use crate::report::Reporter;
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const COMPILER: &str = "musl-gcc";

/// For 50 MB on a slow line.
const RUSTUP_LIMIT: Duration = Duration::from_secs(600);
const QUICK: Duration = Duration::from_secs(30);

/// A rustc target and its C compiler.
#[derive(Debug, Clone)]
pub struct Musl {
    /// The target, such as `x86_64-unknown-linux-musl`.
    pub target: String,
    /// The C compiler for the target.
    pub compiler: PathBuf,
}

impl Musl {
    /// Finds or gets rustup's target for this processor, and Debian's `musl-tools`.
    ///
    /// # Errors
    /// The system is not Linux, or one of the two cannot be installed; the error says what to do.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        let _lock = super::lock()?;
        ensure!(
            cfg!(target_os = "linux"),
            "a static Linux binary can only be built on Linux"
        );
        let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
        if !has_target(&target)? {
            reporter.line("musl", &format!("adding {target} with rustup…"));
            let mut add = Command::new("rustup");
            add.args(["target", "add", &target]);
            command::succeed(&mut add, RUSTUP_LIMIT).with_context(|| {
                format!("no rustc for {target}: run `rustup target add {target}`")
            })?;
        }
        if command::on_path(COMPILER).is_none() {
            reporter.line("musl", "installing Debian's musl-tools…");
            apt::install(&["musl-tools"])?;
        }
        let compiler = command::on_path(COMPILER).context("musl-tools has no musl-gcc")?;
        Ok(Self { target, compiler })
    }

    /// The variable that makes build scripts compile C for the target. rustc links with this machine's `cc` and its
    /// bundled musl. As a linker, `musl-gcc` would turn a static program into one that needs a dynamic linker.
    pub fn variable(&self) -> (String, String) {
        let name = self.target.replace('-', "_");
        (format!("CC_{name}"), self.compiler.display().to_string())
    }
}

/// Whether the compiler has a standard library for the target. rustup would use the network each time.
fn has_target(target: &str) -> Result<bool> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", target]);
    let libdir = command::succeed(&mut rustc, QUICK).context("rustc, from https://rustup.rs")?;
    let mut files = std::fs::read_dir(libdir.trim()).into_iter().flatten();
    Ok(files.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_scripts_get_the_compiler_from_the_target_variable() {
        let musl = Musl {
            target: "x86_64-unknown-linux-musl".into(),
            compiler: "/usr/bin/musl-gcc".into(),
        };
        let (name, value) = musl.variable();
        assert_eq!(name, "CC_x86_64_unknown_linux_musl");
        assert_eq!(value, "/usr/bin/musl-gcc");
    }
}
