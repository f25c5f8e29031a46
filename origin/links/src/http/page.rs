//! The page of links, at `/links/ui` of the admin port. Its static files are embedded in the binary. The page itself
//! needs no key; it loads all data through the other routes, in the session of the console.

use weir_origin_core::api::Api;
use weir_origin_core::http::files::{CSS, HTML, JS, Page, SVG, files, policy};

static PAGE: Page = Page {
    path: "/links/ui",
    id: "LinksPage",
    title: "Page for short links",
    // Also permit pictures that the page has fetched itself, in its session.
    policy: policy!("'self' blob:"),
    index: &files! {
        "index.html": HTML,
    },
    files: &files! {
        "page.css": CSS,
        "icon.svg": SVG,
        "api.js": JS,
        "charts.js": JS,
        "crosstab.js": JS,
        "detail.js": JS,
        "dom.js": JS,
        "domains.js": JS,
        "fields.js": JS,
        "format.js": JS,
        "home.js": JS,
        "import.js": JS,
        "main.js": JS,
        "notice.js": JS,
        "qr.js": JS,
        "stats.js": JS,
    },
};

/// The page and its static files.
pub fn page() -> Api<()> {
    Api::open_admin().page(&PAGE)
}
