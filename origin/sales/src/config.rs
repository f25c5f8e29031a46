//! Settings of sales.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use weir_base::duration::Duration;
use weir_base::key::KeyRing;

use super::orders::SqlLimits;
use super::risk::{HttpScorer, HttpSettings, RiskScorer, Rules};
use super::store::{HoldRules, SaleStore};
use crate::jobs::archive::ArchiveRules;
use crate::model::payment::{PLACE, Payments};
use crate::model::site::SiteName;
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::webhook::WebhookSender;
use weir_origin_core::outbox::{ChangeWebhook, OutboxTimes, Sinks};
use weir_origin_core::secret::{self, KeyNames, SecretError, Variables};
use weir_origin_core::sql::Database;

/// Variable with the secret shared by gateways and origin.
pub const CLAIM_SECRET: &str = "WEIR_CLAIM_SECRET";

/// Variable with the previous claim secret; claims signed with it are also valid.
pub const CLAIM_SECRET_PREVIOUS: &str = "WEIR_CLAIM_SECRET_PREVIOUS";

/// Variable with the secret that signs the payment provider's callbacks.
pub const PAYMENT_SECRET: &str = "WEIR_PAYMENT_SECRET";

/// Variable with the previous payment secret; callbacks signed with it are also valid.
pub const PAYMENT_SECRET_PREVIOUS: &str = "WEIR_PAYMENT_SECRET_PREVIOUS";

/// Variable with the secret that signs order change webhooks.
pub const ORDERS_WEBHOOK_SECRET: &str = "WEIR_ORDERS_WEBHOOK_SECRET";

/// The part of `--help` about the secrets of sales.
pub const SECRETS_HELP: &str = "  WEIR_CLAIM_SECRET   signs claims; shared with the gateways. Optional only with links or events alone: then there are no sales
  WEIR_CLAIM_SECRET_PREVIOUS
                      optional: the previous secret, during a rotation
  WEIR_PAYMENT_SECRET optional: signs callbacks of the payment provider; unset: payments are disabled
  WEIR_PAYMENT_SECRET_PREVIOUS
                      optional: the previous secret, during a rotation
  WEIR_ORDERS_WEBHOOK_SECRET
                      required with --orders-webhook-url: signs order changes
";

/// The decision on reservations while the risk check does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RiskFail {
    /// Reservations count.
    Open,
    /// Reservations do not count.
    Closed,
}

/// The flags of sales.
#[derive(Clone, Args)]
pub struct SaleConfig {
    /// Id of the claim secret; must match the gateways
    #[arg(long, env = "WEIR_CLAIM_KEY_ID", default_value = "k1")]
    pub claim_key_id: String,

    /// Id of the previous claim secret
    #[arg(long, env = "WEIR_CLAIM_PREVIOUS_KEY_ID", default_value = "k0")]
    pub claim_previous_key_id: String,

    /// Id of the payment secret; must match the provider
    #[arg(long, env = "WEIR_PAYMENT_KEY_ID", default_value = "p1")]
    pub payment_key_id: String,

    /// Id of the previous payment secret
    #[arg(long, env = "WEIR_PAYMENT_PREVIOUS_KEY_ID", default_value = "p0")]
    pub payment_previous_key_id: String,

    /// Payment page for buyers, with {payment} for the payment's id. Unset: your site provides the page
    #[arg(long, env = "WEIR_PAYMENT_URL", value_parser = parse_payment_url)]
    pub payment_url: Option<String>,

    /// Maximum concurrent SQL calls for orders, payments and reservations
    #[arg(long, env = "WEIR_SQL_WORKING_MAX", default_value_t = 32)]
    pub sql_working_max: usize,

    /// Maximum queued SQL calls; further ones are refused immediately
    #[arg(long, env = "WEIR_SQL_WAITING_MAX", default_value_t = 1024)]
    pub sql_waiting_max: usize,

    /// Block a user from buying in a sale for this long after an unpaid hold expires, in milliseconds; cancelled
    /// holds count by the time they lasted; 0: no cooldown
    #[arg(long, env = "WEIR_HOLD_COOLDOWN_MS", default_value_t = HoldRules::default().cooldown_ms)]
    pub hold_cooldown_ms: u64,

    /// Block a user from buying in a sale permanently after this many expired holds; 0: no limit
    #[arg(long, env = "WEIR_EXPIRED_HOLDS_MAX", default_value_t = HoldRules::default().expired_max)]
    pub expired_holds_max: u32,

    /// Archive an ended sale and remove it from Redis after this long, in milliseconds; 0: never
    #[arg(long, env = "WEIR_ARCHIVE_AFTER_MS", default_value_t = 24 * 60 * 60 * 1_000)]
    pub archive_after_ms: u64,

    /// Name of this origin's site, if sales are sold from several sites with a Redis each; lowercase letters, digits and -
    #[arg(long, env = "WEIR_SITE", conflicts_with = "stock_in_objects")]
    pub site: Option<SiteName>,

    /// Keep the stock of all sales in edge objects; --redis-url names the `shard-proxy` in front of them
    #[arg(long, env = "WEIR_STOCK_IN_OBJECTS")]
    pub stock_in_objects: bool,
    /// POST each order change to this URL, signed with WEIR_ORDERS_WEBHOOK_SECRET; must be the same on all origins
    #[arg(long, env = "WEIR_ORDERS_WEBHOOK_URL", hide_env_values = true)]
    pub orders_webhook_url: Option<String>,

    /// PEM file with the CA of that URL; unset: the system's CAs
    #[arg(long, env = "WEIR_ORDERS_WEBHOOK_CA", requires = "orders_webhook_url")]
    pub orders_webhook_ca: Option<PathBuf>,

    /// Also append each order change to the event log; must be the same on all origins
    #[arg(long, env = "WEIR_ORDERS_EVENTS")]
    pub orders_events: bool,

    /// Keep order changes in SQL for this long after every receiver has them, such as 7d
    #[arg(long, env = "WEIR_ORDERS_CHANGES_RETENTION", default_value = "7d", value_parser = parse_duration)]
    pub orders_changes_retention: Duration,

    /// JSON file with the rules of the built-in risk check
    #[arg(long, env = "WEIR_RISK_RULES", conflicts_with = "risk_url")]
    pub risk_rules: Option<PathBuf>,

    /// Use this risk service instead: POST {sale, user, address, agent}, answer {score}; https:// or http://
    #[arg(long, env = "WEIR_RISK_URL")]
    pub risk_url: Option<String>,

    /// PEM file with the CA of the risk service; unset: the system's CAs
    #[arg(long, env = "WEIR_RISK_CA", requires = "risk_url")]
    pub risk_ca: Option<PathBuf>,

    /// Treatment of a reservation that the risk check has not scored yet: `open` accepts it, `closed` does not
    #[arg(long, env = "WEIR_RISK_FAIL", default_value = "open")]
    pub risk_fail: RiskFail,

    /// Block users with this score or higher
    #[arg(long, env = "WEIR_RISK_THRESHOLD", default_value_t = 80)]
    pub risk_threshold: u32,
}

impl SaleConfig {
    /// The concurrency limits of the public's work on SQL.
    pub fn sql_limits(&self) -> SqlLimits {
        SqlLimits {
            working_max: self.sql_working_max,
            waiting_max: self.sql_waiting_max,
        }
    }

    /// The consequences of unpaid holds.
    pub fn hold_rules(&self) -> HoldRules {
        HoldRules {
            cooldown_ms: self.hold_cooldown_ms,
            expired_max: self.expired_holds_max,
        }
    }

    /// When data of ended sales is archived and deleted.
    pub fn archive_rules(&self) -> ArchiveRules {
        ArchiveRules {
            after_ms: (self.archive_after_ms > 0).then_some(self.archive_after_ms),
            ..ArchiveRules::default()
        }
    }

    /// Reads the keys of claims and users: the current secret, and the previous one if it is set.
    ///
    /// # Errors
    /// See [`SecretError`].
    pub fn claim_keys(&self, variables: Variables<'_>) -> Result<KeyRing, SecretError> {
        CLAIMS.read(variables, &self.claim_key_id, &self.claim_previous_key_id)
    }

    /// Reads the payment provider's settings; `None` if its secret is not set.
    ///
    /// # Errors
    /// See [`SecretError`].
    pub fn payments(&self, variables: Variables<'_>) -> Result<Option<Payments>, SecretError> {
        if !secret::is_set(variables, PAYMENT_SECRET) {
            return Ok(None);
        }
        let (id, previous) = (&self.payment_key_id, &self.payment_previous_key_id);
        let keys = PAYMENTS.read(variables, id, previous)?;
        Ok(Some(Payments::new(keys, self.payment_url.clone())))
    }

    /// Creates the store on this database, as configured by the flags.
    ///
    /// # Errors
    /// Names the invalid flag.
    pub fn store(&self, database: Database) -> Result<SaleStore> {
        let store = SaleStore::new(database)
            .with_sinks(self.sinks())
            .at_site(self.site.clone());
        let has_check = self.risk_url.is_some() || self.risk_rules.is_some();
        match self.risk_fail {
            RiskFail::Open => Ok(store),
            RiskFail::Closed if has_check => Ok(store.with_risk_failing_closed()),
            RiskFail::Closed => bail!("--risk-fail closed: needs --risk-rules or --risk-url"),
        }
    }

    /// The enabled receivers of order changes.
    pub fn sinks(&self) -> Sinks {
        Sinks {
            webhook: self.orders_webhook_url.is_some(),
            events: self.orders_events,
        }
    }

    /// Intervals and timeouts of the outbox.
    pub fn outbox_times(&self) -> OutboxTimes {
        OutboxTimes {
            retention: std::time::Duration::from_millis(self.orders_changes_retention.ms),
            ..OutboxTimes::default()
        }
    }

    /// The webhook for order changes, if its URL is set; requests are signed with `secret`.
    ///
    /// # Errors
    /// Names the invalid flag.
    pub fn orders_webhook(&self, secret: Option<&str>) -> Result<Option<ChangeWebhook>> {
        let Some(url) = &self.orders_webhook_url else {
            return Ok(None);
        };
        let secret = secret.with_context(|| {
            format!("--orders-webhook-url: {ORDERS_WEBHOOK_SECRET} is not set: set it, or {ORDERS_WEBHOOK_SECRET}_FILE")
        })?;
        let ca = self.orders_webhook_ca.as_deref();
        let sender = WebhookSender::new(url, ca, secret.as_bytes(), Arc::new(now_ms));
        let sender = sender.context("--orders-webhook-url")?;
        Ok(Some(ChangeWebhook::new(sender)))
    }

    /// The configured risk check; `None`: users are not scored.
    ///
    /// # Errors
    /// Names the invalid flag.
    pub fn scorer(&self) -> Result<Option<Arc<dyn RiskScorer>>> {
        if let Some(url) = &self.risk_url {
            let ca = self.risk_ca.as_deref();
            let scorer = HttpScorer::new(url, ca, HttpSettings::default());
            return Ok(Some(Arc::new(scorer.context("--risk-url, --risk-ca")?)));
        }
        let Some(path) = &self.risk_rules else {
            return Ok(None);
        };
        let flag = || format!("--risk-rules: {}", path.display());
        let rules = Rules::read(path).with_context(flag)?;
        Ok(Some(Arc::new(rules)))
    }
}

/// Reads the secret of the webhook for order changes; `None` if it is not set.
///
/// # Errors
/// See [`SecretError`].
pub fn orders_webhook_secret(variables: Variables<'_>) -> Result<Option<String>, SecretError> {
    match secret::is_set(variables, ORDERS_WEBHOOK_SECRET) {
        true => secret::read(variables, ORDERS_WEBHOOK_SECRET).map(Some),
        false => Ok(None),
    }
}

const CLAIMS: KeyNames = KeyNames {
    secret: CLAIM_SECRET,
    id: "WEIR_CLAIM_KEY_ID",
    previous_secret: CLAIM_SECRET_PREVIOUS,
    previous_id: "WEIR_CLAIM_PREVIOUS_KEY_ID",
};

const PAYMENTS: KeyNames = KeyNames {
    secret: PAYMENT_SECRET,
    id: "WEIR_PAYMENT_KEY_ID",
    previous_secret: PAYMENT_SECRET_PREVIOUS,
    previous_id: "WEIR_PAYMENT_PREVIOUS_KEY_ID",
};

fn parse_payment_url(url: &str) -> Result<String, String> {
    let is_web = url.starts_with("https://") || url.starts_with("http://");
    match is_web && url.contains(PLACE) {
        true => Ok(url.to_owned()),
        false => Err(format!("must be a URL that contains {PLACE}")),
    }
}

fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    Duration::read(text).ok_or("must be a duration such as 12h or 7d")
}
