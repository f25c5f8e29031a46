//! What was found.

use std::fmt;

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It works, but not as well or not as safely as it should; or it may be meant.
    Warning,
    /// Something does not work, or will not when it is needed.
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

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// Which check found it: a word that stays, for scripts and for `--ignore`.
    pub check: &'static str,
    /// Where it is, as far as that has a name.
    pub place: String,
    /// What is wrong.
    pub problem: String,
    /// What mends it.
    pub fix: String,
}

impl Diagnostic {
    /// What does not work.
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

    /// What works, but not well.
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
