//! Numbers and encodings of the Proxy-Wasm ABI 0.2.1.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the host, and must stop the test"
)]

use std::fmt;

/// The result of a host call (`proxy_status_t`, with Envoy's numbers).
///
/// The Rust SDK turns a few of them into `Ok` or `Err`, depending on the call, and panics on the others: an unexpected
/// status kills the VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// No such key, queue, metric, property, buffer or function.
    NotFound = 1,
    /// The host refuses an argument.
    BadArgument = 2,
    /// A value could not be written in the ABI's form.
    SerializationFailure = 3,
    /// A value could not be read.
    ParseFailure = 4,
    /// A pointer or a length reaches outside the module's memory.
    InvalidMemoryAccess = 6,
    /// The queue is empty.
    Empty = 7,
    /// Another writer was faster (`proxy_set_shared_data`).
    CasMismatch = 8,
    /// The host cannot do it at this time.
    InternalFailure = 10,
    /// The peer broke off; seen only through `proxy_get_status`.
    BrokenConnection = 11,
    /// The host does not implement the call.
    Unimplemented = 12,
}

/// The severity of a log line (`proxy_log_level_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum LogLevel {
    /// Step by step.
    Trace = 0,
    /// For debugging the filter.
    Debug = 1,
    /// Normal operation.
    Info = 2,
    /// Unexpected, but handled.
    Warn = 3,
    /// Something failed.
    Error = 4,
    /// The VM cannot continue. The host itself logs a trap at this level.
    Critical = 5,
}

impl LogLevel {
    pub(crate) fn from_abi(level: u32) -> Option<Self> {
        Some(match level {
            0 => Self::Trace,
            1 => Self::Debug,
            2 => Self::Info,
            3 => Self::Warn,
            4 => Self::Error,
            5 => Self::Critical,
            _ => return None,
        })
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Critical => "critical",
        })
    }
}

/// The map of names and values that a call accesses (`proxy_map_type_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapType {
    RequestHeaders,
    RequestTrailers,
    ResponseHeaders,
    ResponseTrailers,
    /// The gRPC maps: always empty here.
    Grpc,
    CallResponseHeaders,
    CallResponseTrailers,
}

impl MapType {
    pub(crate) fn from_abi(kind: u32) -> Option<Self> {
        Some(match kind {
            0 => Self::RequestHeaders,
            1 => Self::RequestTrailers,
            2 => Self::ResponseHeaders,
            3 => Self::ResponseTrailers,
            4 | 5 => Self::Grpc,
            6 => Self::CallResponseHeaders,
            7 => Self::CallResponseTrailers,
            _ => return None,
        })
    }
}

/// The buffer that a call accesses (`proxy_buffer_type_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BufferType {
    RequestBody,
    ResponseBody,
    DownstreamData,
    UpstreamData,
    CallResponseBody,
    Grpc,
    VmConfiguration,
    PluginConfiguration,
    CallData,
}

impl BufferType {
    pub(crate) fn from_abi(kind: u32) -> Option<Self> {
        Some(match kind {
            0 => Self::RequestBody,
            1 => Self::ResponseBody,
            2 => Self::DownstreamData,
            3 => Self::UpstreamData,
            4 => Self::CallResponseBody,
            5 => Self::Grpc,
            6 => Self::VmConfiguration,
            7 => Self::PluginConfiguration,
            8 => Self::CallData,
            _ => return None,
        })
    }
}

/// Headers or trailers: an ordered list of names and values.
///
/// Names are converted to lower case, as in Envoy. Values are bytes, so a test can send invalid UTF-8. A name may occur
/// several times.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, Vec<u8>)>);

impl Headers {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// The first value of `name`, which is case-insensitive.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.get_all(name).next()
    }

    /// The first value of `name` as text; `None` if it is missing or not UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.get(name)?).ok()
    }

    /// Every value of `name`, in order.
    pub fn get_all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let name = name.to_ascii_lowercase();
        self.0
            .iter()
            .filter(move |(n, _)| *n == name)
            .map(|(_, v)| v.as_slice())
    }

    /// Adds a value, keeping existing values of `name`.
    pub fn add(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.0
            .push((name.to_ascii_lowercase(), value.as_ref().to_vec()));
    }

    /// Replaces all values of `name` by this one, in the place of the first.
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) {
        let name = name.to_ascii_lowercase();
        let Some(first) = self.0.iter().position(|(n, _)| *n == name) else {
            return self.add(&name, value);
        };
        self.0[first].1 = value.as_ref().to_vec();
        let mut index = 0;
        self.0.retain(|(n, _)| {
            let keep = *n != name || index == first;
            index += 1;
            keep
        });
    }

    /// Removes every value of `name`.
    pub fn remove(&mut self, name: &str) {
        let name = name.to_ascii_lowercase();
        self.0.retain(|(n, _)| *n != name);
    }

    /// The number of values over all names.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(n, v)| (n.as_str(), v.as_slice()))
    }

    /// The ABI's encoding: a count, the lengths, then each name and value, terminated by a zero byte.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = u32_of(self.0.len()).to_le_bytes().to_vec();
        for (name, value) in &self.0 {
            out.extend(u32_of(name.len()).to_le_bytes());
            out.extend(u32_of(value.len()).to_le_bytes());
        }
        for (name, value) in &self.0 {
            out.extend(name.as_bytes());
            out.push(0);
            out.extend(value);
            out.push(0);
        }
        out
    }

    /// Decodes the ABI's encoding. `None` if it is malformed; empty input gives no headers, as in Envoy. Invalid UTF-8
    /// in a name becomes replacement characters.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < 4 {
            return Some(Self::new());
        }
        let count = word(bytes, 0)? as usize;
        let mut text = 4usize.checked_add(count.checked_mul(8)?)?;
        if text > bytes.len() {
            return None;
        }
        let mut headers = Self::new();
        for i in 0..count {
            let name_len = word(bytes, 4 + i * 8)? as usize;
            let value_len = word(bytes, 8 + i * 8)? as usize;
            let name = bytes.get(text..text.checked_add(name_len)?)?;
            text += name_len + 1;
            let value = bytes.get(text..text.checked_add(value_len)?)?;
            text += value_len + 1;
            headers.add(&String::from_utf8_lossy(name), value);
        }
        Some(headers)
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.iter().map(|(name, value)| (name, Bytes(value)));
        f.debug_map().entries(pairs).finish()
    }
}

/// Formats bytes as escaped text, for readable assertion failures.
pub(crate) struct Bytes<'a>(pub &'a [u8]);

impl fmt::Debug for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut headers = Self::new();
        for (name, value) in pairs {
            headers.add(name.as_ref(), value);
        }
        headers
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A length as the ABI's 32-bit word. Longer data does not fit into the module's memory.
pub(crate) fn u32_of(length: usize) -> u32 {
    u32::try_from(length).expect("a length in a 32-bit module")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_with_any_bytes_round_trip_through_the_abi() {
        let headers: Headers = [("A", &b"\xff\x00x"[..]), ("b", b""), ("a", b"2")]
            .into_iter()
            .collect();
        assert_eq!(Headers::decode(&headers.encode()), Some(headers.clone()));
        assert_eq!(headers.get("a"), Some(&b"\xff\x00x"[..]));
        assert_eq!(headers.get_all("A").count(), 2);
    }

    #[test]
    fn malformed_pairs_are_refused() {
        let good: Headers = [("name", "value")].into_iter().collect();
        let good = good.encode();
        for cut in 4..good.len() - 1 {
            assert_eq!(Headers::decode(&good[..cut]), None, "cut at {cut}");
        }
        assert_eq!(Headers::decode(&[0xff; 12]), None);
        assert_eq!(Headers::decode(&[]), Some(Headers::new()));
    }

    #[test]
    fn set_header_keeps_one_value_at_its_position() {
        let mut headers: Headers = [("x", "1"), ("y", "2"), ("x", "3")].into_iter().collect();
        headers.set("X", "4");
        let all: Vec<_> = headers.iter().collect();
        assert_eq!(all, [("x", &b"4"[..]), ("y", b"2")]);
    }
}
