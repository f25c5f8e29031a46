//! The page of groups, collectors and dead letters, at `/events/page` of the admin port: plain files, part of the program. It needs no
//! token, as nobody has typed one in yet; everything it shows comes from the other routes, with the token.

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

/// The page and the files that it names.
pub fn page() -> Api<()> {
    Api::open_admin().page(&PAGE)
}
