//! The archive contains every acknowledged event once, whichever process dies.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::prefix::PrefixStore;
use serde_json::{Value, json};
use weir_stack::http::{self, Method};
use weir_stack::report::SilentReporter;
use weir_stack::s3::S3Server;
use weir_stack::tools;

use super::support::{Archived, World, in_folder, in_store, send_until_killed, until};

const BUCKET: &str = "weir-events";

fn folder(dir: &Path) -> String {
    dir.join("archive").display().to_string()
}

/// The ids of all rows, each of which must be unique.
fn each_once(rows: &[Archived]) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for row in rows {
        assert!(
            ids.insert(row.id()),
            "{} is there twice: {}",
            row.id(),
            row.path
        );
    }
    ids
}

/// Sends events concurrently and kills the origin, several times; returns the acknowledged ids.
async fn send_and_kill(world: &mut World, rounds: u32) -> Vec<String> {
    let mut accepted = Vec::new();
    for round in 0..rounds {
        let authority = world.origin.url().trim_start_matches("http://").to_owned();
        let senders: Vec<_> = (0..4)
            .map(|n| tokio::spawn(send_until_killed(authority.clone(), 4 * round + n)))
            .collect();
        // The exact time does not matter: a file is always being written.
        tokio::time::sleep(Duration::from_millis(700)).await;
        world.origin.process().kill();
        for sender in senders {
            accepted.extend(sender.await.unwrap());
        }
        world.origin.start_again().await.unwrap();
    }
    accepted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_acknowledged_event_is_in_the_folder_once_after_kill() {
    let mut world = World::new(&folder, &[]).await;
    let accepted = send_and_kill(&mut world, 4).await;
    assert!(accepted.len() > 100, "{}", accepted.len());
    world.until_archived().await;
    let archive = world.dir.path().join("archive");
    let rows = in_folder(&archive);
    let ids = each_once(&rows);
    for id in &accepted {
        assert!(
            ids.contains(id),
            "{id} was acknowledged and is not archived"
        );
    }
    let files: BTreeSet<&String> = rows.iter().map(|row| &row.path).collect();
    assert!(files.len() > 4, "{files:?}");

    // A seek to the start or into the middle of a step gives the same archive.
    let position = world.group().await["positions"][0]["position"]
        .as_u64()
        .unwrap();
    for to in [json!({"to": "start"}), json!({"position": position - 100})] {
        let before = world.group().await["positions"][0].clone();
        let response = world.admin(Method::POST, "/groups/archive/seek", &to).await;
        assert!(
            response["sources"][0]["to"].as_u64() < Some(position),
            "{response} {before}"
        );
        world.until_archived().await;
        assert_eq!(each_once(&in_folder(&archive)), ids);
    }
    // Archiving continues.
    world.push(json!([{"id": "last", "type": "view"}])).await;
    world.until_archived().await;
    assert_eq!(each_once(&in_folder(&archive)).len(), ids.len() + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn archive_row_has_its_events_fields_and_source_position() {
    let world = World::new(&folder, &[]).await;
    world.push(json!([
        {"id": "a", "type": "view", "customer": "alice", "at_ms": 1_000 * (weir_origin::clock::now_ms() / 1_000), "attributes": {"sku": "7", "n": 1}},
        {"id": "b", "type": "cart", "visitor": "v1"},
        {"id": "b", "type": "cart", "visitor": "v1"},
    ])).await;
    world.until_archived().await;
    let mut rows = in_folder(&world.dir.path().join("archive"));
    rows.sort_by_key(Archived::id);
    let [a, b] = &rows[..] else {
        panic!("{rows:?}")
    };
    let text = |row: &Archived, name| row.text(name);
    assert_eq!(text(a, "customer").as_deref(), Some("alice"));
    assert_eq!((text(a, "visitor"), text(a, "address")), (None, None));
    assert_eq!(
        text(a, "attributes").as_deref(),
        Some(r#"{"n":1,"sku":"7"}"#)
    );
    assert_eq!(text(a, "topics").as_deref(), Some("events"));
    assert_eq!(
        (text(b, "visitor").as_deref(), text(b, "customer")),
        (Some("v1"), None)
    );
    let stored = world
        .admin(Method::GET, "/customers/alice/events", &Value::Null)
        .await;
    let received_ms = stored["events"][0]["received_ms"].as_u64().unwrap();
    let utc = weir_origin::clock::utc(received_ms);
    let (day, hour) = (&utc[..10], &utc[11..13]);
    assert!(
        a.path
            .starts_with(&format!("type=view/day={day}/hour={hour}/")),
        "{}",
        a.path
    );
    assert!(
        b.path
            .starts_with(&format!("type=cart/day={day}/hour={hour}/")),
        "{}",
        b.path
    );
}

fn s3(endpoint: &str) -> PrefixStore<AmazonS3> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let store = AmazonS3Builder::new()
        .with_bucket_name(BUCKET)
        .with_region("us-east-1")
        .with_access_key_id("id")
        .with_secret_access_key("hush")
        .with_endpoint(endpoint)
        .with_allow_http(true)
        .build();
    PrefixStore::new(store.unwrap(), "shop/events")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_acknowledged_event_is_in_s3_once_after_an_outage() {
    let dir = tempfile::tempdir().unwrap();
    let tool = tools::Moto::find_or_get(&mut SilentReporter).unwrap();
    let mut server = S3Server::start(&tool, &dir.path().join("moto.log"))
        .await
        .unwrap();
    let url = format!("{}/{BUCKET}", server.endpoint());
    let response = http::send(Method::PUT, &url, &[], String::new());
    assert_eq!(response.await.unwrap().status, 200);
    let variables = [
        ("AWS_ACCESS_KEY_ID", "id".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "hush".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ENDPOINT_URL", server.endpoint()),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_CONNECT_TIMEOUT", "1 second".to_owned()),
        ("AWS_TIMEOUT", "2 seconds".to_owned()),
    ];
    let place = |_: &Path| format!("s3://{BUCKET}/shop/events");
    let mut world = World::new(&place, &variables).await;
    let mut accepted = send_and_kill(&mut world, 2).await;
    world.until_archived().await;

    server.process().freeze();
    let authority = world.origin.url().trim_start_matches("http://").to_owned();
    let sender = tokio::spawn(send_until_killed(authority, 99));
    until("an outage", async || {
        world.group().await["state"] == "outage"
    })
    .await;
    world.origin.process().kill();
    accepted.extend(sender.await.unwrap());
    world.origin.start_again().await.unwrap();
    server.process().thaw();
    world.until_archived().await;

    let ids = each_once(&in_store(&s3(&server.endpoint())).await);
    assert!(accepted.len() > 100, "{}", accepted.len());
    for id in &accepted {
        assert!(
            ids.contains(id),
            "{id} was acknowledged and is not archived"
        );
    }
}

#[test]
fn unusable_archive_location_is_refused_with_its_flag() {
    let dir = tempfile::tempdir().unwrap();
    let binary = weir_stack::origin::ensure_built().unwrap();
    let run = |flags: &[&str]| {
        let output = Command::new(&binary)
            .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
            .args([
                "--database-url",
                &format!("sqlite://{}/weir.db", dir.path().display()),
            ])
            .args(flags)
            .env_clear()
            .env(
                "WEIR_CLAIM_SECRET",
                "claim-secret-claim-secret-claim-secret",
            )
            .env("WEIR_ADMIN_TOKEN", "admin-token-admin-token-admin-token")
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let log = dir.path().join("events").display().to_string();
    let check = |flags: &[&str], expected: &str| {
        let printed = run(flags);
        assert!(printed.contains(expected), "{printed}");
    };
    check(&["--events-archive", "/tmp/a"], "--events-archive needs");
    check(
        &["--events-log", &log, "--events-archive", "s3://"],
        "not s3://BUCKET",
    );
    check(
        &["--events-log", &log, "--events-archive", "/dev/null/a"],
        "--events-archive: /dev/null/a",
    );
    check(
        &[
            "--events-log",
            &log,
            "--events-archive",
            "/tmp/a",
            "--events-archive-every",
            "0s",
        ],
        "--events-archive-every",
    );
}
