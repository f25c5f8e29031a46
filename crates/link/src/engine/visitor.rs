//! The parts of a waiting request that its answer depends on. The host does not keep the request.

use alloc::boxed::Box;

use crate::answer::{Method, QUERY_LEN_MAX};
use crate::cache::LinkName;
use crate::record::{Country, Link};
use crate::rule::point_of;

use crate::engine::request::Fields;

/// Maximum length of an address, in bytes. A valid address with a port is shorter.
const ADDRESS_LEN_MAX: usize = 64;

/// A client, as far as the response and the click depend on it. It takes about 300 bytes, and at most 8 kB. 10,000
/// waiting requests take at most 80 MB.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    method: Method,
    is_prefetch: bool,
    path: Box<[u8]>,
    user_agent: Box<[u8]>,
    referer: Box<[u8]>,
    accept_language: Box<[u8]>,
    country: Option<Country>,
    /// The client's address.
    pub(crate) address: Box<[u8]>,
}

impl Visitor {
    /// Copies the fields of a request for a link from `address`.
    pub(crate) fn new(fields: &Fields<'_>, address: &[u8]) -> Self {
        let (path, query) = fields.split_path();
        let is_passed_on = !query.is_empty() && query.len() <= QUERY_LEN_MAX;
        let is_address = address.len() <= ADDRESS_LEN_MAX;
        Self {
            method: fields.method,
            is_prefetch: fields.is_prefetch,
            path: if is_passed_on { fields.path } else { path }.into(),
            user_agent: fields.user_agent.into(),
            referer: fields.referer.into(),
            accept_language: fields.accept_language.into(),
            country: fields.country,
            address: if is_address { address } else { b"" }.into(),
        }
    }

    /// The fields, without `:authority` and `x-forwarded-for`.
    pub(crate) fn fields(&self) -> Fields<'_> {
        Fields {
            method: self.method,
            is_prefetch: self.is_prefetch,
            path: &self.path,
            host: b"",
            user_agent: &self.user_agent,
            referer: &self.referer,
            accept_language: &self.accept_language,
            forwarded_for: b"",
            country: self.country,
            point: 0,
            click_tag: None,
        }
    }

    /// The fields of a visitor of `link`, named `name`.
    pub(crate) fn fields_for(&self, link: &Link, name: &LinkName) -> Fields<'_> {
        let fields = self.fields();
        let point = match link.has_shares() {
            true => point_of(name.as_bytes(), &self.address, fields.user_agent),
            false => 0,
        };
        Fields { point, ..fields }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Code;
    use crate::engine::request::HEADER_LEN_MAX;
    use alloc::vec;
    use alloc::vec::Vec;
    use weir_engine::Headers;

    fn visitor(headers: &[(&str, &[u8])], address: &[u8]) -> Visitor {
        Visitor::new(&Fields::from_headers(&Headers::new(headers)), address)
    }

    #[test]
    fn visitor_keeps_the_request_fields() {
        let headers: [(&str, &[u8]); 5] = [
            (":method", b"HEAD"),
            (":path", b"/abc?a=b"),
            ("user-agent", b"agent"),
            ("referer", b"https://a.example/"),
            ("accept-language", b"zh"),
        ];
        let visitor = visitor(&headers, b"192.0.2.1:1");
        let fields = visitor.fields();
        assert_eq!(fields.method, Method::Head);
        let texts = [
            fields.path,
            fields.user_agent,
            fields.referer,
            fields.accept_language,
        ];
        assert_eq!(
            texts.to_vec(),
            headers[1..]
                .iter()
                .map(|(_, value)| *value)
                .collect::<Vec<_>>()
        );
        assert_eq!(*visitor.address, *b"192.0.2.1:1");
    }

    #[test]
    fn visitor_memory_stays_within_its_stated_bound() {
        let long = vec![b'a'; 1 << 20];
        let code = vec![b'a'; Code::LEN_MAX];
        for query_len in [0, QUERY_LEN_MAX, QUERY_LEN_MAX + 1, 1 << 20] {
            let path = [b"/".as_slice(), &code, b"?", &vec![b'q'; query_len]].concat();
            let headers: [(&str, &[u8]); 5] = [
                (":path", &path),
                (":authority", &long),
                ("user-agent", &long),
                ("referer", &long),
                ("accept-language", &long),
            ];
            let visitor = visitor(&headers, &long);
            let fields = visitor.fields();
            let length = fields.path.len()
                + fields.user_agent.len()
                + fields.referer.len()
                + fields.accept_language.len()
                + visitor.address.len();
            assert!(length + size_of::<Visitor>() <= 8_000, "{length}");
            assert_eq!(fields.user_agent.len(), HEADER_LEN_MAX);
            let kept_query = if query_len > QUERY_LEN_MAX {
                0
            } else {
                query_len
            };
            assert_eq!(fields.split_path().1.len(), kept_query);
        }
    }
}
