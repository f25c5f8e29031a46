//! Version, commit and compiler of a Weir build, for all programs.

#![forbid(unsafe_code)]
#![no_std]

/// The version of the workspace, such as `0.1.0`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit of a release build, in 12 digits; `unreleased` for other builds. `WEIR_COMMIT` sets it for builds without
/// git.
pub const COMMIT: &str = env!("WEIR_BUILD_COMMIT");

/// The compiler, such as `rustc 1.95.0 (59807616e 2026-04-14)`.
pub const COMPILER: &str = env!("WEIR_BUILD_COMPILER");

/// The text of `--version`: version, commit and compiler.
pub const LONG: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("WEIR_BUILD_COMMIT"),
    ", ",
    env!("WEIR_BUILD_COMPILER"),
    ")"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_names_its_version_commit_and_compiler() {
        assert!(COMPILER.starts_with("rustc 1."), "{COMPILER}");
        assert!(COMMIT == "unreleased" || COMMIT.len() == 12, "{COMMIT}");
        for part in [VERSION, COMMIT, COMPILER] {
            assert!(LONG.contains(part), "{LONG}");
        }
    }
}
