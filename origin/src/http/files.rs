//! Plain files that are part of the program: the pages of the domains.

use axum::http::HeaderName;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};

pub(crate) const HTML: &str = "text/html; charset=utf-8";
pub(crate) const CSS: &str = "text/css; charset=utf-8";
pub(crate) const SVG: &str = "image/svg+xml";
pub(crate) const JS: &str = "text/javascript; charset=utf-8";

/// A file of a page.
pub(crate) struct File {
    pub name: &'static str,
    pub kind: &'static str,
    pub body: &'static str,
}

/// Files by name and kind, from the folder `page` beside the source.
macro_rules! files {
    ($($name:literal: $kind:expr,)*) => {
        [$($crate::http::files::File {
            name: $name,
            kind: $kind,
            body: include_str!(concat!("page/", $name)),
        },)*]
    };
}
pub(crate) use files;

impl File {
    /// The file, which may do only what `policy` says.
    pub(crate) fn answer(&self, policy: &'static str) -> Response {
        let headers: [(HeaderName, &str); 5] = [
            (CONTENT_TYPE, self.kind),
            (CONTENT_SECURITY_POLICY, policy),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            // A new origin has new files.
            (CACHE_CONTROL, "no-cache"),
        ];
        (headers, self.body).into_response()
    }
}
