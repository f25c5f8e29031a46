//! In which words the bridge answers a call that it has no replies for.
//!
//! A message of a stream to the bridge holds either the replies of a call or one of these beginnings and a reason. It
//! cannot be taken for replies: a RESP value begins with a byte that names its type, and no version of RESP has a type that
//! a letter names. The stream is over after such a message.

use weir_engine::redis::{DefiniteFailure, Reply, UnknownFailure};

/// How the answer to a call begins that the bridge refused: nothing of it was passed on.
pub const REFUSED: &str = "refused: ";

/// How the answer to a call begins whose replies are no good: it may have run.
pub const FAILED: &str = "failed: ";

/// The beginning of the answer to a call if Redis refused the login. Redis' own error follows. The bridge sends the call together
/// with the login, and a Redis that needs no login may have run it.
pub const LOGIN: &str = "login: ";

/// What a message of the bridge says.
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
    fn neither_reads_as_a_reply() {
        for start in [REFUSED, FAILED, LOGIN] {
            let read = decode(start.as_bytes());
            assert!(matches!(read, Err(DecodeError::Malformed(_))), "{start}");
        }
    }

    #[test]
    fn a_refusal_is_definite_and_damaged_replies_are_not() {
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
