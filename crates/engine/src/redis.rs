//! Calls to Redis through the bridge, and the meaning of their failures.
//!
//! After a [`Failure::Definite`], nothing has run. After a [`Failure::Unknown`], the commands may have run. A failure
//! is unknown unless the reply proves otherwise.

use alloc::string::String;
use alloc::vec::Vec;

use weir_base::resp::{Value, decode};
use weir_scripts::RefusalKind;

/// Why a call has no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No command has run.
    #[error("not executed: {0}")]
    Definite(#[from] DefiniteFailure),
    /// Commands may have run, or may still run.
    #[error("outcome unknown: {0}")]
    Unknown(#[from] UnknownFailure),
}

/// Why no command has run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefiniteFailure {
    /// The host rejected the call at once: no healthy host, or no such cluster.
    #[error("cannot call the cluster")]
    NotSent,
    /// The deadline passed while the request was waiting in the pump.
    #[error("timeout before it was sent")]
    Expired,
    /// The bridge rejected the call before it sent anything.
    #[error("bridge: {0}")]
    Refused(String),
    /// Redis rejected the login before any command was sent.
    #[error("Redis refuses the login: {0}")]
    Login(String),
    /// An unambiguous error reply of Redis or redis_proxy.
    #[error("{0}")]
    Reply(String),
}

/// Why the result is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownFailure {
    /// Timeout.
    #[error("timeout waiting for the reply")]
    Timeout,
    /// The stream to the bridge was closed.
    #[error("lost the connection to the bridge")]
    Lost,
    /// Like [`Lost`](Self::Lost), on a host that knows the address and the likely cause.
    #[error("lost the connection to the bridge: {0}")]
    LostAt(String),
    /// Redis rejected the login. The commands were sent with it, and a Redis without authentication has run them.
    #[error("Redis refuses the login: {0}")]
    Login(String),
    /// The bridge could not read the bytes from Redis.
    #[error("bridge: {0}")]
    Bridge(String),
    /// The body does not contain the expected replies.
    #[error("the replies are malformed")]
    Garbled,
    /// An error reply that does not prove whether a command has run.
    #[error("{0}")]
    Reply(String),
}

impl Failure {
    /// The error with which Redis refused the command, if any.
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Definite(DefiniteFailure::Login(error) | DefiniteFailure::Reply(error))
            | Self::Unknown(UnknownFailure::Login(error) | UnknownFailure::Reply(error)) => {
                Some(error)
            }
            Self::Definite(_) | Self::Unknown(_) => None,
        }
    }
}

/// Classifies an error reply: definite only if it proves that nothing has run, by [`weir_scripts::refusal`].
pub fn classify(error: &[u8]) -> Failure {
    let text = String::from_utf8_lossy(error).into_owned();
    match RefusalKind::from_error(&text) {
        Some(kind) if kind.is_definite(&text) => DefiniteFailure::Reply(text).into(),
        _ => UnknownFailure::Reply(text).into(),
    }
}

/// Whether an error reply reports an unknown script digest.
pub fn is_noscript(error: &[u8]) -> bool {
    error.starts_with(b"NOSCRIPT")
}

/// The result of a call: the replies as bytes, or the failure.
pub type Reply = Result<Vec<u8>, Failure>;

/// Reads the replies to a call of `commands` commands.
///
/// # Errors
/// A [`Failure`] of the call as a whole. Error replies are values here: see [`classify`].
pub fn read(reply: Reply, commands: usize) -> Result<Vec<Value>, Failure> {
    replies(&reply?, commands)
}

/// Reads exactly `commands` replies.
fn replies(mut body: &[u8], commands: usize) -> Result<Vec<Value>, Failure> {
    let mut values = Vec::with_capacity(commands);
    for _ in 0..commands {
        let (value, used) = decode(body).map_err(|_| UnknownFailure::Garbled)?;
        body = body.get(used..).unwrap_or_default();
        values.push(value);
    }
    if !body.is_empty() {
        return Err(UnknownFailure::Garbled.into());
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_definite(error: &str) -> bool {
        matches!(classify(error.as_bytes()), Failure::Definite(_))
    }

    #[test]
    fn only_errors_from_before_the_script_ran_are_definite() {
        assert!(is_definite("NOSCRIPT No matching script. Please use EVAL."));
        assert!(is_definite(
            "LOADING Redis is loading the dataset in memory"
        ));
        assert!(is_definite("no upstream host"));
        assert!(is_definite(
            "OOM command not allowed when used memory > 'maxmemory'."
        ));
        for unknown in [
            "upstream failure", // redis_proxy: connection lost or timed out, perhaps after sending
            "upstream protocol error",
            "ERR Error running script (call to f_x): @user_script:9: boom",
            "MOVED 1 a:1 script: f_x, on @user_script:3.", // a call inside a script that wrote before
            "MOVED 1 a:1 script: f_x, on @enable_strict_lua:8.", // the same, in what Redis puts around scripts
            "NOPERM User u has no permissions to run the 'set' command script: f_x, on @user_script:1.",
            "ERR something new",
            "",
        ] {
            assert!(!is_definite(unknown), "{unknown}");
        }
    }

    #[test]
    fn failure_keeps_the_redis_error_message() {
        let definite = Failure::from(DefiniteFailure::Reply("NOAUTH no".into()));
        assert_eq!(definite.refusal(), Some("NOAUTH no"));
        assert_eq!(Failure::from(UnknownFailure::Lost).refusal(), None);
        assert_eq!(classify(b"NOAUTH no"), definite);
        assert_eq!(
            classify(b"ERR no"),
            UnknownFailure::Reply("ERR no".into()).into()
        );
        assert!(is_noscript(b"NOSCRIPT no"));
        assert!(!is_noscript(b"ERR NOSCRIPT"));
    }

    #[test]
    fn failed_call_has_no_replies() {
        let lost: Failure = UnknownFailure::Lost.into();
        assert_eq!(read(Err(lost.clone()), 1), Err(lost));
        let read = read(Ok(b":1\r\n".to_vec()), 1);
        assert_eq!(read, Ok(alloc::vec![Value::Integer(1)]));
    }

    #[test]
    fn replies_must_be_exactly_as_many_as_commands() {
        assert_eq!(replies(b":1\r\n+OK\r\n", 2).unwrap().len(), 2);
        for (body, commands) in [
            (b":1\r\n".as_slice(), 2),
            (b":1\r\n:2\r\n", 1),
            (b":1\r", 1),
            (b"", 1),
        ] {
            assert_eq!(replies(body, commands), Err(UnknownFailure::Garbled.into()));
        }
    }
}
