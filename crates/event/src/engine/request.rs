//! Reads a request's headers once.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use crate::consent::{Consent, is_signalled};
use crate::name::VisitorId;
use crate::pixel;
use crate::stamps::REMOVED;
use weir_base::address::AddressGroup;
use weir_base::agent::{PREFETCH_HEADERS, is_prefetch};
use weir_base::headers::{CONSENT, VISITOR, WRITE_KEY};
use weir_engine::{Headers, Request};

/// Request headers that must not pass the gateway, besides metadata: credentials and whole addresses.
pub(crate) const PRIVATE: [&str; 6] = [
    "authorization",
    "cookie",
    "forwarded",
    "x-envoy-external-address",
    "x-forwarded-for",
    "x-real-ip",
];

/// The fields of a request. Missing ones are empty.
#[derive(Debug, Default)]
pub(crate) struct Fields<'a> {
    pub(crate) method: &'a [u8],
    path: &'a [u8],
    pub(crate) origin: Option<&'a [u8]>,
    write_key: Option<&'a [u8]>,
    visitor: Option<&'a [u8]>,
    pub(crate) content_type: &'a [u8],
    pub(crate) content_encoding: Option<&'a [u8]>,
    pub(crate) content_length: Option<&'a [u8]>,
    pub(crate) wanted_method: Option<&'a [u8]>,
    forwarded_for: &'a [u8],
    pub(crate) user_agent: &'a [u8],
    cookie: &'a [u8],
    /// The consent header; `Err` if the value is invalid.
    consent: Option<Result<Consent, NoConsent>>,
    pub(crate) has_gpc: bool,
    pub(crate) has_dnt: bool,
    pub(crate) is_prefetch: bool,
    /// The present headers among [`REMOVED`] and [`PRIVATE`].
    pub(crate) to_remove: Vec<&'static str>,
}

/// The text is not a consent value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoConsent;

impl<'a> Fields<'a> {
    /// Reads the fields. Of a repeated header the first value counts; of consent, the strictest.
    pub(crate) fn from_headers(headers: &'a Headers) -> Self {
        let mut fields = Self::default();
        for (name, value) in headers.iter() {
            fields.take(name, value);
        }
        fields
    }

    fn take(&mut self, name: &[u8], value: &'a [u8]) {
        let text = match name {
            b":method" => Some(&mut self.method),
            b":path" => Some(&mut self.path),
            b"content-type" => Some(&mut self.content_type),
            b"user-agent" => Some(&mut self.user_agent),
            _ => None,
        };
        if let Some(text) = text {
            if text.is_empty() {
                *text = value;
            }
            return;
        }
        self.note(name, value);
        let optional = match name {
            b"origin" => &mut self.origin,
            b"content-encoding" => &mut self.content_encoding,
            b"content-length" => &mut self.content_length,
            b"access-control-request-method" => &mut self.wanted_method,
            name if name == WRITE_KEY.as_bytes() => &mut self.write_key,
            name if name == VISITOR.as_bytes() => &mut self.visitor,
            _ => return,
        };
        optional.get_or_insert(value);
    }

    /// Handles headers for which every copy counts.
    fn note(&mut self, name: &[u8], value: &'a [u8]) {
        match name {
            b"cookie" if self.cookie.is_empty() => self.cookie = value,
            b"x-forwarded-for" => self.forwarded_for = value,
            b"sec-gpc" => self.has_gpc |= is_signalled(Some(value)),
            b"dnt" => self.has_dnt |= is_signalled(Some(value)),
            name if name == CONSENT.as_bytes() => {
                let consent = Consent::from_label(value.trim_ascii()).ok_or(NoConsent);
                self.consent = Some(
                    self.consent
                        .map_or(consent, |before| strictest(before, consent)),
                );
            }
            name if PREFETCH_HEADERS
                .iter()
                .any(|existing| name == existing.as_bytes()) =>
            {
                self.is_prefetch |= is_prefetch(value);
            }
            _ => {}
        }
        let mut removable = REMOVED.iter().chain(&PRIVATE);
        if let Some(existing) = removable.find(|existing| name == existing.as_bytes())
            && !self.to_remove.contains(existing)
        {
            self.to_remove.push(existing);
        }
    }

    /// The query after the first `?` of the path, if there is one.
    pub(crate) fn query(&self) -> Option<&'a [u8]> {
        split_path(self.path).1
    }

    /// The write key, from its header or else from the query.
    pub(crate) fn write_key(&self) -> Option<Cow<'a, [u8]>> {
        self.text(self.write_key, pixel::KEY)
    }

    /// The visitor, if it is a valid id.
    pub(crate) fn visitor(&self) -> Option<VisitorId> {
        let text = self.text(self.visitor, pixel::VISITOR)?;
        VisitorId::new(text).ok()
    }

    /// The stated consent: the strictest of header and query.
    pub(crate) fn consent(&self) -> Result<Option<Consent>, NoConsent> {
        let query = self
            .query()
            .and_then(|query| pixel::parameter(query, pixel::CONSENT));
        let query = query.map(|word| Consent::from_label(&word).ok_or(NoConsent));
        let both = match (self.consent, query) {
            (Some(header), Some(query)) => Some(strictest(header, query)),
            (header, query) => header.or(query),
        };
        both.transpose()
    }

    fn text(&self, header: Option<&'a [u8]>, parameter: &[u8]) -> Option<Cow<'a, [u8]>> {
        match header {
            Some(value) => Some(Cow::Borrowed(value)),
            None => pixel::parameter(self.query()?, parameter),
        }
    }

    /// The value of a cookie.
    pub(crate) fn cookie(&self, name: &str) -> Option<&'a [u8]> {
        let mut pairs = self.cookie.split(|byte| *byte == b';');
        pairs.find_map(|pair| {
            let value = pair.trim_ascii().strip_prefix(name.as_bytes())?;
            value.strip_prefix(b"=")
        })
    }

    /// The client's address, behind this many trusted proxies. It is read from the host only if `x-forwarded-for` is
    /// not trusted or has no address.
    pub(crate) fn address(
        &self,
        trusted_hops: Option<usize>,
        request: &dyn Request,
    ) -> Cow<'a, [u8]> {
        let named = trusted_hops.and_then(|hops| {
            let mut from_the_end = self.forwarded_for.rsplit(|byte| *byte == b',');
            let named = from_the_end.nth(hops)?.trim_ascii();
            (AddressGroup::read(named) != AddressGroup::Other).then_some(named)
        });
        named.map_or_else(|| Cow::Owned(request.peer_address()), Cow::Borrowed)
    }
}

fn strictest(
    a: Result<Consent, NoConsent>,
    b: Result<Consent, NoConsent>,
) -> Result<Consent, NoConsent> {
    Ok(a?.and(b?))
}

/// The path, and the query after its first `?`, if there is one.
pub(crate) fn split_path(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    let at = path.iter().position(|byte| *byte == b'?');
    match at.and_then(|at| path.split_at_checked(at)) {
        Some((path, query)) => (path, query.get(1..)),
        None => (path, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_engine::event::PlainRequest;

    #[test]
    fn header_wins_over_query_and_first_header_over_others() {
        let headers = Headers::new(&[
            (":path", "/events?key=q&visitor=qv&consent=anonymous"),
            (WRITE_KEY, "h"),
            (WRITE_KEY, "again"),
        ]);
        let fields = Fields::from_headers(&headers);
        assert_eq!(fields.write_key().unwrap().as_ref(), b"h");
        assert_eq!(fields.visitor().unwrap().as_str(), "qv");
        assert_eq!(fields.consent(), Ok(Some(Consent::Anonymous)));
        assert_eq!(fields.to_remove, [WRITE_KEY]);
        let headers = Headers::new(&[(":path", "/events")]);
        let fields = Fields::from_headers(&headers);
        assert_eq!((fields.write_key(), fields.visitor()), (None, None));
    }

    #[test]
    fn strictest_consent_wins_and_invalid_consent_means_none() {
        let consent = |path: &str, response: &[&str]| {
            let mut headers: Vec<(&str, &str)> =
                response.iter().map(|word| (CONSENT, *word)).collect();
            headers.push((":path", path));
            Fields::from_headers(&Headers::new(&headers)).consent()
        };
        assert_eq!(consent("/", &[]), Ok(None));
        assert_eq!(consent("/", &["full"]), Ok(Some(Consent::Full)));
        assert_eq!(
            consent("/", &["full", "none", "full"]),
            Ok(Some(Consent::None))
        );
        assert_eq!(
            consent("/?consent=none", &["full"]),
            Ok(Some(Consent::None))
        );
        assert_eq!(consent("/?consent=yes", &["full"]), Err(NoConsent));
        assert_eq!(consent("/?consent=full", &["full,none"]), Err(NoConsent));
    }

    #[test]
    fn client_address_is_taken_by_hop_count_or_from_the_peer() {
        let headers = Headers::new(&[("x-forwarded-for", "6.6.6.6, 192.0.2.1 ,10.0.0.1")]);
        let fields = Fields::from_headers(&headers);
        let request = PlainRequest {
            peer_address: b"203.0.113.7:5".into(),
            ..PlainRequest::default()
        };
        let address = |hops| fields.address(hops, &request).into_owned();
        assert_eq!(address(None), b"203.0.113.7:5");
        assert_eq!(address(Some(0)), b"10.0.0.1");
        assert_eq!(address(Some(1)), b"192.0.2.1");
        assert_eq!(address(Some(3)), b"203.0.113.7:5");
    }

    #[test]
    fn cookies_are_matched_by_full_name() {
        let headers = Headers::new(&[("cookie", "xvid=1; vid=2;vid=3; vi=")]);
        let fields = Fields::from_headers(&headers);
        assert_eq!(fields.cookie("vid"), Some(&b"2"[..]));
        assert_eq!(fields.cookie("vi"), Some(&b""[..]));
        assert_eq!(fields.cookie("v"), None);
    }
}
