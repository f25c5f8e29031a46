//! The request as rules see it.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::cell::OnceCell;

use crate::rules;
use weir_engine::Request;

/// Reads of a request what rules ask for. Method, path and address are read once, however many rules look at them.
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

/// Whether the client speaks gRPC.
pub fn is_grpc(request: &dyn Request) -> bool {
    let content_type = request.header("content-type");
    content_type.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Request as _;
    use weir_engine::Headers;
    use weir_engine::event::PlainRequest;

    #[test]
    fn rules_see_a_request_as_it_came() {
        let request = PlainRequest {
            headers: Headers::new(&[
                (":method", "PUT"),
                (":path", "/a?b"),
                ("x-user-id", "alice"),
            ]),
            peer_address: b"192.0.2.1:1".into(),
            now_ms: 0,
        };
        let seen = RuleRequest::new(&request, Some("x-user-id"));
        assert_eq!((seen.method(), seen.path()), (&b"PUT"[..], &b"/a?b"[..]));
        assert_eq!(seen.header(":path").as_deref(), Some(&b"/a?b"[..]));
        assert_eq!(seen.header("x-none"), None);
        assert_eq!(seen.address(), b"192.0.2.1:1");
        assert_eq!(seen.user().as_deref(), Some(&b"alice"[..]));
        assert_eq!(RuleRequest::new(&request, None).user(), None);
    }
}
