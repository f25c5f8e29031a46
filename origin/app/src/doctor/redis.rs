//! What Redis says of itself.

use std::time::{SystemTime, UNIX_EPOCH};

use redis::{Cmd, IntoConnectionInfo, RedisError, Value, cmd};
use weir_doctor::facts::RedisFacts;

use crate::redis::policy::info_field;
use crate::redis::{CallError, Redis};

/// Asks each of the nodes at `urls`, which have commas between them.
///
/// # Errors
/// When one is not a URL of Redis. That a node does not answer is a fact, and no error.
pub(super) async fn ask(urls: &str) -> Result<Vec<RedisFacts>, RedisError> {
    let mut nodes = Vec::new();
    for url in urls.split(',').map(str::trim) {
        // Without its password.
        let address = url.into_connection_info()?.addr().to_string();
        let redis = Redis::new(url, "")?;
        let said = said(&redis, address.clone()).await;
        nodes.push(said.unwrap_or_else(|error| RedisFacts {
            address,
            away: Some(error.to_string()),
            ..RedisFacts::default()
        }));
    }
    Ok(nodes)
}

async fn said(redis: &Redis, address: String) -> Result<RedisFacts, CallError> {
    // The first call connects, which takes time that is not the clock's.
    redis.ping().await?;
    let before_ms = now_ms();
    let time = redis.send(&cmd("TIME")).await?;
    let took_ms = now_ms() - before_ms;
    let memory = text(redis, cmd("INFO").arg("memory")).await;
    let cluster = text(redis, cmd("INFO").arg("cluster")).await;
    let entries = "zset-max-listpack-entries";
    let setting = redis.send(cmd("CONFIG").arg("GET").arg(entries)).await;
    let field = |name: &str| info_field(&memory, name).map(str::to_owned);
    Ok(RedisFacts {
        address,
        away: None,
        maxmemory: field("maxmemory").and_then(|bytes| bytes.parse().ok()),
        maxmemory_policy: field("maxmemory_policy"),
        // Hosted ones refuse to tell.
        zset_max_listpack_entries: setting.ok().and_then(|setting| value_of(&setting)),
        is_cluster: info_field(&cluster, "cluster_enabled").map(|enabled| enabled == "1"),
        clock_ahead_ms: clock_ms(&time).map(|clock_ms| clock_ms - (before_ms + took_ms / 2)),
        clock_uncertain_ms: took_ms / 2,
    })
}

async fn text(redis: &Redis, command: &Cmd) -> String {
    match redis.send(command).await {
        Ok(Value::BulkString(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
        Ok(Value::VerbatimString { text, .. } | Value::SimpleString(text)) => text,
        // What is not told is not known.
        _ => String::new(),
    }
}

/// What `TIME` tells, in milliseconds.
fn clock_ms(time: &Value) -> Option<i64> {
    let (seconds, micros) = redis::from_redis_value_ref::<(i64, i64)>(time).ok()?;
    Some(seconds.saturating_mul(1_000).saturating_add(micros / 1_000))
}

/// The value in the answer to `CONFIG GET`, in either protocol's form.
fn value_of(setting: &Value) -> Option<u64> {
    let pairs: std::collections::HashMap<String, u64> =
        redis::from_redis_value_ref(setting).ok()?;
    pairs.into_values().next()
}

/// The clock of this machine.
fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
