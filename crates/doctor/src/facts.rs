//! What is known besides Envoy's configuration.

use std::collections::BTreeMap;

/// What is known of the origin.
#[derive(Clone, Debug, Default)]
pub struct OriginFacts {
    /// The port of its public routes.
    pub port: u16,
    /// The port of its admin routes.
    pub admin_port: u16,
    /// How long it works on a request for the public, in milliseconds.
    pub public_limit_ms: u64,
    /// What all its keys in Redis start with.
    pub key_prefix: String,
    /// Its Redis: `host:port` of each node that it names.
    pub redis_addresses: Vec<String>,
    /// Whether it has a password for Redis.
    pub has_redis_password: bool,
    /// The keys that it checks claims with; `None`: it has no claim secret, and so no sales.
    pub claim_keys: Option<Vec<NamedKey>>,
    /// Whether it has short links,
    pub has_links: bool,
    /// events,
    pub has_events: bool,
    /// browse history,
    pub has_history: bool,
    /// vehicle fitment,
    pub has_fitment: bool,
    /// and a payment provider.
    pub has_payments: bool,
}

/// A key without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedKey {
    /// By which signatures name it.
    pub id: String,
    /// Tells secrets apart: see [`weir_base::key::SigningKey::fingerprint`].
    pub fingerprint: String,
}

/// Facts that Redis reported to one user.
#[derive(Clone, Debug, Default)]
pub struct RedisFacts {
    /// Its address, for findings. If the user is not the origin's, the user follows.
    pub address: String,
    /// Why it could not be asked. All else is then unknown.
    pub away: Option<String>,
    /// The refusal of a test write.
    pub refused: Option<RefusedWrite>,
    /// Commands that Weir needs and that the user may not run.
    pub forbidden: Vec<String>,
    /// Queries that Redis refused. The checks that need them were skipped.
    pub untold: Vec<RefusedQuery>,
    /// Whether it is a replica.
    pub is_replica: Option<bool>,
    /// Memory in use, in bytes.
    pub used_memory: Option<u64>,
    /// Its most bytes of memory: 0 is no limit.
    pub maxmemory: Option<u64>,
    /// What it does when they are full.
    pub maxmemory_policy: Option<String>,
    /// The largest sorted set that it keeps in its short form.
    pub zset_max_listpack_entries: Option<u64>,
    /// Whether it is a node of a Redis Cluster.
    pub is_cluster: Option<bool>,
    /// How far its clock is ahead of this machine's, in milliseconds.
    pub clock_ahead_ms: Option<i64>,
    /// How far off that may be: half of the time that asking took.
    pub clock_uncertain_ms: i64,
}

/// A write that Redis refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedWrite {
    /// The error reply.
    pub error: String,
    /// Whether the user lacks a permission.
    pub is_permission: bool,
    /// What the operator should do.
    pub remedy: &'static str,
}

/// A query that Redis refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedQuery {
    /// The command.
    pub command: &'static str,
    /// The skipped checks, with their verb: `eviction and memory were`.
    pub checks: &'static str,
    /// The error reply.
    pub error: String,
}

/// The credentials with which a gateway logs in to Redis. The password is a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user, if it is not the default user.
    pub username: Option<String>,
    /// The password.
    pub password: String,
}

/// Leaves the password out.
impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login")
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

/// A certificate that gateways expect of Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsTarget {
    /// Its place in Envoy's configuration, for findings.
    pub place: String,
    /// `host:port`.
    pub address: String,
    /// The accepted names: the certificate must have one of them.
    pub names: Vec<String>,
    /// The file with the trusted authorities.
    pub ca_file: String,
}

/// The result of a TLS handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFacts {
    /// The server.
    pub target: TlsTarget,
    /// Why it failed, if it did.
    pub problem: Option<String>,
}

/// Facts that SQL reported.
#[derive(Clone, Debug, Default)]
pub struct SqlFacts {
    /// Its name in findings, without the password of its URL.
    pub place: String,
    /// Why it could not be asked. All else is then unknown.
    pub away: Option<String>,
    /// Its system variables by name. SQLite has none.
    pub variables: BTreeMap<String, String>,
    /// The sales that wait for a decision of an operator.
    pub paused: Vec<PausedSale>,
}

/// A sale that is paused because SQL has lost orders of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PausedSale {
    /// Its id.
    pub id: String,
    /// The ids of the lost orders that Redis knows.
    pub lost: Vec<String>,
}

impl SqlFacts {
    /// The value of a setting.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Whether a setting exists and is on.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        let value = self.value(name);
        value.is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("ON"))
    }
}

/// The variables that Envoy is started with.
#[derive(Clone, Default)]
pub struct GatewayEnvironment {
    /// Their values by their names. They hold secrets.
    pub variables: BTreeMap<String, String>,
    /// Where they come from, for findings.
    pub source: String,
}

/// Values are secrets.
impl std::fmt::Debug for GatewayEnvironment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GatewayEnvironment")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl GatewayEnvironment {
    /// Reads lines of `NAME=VALUE`, as `systemd` and `docker --env-file` do: empty lines and those that begin with `#` do not
    /// count, `export` before a name and quotes around a value are taken off.
    ///
    /// # Errors
    /// The number of the first line that is none of it, counted from 1.
    pub fn read(text: &str, source: impl Into<String>) -> Result<Self, usize> {
        let mut variables = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let line = line.strip_prefix("export ").unwrap_or(line);
            let (name, value) = line.split_once('=').ok_or(at + 1)?;
            variables.insert(name.trim().to_owned(), unquoted(value.trim()).to_owned());
        }
        let source = source.into();
        Ok(Self { variables, source })
    }
}

fn unquoted(value: &str) -> &str {
    ['"', '\'']
        .iter()
        .find_map(|&quote| value.strip_prefix(quote)?.strip_suffix(quote))
        .unwrap_or(value)
}
