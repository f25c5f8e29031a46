//! The page of fitment in the console, at `/fitment/ui`: plain files, part of the program. It needs no token, as nobody has typed
//! one in yet; everything it shows comes from the other routes, with the token.

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

/// The page and the files that it names.
pub fn page() -> Api<()> {
    Api::open_admin().page(&PAGE)
}
