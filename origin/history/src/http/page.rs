//! The page of products that were seen last, at `/history/page`: plain files, part of the program. The files are everybody's;
//! what the page shows comes from the other routes, for whoever the gateway says has signed in.

use weir_origin_core::http::files::{CSS, HTML, JS, Page, SVG, files, policy};

pub(super) static PAGE: Page = Page {
    path: "/history/page",
    id: "HistoryPage",
    title: "Page with the products that the signed-in user viewed last",
    // Products' pictures may be anywhere.
    policy: policy!("'self' https: http:"),
    index: &files! {
        "index.html": HTML,
    },
    files: &files! {
        "page.css": CSS,
        "icon.svg": SVG,
        "main.js": JS,
    },
};
