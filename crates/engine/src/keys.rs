//! Signing keys in configurations.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::Deserialize;
use weir_base::FieldError;
use weir_base::key::{KeyError, KeyRing, KeyRingError, SigningKey};

use crate::config::{Environment, SecretSource};

/// A signing key.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyConfig {
    /// Key id; must match on the verifying side. Default: `k1`.
    #[serde(default = "default_key_id")]
    pub id: String,
    /// Shared secret of at least 32 bytes.
    pub secret: SecretSource,
}

/// Reads the key ring in the field at `path`.
///
/// # Errors
/// Names the invalid key.
pub fn ring(
    path: &str,
    keys: &[KeyConfig],
    environment: Environment<'_>,
) -> Result<KeyRing, FieldError> {
    let key = |(at, key): (usize, &KeyConfig)| key.read(&format!("{path}[{at}]"), environment);
    let keys = keys
        .iter()
        .enumerate()
        .map(key)
        .collect::<Result<Vec<_>, _>>()?;
    KeyRing::new(keys).map_err(|error| {
        let place = match error {
            KeyRingError::SameId { at } => format!("{path}[{at}].id"),
            KeyRingError::Empty | KeyRingError::TooMany(_) => path.to_owned(),
        };
        FieldError::new(place, error)
    })
}

impl KeyConfig {
    fn read(&self, path: &str, environment: Environment<'_>) -> Result<SigningKey, FieldError> {
        let secret = self.secret.read(&format!("{path}.secret"), environment)?;
        SigningKey::new(&self.id, &secret).map_err(|error| {
            let field = match error {
                KeyError::TooShort(_) => "secret",
                KeyError::Id => "id",
            };
            FieldError::new(format!("{path}.{field}"), error)
        })
    }
}

fn default_key_id() -> String {
    "k1".into()
}
