//! The page of links, at `/ui`: plain files, part of the program. It needs no token, as nobody has typed one in yet;
//! everything it shows comes from the other routes, with the token.

use axum::Router;
use axum::extract::Path;
use axum::http::HeaderName;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::http::no_route;

/// Only what the origin itself serves, nothing inline, in nobody's frame; pictures that the page has fetched
/// itself, with the token. Nothing may become HTML but by way of the DOM.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      img-src 'self' blob:; connect-src 'self'; form-action 'none'; \
                      base-uri 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// A file of the page.
struct File {
    name: &'static str,
    kind: &'static str,
    body: &'static str,
}

macro_rules! files {
    ($($name:literal: $kind:expr,)*) => {
        [$(File { name: $name, kind: $kind, body: include_str!(concat!("page/", $name)) },)*]
    };
}

const JS: &str = "text/javascript; charset=utf-8";

static FILES: [File; 14] = files! {
    "page.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "api.js": JS,
    "charts.js": JS,
    "detail.js": JS,
    "dom.js": JS,
    "domains.js": JS,
    "fields.js": JS,
    "format.js": JS,
    "home.js": JS,
    "main.js": JS,
    "notice.js": JS,
    "qr.js": JS,
    "stats.js": JS,
};

static PAGE: File = File {
    name: "",
    kind: "text/html; charset=utf-8",
    body: include_str!("page/index.html"),
};

/// `GET /ui` and the files that it names.
pub fn routes() -> Router {
    Router::new()
        .route("/ui", get(page))
        .route("/ui/{file}", get(file))
}

/// `GET /ui`.
async fn page() -> Response {
    PAGE.answer()
}

/// `GET /ui/{file}`.
async fn file(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|file| file.name == name) {
        Some(file) => file.answer(),
        None => no_route().await.into_response(),
    }
}

impl File {
    fn answer(&self) -> Response {
        let headers: [(HeaderName, &str); 5] = [
            (CONTENT_TYPE, self.kind),
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            // A new origin has new files.
            (CACHE_CONTROL, "no-cache"),
        ];
        (headers, self.body).into_response()
    }
}
