//! The page of products that were seen last, at `/history/page`: plain files, part of the program. The files are everybody's;
//! what the page shows comes from the other routes, for whoever the gateway says has signed in.

use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::http::files::{CSS, File, HTML, JS, SVG, files};
use crate::http::no_route;

/// Only what the origin itself serves, nothing inline, in nobody's frame; but products' pictures may be anywhere. Nothing may
/// become HTML but by way of the DOM.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      img-src 'self' https: http:; connect-src 'self'; form-action 'none'; \
                      base-uri 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

static FILES: [File; 3] = files! {
    "page.css": CSS,
    "icon.svg": SVG,
    "main.js": JS,
};

static PAGE: [File; 1] = files! {
    "index.html": HTML,
};

/// `GET /history/page` and the files that it names.
pub(super) fn routes() -> Router {
    Router::new()
        .route("/history/page", get(page))
        .route("/history/page/{file}", get(file))
}

/// `GET /history/page`.
async fn page() -> Response {
    let [page] = &PAGE;
    page.answer(POLICY)
}

/// `GET /history/page/{file}`.
async fn file(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|file| file.name == name) {
        Some(file) => file.answer(POLICY),
        None => no_route().await.into_response(),
    }
}
