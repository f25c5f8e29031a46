//! The configurations of filters.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is what the fuzzer looks for"
)]

use serde_json::Value as Json;
use weir_base::FieldError;
use weir_engine::config::parse;
use weir_registry::{FILTERS, engines};
use weir_sale::engine::config::{CheckedLimits, OverloadConfig};
use weir_sale::redis::keys::catalogue;
use weir_scripts::keys;

/// The bridge's configuration. Checks that exactly objects of positive limits are accepted, with the written values.
pub fn bridge_config(data: &[u8]) {
    use weir_redis_bridge::config::Config;

    let names = ["request_bytes_max", "replies_bytes_max", "commands_max"];
    let accepted = match parse::<Config>(data).and_then(Config::checked) {
        Ok(accepted) => accepted,
        Err(refusal) => {
            check_refusal(&refusal);
            return;
        }
    };
    check_nothing_follows::<Config>(data);
    let values = [
        accepted.request_bytes_max,
        accepted.replies_bytes_max,
        accepted.commands_max,
    ];
    assert!(values.iter().all(|&value| value > 0));
    let written = serde_json::from_slice::<Json>(data).expect("it was read before");
    let Json::Object(written) = written else {
        // Serde also accepts a sequence of fields for a struct.
        assert!(written.is_array());
        return;
    };
    assert!(written.keys().all(|name| names.contains(&name.as_str())));
    for (name, value) in names.iter().zip(values) {
        let expected = written.get(*name).map(|json| json.as_u64());
        assert!(expected.is_none_or(|expected| expected == Some(value as u64)));
    }
}

/// Any filter's configuration. Checks that a refusal has a reason, and that only white space may follow an accepted
/// one.
pub fn filter_config(data: &[u8]) {
    for filter in FILTERS {
        let read = |json: &[u8]| engines::read(filter, json, true, &environment);
        match read(data) {
            Err(refusal) => check_refusal(&refusal),
            Ok(settings) => {
                let redis = settings.redis();
                assert!(redis.iter().all(|(cluster, _)| !cluster.is_empty()));
                assert!(read(&[data, b" \r\n\t"].concat()).is_ok());
                assert!(read(&[data, b" {}"].concat()).is_err());
            }
        }
    }
}

/// The environment variables that an engine's host provides.
fn environment(name: &str) -> Option<Vec<u8>> {
    std::env::var(name).ok().map(String::into_bytes)
}

/// The gate's configuration. Checks that an accepted one is within its limits and usable, that a refusal names the
/// field and the reason, and that neither shows the secret.
pub fn gate_config(data: &[u8]) {
    use weir_base::key::{KEYS_MAX, Purpose};
    use weir_engine::keys::KeyConfig;
    use weir_sale::engine::config::Config;

    let written = match parse::<Config>(data) {
        Ok(written) => written,
        Err(refusal) => {
            check_refusal(&refusal);
            return;
        }
    };
    check_nothing_follows::<Config>(data);
    let secret_of = |key: &KeyConfig| std::env::var(&key.secret.env).unwrap_or_default();
    let token_keys = written.token.iter().flat_map(|token| &token.keys);
    let secrets: Vec<String> = written
        .claim
        .keys
        .iter()
        .chain(token_keys)
        .map(secret_of)
        .collect();
    let is_secret = |secret: &&String| {
        secret.len() >= 16 && !String::from_utf8_lossy(data).contains(secret.as_str())
    };
    let hides_secret = |text: String| {
        let mut displayed = secrets.iter().filter(is_secret);
        assert!(
            !displayed.any(|secret| text.contains(secret.as_str())),
            "{text}"
        );
    };
    let accepted = match written.clone().checked(&environment) {
        Ok(accepted) => accepted,
        Err(refusal) => {
            check_refusal(&refusal);
            assert!(!refusal.path.is_empty());
            hides_secret(refusal.to_string());
            return;
        }
    };
    hides_secret(format!("{accepted:?}"));
    if let Some(captcha) = &accepted.captcha {
        let secret = &captcha.secret.0;
        let displayed = format!("{captcha:?}");
        assert!(!secret.is_empty());
        assert!(secret.len() < 16 || !displayed.contains(secret.as_str()));
        assert!(captcha.path.starts_with('/') && (100..=10_000).contains(&captcha.timeout_ms));
        let texts = [&captcha.host, &captcha.path, &captcha.site_key];
        assert!(
            texts
                .iter()
                .all(|text| text.bytes().all(|b| b.is_ascii_graphic()))
        );
    }

    assert!(!accepted.routes.is_empty());
    assert_eq!(accepted.routes.len(), written.routes.len());
    let header = &accepted.user_header;
    assert!(header.eq_ignore_ascii_case(&written.user_header));
    assert!(!header.is_empty() && header.bytes().all(|b| b.is_ascii_graphic() && b != b':'));
    assert!(!header.bytes().any(|b| b.is_ascii_uppercase()));
    assert!((50..=60_000).contains(&accepted.poll_interval_ms));
    assert!((1..=3_600).contains(&accepted.retry_after_s));
    assert!((1..=86_400_000).contains(&accepted.claim_ttl_ms));

    let pump = accepted
        .redis
        .pump_settings(weir_sale::engine::config::DEADLINE_MS);
    assert!((1..=60_000).contains(&pump.deadline_ms));
    assert!((1..=64).contains(&pump.batches_max));
    assert!((1..=1_000_000).contains(&pump.waiting_max));
    assert!(!accepted.redis.cluster.is_empty());
    assert!(keys::is_prefix(&accepted.redis.key_prefix));
    let catalogue = catalogue(&accepted.redis.key_prefix);
    assert!(!catalogue.iter().any(|byte| b"{}".contains(byte)));

    assert!((1..=KEYS_MAX).contains(&written.claim.keys.len()));
    assert!(secrets.iter().all(|secret| secret.len() >= 32));
    let signature = accepted.claim_keys.sign("claim");
    assert_eq!(accepted.claim_keys.verify("claim", &signature), Ok(()));
    assert!(signature.starts_with(&format!("{};", written.claim.keys[0].id)));
    assert!(accepted.token.is_some() || accepted.checkout_routes.is_empty());
    if let Some(token) = &accepted.token {
        assert!(token.ages.min_ms < token.ages.max_ms);
        let signature = token.keys.sign_for(Purpose::OrderToken, "payload");
        assert!(
            token
                .keys
                .verify_for(Purpose::OrderToken, "payload", &signature)
                .is_ok()
        );
    }
    assert!((200..=599).contains(&accepted.static_page.status));
    assert!(
        accepted
            .identify_prefixes
            .iter()
            .all(|p| p.starts_with('/'))
    );
    check_limits(&accepted.limits);
    check_overload(&accepted.overload);
}

/// Checks the limits that the documentation of each field states.
fn check_limits(limits: &CheckedLimits) {
    assert!((1..=65_536).contains(&limits.slots));
    for rate in [limits.user, limits.address].into_iter().flatten() {
        assert!((1..=1_000_000).contains(&rate.rate()));
        assert!((1..=1_000_000).contains(&rate.burst()));
    }
}

/// See [`check_limits`].
fn check_overload(overload: &OverloadConfig) {
    const HOUR_MS: u64 = 3_600_000;
    assert!((1..=1_000_000).contains(&overload.in_flight_max));
    for breaker in [overload.redis_breaker, overload.origin_breaker] {
        assert!((1..=HOUR_MS).contains(&breaker.window_ms));
        assert!((1..=1_000_000).contains(&breaker.min_requests));
        assert!((1..=100).contains(&breaker.failure_percent));
        assert!((1..=HOUR_MS).contains(&breaker.open_ms));
        assert!((1..=1_000_000).contains(&breaker.probes));
    }
}

pub(crate) fn check_refusal(refusal: &FieldError) {
    check_refusal_text(&refusal.problem, &refusal.to_string());
}

/// Checks that `presented`, the visible text of a refusal, contains the problem.
pub(crate) fn check_refusal_text(problem: &str, presented: &str) {
    assert!(
        !problem.is_empty() && presented.ends_with(problem),
        "{presented}"
    );
}

/// Checks that only white space may follow a configuration.
pub(crate) fn check_nothing_follows<T: serde::de::DeserializeOwned>(data: &[u8]) {
    assert!(parse::<T>(&[data, b" \r\n\t"].concat()).is_ok());
    for more in [b"x".as_slice(), b" {}", b",", b"}", b"\0"] {
        assert!(parse::<T>(&[data, more].concat()).is_err());
    }
}
