//! Reads the commit from git and the version from the compiler.
//!
//! Only release builds read the commit: otherwise every commit would recompile all programs. Other builds are
//! `unreleased`.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=WEIR_COMMIT");
    let is_release = std::env::var("PROFILE").as_deref() == Ok("release");
    let named = std::env::var("WEIR_COMMIT")
        .ok()
        .filter(|name| !name.is_empty());
    let commit = named.unwrap_or_else(|| match is_release {
        true => {
            watch_commits();
            output_of("git", &["rev-parse", "--short=12", "HEAD"])
                .unwrap_or_else(|| "unknown".into())
        }
        false => "unreleased".into(),
    });
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let compiler = output_of(&rustc, &["--version"]).unwrap_or_else(|| "rustc unknown".into());
    println!("cargo:rustc-env=WEIR_BUILD_COMMIT={commit}");
    println!("cargo:rustc-env=WEIR_BUILD_COMPILER={compiler}");
}

/// Reruns the build script after a commit. In a linked work tree, git's log is not in `.git/`.
fn watch_commits() {
    if let Some(log) = output_of("git", &["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
}

fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.lines().next()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
