//! The console, at `/ui` of the admin port: static files embedded in the program. The files are public, because the
//! browser has no key yet. All data comes from the admin routes, with the session that the console opens.
//!
//! The console uses domains only through their routes. Other pages of the port also use its `session.js` and `dom.js`.

use crate::api::Api;
use crate::http::files::{CSS, HTML, JS, Page, SVG, files, policy};

static PAGE: Page = Page {
    path: "/ui",
    id: "Console",
    title: "The console: sales, rooms, limits, keys and the audit trail",
    policy: policy!("'self'"),
    index: &files! {
        "index.html": HTML,
    },
    files: &files! {
        "page.css": CSS,
        "icon.svg": SVG,
        "api.js": JS,
        "audit.js": JS,
        "blocked.js": JS,
        "dom.js": JS,
        "format.js": JS,
        "health.js": JS,
        "keys.js": JS,
        "limits.js": JS,
        "main.js": JS,
        "new-sale.js": JS,
        "order.js": JS,
        "orders.js": JS,
        "rooms.js": JS,
        "sale.js": JS,
        "sales.js": JS,
        "session.js": JS,
        "stock.js": JS,
        "tenants.js": JS,
        "users.js": JS,
    },
};

/// Routes of the page and its files.
pub fn page() -> Api<()> {
    Api::open_admin().page(&PAGE)
}
