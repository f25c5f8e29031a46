//! Parses Redis replies about streams.

use std::collections::BTreeMap;

use redis::Value;

/// An entry of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its id, such as `1700000000000-0`.
    pub(crate) id: String,
    /// Its fields; `None` if it was deleted after delivery to a consumer.
    pub(crate) fields: Option<BTreeMap<Vec<u8>, Vec<u8>>>,
}

/// A consumer of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Consumer {
    pub(crate) name: String,
    /// Number of entries delivered to it but not acknowledged.
    pub(crate) pending: u64,
    /// Milliseconds since its last read.
    pub(crate) idle_ms: u64,
}

/// The reply does not match the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Redis: unexpected reply of {0}")]
pub struct StreamError(&'static str);

/// Parses the reply of `XREADGROUP` for one stream.
pub(crate) fn read(reply: Value) -> Result<Vec<Entry>, StreamError> {
    let found = match reply {
        Value::Nil => return Ok(Vec::new()),
        Value::Array(streams) => streams.into_iter().next().and_then(|stream| match stream {
            Value::Array(parts) => parts.into_iter().nth(1),
            _ => None,
        }),
        _ => None,
    };
    found.and_then(entries).ok_or(StreamError("XREADGROUP"))
}

/// Parses the reply of `XAUTOCLAIM`.
pub(crate) fn claimed(reply: Value) -> Result<Vec<Entry>, StreamError> {
    let found = match reply {
        // The reply has the next cursor, the entries, and since Redis 7 the deleted ids.
        Value::Array(parts) => parts.into_iter().nth(1),
        _ => None,
    };
    found.and_then(entries).ok_or(StreamError("XAUTOCLAIM"))
}

/// Parses the reply of `XINFO CONSUMERS`.
pub(crate) fn consumers(reply: Value) -> Result<Vec<Consumer>, StreamError> {
    let listed = match reply {
        Value::Array(listed) => listed.into_iter().map(consumer).collect(),
        _ => None,
    };
    listed.ok_or(StreamError("XINFO CONSUMERS"))
}

fn entries(value: Value) -> Option<Vec<Entry>> {
    let Value::Array(entries) = value else {
        return None;
    };
    // Redis 6 returns null for a deleted entry.
    let entries = entries.into_iter().filter(|entry| *entry != Value::Nil);
    entries.map(entry).collect()
}

fn entry(value: Value) -> Option<Entry> {
    let Value::Array(parts) = value else {
        return None;
    };
    let mut parts = parts.into_iter();
    let id = text(parts.next()?)?;
    let fields = match parts.next()? {
        Value::Nil => None,
        fields => Some(values(pairs(fields)?)?),
    };
    Some(Entry { id, fields })
}

fn values(pairs: Vec<(Vec<u8>, Value)>) -> Option<BTreeMap<Vec<u8>, Vec<u8>>> {
    let bytes = |(name, value)| match value {
        Value::BulkString(bytes) => Some((name, bytes)),
        _ => None,
    };
    pairs.into_iter().map(bytes).collect()
}

fn consumer(value: Value) -> Option<Consumer> {
    let mut fields: BTreeMap<Vec<u8>, Value> = pairs(value)?.into_iter().collect();
    let mut number = |name: &str| match fields.remove(name.as_bytes())? {
        Value::Int(number) => u64::try_from(number).ok(),
        _ => None,
    };
    let (pending, idle_ms) = (number("pending")?, number("idle")?);
    let name = text(fields.remove(b"name".as_slice())?)?;
    Some(Consumer {
        name,
        pending,
        idle_ms,
    })
}

/// Splits alternating names and values.
fn pairs(value: Value) -> Option<Vec<(Vec<u8>, Value)>> {
    let Value::Array(flat) = value else {
        return None;
    };
    let mut flat = flat.into_iter();
    let mut pairs = Vec::new();
    while let Some(name) = flat.next() {
        let Value::BulkString(name) = name else {
            return None;
        };
        pairs.push((name, flat.next()?));
    }
    Some(pairs)
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn array<const N: usize>(values: [Value; N]) -> Value {
        Value::Array(values.into())
    }

    #[test]
    fn stream_entries_are_parsed_and_deleted_ones_reported() {
        let whole = array([bulk("1-0"), array([bulk("b"), bulk("id")])]);
        let deleted = array([bulk("2-0"), Value::Nil]);
        let reply = array([array([bulk("stream"), array([whole.clone(), deleted])])]);
        let entries = read(reply).unwrap();
        assert_eq!(entries[0].fields.as_ref().unwrap()[b"b".as_slice()], b"id");
        assert_eq!((entries[1].id.as_str(), &entries[1].fields), ("2-0", &None));
        assert_eq!(read(Value::Nil), Ok(Vec::new()));
        let reply = array([bulk("0-0"), array([Value::Nil, whole]), array([])]);
        assert_eq!(claimed(reply).unwrap().len(), 1);
        for odd in [
            Value::Okay,
            array([bulk("x")]),
            array([array([bulk("x"), bulk("y")])]),
        ] {
            assert_eq!(read(odd), Err(StreamError("XREADGROUP")));
        }
    }

    #[test]
    fn consumers_are_parsed_despite_extra_fields() {
        let response = [
            bulk("name"),
            bulk("a"),
            bulk("pending"),
            Value::Int(2),
            bulk("idle"),
        ];
        let more = [Value::Int(7), bulk("inactive"), Value::Int(-1)];
        let reply = array([Value::Array([response.to_vec(), more.to_vec()].concat())]);
        let expected = Consumer {
            name: "a".to_owned(),
            pending: 2,
            idle_ms: 7,
        };
        assert_eq!(consumers(reply), Ok(vec![expected]));
        assert!(consumers(array([array([bulk("name")])])).is_err());
    }
}
