//! Flags and secrets of the process; each domain adds its own.

use std::fmt;
use std::net::SocketAddr;

use clap::{Parser, Subcommand};
use weir_base::key::KeyRing;
#[cfg(feature = "links")]
use weir_link::scramble::Scramble;
use weir_scripts::keys;

use crate::access::config::AccessConfig;
#[cfg(feature = "doctor")]
use crate::doctor::DoctorCommand;
#[cfg(feature = "events")]
use crate::events::config::{EventConfig, webhook_secret};
#[cfg(feature = "fitment")]
use crate::fitment::config::FitmentConfig;
#[cfg(feature = "fitment")]
use crate::fitment::import::command::ImportCommand;
#[cfg(feature = "history")]
use crate::history::config::HistoryConfig;
use crate::http::{AccessLogConfig, AdminToken, AllowedOrigin, Cors};
#[cfg(feature = "init")]
use crate::init::InitCommand;
#[cfg(feature = "init")]
use crate::kubernetes_secret::KubernetesSecretCommand;
#[cfg(feature = "links-cli")]
use crate::links::cli::LinksCommand;
#[cfg(feature = "links")]
use crate::links::config::{LinkConfig, links_webhook_secret, scramble};
#[cfg(feature = "sales")]
use crate::sales::config::{CLAIM_SECRET, SaleConfig, orders_webhook_secret};
#[cfg(feature = "sales")]
use crate::sales::draw::check::CheckDrawCommand;
#[cfg(feature = "sales")]
use crate::sales::lost_orders::cli::LostOrdersCommand;
#[cfg(feature = "sales")]
use crate::sales::model::payment::Payments;
#[cfg(feature = "sales")]
use crate::sales::sites::SiteCommand;
use crate::secret::{self, KeyNames, SecretError, Variables};
#[cfg(feature = "shard-proxy")]
use crate::shard_proxy::ShardProxyCommand;
use crate::traces::TraceConfig;

/// Variable with the admin token.
pub const ADMIN_TOKEN: &str = "WEIR_ADMIN_TOKEN";

/// Variable with the secret shared by edges and origin.
pub const EDGE_SECRET: &str = "WEIR_EDGE_SECRET";

/// Variable with the secret that signs product changes.
#[cfg(any(feature = "fitment", feature = "history"))]
const PRODUCTS_SECRET: &str = "WEIR_PRODUCTS_SECRET";

#[cfg(any(feature = "fitment", feature = "history"))]
const PRODUCTS: KeyNames = KeyNames {
    secret: PRODUCTS_SECRET,
    id: "WEIR_PRODUCTS_KEY_ID",
    previous_secret: "WEIR_PRODUCTS_SECRET_PREVIOUS",
    previous_id: "WEIR_PRODUCTS_PREVIOUS_KEY_ID",
};

const EDGES: KeyNames = KeyNames {
    secret: EDGE_SECRET,
    id: "WEIR_EDGE_KEY_ID",
    previous_secret: "WEIR_EDGE_SECRET_PREVIOUS",
    previous_id: "WEIR_EDGE_PREVIOUS_KEY_ID",
};

/// The part of `--help` about secrets.
fn secrets_help() -> String {
    let all = [
        SECRETS_HELP,
        #[cfg(feature = "sales")]
        crate::sales::config::SECRETS_HELP,
        #[cfg(feature = "links")]
        crate::links::config::SECRETS_HELP,
        #[cfg(feature = "events")]
        crate::events::config::SECRETS_HELP,
        "RUST_LOG sets the log level, such as `info` (the default) or `weir_origin=debug`.",
    ];
    all.concat()
}

const SECRETS_HELP: &str = "\
Secrets are environment variables, or file paths in variables with the suffix _FILE. Each has at least 32 bytes.
  WEIR_ADMIN_TOKEN    bearer token with all admin permissions: to create the first keys, and during an SQL outage
  WEIR_EDGE_SECRET    optional: signs feeds for edges and requests from edges; unset: no feeds
  WEIR_EDGE_SECRET_PREVIOUS
                      optional: the previous secret, during a rotation
  WEIR_PRODUCTS_SECRET
                      optional: signs product changes (POST /product-changes); unset: that route refuses everything
  WEIR_PRODUCTS_SECRET_PREVIOUS
                      optional: the previous secret, during a rotation
";

/// The Weir origin: sales, orders, links, events, history and fitment behind the gateways.
#[derive(Clone, Parser)]
#[command(name = "weir-origin", version = weir_version::long(), after_help = secrets_help())]
pub struct Config {
    /// Public address, for requests from gateways
    #[arg(long, env = "WEIR_LISTEN", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,

    /// Address of the admin API, the console and the health probes
    #[arg(long, env = "WEIR_ADMIN_LISTEN", default_value = "127.0.0.1:8081")]
    pub admin_listen: SocketAddr,

    /// Seconds between SIGTERM and the end of accepting connections: meanwhile readiness fails, and requests are answered
    #[arg(long, env = "WEIR_DRAIN_SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=3600))]
    pub drain_seconds: u64,

    /// Comma-separated origins whose pages may read public answers, such as `https://shop.example`; * allows any
    #[arg(long, env = "WEIR_CORS_ORIGINS", value_delimiter = ',')]
    pub cors_origins: Vec<AllowedOrigin>,

    /// Allow those pages to send cookies
    #[arg(long, env = "WEIR_CORS_CREDENTIALS", requires = "cors_origins")]
    pub cors_credentials: bool,

    /// SQL database: a SQLite file, created if missing, or mysql://USER:PASSWORD@HOST/DATABASE
    #[arg(
        long,
        env = "WEIR_DATABASE_URL",
        default_value = "sqlite://weir.db",
        hide_env_values = true
    )]
    pub database_url: String,

    /// Redis of the gateways: one URL, or comma-separated nodes of a Redis Cluster. rediss:// uses TLS with the
    /// system's CAs or those in `SSL_CERT_FILE`
    #[arg(
        long,
        env = "WEIR_REDIS_URL",
        default_value = "redis://127.0.0.1:6379",
        hide_env_values = true
    )]
    pub redis_url: String,

    /// Prefix of every Redis key; must match the gateways
    #[arg(long, env = "WEIR_KEY_PREFIX", default_value = keys::DEFAULT_PREFIX, value_parser = parse_prefix)]
    pub key_prefix: String,

    /// Id of the edge secret; must match the edges
    #[arg(long, env = "WEIR_EDGE_KEY_ID", default_value = "e1")]
    pub edge_key_id: String,

    /// Id of the previous edge secret
    #[arg(long, env = "WEIR_EDGE_PREVIOUS_KEY_ID", default_value = "e0")]
    pub edge_previous_key_id: String,

    /// Id of the product change secret; must match the sender
    #[cfg(any(feature = "fitment", feature = "history"))]
    #[arg(long, env = "WEIR_PRODUCTS_KEY_ID", default_value = "p1")]
    pub products_key_id: String,

    /// Id of the previous product change secret
    #[cfg(any(feature = "fitment", feature = "history"))]
    #[arg(long, env = "WEIR_PRODUCTS_PREVIOUS_KEY_ID", default_value = "p0")]
    pub products_previous_key_id: String,

    /// The flags of sales.
    #[cfg(feature = "sales")]
    #[command(flatten)]
    pub sales: SaleConfig,

    /// The flags of links.
    #[cfg(feature = "links")]
    #[command(flatten)]
    pub links: LinkConfig,

    /// The flags of events.
    #[cfg(feature = "events")]
    #[command(flatten)]
    pub events: EventConfig,

    /// The flags of browse history.
    #[cfg(feature = "history")]
    #[command(flatten)]
    pub history: HistoryConfig,

    /// The flags of vehicle fitment.
    #[cfg(feature = "fitment")]
    #[command(flatten)]
    pub fitment: FitmentConfig,

    /// The flags of access.
    #[command(flatten)]
    pub access: AccessConfig,

    /// The flags of traces.
    #[command(flatten)]
    pub traces: TraceConfig,

    /// The flags of access lines.
    #[command(flatten)]
    pub access_log: AccessLogConfig,

    /// Command to run instead of serving.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What the program does instead of serving.
#[derive(Clone, Subcommand)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one, and its variants differ by features"
)]
pub enum Command {
    /// Import a file of vehicle fitment
    #[cfg(feature = "fitment")]
    Import(ImportCommand),
    /// Rebuild cold lists of browse history from the event archive
    #[cfg(feature = "history")]
    RebuildHistory(RebuildHistoryCommand),
    /// Check a setup: the Envoy configuration, these settings, Redis and SQL
    #[cfg(feature = "doctor")]
    Doctor(DoctorCommand),
    /// Manage short links through the admin port of a running origin
    #[cfg(feature = "links-cli")]
    Links(LinksCommand),
    /// Verify a draw from its published data
    #[cfg(feature = "sales")]
    CheckDraw(CheckDrawCommand),
    /// Show orders that SQL has lost, and accept or restore them, through the admin port of a running origin
    #[cfg(feature = "sales")]
    LostOrders(LostOrdersCommand),
    /// Show and change the sites that sell from several Redis
    #[cfg(feature = "sales")]
    Site(SiteCommand),
    /// Run a Redis-compatible proxy for stock and click limits in edge objects
    #[cfg(feature = "shard-proxy")]
    ShardProxy(ShardProxyCommand),
    /// Apply the migrations of all domains to the SQL database, and exit
    Migrate,
    /// Create the secrets of gateways and origin in Kubernetes, or add missing ones; existing ones stay
    #[cfg(feature = "init")]
    KubernetesSecret(KubernetesSecretCommand),
    /// Write a starter setup: Envoy configuration, settings and new secrets
    #[cfg(feature = "init")]
    Init(InitCommand),
    /// Print the OpenAPI document of both ports
    Openapi,
}

/// Rebuild cold lists of browse history from the event archive. Deleted entries stay deleted, and newer entries
/// stay unchanged. Origins may run meanwhile; you may stop and repeat the command
#[cfg(feature = "history")]
#[derive(Clone, Debug, clap::Args)]
pub struct RebuildHistoryCommand {
    /// Number of days to read, including today
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=62))]
    pub days: u64,
}

/// Omits the URLs, which may contain passwords.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("listen", &self.listen)
            .field("admin_listen", &self.admin_listen)
            .field("key_prefix", &self.key_prefix)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// Origins whose pages may read the public answers.
    pub(crate) fn cors(&self) -> Cors {
        Cors::new(self.cors_origins.clone(), self.cors_credentials)
    }

    /// Keys that sign feeds and authenticate edges; `None` if their secret is not set.
    pub(crate) fn edge_keys(
        &self,
        variables: Variables<'_>,
    ) -> Result<Option<KeyRing>, SecretError> {
        if !secret::is_set(variables, EDGE_SECRET) {
            return Ok(None);
        }
        let (id, previous) = (&self.edge_key_id, &self.edge_previous_key_id);
        EDGES.read(variables, id, previous).map(Some)
    }
}

#[cfg(any(feature = "fitment", feature = "history"))]
impl Config {
    /// Keys that sign product changes; `None` if their secret is not set.
    fn product_keys(&self, variables: Variables<'_>) -> Result<Option<KeyRing>, SecretError> {
        if !secret::is_set(variables, PRODUCTS_SECRET) {
            return Ok(None);
        }
        let (id, previous) = (&self.products_key_id, &self.products_previous_key_id);
        PRODUCTS.read(variables, id, previous).map(Some)
    }
}

/// Which domains the flags enable.
#[cfg(any(feature = "doctor", feature = "sales"))]
impl Config {
    pub(crate) fn has_links(&self) -> bool {
        cfg_select! {
            feature = "links" => self.links.links.is_some(),
            _ => false,
        }
    }

    pub(crate) fn has_events(&self) -> bool {
        cfg_select! {
            feature = "events" => self.events.events_log.is_some() || self.events.events.is_some(),
            _ => false,
        }
    }

    pub(crate) fn has_history(&self) -> bool {
        cfg_select! {
            feature = "history" => self.history.history,
            _ => false,
        }
    }

    pub(crate) fn has_fitment(&self) -> bool {
        cfg_select! {
            feature = "fitment" => self.fitment.fitment.is_some(),
            _ => false,
        }
    }

    /// Whether the claim secret is required. Gateways authenticate users of histories and garages with it. Without
    /// links and events, sales are the only job left.
    #[cfg(feature = "sales")]
    fn needs_sales(&self) -> bool {
        let has_users = self.has_history() || self.has_fitment();
        has_users || !(self.has_links() || self.has_events())
    }
}

fn parse_prefix(prefix: &str) -> Result<String, &'static str> {
    match keys::is_prefix(prefix) {
        true => Ok(prefix.to_owned()),
        false => Err("must be 1 to 64 of a-z, A-Z, 0-9, -, _, . and :"),
    }
}

/// Secrets of the process.
#[derive(Clone, Debug)]
pub struct Secrets {
    /// Verifies claims and users; sales need it.
    #[cfg(feature = "sales")]
    pub claim_keys: Option<KeyRing>,
    /// Signs feeds and authenticates edges.
    pub edge_keys: Option<KeyRing>,
    /// Authenticates the payment provider.
    #[cfg(feature = "sales")]
    pub payments: Option<Payments>,
    /// Verifies product changes.
    #[cfg(any(feature = "fitment", feature = "history"))]
    pub product_keys: Option<KeyRing>,
    /// Authorizes admin requests.
    pub admin_token: AdminToken,
    /// Scrambles link codes.
    #[cfg(feature = "links")]
    pub link_scramble: Option<Scramble>,
    /// Signs the ids of clicks that lead to orders.
    #[cfg(feature = "links")]
    pub click_keys: Option<KeyRing>,
    /// Signs event webhooks.
    #[cfg(feature = "events")]
    pub webhook: Option<SecretText>,
    /// Signs webhooks for link changes.
    #[cfg(feature = "links")]
    pub links_webhook: Option<SecretText>,
    /// Signs webhooks for order changes.
    #[cfg(feature = "sales")]
    pub orders_webhook: Option<SecretText>,
}

/// A secret that `Debug` does not print.
#[derive(Clone)]
pub struct SecretText(pub String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

impl Secrets {
    /// Reads the secrets from the environment.
    ///
    /// # Errors
    /// See [`SecretError`].
    pub fn read(variables: Variables<'_>, config: &Config) -> Result<Self, SecretError> {
        #[cfg(feature = "sales")]
        let claim_keys = match secret::is_set(variables, CLAIM_SECRET) || config.needs_sales() {
            true => Some(config.sales.claim_keys(variables)?),
            false => None,
        };
        let token = secret::read(variables, ADMIN_TOKEN)?;
        let admin_token = AdminToken::new(&token)
            .map_err(|too_short| SecretError::invalid_variable(ADMIN_TOKEN, too_short))?;
        Ok(Self {
            edge_keys: config.edge_keys(variables)?,
            admin_token,
            #[cfg(feature = "sales")]
            payments: config.sales.payments(variables)?,
            #[cfg(any(feature = "fitment", feature = "history"))]
            product_keys: config.product_keys(variables)?,
            #[cfg(feature = "sales")]
            claim_keys,
            #[cfg(feature = "sales")]
            orders_webhook: orders_webhook_secret(variables)?.map(SecretText),
            #[cfg(feature = "links")]
            link_scramble: scramble(variables)?,
            #[cfg(feature = "links")]
            click_keys: config.links.click_keys(variables)?,
            #[cfg(feature = "links")]
            links_webhook: links_webhook_secret(variables)?.map(SecretText),
            #[cfg(feature = "events")]
            webhook: webhook_secret(variables)?.map(SecretText),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::ffi::OsString;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    fn read(variables: &[(&str, &str)]) -> Result<Secrets, String> {
        let variables: HashMap<&str, &str> = variables.iter().copied().collect();
        let config = Config::try_parse_from(["weir-origin"]).unwrap();
        Secrets::read(&|name| variables.get(name).map(OsString::from), &config)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn secrets_are_read_from_variables_or_files() {
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
    fn config_error_names_the_variable() {
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
        let empty = [(CLAIM_SECRET, ""), ("WEIR_CLAIM_SECRET_FILE", "/no/such")];
        check(&empty, "WEIR_CLAIM_SECRET_FILE: cannot read \"/no/such\"");
        check(
            &[("WEIR_CLAIM_SECRET_FILE", "/no/such")],
            "WEIR_CLAIM_SECRET_FILE: cannot read \"/no/such\"",
        );
        let config = Config::try_parse_from(["weir-origin", "--claim-key-id", "K"]).unwrap();
        let set = |name: &str| (!name.ends_with("_FILE")).then(|| SECRET.into());
        let bad_id = Secrets::read(&set, &config).unwrap_err().to_string();
        assert!(bad_id.starts_with("WEIR_CLAIM_KEY_ID "), "{bad_id}");
        let config = ["weir-origin", "--claim-previous-key-id", "k1"];
        let config = Config::try_parse_from(config).unwrap();
        let same_id = Secrets::read(&set, &config).unwrap_err().to_string();
        assert!(
            same_id.starts_with("WEIR_CLAIM_PREVIOUS_KEY_ID "),
            "{same_id}"
        );
    }

    #[test]
    fn links_and_events_alone_need_no_claim_secret() {
        let set = |name: &str| (name == ADMIN_TOKEN).then(|| SECRET.into());
        let claim_keys = |flags: &[&str]| {
            let flags = ["weir-origin"].iter().chain(flags);
            let config = Config::try_parse_from(flags).unwrap();
            Secrets::read(&set, &config).map(|secrets| secrets.claim_keys.is_some())
        };
        assert!(matches!(claim_keys(&["--links", "l.json"]), Ok(false)));
        assert!(matches!(claim_keys(&["--events-log", "e"]), Ok(false)));
        assert!(claim_keys(&["--links", "l.json", "--history"]).is_err());
        assert!(claim_keys(&["--fitment", "f"]).is_err());
        assert!(claim_keys(&[]).is_err());
    }

    #[test]
    fn flags_have_valid_defaults_and_the_prefix_is_validated() {
        let config = Config::try_parse_from(["weir-origin"]).unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
        assert_eq!(config.key_prefix, "weir");
        assert!(Config::try_parse_from(["weir-origin", "--key-prefix", "a{b"]).is_err());
    }
}
