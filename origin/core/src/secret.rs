//! Secrets come by the environment or from files, never as flags: everyone on the machine can read arguments.

use std::ffi::OsString;
use std::path::PathBuf;

use weir_base::key::{KeyError, KeyRing, SigningKey};

/// Looks up an environment variable.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A secret is missing or unfit. Each error names the variable.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// Neither the variable nor the one with a file's path is set.
    #[error("{0} is not set: set it, or {0}_FILE")]
    Missing(&'static str),
    /// Both are.
    #[error("{0} and {0}_FILE are both set: set only one of them")]
    Both(&'static str),
    /// The secret is not text.
    #[error("{0} is not UTF-8")]
    NotText(&'static str),
    /// The file cannot be read.
    #[error("{name}_FILE: cannot read \"{}\": {source}", path.display())]
    File {
        /// The variable, without `_FILE`.
        name: &'static str,
        /// What it names.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The secret, or what belongs to it, will not do.
    #[error("{name} {problem}")]
    Unfit {
        /// The variable at fault.
        name: &'static str,
        /// Why not.
        problem: String,
    },
}

impl SecretError {
    /// The variable `name` holds what will not do.
    pub fn invalid_variable(name: &'static str, problem: impl std::fmt::Display) -> Self {
        let problem = problem.to_string();
        Self::Unfit { name, problem }
    }
}

/// Whether the variable or the one with a file's path is set.
pub fn is_set(variables: Variables<'_>, name: &str) -> bool {
    variables(name).is_some() || variables(&format!("{name}_FILE")).is_some()
}

/// Reads the secret from the variable `name`, or from the file that `<name>_FILE` names. Beside a file an empty variable does
/// not count: Compose and Kubernetes write such variables.
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
        // Editors and `echo` end a file with a line break that is not meant.
        Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
        Err(source) => Err(SecretError::File { name, path, source }),
    }
}

/// A secret, and the one before it, and where their ids come from.
#[derive(Clone, Copy, Debug)]
pub struct KeyNames {
    /// The variable of the secret,
    pub secret: &'static str,
    /// and what sets its id.
    pub id: &'static str,
    /// The variable of the secret before it,
    pub previous_secret: &'static str,
    /// and what sets its id.
    pub previous_id: &'static str,
}

impl KeyNames {
    /// The ring of the secret and, if there is one, the one before it.
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
        // Two of one id.
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
