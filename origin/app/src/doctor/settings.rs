//! Reads facts about the origin's settings, and the problems of the settings on their own.

use redis::IntoConnectionInfo;
#[cfg(not(feature = "sales"))]
use weir_base::key::KeyRing;
use weir_doctor::Diagnostic;
use weir_doctor::facts::{NamedKey, OriginFacts};

use crate::config::{ADMIN_TOKEN, Config};
use crate::http::{AdminToken, PUBLIC_LIMIT};
use crate::redis::nodes_of;
#[cfg(feature = "sales")]
use crate::sales::config::{CLAIM_SECRET, PAYMENT_SECRET};
use crate::secret::{self, SecretError, Variables};

/// Returns facts about the origin, and the settings that it would refuse at startup.
pub(crate) fn read(config: &Config, variables: Variables<'_>) -> (OriginFacts, Vec<Diagnostic>) {
    let mut findings = Vec::new();
    let mut refused = |error: SecretError| findings.push(unfit_setting(&error.to_string()));
    #[cfg(not(feature = "sales"))]
    let (claim_keys, has_payments) = (None::<KeyRing>, false);
    #[cfg(feature = "sales")]
    let has_payments = secret::is_set(variables, PAYMENT_SECRET);
    #[cfg(feature = "sales")]
    let claim_keys = match secret::is_set(variables, CLAIM_SECRET) {
        true => config
            .sales
            .claim_keys(variables)
            .map_err(&mut refused)
            .ok(),
        false => None,
    };
    // Without any secret this machine runs a gateway, not an origin.
    if claim_keys.is_some() || secret::is_set(variables, ADMIN_TOKEN) {
        let token = secret::read(variables, ADMIN_TOKEN).and_then(|token| {
            let token = AdminToken::new(&token);
            token.map_err(|error| SecretError::invalid_variable(ADMIN_TOKEN, error))
        });
        if let Err(error) = token {
            refused(error);
        }
    }
    let keys = claim_keys.as_ref().map(|ring| {
        let keys = ring.fingerprints().into_iter();
        keys.map(|(id, fingerprint)| NamedKey {
            id: id.to_owned(),
            fingerprint,
        })
        .collect()
    });
    let infos = nodes_of(&config.redis_url).filter_map(|url| url.into_connection_info().ok());
    let facts = OriginFacts {
        port: config.listen.port(),
        admin_port: config.admin_listen.port(),
        public_limit_ms: PUBLIC_LIMIT.as_millis() as u64,
        key_prefix: config.key_prefix.clone(),
        redis_addresses: infos.clone().map(|info| info.addr().to_string()).collect(),
        has_redis_password: infos
            .into_iter()
            .any(|info| info.redis_settings().password().is_some()),
        claim_keys: keys,
        has_links: config.has_links(),
        has_events: config.has_events(),
        has_history: config.has_history(),
        has_fitment: config.has_fitment(),
        has_payments,
    };
    (facts, findings)
}

fn unfit_setting(problem: &str) -> Diagnostic {
    Diagnostic::error(
        "origin-secrets",
        "the origin's settings",
        problem,
        "set it to at least 32 random bytes: openssl rand -hex 32",
    )
}
