//! The page of links, at `/ui`: plain files, part of the program. It needs no token, as nobody has typed one in yet;
//! everything it shows comes from the other routes, with the token.

use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::http::files::{CSS, File, HTML, JS, SVG, files};
use crate::http::no_route;

/// Only what the origin itself serves, nothing inline, in nobody's frame; pictures that the page has fetched
/// itself, with the token. Nothing may become HTML but by way of the DOM.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      img-src 'self' blob:; connect-src 'self'; form-action 'none'; \
                      base-uri 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

static FILES: [File; 14] = files! {
    "page.css": CSS,
    "icon.svg": SVG,
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

static PAGE: [File; 1] = files! {
    "index.html": HTML,
};

/// `GET /ui` and the files that it names.
pub fn routes() -> Router {
    Router::new()
        .route("/ui", get(page))
        .route("/ui/{file}", get(file))
}

/// `GET /ui`.
async fn page() -> Response {
    let [page] = &PAGE;
    page.answer(POLICY)
}

/// `GET /ui/{file}`.
async fn file(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|file| file.name == name) {
        Some(file) => file.answer(POLICY),
        None => no_route().await.into_response(),
    }
}
