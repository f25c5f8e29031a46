//! Envoy's response to an invalid configuration of the native module.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};
use weir_stack::envoy::{Envoy, EnvoyConfig, EnvoyOptions, GATE, set, validate};
use weir_stack::native::Host;
use weir_stack::report::SilentReporter;
use weir_stack::{DataDir, ports, tools};

/// Envoy's errors for the shipped file with this edit: at validation, and at startup.
async fn refusals(library: &Path, edit: fn(&mut Value) -> Result<()>) -> Result<[String; 2]> {
    let tool = tools::Envoy::find_or_get(&tools::Options::default(), &mut SilentReporter)?;
    let data = DataDir::open(None)?;
    let config = EnvoyConfig::native(library, 9)?
        .gateway_port(ports::free()?)?
        .admin_port(ports::free()?)?
        .edit_native(GATE, edit)?;
    let secret = |name: &str| (name.to_owned(), "00".repeat(32));
    let options = EnvoyOptions {
        config,
        workers: 1,
        log_level: "info".to_owned(),
        variables: ["WEIR_CLAIM_SECRET", "WEIR_TOKEN_SECRET"]
            .map(secret)
            .into(),
        clock_ahead_ms: None,
        drain_s: None,
        dir: data.path.clone(),
    };
    let checked = validate(&tool, &options).err();
    let started = Envoy::start(&tool, &options).await.err();
    Ok([checked, started].map(|error| error.map(|error| format!("{error:#}")).unwrap_or_default()))
}

/// Checks that both errors contain `expected`.
async fn is_refused(expected: &str, edit: fn(&mut Value) -> Result<()>) -> Result<()> {
    for error in refusals(&Host::Native.library()?, edit).await? {
        assert!(error.contains(expected), "{expected}:\n{error}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_field_is_refused_with_its_path_in_validation_too() -> Result<()> {
    is_refused(
        "weir.seckill_gate: configuration refused: redis.deadline_ms: invalid type",
        |json| set(json, "/redis/deadline_ms", "250"),
    )
    .await?;
    is_refused(
        "configuration refused: native.redis[0].addresses: must have at least one",
        |json| set(json, "/native/redis/0/addresses", json!([])),
    )
    .await?;
    is_refused(
        "native.redis[0].name: no filter uses a Redis named \"other\"",
        |json| set(json, "/native/redis/0/name", "other"),
    )
    .await?;
    is_refused(
        "native.redis: lacks the address of the Redis named \"weir_redis\"",
        |json| set(json, "/native", json!({})),
    )
    .await?;
    is_refused(
        "configuration refused: claim.keys[0].secret.env: the environment variable",
        |json| set(json, "/claim/keys/0/secret/env", "WEIR_NO_SUCH"),
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_library_is_refused() -> Result<()> {
    let library = Path::new("/nonexistent/libweir_native.so");
    for error in refusals(library, |_| Ok(())).await? {
        assert!(error.contains("libweir_native.so"), "{error}");
    }
    Ok(())
}
