//! What can be configured of sales.

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
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::webhook::WebhookSender;
use weir_origin_core::outbox::{ChangeWebhook, OutboxTimes, Sinks};
use weir_origin_core::secret::{self, KeyNames, SecretError, Variables};
use weir_origin_core::sql::Database;

/// Names the variable that holds the secret that gateways and origin share.
pub const CLAIM_SECRET: &str = "WEIR_CLAIM_SECRET";

/// Names the variable that holds the secret before it: claims signed with it count, too.
pub const CLAIM_SECRET_PREVIOUS: &str = "WEIR_CLAIM_SECRET_PREVIOUS";

/// Names the variable that holds the secret with which the payment provider signs its callbacks.
pub const PAYMENT_SECRET: &str = "WEIR_PAYMENT_SECRET";

/// Names the variable that holds the secret before it: callbacks signed with it count, too.
pub const PAYMENT_SECRET_PREVIOUS: &str = "WEIR_PAYMENT_SECRET_PREVIOUS";

/// Names the variable that holds the secret that changes of orders are signed with.
pub const ORDERS_WEBHOOK_SECRET: &str = "WEIR_ORDERS_WEBHOOK_SECRET";

/// What `--help` says of the secrets of sales.
pub const SECRETS_HELP: &str = "  WEIR_CLAIM_SECRET   what gateways sign claims with, at least 32 bytes. Without it there are no sales, if links or events
                      are on
  WEIR_CLAIM_SECRET_PREVIOUS
                      optional: the secret before it, while gateways change over
  WEIR_PAYMENT_SECRET optional: what the payment provider signs its callbacks with, at least 32 bytes; without it
                      nobody can pay
  WEIR_PAYMENT_SECRET_PREVIOUS
                      optional: the secret before it, while the provider changes over
  WEIR_ORDERS_WEBHOOK_SECRET
                      with --orders-webhook-url: what changes of orders are signed with, at least 32 bytes
";

/// What counts as long as the risk check has said nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RiskFail {
    /// The reservation.
    Open,
    /// Nothing.
    Closed,
}

/// The flags of sales.
#[derive(Clone, Args)]
pub struct SaleConfig {
    /// The id of the claim secret; the same as the gateways'
    #[arg(long, env = "WEIR_CLAIM_KEY_ID", default_value = "k1")]
    pub claim_key_id: String,

    /// The id of the claim secret before it, if there is one
    #[arg(long, env = "WEIR_CLAIM_PREVIOUS_KEY_ID", default_value = "k0")]
    pub claim_previous_key_id: String,

    /// The id of the payment secret; the same as the provider's
    #[arg(long, env = "WEIR_PAYMENT_KEY_ID", default_value = "p1")]
    pub payment_key_id: String,

    /// The id of the payment secret before it, if there is one
    #[arg(long, env = "WEIR_PAYMENT_PREVIOUS_KEY_ID", default_value = "p0")]
    pub payment_previous_key_id: String,

    /// Where buyers pay, with {payment} in the place of the payment's name; without it the site's page must know
    #[arg(long, env = "WEIR_PAYMENT_URL", value_parser = parse_payment_url)]
    pub payment_url: Option<String>,

    /// How many calls on SQL orders, payments and reservations may have under way
    #[arg(long, env = "WEIR_SQL_WORKING_MAX", default_value_t = 32)]
    pub sql_working_max: usize,

    /// How many more may wait; beyond it they are refused at once
    #[arg(long, env = "WEIR_SQL_WAITING_MAX", default_value_t = 1024)]
    pub sql_waiting_max: usize,

    /// For how long who lets a hold expire unpaid, or cancels holds that lasted as long, may not buy in that sale, in milliseconds; 0: may at once
    #[arg(long, env = "WEIR_HOLD_COOLDOWN_MS", default_value_t = HoldRules::default().cooldown_ms)]
    pub hold_cooldown_ms: u64,

    /// After how many such holds a user may not buy in that sale again; 0: however many
    #[arg(long, env = "WEIR_EXPIRED_HOLDS_MAX", default_value_t = HoldRules::default().expired_max)]
    pub expired_holds_max: u32,

    /// How long after its end a sale is archived and leaves Redis, in milliseconds; 0: never
    #[arg(long, env = "WEIR_ARCHIVE_AFTER_MS", default_value_t = 24 * 60 * 60 * 1_000)]
    pub archive_after_ms: u64,

    /// The stock of all sales stands in objects of an edge, and --redis-url names the `shard-proxy` that reaches them
    #[arg(long, env = "WEIR_STOCK_IN_OBJECTS")]
    pub stock_in_objects: bool,
    /// Where each change of an order is sent by POST, signed with WEIR_ORDERS_WEBHOOK_SECRET; the same for all origins
    #[arg(long, env = "WEIR_ORDERS_WEBHOOK_URL", hide_env_values = true)]
    pub orders_webhook_url: Option<String>,

    /// Who signed the certificate of that URL, a PEM file; without it the system's authorities count
    #[arg(long, env = "WEIR_ORDERS_WEBHOOK_CA", requires = "orders_webhook_url")]
    pub orders_webhook_ca: Option<PathBuf>,

    /// Appends each change of an order to the log of events, too; the same for all origins
    #[arg(long, env = "WEIR_ORDERS_EVENTS")]
    pub orders_events: bool,

    /// For how long changes of orders stay in SQL that every receiver has, such as 7d
    #[arg(long, env = "WEIR_ORDERS_CHANGES_RETENTION", default_value = "7d", value_parser = parse_duration)]
    pub orders_changes_retention: Duration,

    /// Rules of the embedded risk check, a JSON file
    #[arg(long, env = "WEIR_RISK_RULES", conflicts_with = "risk_url")]
    pub risk_rules: Option<PathBuf>,

    /// The risk service instead: POST {sale, user, address, agent} there answers {score}; https:// or http://
    #[arg(long, env = "WEIR_RISK_URL")]
    pub risk_url: Option<String>,

    /// The authority that signed the risk service's certificate, in PEM, if it is not one of the system's
    #[arg(long, env = "WEIR_RISK_CA", requires = "risk_url")]
    pub risk_ca: Option<PathBuf>,

    /// What counts as long as the risk check has not judged a reservation: `open`: it counts; `closed`: it does not
    #[arg(long, env = "WEIR_RISK_FAIL", default_value = "open")]
    pub risk_fail: RiskFail,

    /// Users of this score and above are blocked
    #[arg(long, env = "WEIR_RISK_THRESHOLD", default_value_t = 80)]
    pub risk_threshold: u32,
}

impl SaleConfig {
    /// How much work at once SQL is given by the public.
    pub fn sql_limits(&self) -> SqlLimits {
        SqlLimits {
            working_max: self.sql_working_max,
            waiting_max: self.sql_waiting_max,
        }
    }

    /// What follows for users who keep units and do not pay.
    pub fn hold_rules(&self) -> HoldRules {
        HoldRules {
            cooldown_ms: self.hold_cooldown_ms,
            expired_max: self.expired_holds_max,
        }
    }

    /// When what ended sales leave goes.
    pub fn archive_rules(&self) -> ArchiveRules {
        ArchiveRules {
            after_ms: (self.archive_after_ms > 0).then_some(self.archive_after_ms),
            ..ArchiveRules::default()
        }
    }

    /// What checks claims and users: the secret of now, and the one before it, if there is one.
    ///
    /// # Errors
    /// See [`SecretError`].
    pub fn claim_keys(&self, variables: Variables<'_>) -> Result<KeyRing, SecretError> {
        CLAIMS.read(variables, &self.claim_key_id, &self.claim_previous_key_id)
    }

    /// The payment provider, if there is one: if its secret is set.
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

    /// Sales in this database, as the flags have them.
    ///
    /// # Errors
    /// Names the flag that will not do.
    pub fn store(&self, database: Database) -> Result<SaleStore> {
        let store = SaleStore::new(database).with_sinks(self.sinks());
        let has_check = self.risk_url.is_some() || self.risk_rules.is_some();
        match self.risk_fail {
            RiskFail::Open => Ok(store),
            RiskFail::Closed if has_check => Ok(store.with_risk_failing_closed()),
            RiskFail::Closed => bail!("--risk-fail closed: needs --risk-rules or --risk-url"),
        }
    }

    /// Who is to be told of changes of orders.
    pub fn sinks(&self) -> Sinks {
        Sinks {
            webhook: self.orders_webhook_url.is_some(),
            events: self.orders_events,
        }
    }

    /// How patient the outbox is.
    pub fn outbox_times(&self) -> OutboxTimes {
        OutboxTimes {
            retention: std::time::Duration::from_millis(self.orders_changes_retention.ms),
            ..OutboxTimes::default()
        }
    }

    /// The URL that is told of changes of orders, if there is one; requests are signed with `secret`.
    ///
    /// # Errors
    /// Names the flag that will not do.
    pub fn orders_webhook(&self, secret: Option<&str>) -> Result<Option<ChangeWebhook>> {
        let Some(url) = &self.orders_webhook_url else {
            return Ok(None);
        };
        let secret = secret.with_context(|| {
            format!("--orders-webhook-url: {ORDERS_WEBHOOK_SECRET} is not set, and {ORDERS_WEBHOOK_SECRET}_FILE is not either")
        })?;
        let ca = self.orders_webhook_ca.as_deref();
        let sender = WebhookSender::new(url, ca, secret.as_bytes(), Arc::new(now_ms));
        let sender = sender.context("--orders-webhook-url")?;
        Ok(Some(ChangeWebhook::new(sender)))
    }

    /// The risk check that the flags name; without one, nobody is scored.
    ///
    /// # Errors
    /// Names the flag that will not do.
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

/// What changes of orders are signed with, if it is set.
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
        false => Err(format!("must be a URL with {PLACE} in it")),
    }
}

fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    Duration::read(text).ok_or("must be a duration such as 12h or 7d")
}
