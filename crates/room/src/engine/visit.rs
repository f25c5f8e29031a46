//! The parts of a request that rooms need.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::cell::OnceCell;

use weir_base::accept::ACCEPT;
use weir_base::address::AddressGroup;
use weir_base::hash::seeded_hash;
use weir_base::language::{ACCEPT_LANGUAGE, Language};
use weir_engine::Request;
use weir_engine::page::wants_page;
use weir_limit::rules;

use crate::engine::answer::PASS_HEADER;

/// Reads the fields of a request once.
pub(crate) struct Head<'a> {
    request: &'a dyn Request,
    path: OnceCell<Cow<'a, [u8]>>,
    method: OnceCell<Cow<'a, [u8]>>,
}

impl<'a> Head<'a> {
    pub(crate) fn new(request: &'a dyn Request) -> Self {
        Self {
            request,
            path: OnceCell::new(),
            method: OnceCell::new(),
        }
    }

    /// The client's queue token, and whether it came in the header.
    pub(crate) fn pass(&self, cookie: &str) -> Option<(Vec<u8>, bool)> {
        if let Some(pass) = self.request.header(PASS_HEADER) {
            return Some((pass.into_owned(), true));
        }
        let cookies = self.request.header("cookie")?;
        let pass = rules::cookie(&cookies, cookie.as_bytes())?;
        Some((pass.into(), false))
    }

    /// Whether the client accepts HTML.
    pub(crate) fn wants_page(&self) -> bool {
        let accept = self.request.header(ACCEPT);
        accept.is_some_and(|accept| wants_page(&accept))
    }

    /// The supported language that the client prefers.
    pub(crate) fn language(&self) -> Language {
        let accepted = self.request.header(ACCEPT_LANGUAGE);
        accepted.map_or_else(Language::default, |accepted| Language::accepted(&accepted))
    }

    /// Whether the client uses TLS, which makes its cookies `Secure`.
    pub(crate) fn is_secure(&self) -> bool {
        self.request.header(":scheme").as_deref() == Some(b"https")
    }

    /// A hash of the client's address.
    pub(crate) fn address(&self, seed: u64, trusted_hops: Option<usize>) -> [u8; 8] {
        let group = match trusted_hops {
            Some(hops) => rules::forwarded(self, hops),
            None => AddressGroup::read(&self.request.peer_address()),
        };
        seeded_hash(seed, &group.key()).to_be_bytes()
    }
}

impl rules::Request for Head<'_> {
    fn method(&self) -> &[u8] {
        let read = || self.request.header(":method").unwrap_or_default();
        self.method.get_or_init(read)
    }

    fn path(&self) -> &[u8] {
        let read = || self.request.header(":path").unwrap_or_default();
        self.path.get_or_init(read)
    }

    fn header(&self, name: &str) -> Option<Vec<u8>> {
        self.request.header(name).map(Cow::into_owned)
    }

    fn address(&self) -> Vec<u8> {
        self.request.peer_address()
    }

    fn user(&self) -> Option<Vec<u8>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_engine::Headers;
    use weir_engine::event::PlainRequest;

    fn request(headers: &[(&str, &str)]) -> PlainRequest {
        PlainRequest {
            headers: Headers::new(headers),
            peer_address: b"192.0.2.1:7".to_vec(),
            now_ms: 0,
        }
    }

    #[test]
    fn pass_is_read_from_the_header_or_the_cookie_of_the_room() {
        let with = request(&[("cookie", "a=b; weir-room-shop=x.y.z; c=d")]);
        assert_eq!(
            Head::new(&with).pass("weir-room-shop"),
            Some((b"x.y.z".to_vec(), false))
        );
        assert_eq!(Head::new(&with).pass("weir-room-other"), None);
        let both = request(&[("cookie", "weir-room-shop=x"), (PASS_HEADER, "h")]);
        assert_eq!(
            Head::new(&both).pass("weir-room-shop"),
            Some((b"h".to_vec(), true))
        );
    }

    #[test]
    fn client_that_accepts_html_gets_a_page() {
        for (accept, is_page) in [
            ("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", true),
            ("application/json", false),
            ("*/*", false),
        ] {
            let request = request(&[("accept", accept)]);
            assert_eq!(Head::new(&request).wants_page(), is_page, "{accept}");
        }
        assert!(!Head::new(&request(&[])).wants_page());
    }

    #[test]
    fn addresses_are_hashed_by_network() {
        let of = |address: &str, seed| {
            let request = PlainRequest {
                peer_address: address.into(),
                ..request(&[])
            };
            Head::new(&request).address(seed, None)
        };
        assert_eq!(of("[2001:db8::1]:5", 1), of("[2001:db8::2]:6", 1));
        assert_ne!(of("192.0.2.1:5", 1), of("192.0.2.2:5", 1));
        assert_ne!(of("192.0.2.1:5", 1), of("192.0.2.1:5", 2));
        let forwarded = request(&[("x-forwarded-for", "198.51.100.7, 192.0.2.1")]);
        let direct = PlainRequest {
            peer_address: b"198.51.100.7:1".to_vec(),
            ..request(&[])
        };
        let address = Head::new(&forwarded).address(1, Some(1));
        assert_eq!(address, Head::new(&direct).address(1, None));
    }
}
