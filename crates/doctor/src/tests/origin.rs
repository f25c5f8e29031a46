//! Each mistake in the origin's settings or in the gateway's environment alone.

use super::{SECRET, environment, found, key, origin, redis, shipped, words};
use crate::facts::{GatewayEnvironment, OriginFacts};

/// The checks with a finding in `file` for this origin.
fn with(file: &str, edit: impl FnOnce(&mut OriginFacts)) -> Vec<&'static str> {
    let mut facts = origin();
    edit(&mut facts);
    words(&found(shipped(file), &facts, &redis(), &environment()))
}

#[test]
fn origin_without_features_used_by_filters_is_a_finding() {
    assert_eq!(
        with("shortlink.yaml", |facts| facts.has_links = false),
        ["origin-without"]
    );
    assert_eq!(
        with("events.yaml", |facts| facts.has_events = false),
        ["origin-without"]
    );
    assert_eq!(
        with("fitment.yaml", |facts| facts.has_fitment = false),
        ["origin-without"]
    );
    assert_eq!(
        with("weir.yaml", |facts| facts.key_prefix = "shop".into()),
        ["key-prefix"]
    );
    assert_eq!(
        with("weir.yaml", |facts| facts.port = 9_000),
        ["origin-other"]
    );
    assert_eq!(
        with("weir.yaml", |facts| facts.redis_addresses =
            vec!["redis:6379".into()]),
        ["redis-other"]
    );
    assert_eq!(
        with("weir.yaml", |facts| facts.has_redis_password = true),
        ["redis-password"]
    );
}

#[test]
fn rate_limiter_needs_no_origin() {
    for file in ["ratelimit.yaml", "ratelimit-redis.yaml"] {
        let other = |facts: &mut OriginFacts| {
            *facts = OriginFacts::default();
            facts.redis_addresses = vec!["elsewhere:6379".into()];
        };
        assert_eq!(with(file, other), [""; 0], "{file}");
        let uses_redis = crate::uses_redis(&crate::Envoy::from_tree(shipped(file)).unwrap());
        assert_eq!(uses_redis, file == "ratelimit-redis.yaml");
    }
}

#[test]
fn origin_claim_keys_must_match_the_gate() {
    let with_keys = |keys| with("weir.yaml", |facts| facts.claim_keys = keys);
    assert_eq!(with_keys(None), ["claim-secret"]);
    assert_eq!(with_keys(Some(vec![key("k2", SECRET)])), ["claim-key-id"]);
    assert_eq!(
        with_keys(Some(vec![key("k1", &SECRET.to_uppercase())])),
        ["claim-secret"]
    );
    // During a key rotation, the gate may still sign with the previous key.
    let both = vec![key("k2", &SECRET.to_uppercase()), key("k1", SECRET)];
    assert_eq!(with_keys(Some(both)), [""; 0]);
}

#[test]
fn different_secrets_show_their_fingerprints() {
    let mut facts = origin();
    facts.claim_keys = Some(vec![key("k1", &SECRET.to_uppercase())]);
    let findings = found(shipped("native.yaml"), &facts, &redis(), &environment());
    assert_eq!(words(&findings), ["claim-secret"]);
    for secret in [SECRET, &SECRET.to_uppercase()] {
        let fingerprint = key("k1", secret).fingerprint;
        assert!(
            findings[0].problem.contains(&fingerprint),
            "{}",
            findings[0]
        );
    }
}

#[test]
fn missing_gateway_secret_variable_is_a_finding() {
    for name in ["WEIR_CLAIM_SECRET", "WEIR_TOKEN_SECRET"] {
        let mut variables = environment();
        variables.variables.remove(name);
        let findings = found(shipped("weir.yaml"), &origin(), &redis(), &variables);
        assert_eq!(words(&findings), ["secret-missing"]);
        assert!(findings[0].problem.contains(name), "{}", findings[0]);
    }
}

#[test]
fn misspelt_variable_of_the_gateway_is_a_finding() {
    let mut variables = environment();
    let rename = |name: &str| (name.to_owned(), SECRET.to_owned());
    variables
        .variables
        .extend([rename("WEIR_CLAIM_SECRE"), rename("LANG")]);
    let findings = found(shipped("weir.yaml"), &origin(), &redis(), &variables);
    assert_eq!(words(&findings), ["variables"]);
    assert!(findings[0].problem.contains("WEIR_CLAIM_SECRE "));
}

#[test]
fn env_file_is_parsed_like_in_other_tools() {
    let text = "# a comment\n\nA=1\nexport B=\"two words\"\nC='x=y'\n D = 4 \n";
    let read = GatewayEnvironment::read(text, "file").unwrap();
    let value = |name: &str| read.variables[name].as_str();
    assert_eq!(
        [value("A"), value("B"), value("C"), value("D")],
        ["1", "two words", "x=y", "4"]
    );
    assert_eq!(read.variables.len(), 4);
    assert_eq!(
        GatewayEnvironment::read("A=1\nnonsense\n", "file").unwrap_err(),
        2
    );
    assert!(!format!("{read:?}").contains("two words"));
}
