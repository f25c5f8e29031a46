//! The request as input of rules.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::cell::OnceCell;

use crate::rules;
use weir_base::accept::ACCEPT;
use weir_base::language::{ACCEPT_LANGUAGE, Language};
use weir_engine::Request;
use weir_engine::page::wants_page;

/// Reads the parts of a request that rules need. It reads method, path and address only once.
pub struct RuleRequest<'a> {
    request: &'a dyn Request,
    user_header: Option<&'a str>,
    method: OnceCell<Cow<'a, [u8]>>,
    path: OnceCell<Cow<'a, [u8]>>,
    address: OnceCell<Vec<u8>>,
}

impl<'a> RuleRequest<'a> {
    pub fn new(request: &'a dyn Request, user_header: Option<&'a str>) -> Self {
        Self {
            request,
            user_header,
            method: OnceCell::new(),
            path: OnceCell::new(),
            address: OnceCell::new(),
        }
    }
}

impl rules::Request for RuleRequest<'_> {
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
        let read = || self.request.peer_address();
        self.address.get_or_init(read).clone()
    }

    fn user(&self) -> Option<Vec<u8>> {
        self.header(self.user_header?)
    }
}

/// The form of refusal that a client understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// A gRPC status.
    Grpc,
    /// A page in this language.
    Browser(Language),
    /// Problem JSON.
    Program,
}

impl Client {
    // Not inlined, because inlining slows down passed requests.
    #[inline(never)]
    pub fn from_request(request: &dyn Request) -> Self {
        let content_type = request.header("content-type");
        if content_type.is_some_and(|kind| kind.starts_with(b"application/grpc")) {
            return Self::Grpc;
        }
        let accept = request.header(ACCEPT);
        match accept.is_some_and(|accept| wants_page(&accept)) {
            true => {
                let language = request.header(ACCEPT_LANGUAGE);
                let accepted = language.map(|language| Language::accepted(&language));
                Self::Browser(accepted.unwrap_or_default())
            }
            false => Self::Program,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Request as _;
    use weir_engine::Headers;
    use weir_engine::event::PlainRequest;

    #[test]
    fn rules_see_the_unmodified_request() {
        let request = PlainRequest {
            headers: Headers::new(&[
                (":method", "PUT"),
                (":path", "/a?b"),
                ("x-user-id", "alice"),
            ]),
            peer_address: b"192.0.2.1:1".into(),
            now_ms: 0,
        };
        let observed = RuleRequest::new(&request, Some("x-user-id"));
        assert_eq!(
            (observed.method(), observed.path()),
            (&b"PUT"[..], &b"/a?b"[..])
        );
        assert_eq!(observed.header(":path").as_deref(), Some(&b"/a?b"[..]));
        assert_eq!(observed.header("x-none"), None);
        assert_eq!(observed.address(), b"192.0.2.1:1");
        assert_eq!(observed.user().as_deref(), Some(&b"alice"[..]));
        assert_eq!(RuleRequest::new(&request, None).user(), None);
    }

    #[test]
    fn client_kind_follows_its_accept_and_content_type_headers() {
        let client = |headers: &[(&str, &str)]| {
            Client::from_request(&PlainRequest {
                headers: Headers::new(headers),
                peer_address: Vec::new(),
                now_ms: 0,
            })
        };
        let page = ("accept", "text/html,*/*;q=0.8");
        assert_eq!(client(&[]), Client::Program);
        assert_eq!(client(&[("accept", "*/*")]), Client::Program);
        assert_eq!(client(&[page]), Client::Browser(Language::English));
        let german = client(&[page, ("accept-language", "de-AT")]);
        assert_eq!(german, Client::Browser(Language::German));
        let grpc = client(&[page, ("content-type", "application/grpc+proto")]);
        assert_eq!(grpc, Client::Grpc);
    }
}
