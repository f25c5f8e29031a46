//! The page of fitment in the console, at `/fitment/ui`. Its static files are embedded in the binary. The page itself
//! needs no token; it loads all data through the other routes with the token.

use weir_origin_core::api::Api;
use weir_origin_core::http::files::{CSS, HTML, JS, Page, SVG, files, policy};

static PAGE: Page = Page {
    path: "/fitment/ui",
    id: "FitmentUi",
    title: "Page for vehicle fitment",
    policy: policy!("'self'"),
    index: &files! {
        "index.html": HTML,
    },
    files: &files! {
        "page.css": CSS,
        "icon.svg": SVG,
        "dom.js": JS,
        "main.js": JS,
    },
};

/// The page and its static files.
pub fn page() -> Api<()> {
    Api::open_admin().page(&PAGE)
}
