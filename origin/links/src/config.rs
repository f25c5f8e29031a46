//! Configuration of short links.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use weir_base::duration::Duration;
use weir_base::key::KeyRing;
use weir_link::code::Length;
use weir_link::domain::{Domains, DomainsConfig};
use weir_link::scramble::{Numbering, Scramble};
use weir_link::segment::{Plan, Times};

use super::geo::{Geo, GeoError};
use super::log::{LogLimits, Sync};
use super::numbers::Clock;
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::webhook::WebhookSender;
use weir_origin_core::outbox::{ChangeWebhook, OutboxTimes, Sinks};
use weir_origin_core::secret::{self, KeyNames, SecretError, Variables};

/// Environment variable with the secret that scrambles link codes.
pub const LINK_SECRET: &str = "WEIR_LINK_SECRET";

const CLICKS: KeyNames = KeyNames {
    secret: "WEIR_LINK_CLICK_SECRET",
    id: "WEIR_LINK_CLICK_KEY_ID",
    previous_secret: "WEIR_LINK_CLICK_SECRET_PREVIOUS",
    previous_id: "WEIR_LINK_CLICK_PREVIOUS_KEY_ID",
};

/// Environment variable with the secret that signs link changes.
pub const LINKS_WEBHOOK_SECRET: &str = "WEIR_LINKS_WEBHOOK_SECRET";

/// `--help` text for the secrets of links.
pub const SECRETS_HELP: &str = "  WEIR_LINK_SECRET    optional: scrambles short link codes, so that they cannot be guessed. Never change it while links exist
  WEIR_LINK_CLICK_SECRET
                      optional: signs ids of clicks on links with `conversion`, to attribute orders; shared with the gateways
  WEIR_LINK_CLICK_SECRET_PREVIOUS
                      optional: the previous secret, while orders may still come from clicks signed with it
  WEIR_LINKS_WEBHOOK_SECRET
                      required with --links-webhook-url: signs link changes
";

/// The flags of links.
#[derive(Clone, Args)]
pub struct LinkConfig {
    /// Locate clicks with this city or country database (MaxMind format)
    #[arg(long, env = "WEIR_GEO_CITY_DB")]
    pub geo_city_db: Option<PathBuf>,

    /// Find the networks of clicks with this ASN database (MaxMind format)
    #[arg(long, env = "WEIR_GEO_ASN_DB")]
    pub geo_asn_db: Option<PathBuf>,

    /// JSON file with the short link domains; unset: no links
    #[arg(long, env = "WEIR_LINKS")]
    pub links: Option<PathBuf>,

    /// Folder for new links until the database has them; each origin needs its own
    #[arg(long, env = "WEIR_LINKS_LOG", default_value = "weir-links-log")]
    pub links_log: PathBuf,

    /// Confirm a new link when the operating system has it (`os`), or when the disk has it (`disk`)
    #[arg(long, env = "WEIR_LINKS_LOG_SYNC", value_enum, default_value_t = Sync::Os)]
    pub links_log_sync: Sync,

    /// Request header in which a trusted gateway sends the client's two-letter country code
    #[arg(long, env = "WEIR_LINKS_COUNTRY_HEADER")]
    pub links_country_header: Option<String>,

    /// Count clicks of links with a click limit in edge objects; --redis-url names the `shard-proxy` in front of
    /// them
    #[arg(long, env = "WEIR_CLICK_LIMITS_IN_OBJECTS")]
    pub click_limits_in_objects: bool,

    /// POST each link change to this URL, signed with WEIR_LINKS_WEBHOOK_SECRET; must be the same on all origins
    #[arg(long, env = "WEIR_LINKS_WEBHOOK_URL", hide_env_values = true)]
    pub links_webhook_url: Option<String>,

    /// PEM file with the CA of that URL; unset: the system's CAs
    #[arg(long, env = "WEIR_LINKS_WEBHOOK_CA", requires = "links_webhook_url")]
    pub links_webhook_ca: Option<PathBuf>,

    /// Also append each link change to the event log; must be the same on all origins
    #[arg(long, env = "WEIR_LINKS_EVENTS")]
    pub links_events: bool,

    /// Keep link changes in SQL for this long after every receiver has them, such as 7d
    #[arg(long, env = "WEIR_LINKS_CHANGES_RETENTION", default_value = "7d", value_parser = parse_duration)]
    pub links_changes_retention: Duration,

    /// Id of WEIR_LINK_CLICK_SECRET; must match the gateways
    #[arg(long, env = "WEIR_LINK_CLICK_KEY_ID", default_value = "k1")]
    pub link_click_key_id: String,

    /// Id of the previous click secret
    #[arg(long, env = "WEIR_LINK_CLICK_PREVIOUS_KEY_ID", default_value = "k0")]
    pub link_click_previous_key_id: String,

    /// Attribute orders to a click for this long, such as 30d
    #[arg(long, env = "WEIR_LINK_CLICK_WINDOW", default_value = "30d", value_parser = parse_duration)]
    pub link_click_window: Duration,

    /// Cooldown before the code of an ended link is reused, in seconds; must be longer than gateways cache links
    #[arg(long, env = "WEIR_LINKS_QUARANTINE_S", default_value_t = 3600)]
    pub links_quarantine_s: u64,
}

impl LinkConfig {
    /// Opens the databases that locate clicks.
    ///
    /// # Errors
    /// Names the flag and the unusable file.
    pub fn geo(&self) -> Result<Geo, GeoError> {
        Geo::open(self.geo_city_db.as_deref(), self.geo_asn_db.as_deref())
    }

    /// Converts the flags into settings; `None` if links are off.
    ///
    /// # Errors
    /// Names the file and the invalid field.
    pub fn settings(&self, scramble: Option<Scramble>) -> Result<Option<Settings>> {
        let Some(path) = &self.links else {
            return Ok(None);
        };
        let mut settings = Settings::new(read_domains(path)?, self.links_log.clone());
        settings.sync = self.links_log_sync;
        settings.country_header = self.links_country_header.clone();
        settings.sinks = self.sinks();
        settings.times.quarantine_ms = self.links_quarantine_s.saturating_mul(1_000);
        settings.numbering = scramble.map_or_else(Numbering::plain, Numbering::scrambled);
        Ok(Some(settings))
    }
}

impl LinkConfig {
    /// Reads the keys that sign click ids, if their secret is set.
    ///
    /// # Errors
    /// See [`SecretError`].
    pub fn click_keys(&self, variables: Variables<'_>) -> Result<Option<KeyRing>, SecretError> {
        if !secret::is_set(variables, CLICKS.secret) {
            return Ok(None);
        }
        let (id, previous) = (&self.link_click_key_id, &self.link_click_previous_key_id);
        CLICKS.read(variables, id, previous).map(Some)
    }

    fn sinks(&self) -> Sinks {
        Sinks {
            webhook: self.links_webhook_url.is_some(),
            events: self.links_events,
        }
    }

    /// Timeouts and retry intervals of the outbox.
    pub fn outbox_times(&self) -> OutboxTimes {
        OutboxTimes {
            retention: std::time::Duration::from_millis(self.links_changes_retention.ms),
            ..OutboxTimes::default()
        }
    }

    /// Creates the webhook for link changes, if configured. `secret` signs its requests.
    ///
    /// # Errors
    /// Names the invalid flag.
    pub fn webhook(&self, secret: Option<&str>) -> Result<Option<ChangeWebhook>> {
        let Some(url) = &self.links_webhook_url else {
            return Ok(None);
        };
        if self.links.is_none() {
            bail!("--links-webhook-url needs --links");
        }
        let secret = secret.with_context(|| {
            format!("--links-webhook-url: {LINKS_WEBHOOK_SECRET} is not set: set it, or {LINKS_WEBHOOK_SECRET}_FILE")
        })?;
        let ca = self.links_webhook_ca.as_deref();
        let sender = WebhookSender::new(url, ca, secret.as_bytes(), Arc::new(now_ms));
        let sender = sender.context("--links-webhook-url")?;
        Ok(Some(ChangeWebhook::new(sender)))
    }
}

/// Reads the secret that signs link changes, if it is set.
///
/// # Errors
/// See [`SecretError`].
pub fn links_webhook_secret(variables: Variables<'_>) -> Result<Option<String>, SecretError> {
    match secret::is_set(variables, LINKS_WEBHOOK_SECRET) {
        true => secret::read(variables, LINKS_WEBHOOK_SECRET).map(Some),
        false => Ok(None),
    }
}

/// Reads the secret that scrambles link codes, if it is set.
///
/// # Errors
/// See [`SecretError`].
pub fn scramble(variables: Variables<'_>) -> Result<Option<Scramble>, SecretError> {
    if !secret::is_set(variables, LINK_SECRET) {
        return Ok(None);
    }
    let secret = secret::read(variables, LINK_SECRET)?;
    let scramble = Scramble::new(secret.as_bytes());
    let scramble = scramble.map_err(|error| SecretError::invalid_variable(LINK_SECRET, error))?;
    Ok(Some(scramble))
}

fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    Duration::read(text).ok_or("must be a duration such as 12h or 7d")
}

fn read_domains(path: &Path) -> Result<Domains> {
    let json =
        std::fs::read(path).with_context(|| format!("cannot read \"{}\"", path.display()))?;
    let mut json = serde_json::Deserializer::from_slice(&json);
    let domains: DomainsConfig = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| anyhow!("{}: {error}", path.display()))?;
    domains
        .checked()
        .with_context(|| path.display().to_string())
}

/// Settings of short links.
#[derive(Clone)]
pub struct Settings {
    /// The domains of links.
    pub domains: Domains,
    /// How numbers become codes.
    pub numbering: Numbering,
    /// The folder of the log.
    pub log: PathBuf,
    /// When a log entry counts as durable.
    pub sync: Sync,
    /// Size limits of the log.
    pub log_limits: LogLimits,
    /// How the numbers of each code length are divided into segments.
    pub plans: [Plan; Length::ALL.len()],
    /// Cooldowns of numbers and codes.
    pub times: Times,
    /// The request header with the client's country code; `None`: countries are unknown.
    pub country_header: Option<String>,
    /// Keys that sign click ids of tracked links; `None`: clicks have no ids.
    pub click_keys: Option<KeyRing>,
    /// The receivers of link changes.
    pub sinks: Sinks,
    /// Reads the clock.
    pub clock: Clock,
}

impl Settings {
    /// Default settings.
    pub fn new(domains: Domains, log: PathBuf) -> Self {
        Self {
            domains,
            numbering: Numbering::plain(),
            log,
            sync: Sync::default(),
            log_limits: LogLimits::default(),
            plans: Length::ALL.map(Plan::standard),
            times: Times::default(),
            country_header: None,
            click_keys: None,
            sinks: Sinks::default(),
            clock: Arc::new(now_ms),
        }
    }
}
