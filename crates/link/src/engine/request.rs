//! Reads the parts of a request that links need.

use alloc::borrow::Cow;

use crate::answer::{Method, Visit};
use crate::cache::LinkName;
use crate::click::referer_of;
use crate::click_buffer::Click;
use crate::domain::Domain;
use crate::record::Country;
use crate::site::File;
use weir_base::agent::is_prefetch;
use weir_engine::{Headers, Request};

/// Maximum bytes that are read of each header that describes the client.
pub const HEADER_LEN_MAX: usize = 1_024;

/// The headers that links need; missing ones are empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fields<'a> {
    /// The method.
    pub method: Method,
    /// Whether a browser prefetches before a click: by `sec-purpose`, `purpose`, `x-purpose` or `x-moz`.
    pub is_prefetch: bool,
    /// `:path`.
    pub path: &'a [u8],
    /// `:authority`.
    pub host: &'a [u8],
    /// The beginning of `user-agent`.
    pub user_agent: &'a [u8],
    /// The beginning of `referer`.
    pub referer: &'a [u8],
    /// The beginning of `accept-language`.
    pub accept_language: &'a [u8],
    /// `x-forwarded-for`.
    pub forwarded_for: &'a [u8],
    /// The country, from a trusted header.
    pub country: Option<Country>,
    /// The visitor's bucket, 0 to 99: see [`Visit::point`].
    pub point: u8,
    /// See [`Visit::click_tag`].
    pub click_tag: Option<&'a str>,
}

/// The resource that a path on a link domain names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// A link.
    Link(LinkName),
    /// A file of the domain.
    File(File),
    /// Not a resource of links.
    Nothing,
}

impl<'a> Fields<'a> {
    /// Reads the fields. Of a repeated header, the first value counts.
    pub fn from_headers(headers: &'a Headers) -> Self {
        let mut fields = Self::default();
        let mut method: &[u8] = b"";
        for (name, value) in headers.iter() {
            let field = match name {
                b":method" => &mut method,
                b":path" => &mut fields.path,
                b":authority" => &mut fields.host,
                b"user-agent" => &mut fields.user_agent,
                b"referer" => &mut fields.referer,
                b"accept-language" => &mut fields.accept_language,
                b"x-forwarded-for" => &mut fields.forwarded_for,
                b"sec-purpose" | b"purpose" | b"x-purpose" | b"x-moz" => {
                    fields.is_prefetch |= is_prefetch(value);
                    continue;
                }
                _ => continue,
            };
            if field.is_empty() {
                *field = value;
            }
        }
        Self {
            method: Method::read(method),
            user_agent: beginning(fields.user_agent),
            referer: beginning(fields.referer),
            accept_language: beginning(fields.accept_language),
            ..fields
        }
    }

    /// Adds the country from the header `name`.
    pub fn with_country(self, headers: &Headers, name: Option<&str>) -> Self {
        let value = name.and_then(|name| headers.get(name));
        Self {
            country: value.and_then(|value| Country::read(&value)),
            ..self
        }
    }

    /// The resource that it requests from `domain`.
    pub fn resource(&self, domain: &Domain) -> Resource {
        let path = self.split_path().0;
        if let Some(file) = File::at(path) {
            return Resource::File(file);
        }
        let code = path
            .strip_prefix(b"/")
            .and_then(|path| domain.codes.read(path));
        let name = code.and_then(|code| LinkName::new(&domain.id, &code));
        name.map_or(Resource::Nothing, Resource::Link)
    }

    /// The path, and the query string after its first `?`.
    pub fn split_path(&self) -> (&'a [u8], &'a [u8]) {
        let at = self.path.iter().position(|byte| *byte == b'?');
        let (path, query) = at
            .and_then(|at| self.path.split_at_checked(at))
            .unwrap_or((self.path, b""));
        (path, query.get(1..).unwrap_or_default())
    }

    /// The client's address. It is read from the host only if `x-forwarded-for` is not trusted or has no address.
    pub fn address(&self, trusted_hops: Option<usize>, request: &dyn Request) -> Cow<'a, [u8]> {
        match trusted_hops.and_then(|hops| self.forwarded(hops)) {
            Some(address) => Cow::Borrowed(address),
            None => Cow::Owned(request.peer_address()),
        }
    }

    /// The address in `x-forwarded-for` that `trusted_hops` others follow.
    pub fn forwarded(&self, trusted_hops: usize) -> Option<&'a [u8]> {
        let mut from_the_end = self.forwarded_for.rsplit(|byte| *byte == b',');
        let named = from_the_end.nth(trusted_hops)?.trim_ascii();
        (!named.is_empty()).then_some(named)
    }

    /// Whether statistics count this request: a GET that is not a prefetch, by a person or a program.
    pub fn is_visit(&self) -> bool {
        self.visit(None, 0).is_counted()
    }

    /// Whether this is a click, which renews the link's lifetime and uses one of its clicks. Automatic clients are
    /// excluded.
    pub fn is_click(&self) -> bool {
        self.visit(None, 0).is_click()
    }

    /// The request as a visit of a link.
    pub fn visit(&self, left_ms: Option<u64>, now_ms: u64) -> Visit<'a> {
        Visit {
            method: self.method,
            is_prefetch: self.is_prefetch,
            query: self.split_path().1,
            user_agent: self.user_agent,
            accept_language: self.accept_language,
            country: self.country,
            point: self.point,
            click_tag: self.click_tag,
            now_ms,
            left_ms,
        }
    }

    /// The request as a click on `link` from `address`.
    pub fn click(&self, link: &'a LinkName, address: &'a [u8], now_ms: u64) -> Click<'a> {
        Click {
            link,
            now_ms,
            address,
            user_agent: self.user_agent,
            referer: referer_of(self.referer, self.split_path().1),
            accept_language: self.accept_language,
        }
    }
}

fn beginning(value: &[u8]) -> &[u8] {
    value.get(..HEADER_LEN_MAX).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn first_header_counts_and_long_header_is_truncated() {
        let long = vec![b'a'; HEADER_LEN_MAX + 1];
        let headers = Headers::new(&[
            (":method", b"HEAD".as_slice()),
            ("user-agent", &long),
            ("referer", b"one"),
            ("referer", b"two"),
            ("x-forwarded-for", &long),
        ]);
        let fields = Fields::from_headers(&headers);
        assert_eq!(fields.method, Method::Head);
        assert_eq!(fields.user_agent.len(), HEADER_LEN_MAX);
        assert_eq!(fields.referer, b"one");
        // Addresses are counted from the end.
        assert_eq!(fields.forwarded_for, long);
    }

    #[test]
    fn only_get_requests_by_non_crawlers_are_clicks() {
        let check = |headers: &[(&str, &str)], is_visit: bool, is_click: bool| {
            let headers = Headers::new(headers);
            let fields = Fields::from_headers(&headers);
            assert_eq!(
                (fields.is_visit(), fields.is_click()),
                (is_visit, is_click),
                "{headers:?}"
            );
        };
        let get = (":method", "GET");
        check(&[get], true, true);
        check(&[get, ("user-agent", "curl/8")], true, true);
        check(&[get, ("user-agent", "WhatsApp/2.23")], true, false);
        check(&[(":method", "HEAD")], false, false);
        check(&[(":method", "POST")], false, false);
        for (name, value) in [
            ("sec-purpose", "prefetch"),
            ("sec-purpose", "prefetch;prerender"),
            ("purpose", "Prefetch"),
            ("x-purpose", "preview"),
            ("x-moz", "prefetch"),
        ] {
            check(&[get, (name, value)], false, false);
        }
        check(&[get, ("purpose", "prefetched")], true, true);
    }

    #[test]
    fn path_resolves_to_a_link_a_file_or_nothing() {
        let domain = serde_json::from_str(r#"{"id":"s","hosts":["s.example"]}"#);
        let domain: Domain = domain.unwrap();
        let check = |path: &[u8], expected: Resource| {
            let fields = Fields {
                path,
                ..Fields::default()
            };
            assert_eq!(fields.resource(&domain), expected, "{path:?}");
        };
        let link = Resource::Link(LinkName::new(&domain.id, b"aZ3k9Qx").unwrap());
        check(b"/aZ3k9Qx", link);
        check(b"/aZ3k9Qx?", link);
        check(b"/aZ3k9Qx?a=/b?c", link);
        // This could be a code.
        check(
            b"/apple-app-site-association?x",
            Resource::File(File::AppleApps),
        );
        check(b"/?aZ3k9Qx", Resource::File(File::Home));
        let long = [b"/".as_slice(), &[b'a'; 65_536]].concat();
        for nothing in [
            &b""[..],
            b"*",
            b"aZ3k9Qx",
            b"/aZ3k9Qx/",
            b"/a/b",
            b"/a%41b",
            b"/\xff\xff\xff",
            &long,
        ] {
            check(nothing, Resource::Nothing);
        }
    }

    #[test]
    fn client_address_is_the_configured_hops_from_the_end() {
        let fields = |chain| Fields {
            forwarded_for: chain,
            ..Fields::default()
        };
        let chain = fields(b"6.6.6.6, 192.0.2.1 ,10.0.0.1");
        assert_eq!(chain.forwarded(0), Some(&b"10.0.0.1"[..]));
        assert_eq!(chain.forwarded(1), Some(&b"192.0.2.1"[..]));
        assert_eq!(chain.forwarded(3), None);
        assert_eq!(fields(b"").forwarded(0), None);
        assert_eq!(fields(b"1.2.3.4, ").forwarded(0), None);
    }

    #[test]
    fn query_begins_after_the_first_question_mark() {
        let fields = Fields {
            path: b"/a?b?c",
            ..Fields::default()
        };
        assert_eq!(fields.split_path(), (&b"/a"[..], &b"b?c"[..]));
        let fields = Fields {
            path: b"/a",
            ..Fields::default()
        };
        assert_eq!(fields.split_path(), (&b"/a"[..], &b""[..]));
    }
}
