//! Changes of links, sent to a real receiver.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use weir_log::Position;
use weir_origin::clock::now_ms;
use weir_origin::http::webhook::WebhookSender;
use weir_origin::links::metrics::LinkMetrics;
use weir_origin::links::store::Entry;
use weir_origin::metrics::Metrics;
use weir_origin::outbox::{ChangeWebhook, Outbox, SinkName, Sinks};
use weir_stack::http::{self, Method};
use weir_stack::origin::Origin;

use super::new_link;
use crate::outbox::{ANYWHERE, Receiver, SECRET, listen, times, until};
use crate::process::options;
use crate::support::{self, TOKEN, World};

const WEBHOOK: Sinks = Sinks {
    webhook: true,
    events: false,
};

fn domains() -> Value {
    json!({"domains": [{"id": "s", "hosts": ["s.example.com"]}]})
}

async fn world() -> World {
    World::with_links(domains(), |settings| settings.sinks = WEBHOOK).await
}

/// Sends waiting changes, like one more origin.
async fn outbox(world: &World, receiver: &Arc<Receiver>) -> (DropGuard, DropGuard) {
    let (address, listening) = listen(receiver, ANYWHERE.into()).await;
    let url = format!("http://{address}/hook");
    let sender = WebhookSender::new(&url, None, SECRET, Arc::new(now_ms)).unwrap();
    let queue = world.origin.links().unwrap().store().outbox();
    let meter = Arc::new(LinkMetrics::register(&Metrics::default()));
    let sink = Arc::new(ChangeWebhook::new(sender));
    let outbox = Outbox::new(SinkName::Webhook, sink, queue, meter, times());
    let stop = CancellationToken::new();
    tokio::spawn(outbox.run(stop.clone()));
    (listening, stop.drop_guard())
}

async fn ask(world: &World, method: &str, path: &str, body: Value) -> Value {
    let answer = world.admin(method, path, &body).await;
    assert!(answer.status.is_success(), "{path}: {answer:?}");
    answer.body
}

fn bodies(receiver: &Receiver, link: &str) -> Vec<Value> {
    let bodies = receiver.bodies.lock().unwrap();
    let of = |(id, _): &(&String, &Value)| id.rsplit_once('.').unwrap().0 == link;
    bodies
        .iter()
        .filter(of)
        .map(|(_, body)| body.clone())
        .collect()
}

#[tokio::test]
async fn link_changes_are_delivered_in_order() {
    let world = world().await;
    let receiver = Arc::new(Receiver::default());
    let _outbox = outbox(&world, &receiver).await;
    let target = "https://example.com/a";
    let document = json!({"target": target, "code": "spring", "tags": ["x"]});
    ask(&world, "POST", "/links", document).await;
    for edit in [
        json!({"target": "https://example.com/b"}),
        json!({"disabled": true}),
        json!({"disabled": false}),
    ] {
        ask(&world, "PATCH", "/links/spring", edit).await;
    }
    ask(&world, "DELETE", "/links/spring", Value::Null).await;
    until("all is told", || {
        receiver.sequences("s/spring") == [1, 2, 3, 4, 5]
    })
    .await;
    let reply = bodies(&receiver, "s/spring");
    let kinds: Vec<&str> = reply
        .iter()
        .map(|body| body["type"].as_str().unwrap())
        .collect();
    let expected = ["created", "edited", "disabled", "enabled", "deleted"];
    assert_eq!(kinds, expected.map(|word| format!("link.{word}")));
    let first = &reply[0]["link"];
    assert_eq!(first["url"], "https://s.example.com/spring");
    assert_eq!(
        (&first["target"], &first["tags"]),
        (&json!(target), &json!(["x"]))
    );
    assert_eq!(reply[1]["link"]["target"], "https://example.com/b");
    assert_eq!(reply[1]["link"]["version"], 2);
    assert_eq!(reply[2]["link"]["disabled"], true);

    // Links that go through the log, one at a time and in a batch.
    let one = json!({"target": target});
    let code = ask(&world, "POST", "/links", one.clone()).await["code"].clone();
    let many = ask(&world, "POST", "/links", json!(vec![one; 100])).await;
    let codes = many.as_array().unwrap().iter().map(|link| &link["code"]);
    for code in codes.chain([&code]) {
        let name = format!("s/{}", code.as_str().unwrap());
        until("it is told", || receiver.sequences(&name) == [1]).await;
    }
}

#[tokio::test]
async fn password_protected_content_is_not_delivered() {
    let world = world().await;
    let receiver = Arc::new(Receiver::default());
    let _outbox = outbox(&world, &receiver).await;
    let body = json!({
        "target": "https://secret.example/", "code": "guarded", "password": "open",
        "rules": [{"platforms": ["ios"], "target": "https://secret.example/rule"}],
    });
    ask(&world, "POST", "/links", body).await;
    until("it is told", || receiver.sequences("s/guarded") == [1]).await;
    let reply = &bodies(&receiver, "s/guarded")[0];
    assert!(!reply.to_string().contains("secret"), "{reply}");
    assert_eq!(
        (&reply["link"]["protected"], &reply["link"]["target"]),
        (&json!(true), &Value::Null)
    );
}

#[tokio::test]
async fn waiting_deliveries_are_listed_and_retried() {
    let world = world().await;
    let receiver = Arc::new(Receiver::default());
    receiver.refuse("s/spring", u32::MAX);
    let body = json!({"target": "https://example.com/", "code": "spring"});
    ask(&world, "POST", "/links", body).await;
    let _outbox = outbox(&world, &receiver).await;
    let response = loop {
        let response = ask(&world, "GET", "/link-deliveries", Value::Null).await;
        if response["webhook"]["waiting"][0]["tries"].as_u64() > Some(0) {
            break response;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let waiting = &response["webhook"]["waiting"][0];
    assert_eq!(
        (&waiting["link"], &waiting["last_sequence"]),
        (&json!("s/spring"), &json!(1))
    );
    assert_eq!(waiting["last_error"], "answered 503");
    assert_eq!(response["events"]["links"], 0);
    receiver.refuse("s/spring", 0);
    ask(&world, "POST", "/link-deliveries/retry", Value::Null).await;
    until("it is told", || receiver.sequences("s/spring") == [1]).await;
}

#[tokio::test]
async fn expired_link_is_announced_when_it_is_removed() {
    let clock = Arc::new(AtomicU64::new(now_ms()));
    let displayed = clock.clone();
    let world = World::with_links(domains(), move |settings| {
        settings.clock = Arc::new(move || displayed.load(Ordering::Relaxed));
        settings.sinks = WEBHOOK;
    })
    .await;
    let ends_at_ms = clock.load(Ordering::Relaxed) + 5_000;
    for code in ["ending", "deleted"] {
        let body =
            json!({"target": "https://example.com/", "code": code, "expires_at_ms": ends_at_ms});
        ask(&world, "POST", "/links", body).await;
    }
    ask(&world, "DELETE", "/links/deleted", Value::Null).await;
    clock.fetch_add(100 * 86_400_000, Ordering::Relaxed);
    let links = world.origin.links().unwrap();
    links.log().drained().await;
    // The clock of Redis has not moved.
    let prefix = &world.prefix;
    for code in ["ending", "deleted"] {
        let key = weir_link::redis::keys::LinkKeys::new(prefix, &super::id(&format!("s/{code}")));
        world.redis(redis::cmd("DEL").arg(key.record())).await;
    }
    assert_eq!(links.cleaner().clean().await.unwrap().removed, 2);
    let kinds = async |link: &str| {
        let changes = links.store().outbox().changes(link, 1, 9).await.unwrap();
        changes
            .into_iter()
            .map(|change| change.kind)
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds("s/ending").await, ["link.created", "link.ended"]);
    assert_eq!(kinds("s/deleted").await, ["link.created", "link.deleted"]);
}

#[tokio::test]
async fn voided_link_is_not_announced() {
    let world = world().await;
    let store = world.origin.links().unwrap().store();
    let (lost, retained) = (new_link("s/abc", 5), new_link("s/abd", 5));
    let entries = [
        Entry::Made(lost.clone()),
        Entry::Made(retained),
        Entry::Void(lost),
    ];
    let position = Position { file: 1, byte: 9 };
    store.log().drain("log", position, &entries).await.unwrap();
    let receiver = Arc::new(Receiver::default());
    let _outbox = outbox(&world, &receiver).await;
    until("the other is told", || receiver.sequences("s/abd") == [1]).await;
    assert!(
        store
            .outbox()
            .changes("s/abc", 1, 9)
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(receiver.sequences("s/abc"), [] as [u64; 0]);
}

async fn get(origin: &Origin, path: &str) -> Value {
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("authorization", bearer.as_str())];
    let url = format!("{}{path}", origin.admin_url());
    let answer = http::send(Method::GET, &url, &headers, "").await;
    serde_json::from_str(&answer.unwrap().text()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn committed_links_are_published_after_kill_and_are_in_log() {
    let dir = tempfile::tempdir().unwrap();
    let redis = support::redis(&dir).await;
    let receiver = Arc::new(Receiver::default());
    let (address, listening) = listen(&receiver, ANYWHERE.into()).await;
    drop(listening);
    let file = dir.path().join("links.json");
    std::fs::write(&file, domains().to_string()).unwrap();
    let mut options = options(dir.path(), &redis.url(), "weir");
    options.links = Some(file);
    options.events_log = Some(dir.path().join("events"));
    options.flags = [
        "--links-webhook-url",
        &format!("http://{address}/hook"),
        "--links-events",
    ]
    .map(str::to_owned)
    .to_vec();
    options.secrets.events = String::from_utf8(SECRET.to_vec()).unwrap();
    let log = dir.path().join("origin.log");
    let mut origin = Origin::start(&support::binary(), options, &log)
        .await
        .unwrap();
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("authorization", bearer.as_str())];
    let url = format!("{}/links", origin.admin_url());
    let body = json!({"target": "https://example.com/"}).to_string();
    let response = http::send(Method::POST, &url, &headers, body)
        .await
        .unwrap();
    assert_eq!(response.status, 201, "{}", response.text());
    let code = response.json().unwrap()["code"]
        .as_str()
        .unwrap()
        .to_owned();
    // It may be in the log only.
    origin.process().kill();

    let (_, _listening) = listen(&receiver, address).await;
    origin.start_again().await.unwrap();
    let name = format!("s/{code}");
    until("it is told", || receiver.sequences(&name) == [1]).await;
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        let waits = get(&origin, "/link-deliveries").await;
        if waits["events"]["links"] == 0 {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{waits}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let folder = dir.path().join("events");
    let found = walk(&folder).any(|bytes| {
        let text = String::from_utf8_lossy(&bytes);
        text.contains("link.created") && text.contains(&name)
    });
    assert!(found, "not in the log of events");
}

/// The contents of all files below a folder.
fn walk(folder: &std::path::Path) -> impl Iterator<Item = Vec<u8>> {
    let mut folders = vec![folder.to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(std::fs::read(path).unwrap()),
            }
        }
    }
    files.into_iter()
}
