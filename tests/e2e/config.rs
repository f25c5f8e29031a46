//! What Envoy itself says to a filter's bad configuration.

use anyhow::Result;
use weir_stack::Stack;
use weir_stack::envoy::EnvoyConfig;

/// The error that a stack with an edited config ends with.
async fn refused(edit: fn(EnvoyConfig) -> EnvoyConfig) -> Result<String> {
    let started = Stack::builder()
        .workers(1)
        .key_prefix("config")
        .edit_config(edit)
        .start()
        .await;
    match started {
        Ok(_) => anyhow::bail!("Envoy took the config"),
        Err(error) => Ok(format!("{error:#}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_field_is_refused_with_its_path_in_envoys_log() -> Result<()> {
    let unknown =
        refused(|config| config.replace(r#""user_header""#, r#""user_heder""#, 1)).await?;
    assert!(
        unknown.contains("seckill-gate: configuration refused: user_heder: unknown field"),
        "{unknown}"
    );
    let wrong_type =
        refused(|config| config.replace(r#""deadline_ms": 250"#, r#""deadline_ms": "250""#, 1))
            .await?;
    assert!(
        wrong_type.contains("configuration refused: redis.deadline_ms: invalid type"),
        "{wrong_type}"
    );
    let no_secret = refused(|config| {
        config.replace(
            "host_env_keys: [WEIR_CLAIM_SECRET, WEIR_TOKEN_SECRET]",
            "host_env_keys: []",
            1,
        )
    })
    .await?;
    assert!(
        no_secret
            .contains("configuration refused: claim.keys[0].secret.env: the secret is missing"),
        "{no_secret}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bridge_refuses_a_bad_field_too() -> Result<()> {
    let unknown = refused(|config| {
        config.replace(
            r#""request_bytes_max": 1048576"#,
            r#""request_bytes": 1"#,
            1,
        )
    })
    .await?;
    assert!(
        unknown.contains("redis-bridge: configuration refused: request_bytes: unknown field"),
        "{unknown}"
    );
    Ok(())
}
