//! The views of fitment in the console, at `/ui` of the admin port. Their modules are embedded in the binary. They need no
//! key; they load all data through the other routes, in the session of the console. `/fitment/ui` was their page.

use weir_origin_core::api::Api;
use weir_origin_core::http::files::{Index, JS, Page, files, policy};

static PAGE: Page = Page {
    path: "/fitment/ui",
    id: "FitmentUi",
    title: "Views of vehicle fitment",
    policy: policy!("'self'"),
    index: Index::Moved("../ui?from=fitment"),
    files: &files! {
        "main.js": JS,
    },
};

/// The redirect from their former page, and their modules.
pub fn page() -> Api<()> {
    Api::open_admin().page(&PAGE)
}
