//! How the origin is started: flags, their environment variables, and secrets.
//!
//! Secrets come by the environment or from files, never as flags: arguments are for everyone on
//! the machine to read.

use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use subtle::ConstantTimeEq;
use weir_base::key::{KeyError, KeyRing, KeyRingError, SigningKey};
use weir_link::scramble::Scramble;
use weir_scripts::keys;

use crate::links::log::Sync;

/// Names the variable that holds the secret that gateways and origin share.
pub const CLAIM_SECRET: &str = "WEIR_CLAIM_SECRET";

/// Names the variable that holds the secret before it: claims signed with it count, too.
pub const CLAIM_SECRET_PREVIOUS: &str = "WEIR_CLAIM_SECRET_PREVIOUS";

/// Names the variable that holds the admin's token.
pub const ADMIN_TOKEN: &str = "WEIR_ADMIN_TOKEN";

/// Names the variable that holds the secret that scrambles the codes of links.
pub const LINK_SECRET: &str = "WEIR_LINK_SECRET";

/// The least bytes of the admin's token: with 32 hexadecimal digits it has 128 bits.
pub const ADMIN_TOKEN_LEN_MIN: usize = 32;

const SECRETS_HELP: &str = "\
Secrets come by the environment, each by itself or as the path of a file (…_FILE):
  WEIR_CLAIM_SECRET   what gateways sign claims with, at least 32 bytes
  WEIR_CLAIM_SECRET_PREVIOUS
                      optional: the secret before it, while gateways change over
  WEIR_ADMIN_TOKEN    the bearer token of the admin routes, at least 32 bytes
  WEIR_LINK_SECRET    optional: scrambles the codes of short links, so that the next one cannot be told
                      from this one; at least 32 bytes. It must stay for as long as there are links
RUST_LOG sets what is logged, such as `info` (the default) or `weir_origin=debug`.";

/// Weir's origin: sales and orders behind the gateways.
#[derive(Clone, Parser)]
#[command(name = "weir-origin", version, after_help = SECRETS_HELP)]
pub struct Config {
    /// Where gateways send orders
    #[arg(long, env = "WEIR_LISTEN", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,

    /// Where the admin routes and the probes are
    #[arg(long, env = "WEIR_ADMIN_LISTEN", default_value = "127.0.0.1:8081")]
    pub admin_listen: SocketAddr,

    /// The database: a SQLite file, made if it is not there
    #[arg(
        long,
        env = "WEIR_DATABASE_URL",
        default_value = "sqlite://weir.db",
        hide_env_values = true
    )]
    pub database_url: String,

    /// The Redis that gateways use, too: one URL, or those of a Redis Cluster's nodes with commas
    /// between them; rediss:// means TLS, by the system's authorities or those in `SSL_CERT_FILE`
    #[arg(
        long,
        env = "WEIR_REDIS_URL",
        default_value = "redis://127.0.0.1:6379",
        hide_env_values = true
    )]
    pub redis_url: String,

    /// What every key in Redis starts with; the same as the gateways'
    #[arg(long, env = "WEIR_KEY_PREFIX", default_value = keys::DEFAULT_PREFIX, value_parser = parse_prefix)]
    pub key_prefix: String,

    /// The id of the claim secret; the same as the gateways'
    #[arg(long, env = "WEIR_CLAIM_KEY_ID", default_value = "k1")]
    pub claim_key_id: String,

    /// The id of the claim secret before it, if there is one
    #[arg(long, env = "WEIR_CLAIM_PREVIOUS_KEY_ID", default_value = "k0")]
    pub claim_previous_key_id: String,

    /// How many calls on SQL orders, payments and reservations may have under way
    #[arg(long, env = "WEIR_SQL_WORKING_MAX", default_value_t = 32)]
    pub sql_working_max: usize,

    /// How many more may wait; beyond it they are refused at once
    #[arg(long, env = "WEIR_SQL_WAITING_MAX", default_value_t = 1024)]
    pub sql_waiting_max: usize,

    /// Rules of the embedded risk check, a JSON file
    #[arg(long, env = "WEIR_RISK_RULES", conflicts_with = "risk_url")]
    pub risk_rules: Option<PathBuf>,

    /// The risk service instead: POST {sale, user} there answers {score}; http:// only
    #[arg(long, env = "WEIR_RISK_URL")]
    pub risk_url: Option<String>,

    /// Where clicks on links come from: a database of cities or countries in MaxMind's format
    #[arg(long, env = "WEIR_GEO_CITY_DB")]
    pub geo_city_db: Option<PathBuf>,

    /// Whose networks they come from: a database of autonomous systems in MaxMind's format
    #[arg(long, env = "WEIR_GEO_ASN_DB")]
    pub geo_asn_db: Option<PathBuf>,

    /// Users of this score and above are blocked
    #[arg(long, env = "WEIR_RISK_THRESHOLD", default_value_t = 80)]
    pub risk_threshold: u32,

    /// The domains of short links, a JSON file; without it there are no links
    #[arg(long, env = "WEIR_LINKS")]
    pub links: Option<PathBuf>,

    /// The folder in which new links are kept until the database has them; each origin needs its own
    #[arg(long, env = "WEIR_LINKS_LOG", default_value = "weir-links-log")]
    pub links_log: PathBuf,

    /// When a new link counts as kept: when the system has it, or when the disk has
    #[arg(long, env = "WEIR_LINKS_LOG_SYNC", value_enum, default_value_t = Sync::Os)]
    pub links_log_sync: Sync,

    /// How many seconds nobody may have the code of a link that has ended; longer than gateways
    /// remember links
    #[arg(long, env = "WEIR_LINKS_QUARANTINE_S", default_value_t = 3600)]
    pub links_quarantine_s: u64,
}

/// The URLs may hold passwords.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("listen", &self.listen)
            .field("admin_listen", &self.admin_listen)
            .field("key_prefix", &self.key_prefix)
            .field("claim_key_id", &self.claim_key_id)
            .finish_non_exhaustive()
    }
}

fn parse_prefix(prefix: &str) -> Result<String, &'static str> {
    match keys::is_prefix(prefix) {
        true => Ok(prefix.to_owned()),
        false => Err("must be 1 to 64 of a-z, A-Z, 0-9, -, _, . and :"),
    }
}

/// What must not be seen.
#[derive(Clone, Debug)]
pub struct Secrets {
    /// Checks claims and users: the secret of now, and the one before it, if there is one.
    pub claim_keys: KeyRing,
    /// Opens the admin routes.
    pub admin_token: AdminToken,
    /// Scrambles the codes of links, if it is set.
    pub link_scramble: Option<Scramble>,
}

/// Why the origin has no secrets to work with. Each names the variable.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// Neither the variable nor the one with a file's path is set.
    #[error("{0} is not set, and {0}_FILE is not either")]
    Missing(&'static str),
    /// Both are.
    #[error("{0} and {0}_FILE are both set: which one counts?")]
    Both(&'static str),
    /// The secret is not text.
    #[error("{0} is not UTF-8")]
    NotText(&'static str),
    /// The file cannot be read.
    #[error("{name}_FILE: cannot read {}: {source}", path.display())]
    File {
        /// The variable, without `_FILE`.
        name: &'static str,
        /// What it names.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The claim secret or its id is not fit for a key.
    #[error("{name} {source}")]
    Key {
        /// The variable at fault.
        name: &'static str,
        /// Why not.
        source: KeyError,
    },
    /// The keys do not go together: two of one id.
    #[error("WEIR_CLAIM_PREVIOUS_KEY_ID: {0}")]
    KeyRing(KeyRingError),
    /// The admin's token is too short.
    #[error("{ADMIN_TOKEN} has {0} bytes, needs at least {ADMIN_TOKEN_LEN_MIN}")]
    TokenTooShort(usize),
}

impl Secrets {
    /// Reads them; `variable` looks up an environment variable.
    ///
    /// # Errors
    /// See [`SecretError`].
    pub fn read(
        variable: impl Fn(&str) -> Option<OsString>,
        claim_key_id: &str,
        previous_key_id: &str,
    ) -> Result<Self, SecretError> {
        let mut keys = vec![read_key(&variable, CLAIM_SECRET, claim_key_id)?];
        if is_set(&variable, CLAIM_SECRET_PREVIOUS) {
            keys.push(read_key(&variable, CLAIM_SECRET_PREVIOUS, previous_key_id)?);
        }
        let claim_keys = KeyRing::new(keys).map_err(SecretError::KeyRing)?;
        let admin_token = AdminToken::new(&read_secret(&variable, ADMIN_TOKEN)?)?;
        Ok(Self {
            claim_keys,
            admin_token,
            link_scramble: read_scramble(&variable)?,
        })
    }
}

fn is_set(variable: impl Fn(&str) -> Option<OsString>, name: &str) -> bool {
    variable(name).is_some() || variable(&format!("{name}_FILE")).is_some()
}

fn read_key(
    variable: impl Fn(&str) -> Option<OsString>,
    name: &'static str,
    id: &str,
) -> Result<SigningKey, SecretError> {
    let secret = read_secret(variable, name)?;
    SigningKey::new(id, secret.as_bytes()).map_err(|source| SecretError::Key {
        name: match source {
            KeyError::TooShort(_) => name,
            KeyError::Id if name == CLAIM_SECRET => "WEIR_CLAIM_KEY_ID",
            KeyError::Id => "WEIR_CLAIM_PREVIOUS_KEY_ID",
        },
        source,
    })
}

fn read_scramble(
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<Scramble>, SecretError> {
    if !is_set(&variable, LINK_SECRET) {
        return Ok(None);
    }
    let secret = read_secret(variable, LINK_SECRET)?;
    let scramble = Scramble::new(secret.as_bytes());
    let name = LINK_SECRET;
    scramble
        .map(Some)
        .map_err(|source| SecretError::Key { name, source })
}

fn read_secret(
    variable: impl Fn(&str) -> Option<OsString>,
    name: &'static str,
) -> Result<String, SecretError> {
    match (variable(name), variable(&format!("{name}_FILE"))) {
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

/// The bearer token of the admin routes.
#[derive(Clone)]
pub struct AdminToken(Arc<[u8]>);

/// The token stays out of logs.
impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken(…)")
    }
}

impl AdminToken {
    /// Takes `token`.
    ///
    /// # Errors
    /// When it has fewer than [`ADMIN_TOKEN_LEN_MIN`] bytes.
    pub fn new(token: &str) -> Result<Self, SecretError> {
        if token.len() < ADMIN_TOKEN_LEN_MIN {
            return Err(SecretError::TokenTooShort(token.len()));
        }
        Ok(Self(token.as_bytes().into()))
    }

    /// Whether `shown` is the token. Takes the same time wherever they differ; only that the
    /// lengths do shows.
    pub fn is(&self, shown: &[u8]) -> bool {
        self.0.ct_eq(shown).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    fn read(variables: &[(&str, &str)]) -> Result<Secrets, String> {
        let variables: HashMap<&str, &str> = variables.iter().copied().collect();
        Secrets::read(|name| variables.get(name).map(OsString::from), "k1", "k0")
            .map_err(|error| error.to_string())
    }

    #[test]
    fn secrets_come_by_variable_or_by_file() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("token");
        std::fs::write(&path, format!("{SECRET}\n")).unwrap();
        let path = path.to_str().unwrap();
        let secrets = read(&[(CLAIM_SECRET, SECRET), ("WEIR_ADMIN_TOKEN_FILE", path)]).unwrap();
        assert!(secrets.admin_token.is(SECRET.as_bytes()));
        for wrong in ["", &SECRET[1..], &SECRET.to_uppercase(), &SECRET.repeat(2)] {
            assert!(!secrets.admin_token.is(wrong.as_bytes()), "{wrong}");
        }
        assert!(!format!("{secrets:?}").contains(SECRET));
    }

    #[test]
    fn an_error_names_the_variable() {
        let check = |variables: &[(&str, &str)], expected: &str| {
            let error = read(variables).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        let claim = (CLAIM_SECRET, SECRET);
        check(&[], "WEIR_CLAIM_SECRET is not set");
        check(&[claim], "WEIR_ADMIN_TOKEN is not set");
        check(
            &[(CLAIM_SECRET, "short")],
            "WEIR_CLAIM_SECRET has 5 bytes, needs at least 32",
        );
        check(
            &[claim, (ADMIN_TOKEN, "short")],
            "WEIR_ADMIN_TOKEN has 5 bytes, needs at least 32",
        );
        check(
            &[claim, ("WEIR_CLAIM_SECRET_FILE", "/f")],
            "WEIR_CLAIM_SECRET and WEIR_CLAIM_SECRET_FILE are both set",
        );
        check(
            &[("WEIR_CLAIM_SECRET_FILE", "/no/such")],
            "WEIR_CLAIM_SECRET_FILE: cannot read /no/such",
        );
        let bad_id = Secrets::read(|_| Some(SECRET.into()), "K", "k0");
        assert!(bad_id.is_err());
    }

    #[test]
    fn flags_have_sound_defaults_and_a_prefix_is_checked() {
        let config = Config::try_parse_from(["weir-origin"]).unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
        assert_eq!(config.key_prefix, "weir");
        assert!(Config::try_parse_from(["weir-origin", "--key-prefix", "a{b"]).is_err());
    }
}
