//! The page of groups, collectors and dead letters, at `/events/page` of the admin port. Its static files are embedded
//! in the binary. The page itself needs no token; it loads all data through the other routes with the token.

use weir_origin_core::api::Api;
use weir_origin_core::http::files::{CSS, HTML, JS, Page, SVG, files, policy};

static PAGE: Page = Page {
    path: "/events/page",
    id: "EventsPage",
    title: "Page for consumer groups, collectors and dead letters",
    policy: policy!("'self'"),
    index: &files! {
        "index.html": HTML,
    },
    files: &files! {
        "page.css": CSS,
        "icon.svg": SVG,
        "api.js": JS,
        "dead.js": JS,
        "dom.js": JS,
        "groups.js": JS,
        "main.js": JS,
    },
};

/// The page and its static files.
pub fn page() -> Api<()> {
    Api::open_admin().page(&PAGE)
}
