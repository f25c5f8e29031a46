//! What a build of Weir calls itself: the one place for all programs.

#![forbid(unsafe_code)]
#![no_std]

/// The version of the workspace, such as `0.1.0`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that a release is of, in 12 digits; `unreleased` of any other build. `WEIR_COMMIT` sets it for a build outside of
/// git.
pub const COMMIT: &str = env!("WEIR_BUILD_COMMIT");

/// What has compiled it, such as `rustc 1.95.0 (59807616e 2026-04-14)`.
pub const COMPILER: &str = env!("WEIR_BUILD_COMPILER");

/// What `--version` says: all three.
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
    fn a_build_says_what_it_is_of() {
        assert!(COMPILER.starts_with("rustc 1."), "{COMPILER}");
        assert!(COMMIT == "unreleased" || COMMIT.len() == 12, "{COMMIT}");
        for part in [VERSION, COMMIT, COMPILER] {
            assert!(LONG.contains(part), "{LONG}");
        }
    }
}
