//! The stream of links that were edited, disabled, deleted or created under a custom code, at
//! [`keys::link_changes`](crate::redis::keys::link_changes). The origin writes it. Gateways read it and evict the
//! links.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::str;

use crate::code::LinkId;
use weir_base::resp::Value;

use crate::redis::keys::link_changes;
use weir_scripts::call::decimal;

/// The field with the link: `<domain>/<code>`.
const LINK: &[u8] = b"l";

/// Approximate maximum entries of the stream. A gateway that misses more revalidates its whole cache.
const CHANGES_LEN: u64 = 10_000;

/// A change as read by gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// The entry's id in the stream.
    pub id: &'a [u8],
    /// The link; `None` if the entry is of another kind.
    pub link: Option<LinkId>,
}

/// The command that adds a change, word by word.
pub fn add(prefix: &str, link: &LinkId) -> [Vec<u8>; 8] {
    let word = |text: &[u8]| text.to_vec();
    [
        word(b"XADD"),
        link_changes(prefix),
        word(b"MAXLEN"),
        word(b"~"),
        decimal(CHANGES_LEN),
        word(b"*"),
        word(LINK),
        link.to_string().into_bytes(),
    ]
}

/// Parses an entry of `XRANGE` or `XREVRANGE`; `None` if it is malformed.
pub fn read(entry: &Value) -> Option<Change<'_>> {
    let Value::Array(parts) = entry else {
        return None;
    };
    let [Value::Bulk(id), Value::Array(fields)] = parts.as_slice() else {
        return None;
    };
    let is_link = |name: &Value| matches!(name, Value::Bulk(name) if name == LINK);
    let fields = fields.as_chunks::<2>().0;
    let link = fields.iter().find(|[name, _]| is_link(name));
    let link = link.and_then(|[_, value]| match value {
        Value::Bulk(text) => str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    });
    Some(Change { id, link })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The entry that Redis creates from the command.
    fn entry(command: &[Vec<u8>]) -> Value {
        let fields = command[6..].iter().cloned().map(Value::Bulk);
        let fields = Value::Array(fields.collect());
        Value::Array([Value::Bulk(b"5-0".to_vec()), fields].into())
    }

    #[test]
    fn added_link_change_is_read() {
        let link: LinkId = "s/aZ3k9Qx".parse().unwrap();
        let command = add("weir", &link);
        assert_eq!(command[1], b"weir:link:changes");
        let entry = entry(&command);
        let change = read(&entry).unwrap();
        assert_eq!((change.id, change.link), (&b"5-0"[..], Some(link)));
    }

    #[test]
    fn other_entries_are_skipped_and_invalid_ones_are_reported() {
        let mut other = add("weir", &"s/abc".parse().unwrap());
        other[7] = b"no link".to_vec();
        assert_eq!(read(&entry(&other)).unwrap().link, None);
        other[6] = b"x".to_vec();
        assert_eq!(read(&entry(&other)).unwrap().link, None);
        assert_eq!(read(&Value::Null), None);
        assert_eq!(read(&Value::Array(Vec::new())), None);
    }
}
