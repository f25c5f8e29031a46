//! Headers as bytes, as the client sent them.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use weir_base::bytes::is_same;

/// The size of a number in bytes.
const WORD: usize = 4;

/// Headers in one allocation, in the format of Proxy-Wasm hosts. First come their number and the lengths of each name
/// and value, then the names and values, each with a terminating NUL. All numbers have 32 bits, little-endian.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    bytes: Vec<u8>,
}

impl Headers {
    /// Takes the bytes from a host. Truncated or malformed headers read as absent.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// Encodes headers in order.
    pub fn new<N: AsRef<[u8]>, V: AsRef<[u8]>>(headers: &[(N, V)]) -> Self {
        let word = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
        let texts = headers
            .iter()
            .map(|(name, value)| name.as_ref().len() + value.as_ref().len() + 2);
        let lengths_len = WORD * (1 + 2 * headers.len());
        let mut bytes = Vec::with_capacity(lengths_len + texts.sum::<usize>());
        bytes.extend_from_slice(&word(headers.len()));
        for (name, value) in headers {
            bytes.extend_from_slice(&word(name.as_ref().len()));
            bytes.extend_from_slice(&word(value.as_ref().len()));
        }
        for (name, value) in headers {
            for text in [name.as_ref(), value.as_ref()] {
                bytes.extend_from_slice(text);
                bytes.push(0);
            }
        }
        Self { bytes }
    }

    /// The format of Proxy-Wasm hosts.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The value of the header `name`, in lower case. Several headers of one name are joined with commas: only such a
    /// value is owned.
    pub fn get(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let mut values = self
            .iter()
            .filter(|(existing, _)| is_same(existing, name.as_bytes()));
        let (_, first) = values.next()?;
        // Hosts reject a request with a repeated pseudo-header: RFC 9113, section 8.1.1.
        if name.starts_with(':') {
            return Some(Cow::Borrowed(first));
        }
        let mut all = Some(Cow::Borrowed(first));
        values.for_each(|(_, value)| add_value(&mut all, value));
        all
    }

    /// Like [`Headers::get`], for several headers in one pass; not for pseudo-headers.
    pub fn get_each<const N: usize>(&self, names: [&str; N]) -> [Option<Cow<'_, [u8]>>; N] {
        let mut found = [const { None }; N];
        for (name, value) in self.iter() {
            for (requested, found) in names.iter().zip(&mut found) {
                if is_same(name, requested.as_bytes()) {
                    add_value(found, value);
                }
            }
        }
        found
    }

    /// Whether the client has sent a header that only gateways may send. Also true if the host passed no headers.
    pub fn pose_as_gateway(&self) -> bool {
        let is_gateway_only = |(name, _): (&[u8], &[u8])| weir_base::headers::is_gateway_only(name);
        self.bytes.is_empty() || self.iter().any(is_gateway_only)
    }

    /// Iterates over the headers in order: the name in lower case, and the value.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let (count, rest) = self.bytes.split_first_chunk().unwrap_or((&[0; WORD], &[]));
        let count = u32::from_le_bytes(*count) as usize;
        let lengths_len = count.saturating_mul(2 * WORD).min(rest.len());
        let (lengths, mut texts) = rest.split_at_checked(lengths_len).unwrap_or_default();
        let lengths = lengths.as_chunks::<WORD>().0;
        let mut text = move |length: &[u8; WORD]| {
            let length = u32::from_le_bytes(*length) as usize;
            let (text, behind) = texts.split_at_checked(length)?;
            texts = behind.get(1..)?;
            Some(text)
        };
        lengths
            .as_chunks::<2>()
            .0
            .iter()
            .map_while(move |[name, value]| {
                let name = text(name)?;
                Some((name, text(value)?))
            })
    }
}

/// Adds the next value of a header.
fn add_value<'h>(found: &mut Option<Cow<'h, [u8]>>, value: &'h [u8]) {
    match found {
        None => *found = Some(Cow::Borrowed(value)),
        Some(all) => {
            let all = all.to_mut();
            all.push(b',');
            all.extend_from_slice(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serialized_headers_round_trip() {
        let headers: [(&str, &[u8]); 4] = [
            (":path", b"/a"),
            ("x-empty", b""),
            ("x-bytes", b"\xff\0"),
            ("x-bytes", b"again"),
        ];
        let read = Headers::new(&headers);
        let all: Vec<_> = read.iter().collect();
        assert_eq!(all, headers.map(|(name, value)| (name.as_bytes(), value)));
        let of = |name| read.get(name).map(Cow::into_owned);
        assert_eq!(of(":path").as_deref(), Some(&b"/a"[..]));
        assert_eq!(of("x-bytes").as_deref(), Some(&b"\xff\0,again"[..]));
        assert_eq!(of("x-empty").as_deref(), Some(&b""[..]));
        assert_eq!(of("x-none"), None);
        let names = ["x-none", "x-bytes", "x-empty"];
        let each = read.get_each(names).map(|value| value.map(Cow::into_owned));
        assert_eq!(each, names.map(of));
    }

    /// The format belongs to the host, so the test spells it out byte by byte.
    #[test]
    fn headers_use_the_proxy_wasm_encoding() {
        let bytes = b"\x01\0\0\0\x02\0\0\0\x03\0\0\0ab\0xyz\0";
        let headers = Headers::new(&[("ab", "xyz")]);
        assert_eq!(headers.as_bytes(), bytes);
        assert_eq!(Headers::from_bytes(bytes.to_vec()), headers);
    }

    #[test]
    fn client_that_sends_gateway_headers_is_spoofing() {
        let gateway_only = weir_base::headers::GATEWAY_ONLY[0];
        assert!(Headers::new(&[(":path", "/"), (gateway_only, "forged")]).pose_as_gateway());
        assert!(!Headers::new(&[(":path", "/")]).pose_as_gateway());
        assert!(Headers::default().pose_as_gateway());
    }

    #[test]
    fn truncated_headers_are_absent() {
        let whole = Headers::new(&[("a", b"1"), ("b", b"2")]);
        for length in 0..whole.as_bytes().len() {
            let cut = whole.as_bytes().get(..length).unwrap().to_vec();
            let cut = Headers::from_bytes(cut);
            assert!(cut.iter().count() < 2);
            assert_eq!(cut.get("b"), None);
        }
        let endless = Headers::from_bytes(u32::MAX.to_le_bytes().to_vec());
        assert_eq!(endless.iter().count(), 0);
        // A length beyond a 32-bit address space.
        let mut long = Headers::new(&[("a", "1"), ("b", "2")]).as_bytes().to_vec();
        long[WORD..3 * WORD].fill(0xff);
        assert_eq!(Headers::from_bytes(long).get("b"), None);
    }
}
