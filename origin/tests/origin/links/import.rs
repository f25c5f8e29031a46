//! Imports of links from exports of other shorteners and of Weir, through the admin route and the command line.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::{Value, json};

use super::api::{create_link, get, name, world};
use super::process::start;
use crate::support::{self, Answer, TOKEN, World};

fn export(file: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("origin/links/exports");
    folder.join(file)
}

fn text(file: &str) -> String {
    std::fs::read_to_string(export(file)).unwrap()
}

async fn import(world: &World, query: &str, file: &str) -> Answer {
    let path = format!("/link-imports?{query}");
    world.admin_text("POST", &path, file).await
}

/// The result of an import: rows, created, existing, and the lines, codes and error codes of refused rows.
async fn imported(world: &World, query: &str, file: &str) -> Value {
    let answer = import(world, query, file).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let part = |flaw: &Value| json!([flaw["line"], flaw["code"], flaw["error"]]);
    let refused = answer.body["refused"].as_array().unwrap();
    let refused: Vec<Value> = refused.iter().map(part).collect();
    let number = |name: &str| answer.body[name].clone();
    json!([
        number("rows"),
        number("created"),
        number("present"),
        refused
    ])
}

#[tokio::test]
async fn each_export_format_is_imported_once_and_invalid_rows_named() {
    let world = world().await;
    let shlink_flaws = json!([
        [4, "a/b", "invalid_link"],
        [5, "bad-target", "target_scheme"]
    ]);
    let cases = [
        (
            "format=shlink&domain=t&tag=moved",
            "shlink.csv",
            4,
            2,
            shlink_flaws,
        ),
        ("format=bitly", "bitly.csv", 2, 3, json!([])),
        (
            "format=dub",
            "dub.csv",
            3,
            2,
            json!([[4, "x", "invalid_link"]]),
        ),
        (
            "format=yourls",
            "yourls.csv",
            4,
            3,
            json!([[5, null, "invalid_row"]]),
        ),
        (
            "format=yourls",
            "yourls-plugin.csv",
            2,
            1,
            json!([[3, "ozh", "code_taken"]]),
        ),
    ];
    for (query, file, rows, links, flaws) in cases {
        let file = text(file);
        let dry = imported(&world, &format!("{query}&dry_run=true"), &file).await;
        assert_eq!((&dry[0], &dry[2]), (&json!(rows), &json!(0)), "{query}");
        let first = imported(&world, query, &file).await;
        assert_eq!(first, json!([rows, links, 0, flaws]), "{query}");
        assert_eq!(dry, first, "{query}");
        // A repetition creates nothing.
        let again = imported(&world, query, &file).await;
        assert_eq!(again, json!([rows, 0, links, flaws]), "{query}");
    }
    let link = get(&world, "s/shlink-csv").await.body;
    assert_eq!(link["target"], "https://example.com/from-shlink?a=1,2");
    assert_eq!(link["tags"], json!(["blog", "work", "moved"]));
    assert_eq!(
        (&link["life_ms"], &link["state"]),
        (&json!(0), &json!("active"))
    );
    // Unknown hosts go to the requested domain, or to the first one.
    assert_eq!(get(&world, "t/spring").await.status, 200);
    assert_eq!(get(&world, "s/3xYz1aB").await.status, 200);
    let custom = get(&world, "t/summer").await.body;
    assert_eq!(
        custom["target"],
        "https://example.com/summer?utm_source=mail"
    );
    assert_eq!(custom["tags"], json!(["mail", "2026"]));
    // Titles stay; a line break becomes a blank.
    assert_eq!(link["title"], "Imported, from Shlink");
    assert_eq!(custom["title"], "Summer, \"all\" of it");
    assert_eq!(get(&world, "s/yourls").await.body["title"], "two lines");
    assert_eq!(get(&world, "t/docs").await.status, 200);
    assert_eq!(
        get(&world, "s/last").await.body["target"],
        "https://last.example/"
    );
}

/// Waits until SQL has this many links: links with generated codes arrive through the log.
async fn all_listed(world: &World, count: usize) {
    for _ in 0..100 {
        let listed = world.admin("GET", "/links?limit=200", &Value::Null).await;
        if listed.body["links"].as_array().unwrap().len() == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("not all links are listed");
}

#[tokio::test]
async fn exported_links_import_identically_elsewhere() {
    let from = world().await;
    let whole = json!({"target": "https://example.com/", "code": "-whole", "tags": ["a, b", "=1"], "life_ms": 90_000_000,
        "max_clicks": 5, "status": 307, "pass_query": true, "language": "de", "ended_target": "https://over.example/",
        "apps": [{"platform": "wechat", "url": "weixin://dl/x"}],
        "rules": [{"countries": ["DE"], "target": "https://de.example/"}],
        "preview": {"title": "A \"title\", with\nlines"}, "expires_at_ms": 4_000_000_000_000_u64});
    let first = json!({"target": "https://example.com/first"});
    let mut links = vec![
        create_link(&from, first.clone()).await,
        create_link(&from, whole).await,
    ];
    for n in 0..20 {
        let target = format!("https://example.com/{n}");
        links.push(create_link(&from, json!({"target": target, "domain": "t"})).await);
        links.push(create_link(&from, json!({"target": target})).await);
    }
    let off = create_link(
        &from,
        json!({"target": "https://example.com/off", "code": "switched-off"}),
    )
    .await;
    let edited = from
        .admin("PATCH", "/links/switched-off", &json!({"disabled": true}))
        .await;
    assert_eq!(edited.status, 200, "{edited:?}");
    links.push(off);
    let expected = [
        "domain",
        "code",
        "target",
        "tags",
        "life_ms",
        "status",
        "pass_query",
        "language",
        "ended_target",
        "apps",
        "rules",
        "preview",
        "max_clicks",
        "ends_at_ms",
        "state",
        "disabled",
    ];
    all_listed(&from, links.len()).await;
    for format in ["csv", "ndjson"] {
        let file = from.admin_bytes(&format!("/links.{format}")).await;
        let file = String::from_utf8(file).unwrap();
        // Its first codes are the same ones that the other installation has ready for itself.
        let to = world().await;
        // They are ready as soon as it creates a link: exactly the same ones, because it has the first number.
        create_link(&to, first.clone()).await;
        let query = format!("format={format}");
        let count = links.len();
        let first = imported(&to, &query, &file).await;
        assert_eq!(first, json!([count, count - 1, 1, []]), "{format}");
        let again = imported(&to, &query, &file).await;
        assert_eq!(again, json!([count, 0, count, []]), "{format}");
        for link in &links {
            let (before, after) = (get(&from, &name(link)).await, get(&to, &name(link)).await);
            for member in expected {
                assert_eq!(before.body[member], after.body[member], "{format} {member}");
            }
        }
        // None of these codes is handed out again.
        let mut codes: Vec<String> = links.iter().map(name).collect();
        for _ in 0..50 {
            codes.push(name(
                &create_link(&to, json!({"target": "https://new.example/"})).await,
            ));
        }
        codes.sort();
        let all = codes.len();
        codes.dedup();
        assert_eq!(codes.len(), all);
    }
}

#[tokio::test]
async fn only_an_unreadable_file_is_refused_as_a_whole() {
    let world = world().await;
    let refused = |query: &'static str, file: &'static str| {
        let world = &world;
        async move {
            let answer = import(world, query, file).await;
            (
                answer.status.as_u16(),
                answer.body["error"].as_str().unwrap().to_owned(),
            )
        }
    };
    let none = "invalid_import".to_owned();
    assert_eq!(
        refused("format=bitly", "a,b\n1,2\n").await,
        (422, none.clone())
    );
    assert_eq!(refused("format=csv", "").await, (422, none));
    let query = "invalid_query".to_owned();
    assert_eq!(refused("format=excel", "").await, (400, query.clone()));
    assert_eq!(refused("format=csv&domain=nope", "").await, (400, query));
    // A key limited to one tag creates links with it, and learns nothing about other links.
    let new = json!({"name": "team", "scopes": ["links:write"], "tags": ["team"]});
    let key = world.admin("POST", "/access/keys", &new).await.body["key"].clone();
    let bearer = format!("Bearer {}", key.as_str().unwrap());
    let file = "code,target\nours-1,https://example.com/\nours-2,https://example.com/\n";
    create_link(
        &world,
        json!({"target": "https://example.com/", "code": "ours-2"}),
    )
    .await;
    let of_key = |query: &'static str| world.admin_as("POST", query, file, Some(&bearer));
    let answer = of_key("/link-imports?format=csv&tag=team").await;
    assert_eq!(
        (&answer.body["created"], &answer.body["present"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(answer.body["refused"][0]["error"], "code_taken");
    let answer = of_key("/link-imports?format=csv").await;
    assert_eq!(answer.body["refused"][0]["error"], "forbidden");
}

fn links(origin: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(support::binary());
    command.arg("links").args(["--url", origin]).args(arguments);
    command.env("WEIR_API_KEY", TOKEN).env_remove("RUST_LOG");
    command.output().unwrap()
}

/// Runs the command, asserts success and returns its output.
fn done(origin: &str, arguments: &[&str]) -> String {
    let output = links(origin, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cli_creates_edits_searches_imports_and_exports_links() {
    let dir = tempfile::tempdir().unwrap();
    let redis = support::redis(&dir).await;
    let running = start(dir.path(), &redis).await;
    let origin = running.admin_url();
    let url = done(
        &origin,
        &[
            "create",
            "https://example.com/a",
            "--code",
            "spring",
            "--tag",
            "x",
            "--json",
            r#"{"rules": [{"percent": 5, "target": "https://b.example/"}]}"#,
        ],
    );
    assert_eq!(url, "https://127.0.0.1/spring\n");
    let actual =
        |arguments: &[&str]| -> Value { serde_json::from_str(&done(&origin, arguments)).unwrap() };
    let link = actual(&["get", "spring"]);
    assert_eq!(
        (&link["tags"], &link["rules"][0]["percent"]),
        (&json!(["x"]), &json!(5))
    );
    let link = actual(&[
        "edit",
        "spring",
        "--target",
        "https://example.com/b",
        "--disable",
        "--version",
        "1",
    ]);
    assert_eq!(
        (&link["version"], &link["disabled"]),
        (&json!(2), &json!(true))
    );
    let output = links(&origin, &["edit", "spring", "--enable", "--version", "1"]);
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && printed.contains("412"),
        "{printed}"
    );

    let secret = dir.path().join("secret");
    std::fs::write(&secret, "open sesame\n").unwrap();
    let secret = secret.to_str().unwrap();
    let link = actual(&[
        "edit",
        "spring",
        "--password-file",
        secret,
        "--conversion",
        "false",
    ]);
    assert_eq!(link["protected"], true);
    let output = links(&origin, &["edit", "spring", "--password-file", "/nowhere"]);
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(printed.contains("cannot read \"/nowhere\""), "{printed}");
    actual(&["edit", "spring", "--json", r#"{"password": null}"#]);

    // A file in three parts, with one invalid row.
    let mut file = "keyword,url\n".to_owned();
    for n in 0..1_100 {
        let target = if n == 700 {
            "ftp://no.example/"
        } else {
            "https://example.com/"
        };
        file += &format!("moved-{n},{target}\n");
    }
    let path = dir.path().join("moved.csv");
    std::fs::write(&path, file).unwrap();
    let arguments = [
        "import",
        "--format",
        "yourls",
        "--tag",
        "moved",
        path.to_str().unwrap(),
    ];
    for sum in [
        "1099 links created, 0 already exist, 1 refused",
        "0 links created, 1099 already exist, 1 refused",
    ] {
        let output = links(&origin, &arguments);
        let (stdout, stderr) = (output.stdout, String::from_utf8(output.stderr).unwrap());
        assert_eq!(
            String::from_utf8(stdout).unwrap(),
            format!("1100 rows: {sum}\n")
        );
        assert!(stderr.contains("line 702: moved-700: "), "{stderr}");
        assert!(!output.status.success());
    }
    let listed = done(&origin, &["list", "--tag", "moved", "--limit", "250"]);
    assert_eq!(listed.lines().count(), 250);
    assert!(listed.starts_with("https://127.0.0.1/moved-"), "{listed}");
    let written = dir.path().join("out.ndjson");
    let output = written.to_str().unwrap();
    done(
        &origin,
        &[
            "export", "--format", "ndjson", "--tag", "moved", "-o", output,
        ],
    );
    assert_eq!(
        std::fs::read_to_string(&written).unwrap().lines().count(),
        1_099
    );
    done(&origin, &["delete", "spring"]);
    let output = links(&origin, &["get", "spring"]);
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(printed.contains("404 unknown_link"), "{printed}");
}
