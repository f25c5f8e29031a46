//! Configurations that Envoy refuses at startup.

use anyhow::Result;
use weir_tests::{RedisPath, Setup};

async fn check(config: &str, redis: RedisPath, reply: &str) -> Result<()> {
    let setup = Setup {
        gateways: 1,
        workers: 1,
        redis,
        config,
    };
    let error = match setup.start().await {
        Ok(_) => anyhow::bail!("Envoy took {config}"),
        Err(error) => format!("{error:#}"),
    };
    let reply = format!("ratelimit: configuration refused: {reply}");
    assert!(error.contains(&reply), "{reply} is not in {error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_or_contradictory_setting_is_refused_with_its_path() -> Result<()> {
    let limit = r#""limit": { "rate": 5, "per": "1s" }"#;
    let rules = |rules: &[&str]| format!(r#"{{ "rules": [{}] }}"#, rules.join(", "));
    let rule = |fields: &str| rules(&[&format!(r#"{{ "name": "a", {limit}{fields} }}"#)]);
    for (config, reply) in [
        (r#"{ "colour": 1 }"#.into(), "colour: unknown field"),
        (rule(r#", "colour": 1"#), "rules[0].colour: unknown field"),
        (
            rule(r#", "algorithm": "magic""#),
            "rules[0].algorithm: unknown variant",
        ),
        (
            rules(&[r#"{ "name": "a", "limit": { "rate": "5", "per": "1s" } }"#]),
            "rules[0].limit.rate: invalid type",
        ),
        (
            rules(&[r#"{ "name": "a", "limit": { "rate": 0, "per": "1s" } }"#]),
            "rules[0].limit.rate: ",
        ),
        (rule(r#", "store": "redis""#), "rules[0].store: needs"),
        (rule(r#", "key": ["user"]"#), "rules[0].key: needs"),
        (
            rule(r#", "on_store_error": "open""#),
            "rules[0].on_store_error: only for rules",
        ),
        (rule(r#", "cost": 6"#), "rules[0].cost: must be 1 to 5"),
        (
            rule(r#", "key": ["method"], "allow": [["GET"]], "deny": [["GET"]]"#),
            "rules[0].deny: has a key that is also in allow",
        ),
        (
            rules(&[&format!(
                r#"{{ "name": "a", {limit} }}, {{ "name": "a", {limit} }}"#
            )]),
            "rules[1].name: another rule has this name",
        ),
        (r#"{ "reload": true }"#.into(), "reload: "),
    ] {
        check(&config, RedisPath::None, reply).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_cluster_two_rules_in_redis_are_refused() -> Result<()> {
    let rule = |name: &str| {
        format!(
            r#"{{ "name": "{name}", "store": "redis", "limit": {{ "rate": 5, "per": "1s" }} }}"#
        )
    };
    let rules = [rule("a"), rule("b")].join(", ");
    let config = format!(r#"{{ "redis": {{ "topology": "cluster" }}, "rules": [{rules}] }}"#);
    let reply = "rules[1].store: with topology cluster only one rule can have store redis";
    check(&config, RedisPath::Straight, reply).await
}
