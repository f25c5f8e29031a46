//! Reads the version from the compiler, and finds the log in which git records each commit.
//!
//! Programs read the commit from that log (`weir_version::commit!`). So a new commit recompiles only their `main.rs`:
//! this script does not run again, and no library depends on the commit.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() -> std::io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let compiler = output_of(&rustc, &["--version"]).unwrap_or_else(|| "rustc unknown".into());
    println!("cargo:rustc-env=WEIR_BUILD_COMPILER={compiler}");

    let bytes = match log() {
        Some(log) => format!("include_bytes!({:?})", log.display().to_string()),
        None => format!("b{:?}", log_line()),
    };
    let source =
        format!("#[doc(hidden)] #[macro_export] macro_rules! git_log {{ () => {{ {bytes} }} }}\n");
    let folder = std::env::var_os("OUT_DIR").unwrap_or_default();
    std::fs::write(Path::new(&folder).join("git_log.rs"), source)
}

/// The log of `HEAD`. In a linked work tree, it is not in `.git/`.
fn log() -> Option<PathBuf> {
    let log = output_of("git", &["rev-parse", "--git-path", "logs/HEAD"])?;
    let log = std::path::absolute(log).ok()?;
    let is_filled = log.metadata().is_ok_and(|file| file.len() > 0);
    is_filled.then_some(log)
}

/// A line of the log for a clone that keeps none. Here, a new commit recompiles all dependents.
fn log_line() -> String {
    if let Some(head) = output_of("git", &["rev-parse", "--git-path", "HEAD"]) {
        println!("cargo:rerun-if-changed={head}");
    }
    let commit = output_of("git", &["rev-parse", "HEAD"]);
    commit.map_or_else(String::new, |commit| format!("{commit} {commit}\n"))
}

fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.lines().next()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
