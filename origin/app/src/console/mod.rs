//! The console, at `/ui` of the admin port: static files embedded in the program. The files are public, because the
//! browser has no key yet. All data comes from the admin routes, with the session that the console opens.
//!
//! The console uses domains only through their routes. The views of links, events and fitment are modules of their
//! crates, which the shell loads when one is opened. They use the shell's `dom.js`, `charts.js`, `format.js` and
//! `session.js`.

use crate::api::Api;
use crate::http::files::{CSS, HTML, Index, JS, Page, SVG, files, policy};

static PAGE: Page = Page {
    path: "/ui",
    id: "Console",
    title: "The console: sales, rooms, limits, links, events, fitment, keys and the audit trail",
    // Also permits pictures that the page has fetched itself, such as QR codes.
    policy: policy!("'self' blob:"),
    index: Index::Html(&files! {
        "index.html": HTML,
    }),
    files: &files! {
        "page.css": CSS,
        "icon.svg": SVG,
        "api.js": JS,
        "audit.js": JS,
        "blocked.js": JS,
        "charts.js": JS,
        "dom.js": JS,
        "find.js": JS,
        "format.js": JS,
        "gateways.js": JS,
        "health.js": JS,
        "keys.js": JS,
        "limits.js": JS,
        "main.js": JS,
        "money.js": JS,
        "new-sale.js": JS,
        "order.js": JS,
        "orders.js": JS,
        "overview.js": JS,
        "rooms.js": JS,
        "sale.js": JS,
        "sales.js": JS,
        "session.js": JS,
        "stock.js": JS,
        "tenants.js": JS,
        "traffic.js": JS,
        "users.js": JS,
    },
};

/// Routes of the page and its files.
pub fn page() -> Api<()> {
    Api::open_admin().page(&PAGE)
}
