//! The filter's configuration.

use serde::Deserialize;
use weir_base::FieldError;
use weir_engine::config::SecretSource;
use weir_proxy_kit::env;

use crate::login;

/// Limits of one call, and the login to Redis. All settings have defaults.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Maximum bytes of a call's body, at least 32 KiB. Default: 1 MiB. A batch of 64 claims takes 10 KiB. The longest
    /// script, which a call contains if Redis has lost it, takes 20 KiB.
    pub request_bytes_max: usize,
    /// Maximum bytes of all replies of a call. Default: 16 MiB.
    pub replies_bytes_max: usize,
    /// Maximum commands of a call. Default: 4,096.
    pub commands_max: usize,
    /// The login to a Redis behind `tcp_proxy`. `redis_proxy` logs in by itself, if its cluster has a password.
    pub auth: Option<Auth>,
}

/// The login that each connection starts with.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// A user in Redis' access control lists. Default: the default user.
    #[serde(default)]
    pub username: Option<String>,
    /// The password.
    pub password: SecretSource,
}

/// Minimum `request_bytes_max`: a smaller one would refuse calls that contain their script.
pub const REQUEST_BYTES_MIN: usize = 32 * 1024;

impl Default for Config {
    fn default() -> Self {
        Self {
            request_bytes_max: 1024 * 1024,
            replies_bytes_max: 16 * 1024 * 1024,
            commands_max: 4_096,
            auth: None,
        }
    }
}

impl Config {
    /// Checks the configuration.
    ///
    /// # Errors
    /// If a field is invalid, with its path.
    pub fn checked(self) -> Result<Self, FieldError> {
        let fields = [
            (
                "request_bytes_max",
                self.request_bytes_max,
                REQUEST_BYTES_MIN,
            ),
            ("replies_bytes_max", self.replies_bytes_max, 1),
            ("commands_max", self.commands_max, 1),
        ];
        match fields.into_iter().find(|&(_, value, min)| value < min) {
            Some((name, value, min)) => {
                let problem = format!("must be at least {min}, is {value}");
                Err(FieldError::new(name, problem))
            }
            None => Ok(self),
        }
    }

    /// The bytes that each connection starts with, if Redis has a password.
    ///
    /// # Errors
    /// If the password is not in the VM's environment.
    pub fn login(&self) -> Result<Option<Vec<u8>>, FieldError> {
        let Some(auth) = &self.auth else {
            return Ok(None);
        };
        let password = auth.password.read("auth.password", &env::var)?;
        Ok(Some(login::command(auth.username.as_deref(), &password)))
    }
}
