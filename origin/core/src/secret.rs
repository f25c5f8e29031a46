//! Reads secrets from the environment or from files. They are never flags, because all users of the machine can read
//! arguments.

use std::ffi::OsString;
use std::path::PathBuf;

use weir_base::key::{KeyError, KeyRing, SigningKey};

/// Reads an environment variable.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A missing or invalid secret. Each error names the variable.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// Neither the variable nor its `_FILE` variant is set.
    #[error("{0} is not set: set it, or {0}_FILE")]
    Missing(&'static str),
    /// Both the variable and its `_FILE` variant are set.
    #[error("{0} and {0}_FILE are both set: set only one of them")]
    Both(&'static str),
    /// The secret is not UTF-8.
    #[error("{0} is not UTF-8")]
    NotText(&'static str),
    /// The file cannot be read.
    #[error("{name}_FILE: cannot read \"{}\": {source}", path.display())]
    File {
        /// The variable without `_FILE`.
        name: &'static str,
        /// The file's path.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The secret, or a related setting, is invalid.
    #[error("{name} {problem}")]
    Unfit {
        /// The variable.
        name: &'static str,
        /// Cause.
        problem: String,
    },
}

impl SecretError {
    /// Creates an error for an invalid value of the variable `name`.
    pub fn invalid_variable(name: &'static str, problem: impl std::fmt::Display) -> Self {
        let problem = problem.to_string();
        Self::Unfit { name, problem }
    }
}

/// Whether the variable or its `_FILE` variant is set.
pub fn is_set(variables: Variables<'_>, name: &str) -> bool {
    variables(name).is_some() || variables(&format!("{name}_FILE")).is_some()
}

/// Reads the secret from the variable `name`, or from the file that `<name>_FILE` names. With a file, an empty variable
/// is ignored: Compose and Kubernetes set empty variables.
///
/// # Errors
/// See [`SecretError`].
pub fn read(variables: Variables<'_>, name: &'static str) -> Result<String, SecretError> {
    let path = variables(&format!("{name}_FILE"));
    let secret = variables(name).filter(|secret| path.is_none() || !secret.is_empty());
    match (secret, path) {
        (None, None) => Err(SecretError::Missing(name)),
        (Some(_), Some(_)) => Err(SecretError::Both(name)),
        (Some(secret), None) => secret.into_string().map_err(|_| SecretError::NotText(name)),
        (None, Some(path)) => read_file(name, path.into()),
    }
}

fn read_file(name: &'static str, path: PathBuf) -> Result<String, SecretError> {
    match std::fs::read_to_string(&path) {
        // Editors and `echo` append a line break.
        Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
        Err(source) => Err(SecretError::File { name, path, source }),
    }
}

/// The sources of a secret, the previous secret, and their ids.
#[derive(Clone, Copy, Debug)]
pub struct KeyNames {
    /// The variable with the secret.
    pub secret: &'static str,
    /// The flag or variable with the secret's id.
    pub id: &'static str,
    /// The variable with the previous secret.
    pub previous_secret: &'static str,
    /// The flag or variable with the previous secret's id.
    pub previous_id: &'static str,
}

impl KeyNames {
    /// Reads a key ring with the secret and, if it is set, the previous one.
    ///
    /// # Errors
    /// See [`SecretError`].
    pub fn read(
        &self,
        variables: Variables<'_>,
        id: &str,
        previous_id: &str,
    ) -> Result<KeyRing, SecretError> {
        let mut keys = vec![read_key(variables, self.secret, self.id, id)?];
        if is_set(variables, self.previous_secret) {
            let (secret, name) = (self.previous_secret, self.previous_id);
            keys.push(read_key(variables, secret, name, previous_id)?);
        }
        // Both keys have the same id.
        KeyRing::new(keys).map_err(|error| SecretError::invalid_variable(self.previous_id, error))
    }
}

fn read_key(
    variables: Variables<'_>,
    name: &'static str,
    id_name: &'static str,
    id: &str,
) -> Result<SigningKey, SecretError> {
    let secret = read(variables, name)?;
    SigningKey::new(id, secret.as_bytes()).map_err(|error| {
        let name = match error {
            KeyError::TooShort(_) => name,
            KeyError::Id => id_name,
        };
        SecretError::invalid_variable(name, error)
    })
}
