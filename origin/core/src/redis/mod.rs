//! Redis: sends commands and scripts with a timeout, and repeats them once after a broken connection.
//!
//! All calls are idempotent, so a call on a broken connection is repeated once. If it fails again, the outcome is
//! unknown.
//!
//! The domains define the keys.

mod connection;
pub mod policy;
pub mod refusals;
pub mod tls;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, ErrorKind, IntoConnectionInfo, RedisError, ServerErrorKind};
use tokio::task::JoinError;
use weir_base::resp::Value;
use weir_scripts::{Call, ReplyError, write_check};

use connection::Connection;
use refusals::{Refusal, Refusals};

use crate::traces::traced_call;

/// Timeout of one call, including the retry. Answers to orders wait for it, so it is far below the request timeout.
const CALL_LIMIT: Duration = Duration::from_secs(1);

/// System name in trace spans.
const REDIS: &str = "redis";

/// A handle to Redis. Cloning it is cheap: clones share one connection.
#[derive(Clone)]
pub struct Redis {
    connection: Connection,
    prefix: Arc<str>,
    /// Address without a password.
    address: Arc<str>,
    refusals: Refusals,
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Omit the connection: its URL may contain a password.
        f.debug_struct("Redis")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// Why a Redis URL cannot be used. Messages omit the URL, which may contain a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// It is not a Redis URL.
    #[error(
        "invalid Redis URL: write redis://[USER:PASSWORD@]HOST[:PORT], or rediss://… for TLS; separate the nodes of a Redis Cluster by commas; with Sentinel, write replicated:redis://…,redis://… with all nodes"
    )]
    Form,
    /// It names a database other than 0, which gateways do not use.
    #[error(
        "cannot use Redis database {number}: gateways use database 0; remove \"/{number}\" from the URL"
    )]
    Database {
        /// The database number.
        number: i64,
    },
}

/// A call without a usable reply. It is unknown whether Redis ran it; for refusals see [`Refusal::is_definite`].
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The connection or the command failed.
    #[error("Redis: {0}")]
    Redis(#[from] RedisError),
    /// The script does not give such a reply.
    #[error("Redis: {0}")]
    Reply(#[from] ReplyError),
    /// A task of the call ended early.
    #[error("Redis: {0}")]
    Task(#[from] JoinError),
    /// Timeout.
    #[error("Redis: no answer within {CALL_LIMIT:?}")]
    Timeout,
}

impl CallError {
    /// The first word of Redis' error, such as `NOGROUP`.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Redis(error) => error.code(),
            _ => None,
        }
    }

    /// The refusal, if Redis refused the call.
    pub fn refusal(&self) -> Option<Refusal> {
        let Self::Redis(error) = self else {
            return None;
        };
        if error.kind() == ErrorKind::AuthenticationFailed {
            return Refusal::from_error(format!("WRONGPASS {error}"));
        }
        let errors = error.clone().into_server_errors()?;
        errors.iter().find_map(|(_, error)| {
            let details = error.details().unwrap_or_default();
            Refusal::from_error(format!("{} {details}", error.code()))
        })
    }

    /// An error for a reply that the command does not give.
    pub fn unexpected(subject: &'static str, detail: String) -> Self {
        RedisError::from((ErrorKind::UnexpectedReturnType, subject, detail)).into()
    }
}

impl Redis {
    /// Creates a client of the Redis at `url`, or of the cluster at several comma-separated URLs; after `replicated:`, of the
    /// primary of a replicated set. All keys start with `prefix`. It connects at first use, so Redis may be down now. Needs a tokio runtime.
    ///
    /// # Errors
    /// When `url` is not a Redis URL, or names a database.
    pub fn new(url: &str, prefix: &str) -> Result<Self, UrlError> {
        let addresses = nodes_of(url).map(address_of);
        let addresses = addresses.collect::<Result<Vec<_>, UrlError>>()?;
        Ok(Self {
            connection: Connection::open(url).map_err(|_| UrlError::Form)?,
            prefix: prefix.into(),
            address: addresses.join(", ").into(),
            refusals: Refusals::default(),
        })
    }

    /// Counts refusals in `refusals`.
    #[must_use]
    pub fn with_refusals(mut self, refusals: Refusals) -> Self {
        self.refusals = refusals;
        self
    }

    /// Refusals of this Redis.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Prefix of all keys.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether it is a cluster. Each node of a cluster may lose its data independently.
    pub fn is_cluster(&self) -> bool {
        self.connection.is_cluster()
    }

    /// Checks that Redis answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ping(&self) -> Result<(), CallError> {
        self.send(&::redis::cmd("PING")).await.map(drop)
    }

    /// Checks that Redis accepts a write; in a cluster, one node.
    ///
    /// # Errors
    /// When it does not.
    pub async fn check_write(&self) -> Result<(), CallError> {
        self.run(&write_check::call(&self.prefix)).await.map(drop)
    }

    /// Runs a script by its digest; sends the source if Redis has not cached it.
    pub async fn run(&self, call: &Call) -> Result<Value, CallError> {
        let by_digest = command("EVALSHA", &call.script.sha1_hex(), call);
        let by_source = || command("EVAL", call.script.source, call);
        let value = in_time(async {
            match self.attempt(&by_digest).await {
                Err(error) if is_unknown_script(&error) => self.attempt(&by_source()).await,
                other => other,
            }
        });
        let value = traced_call(REDIS, call.script.name, value).await;
        Ok(resp_value(self.record_refusal(call.script.name, value)?))
    }

    /// Runs a script by its source.
    pub async fn run_source(&self, call: &Call) -> Result<Value, CallError> {
        let command = command("EVAL", call.script.source, call);
        let value = in_time(self.attempt(&command)).await;
        Ok(resp_value(self.record_refusal(call.script.name, value)?))
    }

    /// Runs several scripts together, like [`Redis::send_all`]. If a node has not cached a script, all scripts run
    /// again by their source. This is safe, because they are idempotent.
    pub async fn run_all(&self, calls: &[Call]) -> Result<Vec<Value>, CallError> {
        let by_digest = |call: &Call| command("EVALSHA", &call.script.sha1_hex(), call);
        let by_source = |call: &Call| command("EVAL", call.script.source, call);
        let subject = calls.first().map_or("", |call| call.script.name);
        let values = traced_call(REDIS, subject, async {
            match self.query_all(calls.iter().map(by_digest).collect()).await {
                Err(CallError::Redis(error)) if is_unknown_script(&error) => {
                    self.query_all(calls.iter().map(by_source).collect()).await
                }
                other => other,
            }
        });
        let values = self.record_refusal(subject, values.await)?;
        Ok(values.into_iter().map(resp_value).collect())
    }

    /// Sends a command. Repeats it once if the connection was broken.
    pub async fn send(&self, command: &Cmd) -> Result<::redis::Value, CallError> {
        let reply = in_time(self.attempt(command)).await;
        self.record_refusal(&name_of(command), reply)
    }

    /// Sends several commands together: as a pipeline, or concurrently on a cluster. Replies are in the order of the
    /// commands. If one fails, the call fails.
    pub async fn send_all(&self, commands: Vec<Cmd>) -> Result<Vec<::redis::Value>, CallError> {
        let name = commands.first().map(name_of).unwrap_or_default();
        let replies = self.query_all(commands).await;
        self.record_refusal(&name, replies)
    }

    async fn query_all(&self, commands: Vec<Cmd>) -> Result<Vec<::redis::Value>, CallError> {
        let answer = tokio::time::timeout(CALL_LIMIT, self.connection.query_all(commands)).await;
        Ok(answer.map_err(|_| CallError::Timeout)??)
    }

    /// Counts and logs the reply to `command` if it is a refusal.
    fn record_refusal<T>(
        &self,
        command: &str,
        reply: Result<T, CallError>,
    ) -> Result<T, CallError> {
        if let Err(error) = &reply
            && let Some(refusal) = error.refusal()
        {
            self.refusals.note(&refusal, command, &self.address);
        }
        reply
    }

    /// Sends a command, and repeats it once if the connection was broken. Otherwise the first call after an outage
    /// would fail.
    async fn attempt(&self, command: &Cmd) -> Result<::redis::Value, RedisError> {
        match self.connection.query(command).await {
            Err(error) if error.is_unrecoverable_error() => self.connection.query(command).await,
            other => other,
        }
    }
}

/// The URLs in `--redis-url`.
pub fn nodes_of(urls: &str) -> impl Iterator<Item = &str> + Clone {
    let urls = urls.strip_prefix(connection::REPLICATED).unwrap_or(urls);
    urls.split(',').map(str::trim)
}

/// Whether `--redis-url` lists the nodes of a replicated set.
pub fn is_replicated(urls: &str) -> bool {
    urls.starts_with(connection::REPLICATED)
}

/// The address in a URL, without user and password.
///
/// # Errors
/// When it is not a Redis URL, or names a database.
pub fn address_of(url: &str) -> Result<String, UrlError> {
    let info = url.trim().into_connection_info();
    let info = info.map_err(|_| UrlError::Form)?;
    match info.redis_settings().db() {
        0 => Ok(info.addr().to_string()),
        number => Err(UrlError::Database { number }),
    }
}

/// The name of a command, such as `GET`.
fn name_of(command: &Cmd) -> String {
    let name = command.args_iter().next();
    match name {
        Some(::redis::Arg::Simple(name)) => String::from_utf8_lossy(name).into_owned(),
        _ => String::new(),
    }
}

async fn in_time(
    exchange: impl Future<Output = Result<::redis::Value, RedisError>>,
) -> Result<::redis::Value, CallError> {
    let answer = tokio::time::timeout(CALL_LIMIT, exchange).await;
    Ok(answer.map_err(|_| CallError::Timeout)??)
}

fn command(name: &str, script: &str, call: &Call) -> Cmd {
    let mut command = ::redis::cmd(name);
    command.arg(script).arg(call.keys.len());
    for argument in call.words() {
        command.arg(argument);
    }
    command
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Converts a reply to the type that the scripts' parsers take. Types that RESP2 lacks become null, which no parser
/// accepts.
fn resp_value(value: ::redis::Value) -> Value {
    match value {
        ::redis::Value::Int(number) => Value::Integer(number),
        ::redis::Value::BulkString(bytes) => Value::Bulk(bytes),
        ::redis::Value::Array(values) => Value::Array(values.into_iter().map(resp_value).collect()),
        ::redis::Value::SimpleString(text) => Value::Simple(text.into_bytes()),
        ::redis::Value::Okay => Value::Simple(b"OK".to_vec()),
        ::redis::Value::ServerError(error) => Value::Error(error.to_string().into_bytes()),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_replies_keep_their_structure() {
        let reply = ::redis::Value::Array(vec![
            ::redis::Value::Int(-1),
            ::redis::Value::BulkString(b"\xff".to_vec()),
            ::redis::Value::Okay,
            ::redis::Value::Nil,
            ::redis::Value::Double(1.0),
        ]);
        let expected = Value::Array(vec![
            Value::Integer(-1),
            Value::Bulk(b"\xff".to_vec()),
            Value::Simple(b"OK".to_vec()),
            Value::Null,
            Value::Null,
        ]);
        assert_eq!(resp_value(reply), expected);
    }

    #[tokio::test]
    async fn password_in_the_url_is_not_logged() {
        let redis = Redis::new("redis://:hush@127.0.0.1:1", "weir").unwrap();
        let message = format!("{redis:?}");
        assert!(
            message.contains("weir") && !message.contains("hush"),
            "{message}"
        );
    }
}
