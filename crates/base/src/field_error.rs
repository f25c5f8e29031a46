//! Why a configuration was refused.

use alloc::string::{String, ToString};
use core::fmt;

/// Why a configuration was refused: the field, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field, from the outermost object inwards, such as `rules[2].limit.rate`; empty for the whole.
    pub path: String,
    /// What is wrong with it, and what to do.
    pub problem: String,
}

impl FieldError {
    /// The field at `path` is wrong because of `problem`.
    pub fn new(path: impl Into<String>, problem: impl fmt::Display) -> Self {
        Self {
            path: path.into(),
            problem: problem.to_string(),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, problem } = self;
        match path.as_str() {
            "" | "." => f.write_str(problem),
            path => write!(f, "{path}: {problem}"),
        }
    }
}

impl core::error::Error for FieldError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn an_error_tells_its_field_unless_it_is_of_the_whole() {
        for (path, told) in [
            ("rules[2].limit", "rules[2].limit: is missing"),
            ("", "is missing"),
            (".", "is missing"),
        ] {
            assert_eq!(format!("{}", FieldError::new(path, "is missing")), told);
        }
    }
}
