//! What makes a static binary for Linux: musl, by rustup's target, and `musl-gcc` for what is C.

use super::apt;
use crate::command;
use crate::report::Reporter;
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const COMPILER: &str = "musl-gcc";

/// 50 MB on a slow line.
const RUSTUP_LIMIT: Duration = Duration::from_secs(600);
const QUICK: Duration = Duration::from_secs(30);

/// A target of rustc's and its C compiler.
#[derive(Debug, Clone)]
pub struct Musl {
    /// Such as `x86_64-unknown-linux-musl`.
    pub target: String,
    /// Compiles C for it.
    pub compiler: PathBuf,
}

impl Musl {
    /// rustup's target of this machine's processor, and Debian's `musl-tools`.
    ///
    /// # Errors
    /// On other systems than Linux, and when one of the two cannot be got: with what to do.
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

    /// The variable by which build scripts compile C for it. rustc links with the `cc` of this machine and its own parts of musl:
    /// `musl-gcc` as the linker makes of a static program one that asks for a dynamic linker.
    pub fn variable(&self) -> (String, String) {
        let name = self.target.replace('-', "_");
        (format!("CC_{name}"), self.compiler.display().to_string())
    }
}

/// Whether the compiler has a standard library for it. rustup would ask the network each time.
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
    fn build_scripts_are_told_by_their_own_variable() {
        let musl = Musl {
            target: "x86_64-unknown-linux-musl".into(),
            compiler: "/usr/bin/musl-gcc".into(),
        };
        let (name, value) = musl.variable();
        assert_eq!(name, "CC_x86_64_unknown_linux_musl");
        assert_eq!(value, "/usr/bin/musl-gcc");
    }
}
