//! The console, at `/ui` of the admin port: plain files, part of the program. It needs no key, as nobody has shown one yet;
//! everything it shows comes from the other routes, within the session that it opens.
//!
//! It knows domains by their routes alone. Its files `session.js` and `dom.js` are for the other pages of the port, too.

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

/// The page and the files that it names.
pub fn page() -> Api<()> {
    Api::open_admin().page(&PAGE)
}
