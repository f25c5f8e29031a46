//! The console and its modules as served, and their wording. Browser tests cover their behaviour: `tests/e2e/pages`.

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::{Answer, World};

async fn get(world: &World, path: &str) -> Answer {
    world.admin_as("GET", path, "", None).await
}

#[tokio::test]
async fn web_pages_need_no_token_and_have_a_strict_csp() {
    let world = World::new().await;
    for (path, kind) in [
        ("/ui", "text/html; charset=utf-8"),
        ("/ui/main.js", "text/javascript; charset=utf-8"),
        ("/ui/page.css", "text/css; charset=utf-8"),
        ("/ui/icon.svg", "image/svg+xml"),
        ("/links/ui/main.js", "text/javascript; charset=utf-8"),
        ("/events/page/main.js", "text/javascript; charset=utf-8"),
        ("/fitment/ui/main.js", "text/javascript; charset=utf-8"),
    ] {
        let answer = get(&world, path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.headers["content-type"], kind);
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"));
        assert!(policy.contains("frame-ancestors 'none'"));
        assert!(policy.ends_with("require-trusted-types-for 'script'; trusted-types 'none'"));
        assert!(!policy.contains("unsafe"), "{policy}");
    }
    for path in [
        "/ui/",
        "/ui/none.js",
        "/ui/..%2fCargo.toml",
        "/ui/index.html",
        "/events/page/none.js",
        "/events/page/index.html",
        "/fitment/ui/none.js",
    ] {
        let answer = get(&world, path).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (404, "no_route"));
    }
}

#[tokio::test]
async fn every_admin_page_file_is_served_without_html_sinks() {
    let world = World::new().await;
    for (page, folder, count) in [
        ("/ui", "app/src/console/page", 27),
        ("/links/ui", "links/src/http/page", 14),
        ("/events/page", "events/src/http/page", 7),
        ("/fitment/ui", "fitment/src/http/page", 1),
    ] {
        check_page(&world, page, folder, count).await;
    }
}

async fn check_page(world: &World, page: &str, folder: &str, count: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(folder);
    let names = std::fs::read_dir(folder).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: BTreeSet<String> = names.filter(|name| name != "index.html").collect();
    assert_eq!(names.len(), count, "{names:?}");
    for name in names {
        let answer = get(world, &format!("{page}/{name}")).await;
        assert_eq!(answer.status, 200, "{name}");
        let text = answer.body.to_string();
        for forbidden in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "eval(",
            "document.write",
        ] {
            assert!(!text.contains(forbidden), "{name} has {forbidden}");
        }
    }
}

#[tokio::test]
async fn console_has_nothing_inline() {
    let world = World::new().await;
    let page = get(&world, "/ui").await.body.to_string();
    for inline in ["<style", "style=", "onclick", "<script>"] {
        assert!(!page.contains(inline), "{inline}");
    }
}

#[tokio::test]
async fn former_pages_redirect_to_the_console() {
    let world = World::new().await;
    for (path, view) in [
        ("/links/ui", "links"),
        ("/events/page", "events"),
        ("/fitment/ui", "fitment"),
    ] {
        let answer = get(&world, path).await;
        assert_eq!(answer.status, 308, "{path}");
        // Relative, for proxies that put the port into a folder. Without a fragment: browsers keep the old one.
        let location = answer.headers["location"].to_str().unwrap();
        assert_eq!(location, format!("../ui?from={view}"));
    }
}

/// Folders with texts for people, below the root of the repository.
const TEXTS: [&str; 6] = [
    "origin/app/src/console/page",
    "origin/links/src/http/page",
    "origin/events/src/http/page",
    "origin/fitment/src/http/page",
    "origin/history/src/http/page",
    "crates/room/src/engine/page",
];

/// Wording that reviews rejected.
const REJECTED: [&str; 95] = [
    "That key opens nothing",
    "A key of this origin, or the value of",
    "All sales become at least",
    "The stricter of this and",
    "Refunds that are due",
    "Nobody can buy",
    "Gateways tell them",
    "Gateways' answers in",
    "Would have been, in shadow",
    "Without risk checks",
    "\"Static page\"",
    "\"Degraded\"",
    "takes no new claims, but orders of those that are open",
    "Read the books",
    "All of it is of one instant",
    "A user may have",
    "Together with: no other sale",
    "Before the token: nothing",
    "Units are taken",
    "\"Called\"",
    "Its orders",
    "At first",
    "500 adds, -50 withdraws",
    "A time that has passed means now",
    "Move the end\"",
    "The last first",
    "The first first",
    "the chosen",
    "\"Chosen\"",
    "No order is so",
    "Name an order, or a sale or a user",
    "Or just the order",
    "By its name",
    "Made from",
    "Made before",
    "The money is back",
    "What receivers were told",
    "What the buyer said",
    "Make the sale",
    "Make the key",
    "Its name in addresses",
    "for ever.",
    "Name in the shop",
    "Such as an article's number",
    "Empty: none",
    "Stands before an order token",
    "Only who brings",
    "fields are not right",
    "fields are invalid",
    "The user stands as",
    "Nobody.",
    "Admin: keys, too",
    "Only what is chosen below",
    "\"Good\"",
    "it is kept nowhere",
    "called at the pace",
    "has looked at this room",
    "Half waited less than",
    "9 of 10 waited less",
    "A name that is there is changed",
    "Set the tenant",
    "all is the platform's",
    "What bears its name",
    "Only this key's",
    "\"Verdict\"",
    "Not handled yet",
    "Tried again",
    "To be computed anew",
    "Go on",
    "Really move it",
    "See and mend",
    "Throw away",
    "press More to look further",
    "No link is like that",
    "Count orders that come of",
    "Maximum of clicks",
    "Who likes it better",
    "Ask no more",
    "After its end",
    "whose host is none of ours",
    "Only say what would be made",
    "The other way",
    "\"Begin\"",
    "By country, device and referrer at once",
    "No vehicle is called so",
    "Nobody has said what it fits",
    "Holds for",
    "Redis is being made anew",
    "will not do",
    "there is no such sale",
    "It leads nowhere",
    "viewed leave this list",
    "This page renews itself",
    "everybody who is here is drawn",
    "coming late is a place behind",
];

#[test]
fn pages_have_no_rejected_wording() {
    let root = weir_stack::workspace::root();
    let mut files = vec![
        root.join("crates/link/src/page.rs"),
        root.join("crates/room/src/engine/text.rs"),
    ];
    for folder in TEXTS {
        let entries = std::fs::read_dir(root.join(folder)).unwrap();
        files.extend(entries.map(|entry| entry.unwrap().path()));
    }
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for rejected in REJECTED {
            assert!(!text.contains(rejected), "{}: {rejected}", file.display());
        }
    }
}
