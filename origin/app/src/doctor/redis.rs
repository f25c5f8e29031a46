//! Reads facts about Redis: as the origin's user, and as the gateways' users.

use std::time::{SystemTime, UNIX_EPOCH};

use redis::{Cmd, Value, cmd};
use weir_doctor::facts::{Login, RedisFacts, RefusedQuery, RefusedWrite, TlsFacts, TlsTarget};
use weir_scripts::permissions::{self, ORIGIN, SHARED};
use weir_scripts::{Call, RefusalKind};

use crate::redis::policy::info_field;
use crate::redis::tls::check_certificate;
use crate::redis::{CallError, Redis, UrlError, address_of, is_replicated, nodes_of};

/// Reads facts from each node of `urls`, except the replicas of a replicated set: as the origin, and as gateways with these logins.
///
/// # Errors
/// When an URL is not a Redis URL. A node that does not answer is a fact, not an error.
pub(super) async fn ask(
    urls: &str,
    prefix: &str,
    logins: &[Login],
) -> Result<Vec<RedisFacts>, UrlError> {
    let mut nodes = Vec::new();
    for url in nodes_of(urls) {
        // The address contains no password.
        let address = address_of(url)?;
        let redis = Redis::new(url, prefix)?;
        let response = read_facts(&redis, address.clone()).await;
        let response = response.unwrap_or_else(|error| unreachable(address.clone(), &error));
        let is_away = response.away.is_some();
        // Replicas of a replicated set rightly refuse writes.
        if is_replicated(urls) && response.is_replica == Some(true) {
            continue;
        }
        nodes.push(response);
        // An address that does not answer is reported once, not once per login.
        let logins = logins.iter().filter(|_| !is_away);
        for login in logins {
            let user = login.username.as_deref().unwrap_or("default");
            let address = format!("{address} as the gateways' user \"{user}\"");
            let redis = Redis::new(&with_login(url, login), prefix)?;
            nodes.push(may(&redis, address, &SHARED).await);
        }
    }
    Ok(nodes)
}

/// Makes a handshake with each Redis that gateways reach by TLS. Targets whose CA file is not on this machine are returned
/// untried.
pub(super) async fn shake_hands(targets: Vec<TlsTarget>) -> (Vec<TlsFacts>, Vec<TlsTarget>) {
    let is_here = |target: &TlsTarget| std::path::Path::new(&target.ca_file).exists();
    let (here, elsewhere): (Vec<_>, Vec<_>) = targets.into_iter().partition(is_here);
    let mut facts = Vec::new();
    for target in here {
        let mut problem = None;
        for name in &target.names {
            let (address, ca) = (target.address.clone(), target.ca_file.clone().into());
            problem = check_certificate(address, name.clone(), ca).await.err();
            if problem.is_none() {
                break;
            }
        }
        facts.push(TlsFacts { target, problem });
    }
    (facts, elsewhere)
}

/// Reads all facts, as the origin's user.
async fn read_facts(redis: &Redis, address: String) -> Result<RedisFacts, CallError> {
    // The first call connects. Exclude the connection time from the clock measurement.
    let pinged = redis.ping().await;
    let may = async |address| {
        let all: Vec<&str> = SHARED.into_iter().chain(ORIGIN).collect();
        may(redis, address, &all).await
    };
    match pinged {
        Ok(()) => {}
        // A Redis that loads its data, or cannot write to its disk, refuses even PING.
        Err(error) if error.refusal().is_some() => return Ok(may(address).await),
        Err(error) => return Err(error),
    }
    let before_ms = now_ms();
    let time = redis.send(&cmd("TIME")).await.ok();
    let took_ms = now_ms() - before_ms;
    let facts = may(address).await;
    let mut refused_queries = facts.refused_queries;
    let mut info = async |section: &str, command, checks| {
        let text = text(redis, cmd("INFO").arg(section)).await;
        text.unwrap_or_else(|error| {
            refused_queries.push(RefusedQuery {
                command,
                checks,
                error,
            });
            String::new()
        })
    };
    let memory = info("memory", "INFO memory", "memory and eviction were").await;
    let role = info("replication", "INFO replication", "its role was").await;
    let cluster = info("cluster", "INFO cluster", "its topology was").await;
    let entries = "zset-max-listpack-entries";
    let setting = redis.send(cmd("CONFIG").arg("GET").arg(entries)).await;
    let field = |name: &str| info_field(&memory, name).map(str::to_owned);
    Ok(RedisFacts {
        refused_queries,
        is_replica: info_field(&role, "role").map(|role| role == "slave"),
        used_memory: field("used_memory").and_then(|bytes| bytes.parse().ok()),
        maxmemory: field("maxmemory").and_then(|bytes| bytes.parse().ok()),
        maxmemory_policy: field("maxmemory_policy"),
        // Some hosted Redis services refuse CONFIG GET.
        zset_max_listpack_entries: setting.ok().and_then(|setting| value_of(&setting)),
        is_cluster: info_field(&cluster, "cluster_enabled").map(|enabled| enabled == "1"),
        clock_ahead_ms: time
            .and_then(|time| clock_ms(&time))
            .map(|clock_ms| clock_ms - (before_ms + took_ms / 2)),
        clock_uncertain_ms: took_ms / 2,
        ..facts
    })
}

/// Checks whether a user may write, and run these commands.
async fn may(redis: &Redis, address: String, commands: &[&str]) -> RedisFacts {
    let mut facts = RedisFacts {
        address,
        ..RedisFacts::default()
    };
    if let Err(error) = redis.check_write().await {
        match refused(&error) {
            Some(refused) => facts.refused = Some(refused),
            None => return unreachable(facts.address, &error),
        }
    }
    let call = permissions::call(redis.prefix(), commands.iter().copied());
    match forbidden(redis, &call).await {
        Ok(forbidden) => facts.forbidden = forbidden,
        // A Redis that refuses a write may refuse this, too. The facts have that refusal already.
        Err(_) if facts.refused.is_some() => {}
        Err(error) => facts.refused_queries.push(RefusedQuery {
            command: "redis.acl_check_cmd",
            checks: "permissions were",
            error: error.to_string(),
        }),
    }
    facts
}

/// The commands that the user may not run. EVAL also answers users who may not run EVALSHA.
async fn forbidden(redis: &Redis, call: &Call) -> Result<Vec<String>, CallError> {
    let value = redis.run_source(call).await?;
    Ok(permissions::parse(&value)?)
}

fn unreachable(address: String, error: &CallError) -> RedisFacts {
    RedisFacts {
        address,
        refused: refused(error),
        away: error.refusal().is_none().then(|| error.to_string()),
        ..RedisFacts::default()
    }
}

fn refused(error: &CallError) -> Option<RefusedWrite> {
    let refusal = error.refusal()?;
    Some(RefusedWrite {
        is_permission: refusal.kind == RefusalKind::NoPermission,
        remedy: refusal.kind.remedy(),
        error: refusal.error,
    })
}

/// The same URL with another user and password.
fn with_login(url: &str, login: &Login) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
    let server = rest.rsplit_once('@').map_or(rest, |(_, server)| server);
    let user = login.username.as_deref().map(encoded).unwrap_or_default();
    let password = encoded(&login.password);
    format!("{scheme}://{user}:{password}@{server}")
}

/// Percent-encodes all but letters and digits, so that the text cannot end its part of the URL.
fn encoded(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::new();
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() {
            true => out.push(char::from(byte)),
            false => {
                // Writing to a `String` cannot fail.
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

async fn text(redis: &Redis, command: &Cmd) -> Result<String, String> {
    match redis.send(command).await {
        Ok(Value::BulkString(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Ok(Value::VerbatimString { text, .. } | Value::SimpleString(text)) => Ok(text),
        Ok(other) => Err(format!("{other:?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// The reply of `TIME`, in milliseconds.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separate_login_replaces_the_one_in_the_url() {
        let login = |username: Option<&str>, password: &str| Login {
            username: username.map(ToOwned::to_owned),
            password: password.to_owned(),
        };
        for (url, login, expected) in [
            ("redis://h:1", login(None, "p"), "redis://:p@h:1"),
            (
                "rediss://u:q@h:1",
                login(Some("weir"), "a@b/c:d%"),
                "rediss://weir:a%40b%2Fc%3Ad%25@h:1",
            ),
        ] {
            assert_eq!(with_login(url, &login), expected);
        }
    }
}
