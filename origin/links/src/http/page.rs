//! The views of links in the console, at `/ui` of the admin port. Their modules are embedded in the binary. They need no
//! key; they load all data through the other routes, in the session of the console. `/links/ui` was their page.

use weir_origin_core::api::Api;
use weir_origin_core::http::files::{Index, JS, Page, files, policy};

static PAGE: Page = Page {
    path: "/links/ui",
    id: "LinksPage",
    title: "Views of short links",
    policy: policy!("'self'"),
    index: Index::Moved("../ui?from=links"),
    files: &files! {
        "api.js": JS,
        "crosstab.js": JS,
        "dashboard.js": JS,
        "detail.js": JS,
        "domains.js": JS,
        "fields.js": JS,
        "format.js": JS,
        "home.js": JS,
        "import.js": JS,
        "main.js": JS,
        "qr.js": JS,
        "share.js": JS,
        "stats.js": JS,
        "templates.js": JS,
    },
};

/// The redirect from their former page, and their modules.
pub fn page() -> Api<()> {
    Api::open_admin().page(&PAGE)
}
