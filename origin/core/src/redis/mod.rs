//! Redis: commands and scripts, sent with a time limit and once more if the connection broke.
//!
//! Every call here may be made twice with the effect of once, so a call whose connection turns out to be broken
//! is repeated once. If that fails, too, the outcome is unknown.
//!
//! What the keys mean is the domains' business.

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

/// How long one call may take, retry included. An order's answer waits for it, so it stays far below a request's
/// time limit.
const CALL_LIMIT: Duration = Duration::from_secs(1);

/// What spans of traces call it.
const REDIS: &str = "redis";

/// A handle to Redis. Cloning it is cheap: clones share one connection.
#[derive(Clone)]
pub struct Redis {
    connection: Connection,
    prefix: Arc<str>,
    /// Where it is, without a password.
    address: Arc<str>,
    refusals: Refusals,
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the connection: its URL may hold a password.
        f.debug_struct("Redis")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// Why a URL of Redis cannot be used. The URL may hold a password, so the messages leave it out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// It is not a URL of Redis.
    #[error(
        "invalid Redis URL: write redis://[USER:PASSWORD@]HOST[:PORT], or rediss://… for TLS; separate the nodes of a Redis Cluster by commas; Sentinel is not supported"
    )]
    Form,
    /// It names a database other than 0, which gateways do not use.
    #[error(
        "cannot use Redis database {number}: gateways use database 0; remove \"/{number}\" from the URL"
    )]
    Database {
        /// Its number.
        number: i64,
    },
}

/// A call gave no usable answer. Whether Redis ran it is unknown; for refusals see [`Refusal::is_definite`].
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The connection or the command failed.
    #[error("Redis: {0}")]
    Redis(#[from] RedisError),
    /// The reply is not one of the script's.
    #[error("Redis: {0}")]
    Reply(#[from] ReplyError),
    /// A task that made the call ended early.
    #[error("Redis: {0}")]
    Task(#[from] JoinError),
    /// No answer in time.
    #[error("Redis: no answer within {CALL_LIMIT:?}")]
    Timeout,
}

impl CallError {
    /// The first word of Redis' own error, such as `NOGROUP`.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Redis(error) => error.code(),
            _ => None,
        }
    }

    /// Why Redis refused, if that is the cause.
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

    /// A reply that its command never gives.
    pub fn unexpected(what: &'static str, detail: String) -> Self {
        RedisError::from((ErrorKind::UnexpectedReturnType, what, detail)).into()
    }
}

impl Redis {
    /// A handle to the Redis at `url`, or to the cluster at several URLs with commas between them. All keys start
    /// with `prefix`. It connects when it is first used, so Redis may be down now. Needs a tokio runtime.
    ///
    /// # Errors
    /// When `url` is not a URL of Redis, or names a database.
    pub fn new(url: &str, prefix: &str) -> Result<Self, UrlError> {
        let addresses = url.split(',').map(address_of);
        let addresses = addresses.collect::<Result<Vec<_>, UrlError>>()?;
        Ok(Self {
            connection: Connection::open(url).map_err(|_| UrlError::Form)?,
            prefix: prefix.into(),
            address: addresses.join(", ").into(),
            refusals: Refusals::default(),
        })
    }

    /// The same, with its refusals counted among these.
    #[must_use]
    pub fn with_refusals(mut self, refusals: Refusals) -> Self {
        self.refusals = refusals;
        self
    }

    /// What it has refused.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// What every key starts with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether it is a cluster, each of whose nodes may lose data by itself.
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

    /// Checks that Redis takes a write: of a cluster, one node.
    ///
    /// # Errors
    /// When it does not.
    pub async fn check_write(&self) -> Result<(), CallError> {
        self.run(&write_check::call(&self.prefix)).await.map(drop)
    }

    /// Runs a script, by its digest unless Redis does not know it.
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

    /// Runs a script by its source, whether Redis knows it or not.
    pub async fn run_source(&self, call: &Call) -> Result<Value, CallError> {
        let command = command("EVAL", call.script.source, call);
        let value = in_time(self.attempt(&command)).await;
        Ok(resp_value(self.record_refusal(call.script.name, value)?))
    }

    /// Runs many scripts at once, as [`Redis::send_all`] sends commands. Scripts that some node does not know are
    /// all run again, from their source: that changes nothing more, as nothing here does.
    pub async fn run_all(&self, calls: &[Call]) -> Result<Vec<Value>, CallError> {
        let by_digest = |call: &Call| command("EVALSHA", &call.script.sha1_hex(), call);
        let by_source = |call: &Call| command("EVAL", call.script.source, call);
        let what = calls.first().map_or("", |call| call.script.name);
        let values = traced_call(REDIS, what, async {
            match self.query_all(calls.iter().map(by_digest).collect()).await {
                Err(CallError::Redis(error)) if is_unknown_script(&error) => {
                    self.query_all(calls.iter().map(by_source).collect()).await
                }
                other => other,
            }
        });
        let values = self.record_refusal(what, values.await)?;
        Ok(values.into_iter().map(resp_value).collect())
    }

    /// Sends a command, again if its connection was broken.
    pub async fn send(&self, command: &Cmd) -> Result<::redis::Value, CallError> {
        let reply = in_time(self.attempt(command)).await;
        self.record_refusal(&name_of(command), reply)
    }

    /// Sends many commands at once: as a pipeline, or on a cluster side by side. Replies come in the order of the
    /// commands; if one fails, all count as failed.
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

    /// Sends a command, and once more if its connection turned out to be broken: otherwise the first call after
    /// Redis was away would fail.
    async fn attempt(&self, command: &Cmd) -> Result<::redis::Value, RedisError> {
        match self.connection.query(command).await {
            Err(error) if error.is_unrecoverable_error() => self.connection.query(command).await,
            other => other,
        }
    }
}

/// The address that a URL names, without user and password.
///
/// # Errors
/// When it is not a URL of Redis, or names a database.
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

/// The same value in the type that the scripts' readers take. What RESP2 cannot say is no reply of
/// a script, and becomes a null, which no reader takes.
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
    fn replies_keep_their_shape() {
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
    async fn a_password_in_the_url_stays_out_of_logs() {
        let redis = Redis::new("redis://:hush@127.0.0.1:1", "weir").unwrap();
        let shown = format!("{redis:?}");
        assert!(shown.contains("weir") && !shown.contains("hush"), "{shown}");
    }
}
