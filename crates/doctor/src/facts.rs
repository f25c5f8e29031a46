//! Facts besides Envoy's configuration.

use std::collections::BTreeMap;

/// Facts about the origin.
#[derive(Clone, Debug, Default)]
pub struct OriginFacts {
    /// The port of its public routes.
    pub port: u16,
    /// The port of its admin routes.
    pub admin_port: u16,
    /// The origin's time limit for public requests, in milliseconds.
    pub public_limit_ms: u64,
    /// The prefix of all its keys in Redis.
    pub key_prefix: String,
    /// Its Redis: `host:port` of each configured node.
    pub redis_addresses: Vec<String>,
    /// Whether it has a password for Redis.
    pub has_redis_password: bool,
    /// The keys that verify claims; `None`: no claim secret, and therefore no sales.
    pub claim_keys: Option<Vec<NamedKey>>,
    /// Whether it has short links.
    pub has_links: bool,
    /// Whether it has events.
    pub has_events: bool,
    /// Whether it has browse history.
    pub has_history: bool,
    /// Whether it has vehicle fitment.
    pub has_fitment: bool,
    /// Whether it has a payment provider.
    pub has_payments: bool,
}

/// A key without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedKey {
    /// The ID in signatures.
    pub id: String,
    /// A fingerprint of the secret: see [`weir_base::key::SigningKey::fingerprint`].
    pub fingerprint: String,
}

/// Facts that Redis reported to one user.
#[derive(Clone, Debug, Default)]
pub struct RedisFacts {
    /// Its address, for findings. If the user is not the origin's, the user follows.
    pub address: String,
    /// Why it could not be queried. All other fields are then unknown.
    pub away: Option<String>,
    /// The refusal of a test write.
    pub refused: Option<RefusedWrite>,
    /// Commands that Weir needs and that the user may not run.
    pub forbidden: Vec<String>,
    /// Queries that Redis refused. The checks that need them were skipped.
    pub refused_queries: Vec<RefusedQuery>,
    /// Whether it is a replica.
    pub is_replica: Option<bool>,
    /// Memory in use, in bytes.
    pub used_memory: Option<u64>,
    /// Its memory limit, in bytes; 0: no limit.
    pub maxmemory: Option<u64>,
    /// Its eviction policy.
    pub maxmemory_policy: Option<String>,
    /// Maximum size of a sorted set in the compact encoding.
    pub zset_max_listpack_entries: Option<u64>,
    /// Whether it is a node of a Redis Cluster.
    pub is_cluster: Option<bool>,
    /// How far its clock is ahead of this machine's, in milliseconds.
    pub clock_ahead_ms: Option<i64>,
    /// The uncertainty of that, in milliseconds: half of the query's time.
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

/// Redacts the password.
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
    /// Why it could not be queried. All other fields are then unknown.
    pub away: Option<String>,
    /// Its system variables by name. SQLite has none.
    pub variables: BTreeMap<String, String>,
    /// The sales that wait for an operator's decision.
    pub paused: Vec<PausedSale>,
    /// The number of different Redis that origins of each site use; the name is empty for origins without a site.
    pub redis_by_site: Vec<(String, u64)>,
}

/// A sale that is paused because SQL has lost orders of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PausedSale {
    /// Its id.
    pub id: String,
    /// The ids of the lost orders that Redis still has.
    pub lost: Vec<String>,
}

impl SqlFacts {
    /// The value of a variable.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Whether a variable exists and is on.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        let value = self.value(name);
        value.is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("ON"))
    }
}

/// Envoy's environment variables.
#[derive(Clone, Default)]
pub struct GatewayEnvironment {
    /// Their values by name. They contain secrets.
    pub variables: BTreeMap<String, String>,
    /// Their source, for findings.
    pub source: String,
}

/// Redacts the values.
impl std::fmt::Debug for GatewayEnvironment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GatewayEnvironment")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl GatewayEnvironment {
    /// Parses lines of `NAME=VALUE`, like `systemd` and `docker --env-file`. Empty lines and comments (`#`) are
    /// ignored; `export` before a name and quotes around a value are removed.
    ///
    /// # Errors
    /// The number of the first invalid line, from 1.
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
