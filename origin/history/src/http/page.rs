//! The page of recently viewed products, at `/history/page`. Its static files are embedded in the binary and public.
//! The page loads its data through the other routes, for the user that the gateway signed in.

use weir_origin_core::http::files::{CSS, HTML, Index, JS, Page, SVG, files, policy};

pub(super) static PAGE: Page = Page {
    path: "/history/page",
    id: "HistoryPage",
    title: "Page with the products that the signed-in user viewed last",
    // Product pictures may be on any host.
    policy: policy!("'self' https: http:"),
    index: Index::Html(&files! {
        "index.html": HTML,
    }),
    files: &files! {
        "page.css": CSS,
        "icon.svg": SVG,
        "main.js": JS,
    },
};
