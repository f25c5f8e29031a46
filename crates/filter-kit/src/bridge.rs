//! The words in which the bridge answers a call that it has no replies for.
//!
//! A message of a stream to the bridge holds either the replies of a call or one of these
//! beginnings and a reason. It cannot be taken for replies: a RESP value begins with a byte that
//! names its type, and no version of RESP has a type that a letter names. The stream is over after
//! such a message.

/// How the answer to a call begins that the bridge refused: nothing of it was passed on.
pub const REFUSED: &str = "refused: ";

/// How the answer to a call begins whose replies are no good: it may have run.
pub const FAILED: &str = "failed: ";

#[cfg(test)]
mod tests {
    use super::*;
    use weir_resp::{DecodeError, decode};

    #[test]
    fn neither_reads_as_a_reply() {
        for start in [REFUSED, FAILED] {
            let read = decode(start.as_bytes());
            assert!(matches!(read, Err(DecodeError::Malformed(_))), "{start}");
        }
    }
}
