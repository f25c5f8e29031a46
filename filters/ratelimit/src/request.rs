//! The request of the effective context's stream, read as far as rules ask for it.

use std::cell::OnceCell;

use proxy_wasm::hostcalls;
use weir_filter_kit::http::request_header;
use weir_limit::rules::Request;

/// Method, path and address are fetched once, however many rules look at them.
#[derive(Debug, Default)]
pub(crate) struct HostRequest<'a> {
    user_header: Option<&'a str>,
    method: OnceCell<Vec<u8>>,
    path: OnceCell<Vec<u8>>,
    address: OnceCell<Vec<u8>>,
}

impl<'a> HostRequest<'a> {
    pub(crate) fn new(user_header: Option<&'a str>) -> Self {
        Self {
            user_header,
            ..Self::default()
        }
    }
}

impl Request for HostRequest<'_> {
    fn method(&self) -> &[u8] {
        self.method
            .get_or_init(|| request_header(":method").unwrap_or_default())
    }

    fn path(&self) -> &[u8] {
        self.path
            .get_or_init(|| request_header(":path").unwrap_or_default())
    }

    fn header(&self, name: &str) -> Option<Vec<u8>> {
        request_header(name)
    }

    fn address(&self) -> Vec<u8> {
        let fetch = || {
            let address = hostcalls::get_property(vec!["source", "address"]);
            address.ok().flatten().unwrap_or_default()
        };
        self.address.get_or_init(fetch).clone()
    }

    fn user(&self) -> Option<Vec<u8>> {
        request_header(self.user_header?)
    }
}
