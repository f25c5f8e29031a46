//! The filter's configuration.

use serde::Deserialize;
use weir_base::FieldError;
use weir_engine::config::SecretSource;
use weir_proxy_kit::env;

use crate::login;

/// Limits of one call, and what Redis wants to be told. All has defaults: an empty configuration is a good one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The most bytes of a call's body: 1 MiB unless set, at least 32 KiB. A batch of 64 claims takes 10 KiB, and the longest
    /// script, which a call has in it once Redis has forgotten it, 20 KiB.
    pub request_bytes_max: usize,
    /// The most bytes of all replies of a call together: 16 MiB unless set.
    pub replies_bytes_max: usize,
    /// The most commands of a call: 4,096 unless set.
    pub commands_max: usize,
    /// The password of a Redis behind `tcp_proxy`. `redis_proxy` tells it by itself, if its cluster says so.
    pub auth: Option<Auth>,
}

/// What a Redis with a password wants to be told first on each connection.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// A user of Redis' access control lists; the default user unless set.
    #[serde(default)]
    pub username: Option<String>,
    /// Where the password is.
    pub password: SecretSource,
}

/// The least `request_bytes_max`: a smaller one refuses calls that carry their script.
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
    /// The configuration, if it makes sense.
    ///
    /// # Errors
    /// Names the field that does not.
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

    /// What each connection begins with, if Redis has a password.
    ///
    /// # Errors
    /// When the VM is not given the password.
    pub fn login(&self) -> Result<Option<Vec<u8>>, FieldError> {
        let Some(auth) = &self.auth else {
            return Ok(None);
        };
        let password = auth.password.read("auth.password", &env::var)?;
        Ok(Some(login::command(auth.username.as_deref(), &password)))
    }
}
