//! The findings of checks.

use std::fmt;

use serde::Serialize;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It works, but less well or less safely than it should, or it may be intended.
    Warning,
    /// Something does not work, or will fail when it is needed.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The severity.
    pub severity: Severity,
    /// The check: a stable name, for scripts and for `--ignore`.
    pub check: &'static str,
    /// The place, if it has a name.
    pub place: String,
    /// The problem.
    pub problem: String,
    /// The fix.
    pub fix: String,
}

impl Diagnostic {
    /// A finding with the severity error.
    pub fn error(
        check: &'static str,
        place: impl Into<String>,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Error,
            check,
            place: place.into(),
            problem: problem.into(),
            fix: fix.into(),
        }
    }

    /// A finding with the severity warning.
    pub fn warning(
        check: &'static str,
        place: impl Into<String>,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let error = Self::error(check, place, problem, fix);
        Self {
            severity: Severity::Warning,
            ..error
        }
    }
}

/// One line.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            severity,
            check,
            place,
            problem,
            fix,
        } = self;
        write!(f, "{severity}: {place}: {problem}; {fix} [{check}]")
    }
}
