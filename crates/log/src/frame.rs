//! Records as bytes, all numbers little-endian:
//!
//! ```text
//! <length of the rest, its highest bit set: 4> <CRC-32 of length and rest: 4> <time, ms: 8> <partition: 2> <payload>
//! ```
//!
//! A frame of an older version lacks the highest bit, time and partition; its checksum covers the rest alone.

use crate::NewRecord;

/// The maximum payload size in bytes.
pub const PAYLOAD_LEN_MAX: usize = 1 << 20;

const HEAD_LEN: usize = 8;
const STAMP_LEN: usize = 10;
const IS_STAMPED: u32 = 1 << 31;

/// The frame at the start of bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// A complete record.
    Whole(Parts<'a>),
    /// The beginning of a record.
    Cut,
    /// Bytes that no writer produced.
    Damaged,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parts<'a> {
    pub(crate) time_ms: u64,
    pub(crate) partition: u16,
    pub(crate) payload: &'a [u8],
    /// The total length in bytes.
    pub(crate) len: usize,
}

/// Appends a record. Returns `false` and appends nothing if it is too long or empty.
#[must_use]
pub(crate) fn write(record: NewRecord<'_>, time_ms: u64, out: &mut Vec<u8>) -> bool {
    let NewRecord { partition, payload } = record;
    if payload.is_empty() || payload.len() > PAYLOAD_LEN_MAX {
        return false;
    }
    // At most 1 MiB and ten bytes, so it fits.
    let len = (STAMP_LEN + payload.len()) as u32 | IS_STAMPED;
    let (time, partition) = (time_ms.to_le_bytes(), partition.to_le_bytes());
    let len = len.to_le_bytes();
    out.extend(len);
    out.extend(sum_of([&len[..], &time, &partition, payload]).to_le_bytes());
    out.extend(time);
    out.extend(partition);
    out.extend_from_slice(payload);
    true
}

/// Reads the first record.
pub(crate) fn read(bytes: &[u8]) -> Frame<'_> {
    let (Some(len), Some(sum)) = (number(bytes, 0), number(bytes, 4)) else {
        return Frame::Cut;
    };
    let is_stamped = len & IS_STAMPED != 0;
    let summed = if is_stamped { 0..4 } else { 0..0 };
    let summed = bytes.get(summed).unwrap_or_default();
    let len = (len & !IS_STAMPED) as usize;
    let stamp_len = if is_stamped { STAMP_LEN } else { 0 };
    if len <= stamp_len || len > stamp_len + PAYLOAD_LEN_MAX {
        return Frame::Damaged;
    }
    let Some(rest) = bytes.get(HEAD_LEN..HEAD_LEN + len) else {
        return Frame::Cut;
    };
    if sum_of([summed, rest]) != sum {
        return Frame::Damaged;
    }
    match split(rest, is_stamped) {
        Some((time_ms, partition, payload)) => Frame::Whole(Parts {
            time_ms,
            partition,
            payload,
            len: HEAD_LEN + len,
        }),
        None => Frame::Damaged,
    }
}

fn split(rest: &[u8], is_stamped: bool) -> Option<(u64, u16, &[u8])> {
    if !is_stamped {
        return Some((0, 0, rest));
    }
    let (time, rest) = rest.split_first_chunk()?;
    let (partition, payload) = rest.split_first_chunk()?;
    Some((
        u64::from_le_bytes(*time),
        u16::from_le_bytes(*partition),
        payload,
    ))
}

fn sum_of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    parts.into_iter().for_each(|part| sum.update(part));
    sum.finalize()
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(four.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(payload: &[u8]) -> Vec<u8> {
        let record = NewRecord {
            partition: 7,
            payload,
        };
        let mut bytes = Vec::new();
        assert!(write(record, 1_700_000_000_123, &mut bytes));
        bytes
    }

    #[test]
    fn record_is_read_back_and_every_truncation_is_detected() {
        let mut bytes = written(b"abc");
        let len = bytes.len();
        bytes.extend(written(b"d"));
        let first = Parts {
            time_ms: 1_700_000_000_123,
            partition: 7,
            payload: b"abc",
            len,
        };
        assert_eq!(read(&bytes), Frame::Whole(first));
        for cut in 0..len {
            assert_eq!(read(&bytes[..cut]), Frame::Cut, "{cut}");
        }
    }

    #[test]
    fn record_with_a_flipped_bit_is_rejected() {
        let whole = written(b"abc");
        for at in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[at / 8] ^= 1 << (at % 8);
            assert!(!matches!(read(&bytes), Frame::Whole(_)), "bit {at}");
        }
    }

    #[test]
    fn records_without_a_timestamp_are_still_readable() {
        let payload = br#"{"made":1}"#;
        let mut bytes = (payload.len() as u32).to_le_bytes().to_vec();
        bytes.extend(crc32fast::hash(payload).to_le_bytes());
        bytes.extend(payload);
        let expected = Parts {
            time_ms: 0,
            partition: 0,
            payload,
            len: bytes.len(),
        };
        assert_eq!(read(&bytes), Frame::Whole(expected));
    }

    #[test]
    fn empty_or_oversized_frame_is_not_written() {
        let mut bytes = Vec::new();
        let long = vec![0; PAYLOAD_LEN_MAX + 1];
        for payload in [&b""[..], &long] {
            let partition = 0;
            assert!(!write(NewRecord { partition, payload }, 0, &mut bytes));
        }
        assert!(bytes.is_empty());
        assert!(matches!(read(&written(&long[1..])), Frame::Whole(_)));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic_the_frame_reader(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }
}
