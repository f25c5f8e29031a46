//! Asks git for the commit and the compiler for its version.
//!
//! Only a release asks git: a commit would otherwise compile the programs anew each time, and what is built between two commits is
//! neither.

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

/// Where git notes that there is another commit; in a linked work tree that is not `.git/`.
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
