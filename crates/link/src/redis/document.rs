//! The origin's response to a gateway's lookup over HTTP, equivalent to the reply of Redis.
//!
//! ```text
//! <left_ms> <clicks_left>
//! <record>
//! ```
//!
//! Either number is `-` if it is absent.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::redis::link_read::Read;

/// Writes the document at the origin.
pub fn write(read: &Read) -> Vec<u8> {
    let number = |number: Option<u64>| number.map_or_else(|| String::from("-"), |n| n.to_string());
    let head = format!("{} {}\n", number(read.left_ms), number(read.clicks_left));
    let mut document = head.into_bytes();
    document.extend_from_slice(&read.record);
    document
}

/// Parses the document; `None` if it is malformed.
pub fn read(document: &[u8]) -> Option<Read> {
    let end = document.iter().position(|byte| *byte == b'\n')?;
    let (head, record) = document.split_at_checked(end)?;
    let head = core::str::from_utf8(head).ok()?;
    let (left_ms, clicks_left) = head.split_once(' ')?;
    Some(Read {
        record: record.get(1..)?.to_vec(),
        left_ms: number(left_ms)?,
        clicks_left: number(clicks_left)?,
    })
}

fn number(text: &str) -> Option<Option<u64>> {
    match text {
        "-" => Some(None),
        number => number.parse().ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_value_round_trips() {
        for (left_ms, clicks_left) in [(None, None), (Some(0), Some(u64::MAX)), (Some(7), None)] {
            let reply = Read {
                record: b"0 0 {\n}".to_vec(),
                left_ms,
                clicks_left,
            };
            assert_eq!(read(&write(&reply)), Some(reply));
        }
    }

    #[test]
    fn invalid_document_reply_is_rejected() {
        for bad in [
            &b""[..],
            b"- -",
            b"-\nx",
            b"-1 -\nx",
            b"\xff -\nx",
            b"1 2 3\nx",
        ] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
