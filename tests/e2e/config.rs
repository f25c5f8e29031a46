//! Envoy's response to an invalid filter configuration.

use anyhow::{Context, Result};
use weir_stack::Stack;
use weir_stack::envoy::{EnvoyConfig, GATE, set};
use weir_stack::native::Host;
use weir_tests::is_left_out_on_native;

/// The startup error of a stack with an edited configuration.
async fn refused(edit: fn(EnvoyConfig) -> Result<EnvoyConfig>) -> Result<String> {
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
async fn invalid_field_is_refused_with_its_path_in_envoys_log() -> Result<()> {
    let unknown = refused(|config| {
        config.edit_filter(GATE, |json| {
            json["user_heder"] = json["user_header"].take();
            let fields = json.as_object_mut().context("no fields")?;
            fields.remove("user_header").context("no user_header")?;
            Ok(())
        })
    })
    .await?;
    assert!(
        unknown.contains("gate: configuration refused: user_heder: unknown field"),
        "{unknown}"
    );
    let wrong_type =
        refused(|config| config.edit_filter(GATE, |json| set(json, "/redis/deadline_ms", "250")))
            .await?;
    assert!(
        wrong_type.contains("configuration refused: redis.deadline_ms: invalid type"),
        "{wrong_type}"
    );
    if Host::of_run().is_native() {
        // The native module reads all of Envoy's environment; the tests in `native` cover missing secrets.
        return Ok(());
    }
    let no_secret = refused(|config| config.filter_variables(GATE, &[])).await?;
    assert!(
        no_secret
            .contains("configuration refused: claim.keys[0].secret.env: the environment variable"),
        "{no_secret}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn bridge_also_refuses_an_invalid_field() -> Result<()> {
    if is_left_out_on_native("the bridge's settings") {
        return Ok(());
    }
    let unknown = refused(|config| {
        config.edit_filter("weir.redis_bridge", |json| {
            json["request_bytes"] = 1.into();
            Ok(())
        })
    })
    .await?;
    assert!(
        unknown.contains("redis-bridge: configuration refused: request_bytes: unknown field"),
        "{unknown}"
    );
    Ok(())
}
