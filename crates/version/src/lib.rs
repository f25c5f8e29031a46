//! Version, commit and compiler of a Weir build, for all programs.
//!
//! A program names its commit before it uses the others, so that a new commit recompiles no library:
//!
//! ```
//! weir_version::set_commit(weir_version::commit!());
//! assert!(weir_version::long().starts_with(weir_version::VERSION));
//! ```

#![forbid(unsafe_code)]

use std::sync::OnceLock;

include!(concat!(env!("OUT_DIR"), "/git_log.rs"));

/// The version of the workspace, such as `0.1.0`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The compiler, such as `rustc 1.95.0 (59807616e 2026-04-14)`.
pub const COMPILER: &str = env!("WEIR_BUILD_COMPILER");

/// The digits of a commit that a build names.
pub const DIGITS: usize = 12;

const UNKNOWN: &str = "unknown";

static COMMIT: OnceLock<&str> = OnceLock::new();

/// The commit of the running program in 12 digits; `unknown` without git, and in tests.
pub fn commit() -> &'static str {
    COMMIT.get().copied().unwrap_or(UNKNOWN)
}

/// Sets the commit of the running program, once.
pub fn set_commit(commit: &'static str) {
    let _ = COMMIT.set(commit);
}

/// The text of `--version`: version, commit and compiler.
pub fn long() -> &'static str {
    static LONG: OnceLock<String> = OnceLock::new();
    LONG.get_or_init(|| format!("{VERSION} (commit {}, {COMPILER})", commit()))
}

/// The commit from which the calling crate is built: `WEIR_COMMIT` if set, else from git's log.
///
/// Cargo recompiles the calling crate after each commit. So only `main.rs` of a program calls it.
#[macro_export]
macro_rules! commit {
    () => {{
        // A copy: a reference into the log would put all of the log into the program.
        const IN_GIT: Option<[u8; $crate::DIGITS]> = $crate::last_commit($crate::git_log!());
        const COMMIT: &str = $crate::choose_commit(option_env!("WEIR_COMMIT"), &IN_GIT);
        COMMIT
    }};
}

/// The commit in the last line of git's log: `<old commit> <new commit> <author> …`.
#[doc(hidden)]
pub const fn last_commit(log: &[u8]) -> Option<[u8; DIGITS]> {
    let log = match log.split_last() {
        Some((b'\n', lines)) => lines,
        _ => log,
    };
    // From the end: evaluating a long log byte by byte would exceed the compiler's limit.
    let mut before = log;
    while let Some((byte, rest)) = before.split_last() {
        if *byte == b'\n' {
            break;
        }
        before = rest;
    }
    let (_, mut line) = log.split_at(before.len());
    while let Some((byte, rest)) = line.split_first() {
        line = rest;
        if *byte == b' ' {
            break;
        }
    }
    match line.first_chunk() {
        Some(digits) => Some(*digits),
        None => None,
    }
}

/// `named`, unless empty; else the commit in git.
#[doc(hidden)]
pub const fn choose_commit(
    named: Option<&'static str>,
    in_git: &'static Option<[u8; DIGITS]>,
) -> &'static str {
    match (named, in_git) {
        (Some(named), _) if !named.is_empty() => named,
        (_, Some(digits)) => match str::from_utf8(digits) {
            Ok(digits) => digits,
            Err(_) => UNKNOWN,
        },
        _ => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_is_the_new_one_in_the_last_line_of_the_log() {
        let log = b"000000000000000 aaaaaaaaaaaaaaa A <a@b> 1 +0000\tclone\n\
            aaaaaaaaaaaaaaa 0123456789abcde A <a@b> 2 +0000\tcommit: x\n";
        assert_eq!(last_commit(log), Some(*b"0123456789ab"));
        let (_, one_line) = log.split_at(51);
        assert_eq!(last_commit(one_line), Some(*b"0123456789ab"));
        assert_eq!(last_commit(b""), None);
        assert_eq!(last_commit(b"no commit\n"), None);
    }

    #[test]
    fn variable_has_priority_over_git_unless_empty() {
        const IN_GIT: Option<[u8; DIGITS]> = Some(*b"0123456789ab");
        assert_eq!(choose_commit(Some("fedcba987654"), &IN_GIT), "fedcba987654");
        assert_eq!(choose_commit(Some(""), &IN_GIT), "0123456789ab");
        assert_eq!(choose_commit(None, &None), "unknown");
    }
}
