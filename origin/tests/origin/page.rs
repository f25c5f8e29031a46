//! The console and the other pages as served. Browser tests cover their behaviour: `tests/e2e/page`,
//! `tests/e2e/groups_page`.

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
        ("/links/ui", "text/html; charset=utf-8"),
        ("/links/ui/main.js", "text/javascript; charset=utf-8"),
        ("/events/page", "text/html; charset=utf-8"),
        ("/events/page/main.js", "text/javascript; charset=utf-8"),
        ("/events/page/page.css", "text/css; charset=utf-8"),
        ("/events/page/icon.svg", "image/svg+xml"),
    ] {
        let answer = get(&world, path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.headers["content-type"], kind);
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"));
        assert!(policy.contains("frame-ancestors 'none'"));
        assert!(!policy.contains("unsafe"), "{policy}");
    }
    for path in [
        "/ui/",
        "/ui/none.js",
        "/ui/..%2fCargo.toml",
        "/ui/index.html",
        "/events/page/none.js",
        "/events/page/index.html",
    ] {
        let answer = get(&world, path).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (404, "no_route"));
    }
}

#[tokio::test]
async fn every_admin_page_file_is_served_and_nothing_is_inline() {
    let world = World::new().await;
    for (page, folder, count) in [
        ("/ui", "app/src/console/page", 21),
        ("/links/ui", "links/src/http/page", 16),
        ("/events/page", "events/src/http/page", 7),
        ("/fitment/ui", "fitment/src/http/page", 4),
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
    let page = get(world, page).await.body.to_string();
    for inline in ["<style", "style=", "onclick", "<script>"] {
        assert!(!page.contains(inline), "{inline}");
    }
}
