//! The views of events in the console, at `/ui` of the admin port. Their modules are embedded in the binary. They need no
//! key; they load all data through the other routes, in the session of the console. `/events/page` was their page.

use weir_origin_core::api::Api;
use weir_origin_core::http::files::{Index, JS, Page, files, policy};

static PAGE: Page = Page {
    path: "/events/page",
    id: "EventsPage",
    title: "Views of consumer groups, collectors, trends, customers, segments, dead letters and event types",
    policy: policy!("'self'"),
    index: Index::Moved("../ui?from=events"),
    files: &files! {
        "api.js": JS,
        "customer.js": JS,
        "dead.js": JS,
        "groups.js": JS,
        "main.js": JS,
        "segments.js": JS,
        "trends.js": JS,
    },
};

/// The redirect from their former page, and their modules.
pub fn page() -> Api<()> {
    Api::open_admin().page(&PAGE)
}
