use alloc::string::{String, ToString};
use core::fmt;

/// A rejected configuration: the field and the problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The path of the field from the outermost object, such as `rules[2].limit.rate`; empty for the whole
    /// configuration.
    pub path: String,
    /// The problem, and what to do about it.
    pub problem: String,
}

impl FieldError {
    /// An error of the field at `path`.
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
    fn field_error_starts_with_its_path_unless_path_is_root() {
        for (path, reply) in [
            ("rules[2].limit", "rules[2].limit: is missing"),
            ("", "is missing"),
            (".", "is missing"),
        ] {
            assert_eq!(format!("{}", FieldError::new(path, "is missing")), reply);
        }
    }
}
