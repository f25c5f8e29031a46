//! The bridge's error messages.
//!
//! A message from the bridge contains either the replies of a call, or one of these prefixes and a reason. The two
//! cannot be confused: a RESP value begins with a type byte, and no version of RESP has a letter as type. After an
//! error message the stream ends.

use weir_engine::redis::{DefiniteFailure, Reply, UnknownFailure};

/// The prefix if the bridge refused the call: it sent nothing to Redis.
pub const REFUSED: &str = "refused: ";

/// The prefix if the replies are unusable: the call may have run.
pub const FAILED: &str = "failed: ";

/// The prefix if Redis refused the login. Redis' own error follows. The bridge sends the call together with the login,
/// and a Redis without authentication may have run it.
pub const LOGIN: &str = "login: ";

/// Reads a message of the bridge.
pub(crate) fn read_message(message: Vec<u8>) -> Reply {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if message.starts_with(REFUSED.as_bytes()) {
        return Err(DefiniteFailure::Refused(text(&message)).into());
    }
    if message.starts_with(FAILED.as_bytes()) {
        return Err(UnknownFailure::Bridge(text(&message)).into());
    }
    if let Some(error) = message.strip_prefix(LOGIN.as_bytes()) {
        return Err(UnknownFailure::Login(text(error)).into());
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::resp::{DecodeError, decode};

    #[test]
    fn bridge_error_prefixes_are_not_valid_replies() {
        for start in [REFUSED, FAILED, LOGIN] {
            let read = decode(start.as_bytes());
            assert!(matches!(read, Err(DecodeError::Malformed(_))), "{start}");
        }
    }

    #[test]
    fn bridge_refusal_is_definite_and_damaged_reply_is_not() {
        let read = |message: &str| read_message(message.into());
        let refused = "refused: the body is not RESP commands";
        assert_eq!(
            read(refused),
            Err(DefiniteFailure::Refused(refused.into()).into())
        );
        let failed = "failed: the replies are not RESP";
        assert_eq!(
            read(failed),
            Err(UnknownFailure::Bridge(failed.into()).into())
        );
        let login = UnknownFailure::Login("WRONGPASS no".into());
        assert_eq!(read("login: WRONGPASS no"), Err(login.into()));
        assert_eq!(read("+OK\r\n"), Ok(b"+OK\r\n".to_vec()));
        assert_eq!(
            read(""),
            Ok(vec![]),
            "no replies, as is seen when they are counted"
        );
    }
}
