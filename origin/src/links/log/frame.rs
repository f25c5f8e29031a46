//! Entries as bytes: `<length: 4 bytes> <CRC-32 of the rest: 4 bytes> <JSON>`, both numbers little-endian.

use super::Entry;

/// The most bytes of an entry's JSON: a record, and the tags.
const JSON_LEN_MAX: usize = 256 * 1024;

const HEAD_LEN: usize = 8;

/// What stands at the beginning of bytes.
#[derive(Debug, PartialEq)]
pub(super) enum Frame {
    /// An entry, and how many bytes it takes.
    Whole(Box<Entry>, usize),
    /// The beginning of an entry, so far.
    Cut,
    /// Nothing that was ever written.
    Damaged,
}

/// Appends an entry.
///
/// # Errors
/// When it is too long, or is no JSON.
pub(super) fn write(entry: &Entry, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    let start = out.len();
    out.extend([0; HEAD_LEN]);
    serde_json::to_writer(&mut *out, entry)?;
    let json_at = start + HEAD_LEN;
    let json = out.get(json_at..).unwrap_or_default();
    if json.len() > JSON_LEN_MAX {
        return Err(serde::ser::Error::custom("the link is too long"));
    }
    let len = u32::try_from(json.len()).unwrap_or(u32::MAX).to_le_bytes();
    let sum = crc32fast::hash(json).to_le_bytes();
    let head = len.into_iter().chain(sum);
    for (to, byte) in out.iter_mut().skip(start).zip(head) {
        *to = byte;
    }
    Ok(())
}

/// Reads the first entry.
pub(super) fn read(bytes: &[u8]) -> Frame {
    let number = |at: usize| {
        let four = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(four.try_into().ok()?))
    };
    let (Some(len), Some(sum)) = (number(0), number(4)) else {
        return Frame::Cut;
    };
    let len = len as usize;
    if len == 0 || len > JSON_LEN_MAX {
        return Frame::Damaged;
    }
    let Some(json) = bytes.get(HEAD_LEN..HEAD_LEN + len) else {
        return Frame::Cut;
    };
    if crc32fast::hash(json) != sum {
        return Frame::Damaged;
    }
    match serde_json::from_slice(json) {
        Ok(entry) => Frame::Whole(Box::new(entry), HEAD_LEN + len),
        Err(_) => Frame::Damaged,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::links::store::NewLink;

    /// A link that was made.
    pub(in crate::links::log) fn entry(code: &str) -> Entry {
        Entry::Made(NewLink {
            id: format!("s/{code}").parse().unwrap(),
            record: "0 0 {\"t\":\"https://example.com/ä\"}".into(),
            tags: vec!["a".into()],
            life_ms: 5,
            ends_at_ms: 0,
            created_at_ms: 7,
        })
    }

    #[test]
    fn an_entry_is_read_back_and_its_every_cut_is_told() {
        let mut bytes = Vec::new();
        write(&entry("abc"), &mut bytes).unwrap();
        let len = bytes.len();
        write(
            &Entry::Void(match entry("def") {
                Entry::Made(link) | Entry::Void(link) => link,
            }),
            &mut bytes,
        )
        .unwrap();
        assert_eq!(read(&bytes), Frame::Whole(Box::new(entry("abc")), len));
        assert!(matches!(read(&bytes[len..]), Frame::Whole(e, _) if matches!(*e, Entry::Void(_))));
        for cut in 0..len {
            assert_eq!(read(&bytes[..cut]), Frame::Cut, "{cut}");
        }
    }

    #[test]
    fn no_flipped_bit_passes_for_an_entry() {
        let mut whole = Vec::new();
        write(&entry("abc"), &mut whole).unwrap();
        for at in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[at / 8] ^= 1 << (at % 8);
            assert!(!matches!(read(&bytes), Frame::Whole(..)), "bit {at}");
        }
    }
}
