//! Clicks from the stream to the counts in SQL.

mod mmdb;

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use mmdb::Data::{List, Map, Number, Text};
use redis::{Value, cmd};
use serde_json::json;
use weir_link::agent::{Agent, Language, agent_hash};
use weir_link::click::{MINUTE_MS, Row, encode};
use weir_link::code::LinkId;
use weir_origin::clock::now_ms;
use weir_origin::links::geo::Geo;
use weir_origin::links::jobs::clicks::ClickCounter;
use weir_origin::links::model::labels::Labels;
use weir_origin::links::model::stats::{Breakdown, DAY_MS, Span, Uniques};
use weir_origin::links::store::NewLink;

use crate::support::World;

const PHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15 \
                     (KHTML, like Gecko) Version/17.0 Mobile/15E148 Safari/604.1";

async fn world() -> World {
    let domains = json!({ "domains": [{ "id": "s", "hosts": ["s.example.com"] }] });
    World::with_links(domains, |_| {}).await
}

fn link(name: &str) -> LinkId {
    name.parse().unwrap()
}

fn row(name: &str, address: &str, clicks: u32) -> Row {
    let now_ms = now_ms();
    Row {
        link: link(name),
        minute_ms: now_ms - now_ms % MINUTE_MS,
        last_ms: now_ms,
        clicks,
        address: Some(address.parse().unwrap()),
        agent_hash: agent_hash(PHONE.as_bytes()),
        agent: Agent::read(PHONE.as_bytes()),
        referrer: "a.example".to_owned(),
        language: Language::new(b"de").unwrap(),
    }
}

fn counter(world: &World, name: &str, geo: Geo) -> ClickCounter {
    let links = world.origin.links().unwrap();
    links.click_counter(geo, name.to_owned())
}

fn stream(world: &World) -> String {
    format!("{}:link:clicks", world.prefix)
}

/// Adds a batch to the stream like a gateway, and returns the entry's id.
async fn send(world: &World, id: &str, payload: &[u8]) -> Vec<u8> {
    let mut add = cmd("XADD");
    add.arg(stream(world)).arg("*");
    match world
        .redis(add.arg("b").arg(id).arg("d").arg(payload))
        .await
    {
        Value::BulkString(id) => id,
        other => panic!("{other:?}"),
    }
}

async fn length(world: &World, stream: &str) -> i64 {
    match world.redis(cmd("XLEN").arg(stream)).await {
        Value::Int(length) => length,
        other => panic!("{other:?}"),
    }
}

/// Entries that were delivered but not acknowledged.
async fn pending(world: &World) -> Value {
    let summary = world
        .redis(cmd("XPENDING").arg(stream(world)).arg("stats"))
        .await;
    match summary {
        Value::Array(parts) => parts.into_iter().next().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Clicks, visitors and addresses of the days around now.
async fn days(world: &World, name: &str) -> (u64, u64, u64) {
    let until_ms = now_ms() + DAY_MS;
    let link = link(name);
    let points =
        world
            .origin
            .links()
            .unwrap()
            .store()
            .clicks()
            .click_points(&link, Span::Day, 0, until_ms);
    let mut sums = (0, 0, 0);
    for point in points.await.unwrap() {
        let Uniques {
            visitors,
            addresses,
        } = point.uniques;
        sums = (sums.0 + point.clicks, sums.1 + visitors, sums.2 + addresses);
    }
    sums
}

async fn part(world: &World, name: &str, part: Breakdown) -> Vec<(String, u64)> {
    let link = link(name);
    let parts = world
        .origin
        .links()
        .unwrap()
        .store()
        .clicks()
        .click_parts(&link, 0, now_ms() + DAY_MS)
        .await;
    let parts = parts
        .unwrap()
        .into_iter()
        .filter(|count| count.part == part);
    parts.map(|count| (count.value, count.clicks)).collect()
}

fn metric(world: &World, line: &str) -> bool {
    world.origin.metrics().text().lines().any(|has| has == line)
}

#[tokio::test]
async fn redelivered_click_batch_is_counted_once() {
    let world = world().await;
    let rows = [
        row("s/abc", "203.0.113.1", 3),
        row("s/abc", "203.0.113.2", 2),
        row("s/xyz", "203.0.113.1", 1),
    ];
    let payload = encode(&rows);
    send(&world, "00000000000000aa-1", &payload).await;
    let mut first = counter(&world, "one", Geo::default());
    assert_eq!(first.round().await.unwrap(), 1);
    assert_eq!(first.round().await.unwrap(), 0);
    // Sent again by a gateway that did not learn whether the first one arrived.
    for id in [
        "00000000000000aa-1",
        "00000000000000aa-1",
        "00000000000000aa-2",
    ] {
        send(&world, id, &payload).await;
    }
    assert_eq!(first.round().await.unwrap(), 3);

    assert_eq!(days(&world, "s/abc").await, (10, 2, 2));
    assert_eq!(days(&world, "s/xyz").await, (2, 1, 1));
    assert_eq!(
        part(&world, "s/abc", Breakdown::System).await,
        [("ios".to_owned(), 10)]
    );
    assert_eq!(
        part(&world, "s/abc", Breakdown::Region).await,
        [("unknown".to_owned(), 10)]
    );
    assert_eq!(length(&world, &stream(&world)).await, 0);
    assert_eq!(pending(&world).await, Value::Int(0));
    assert!(metric(&world, "weir_origin_clicks_total 12"));
    for line in ["counted\"} 2", "counted_before\"} 2", "refused\"} 0"] {
        let line = format!("weir_origin_click_batches_total{{outcome=\"{line}");
        assert!(metric(&world, &line), "{line}");
    }
}

#[tokio::test]
async fn two_browsers_of_one_address_count_as_two_visitors() {
    let world = world().await;
    let mut other = row("s/abc", "203.0.113.1", 1);
    other.agent_hash = agent_hash(b"curl/8");
    let rows = [row("s/abc", "203.0.113.1", 1), other];
    send(&world, "00000000000000aa-1", &encode(&rows)).await;
    counter(&world, "one", Geo::default())
        .round()
        .await
        .unwrap();
    assert_eq!(days(&world, "s/abc").await, (2, 2, 1));
}

#[tokio::test]
async fn invalid_click_batch_is_quarantined_and_blocks_no_other() {
    let world = world().await;
    let good = encode(&[row("s/abc", "203.0.113.1", 1)]);
    let broken = [
        ("00000000000000aa-1", b"{}".as_slice()),
        ("00000000000000aa-2", b"\xff\x00"),
        ("no id", &good),
        ("00000000000000aa-3", br#"{"v":9,"r":[]}"#),
    ];
    for (id, payload) in broken {
        send(&world, id, payload).await;
        send(&world, "00000000000000bb-1", &good).await;
    }
    let mut add = cmd("XADD");
    world
        .redis(add.arg(stream(&world)).arg("*").arg("x").arg("y"))
        .await;
    let mut counter = counter(&world, "one", Geo::default());
    while counter.round().await.unwrap() > 0 {}
    assert_eq!(days(&world, "s/abc").await, (1, 1, 1));
    assert_eq!(length(&world, &stream(&world)).await, 0);
    assert_eq!(pending(&world).await, Value::Int(0));
    let aside = format!("{}:refused", stream(&world));
    assert_eq!(length(&world, &aside).await, 5);
    let Value::Int(left_ms) = world.redis(cmd("PTTL").arg(&aside)).await else {
        panic!("no life");
    };
    assert!((1..=DAY_MS as i64).contains(&left_ms), "{left_ms}");
    let refused = "weir_origin_click_batches_total{outcome=\"refused\"} 5";
    assert!(metric(&world, refused));
}

/// One consumer gets a batch and dies; another counts one but cannot acknowledge it.
#[tokio::test]
async fn click_batches_of_dead_origins_are_taken_over() {
    let world = world().await;
    let payload = encode(&[row("s/abc", "203.0.113.1", 1)]);
    send(&world, "00000000000000aa-1", &payload).await;
    counter(&world, "one", Geo::default())
        .round()
        .await
        .unwrap();
    for id in ["00000000000000aa-1", "00000000000000aa-2"] {
        send(&world, id, &payload).await;
    }
    let mut read = cmd("XREADGROUP");
    read.arg("GROUP").arg("stats").arg("dead");
    world
        .redis(read.arg("STREAMS").arg(stream(&world)).arg(">"))
        .await;
    assert_eq!(pending(&world).await, Value::Int(2));

    let mut patient = counter(&world, "two", Geo::default());
    assert_eq!(patient.round().await.unwrap(), 0);
    assert_eq!(pending(&world).await, Value::Int(2));
    let heir = counter(&world, "three", Geo::default());
    let mut heir = heir.dead_after(Duration::ZERO);
    heir.round().await.unwrap();
    assert_eq!(days(&world, "s/abc").await, (2, 1, 1));
    assert_eq!(pending(&world).await, Value::Int(0));
    assert_eq!(length(&world, &stream(&world)).await, 0);
}

#[tokio::test]
async fn partly_failed_click_batch_is_finished_in_the_next_round() {
    let world = world().await;
    let payload = encode(&[row("s/abc", "203.0.113.1", 1)]);
    let mut counter = counter(&world, "one", Geo::default());
    assert_eq!(counter.round().await.unwrap(), 0);
    send(&world, "00000000000000aa-1", &payload).await;
    let entry = send(&world, "00000000000000aa-2", &payload).await;
    send(&world, "00000000000000aa-3", &payload).await;
    // A key of another type blocks the HyperLogLog.
    let hour = now_ms() / 3_600_000;
    let in_the_way = format!("{}:link:uv:{{s/abc}}:h{hour}:v", world.prefix);
    world.redis(cmd("SET").arg(&in_the_way).arg("x")).await;
    for _ in 0..2 {
        counter.round().await.unwrap_err();
        assert_eq!(pending(&world).await, Value::Int(3));
        assert_eq!(days(&world, "s/abc").await, (0, 0, 0));
    }
    // An entry is deleted meanwhile, as in a full stream.
    world
        .redis(cmd("XDEL").arg(stream(&world)).arg(entry))
        .await;
    world.redis(cmd("DEL").arg(&in_the_way)).await;
    while counter.round().await.unwrap() > 0 {}
    assert_eq!(days(&world, "s/abc").await, (2, 1, 1));
    assert_eq!(pending(&world).await, Value::Int(0));
    // Redis loses all data, including the group.
    world.redis(cmd("DEL").arg(stream(&world))).await;
    counter.round().await.unwrap_err();
    send(&world, "00000000000000aa-4", &payload).await;
    while counter.round().await.unwrap() > 0 {}
    assert_eq!(days(&world, "s/abc").await, (3, 1, 1));
}

#[tokio::test]
async fn regions_and_operators_are_read_from_geo_databases() {
    let world = world().await;
    let (cities, operators) = (
        world.dir.path().join("c.mmdb"),
        world.dir.path().join("a.mmdb"),
    );
    let berlin = Map(vec![
        ("country", Map(vec![("iso_code", Text("DE"))])),
        (
            "subdivisions",
            List(vec![Map(vec![("iso_code", Text("BE"))])]),
        ),
    ]);
    let france = Map(vec![("country", Map(vec![("iso_code", Text("FR"))]))]);
    let net = |bits: u8| Ipv4Addr::new(203, 0, 113, bits);
    let networks = [(net(0), 26, berlin), (net(64), 26, france)];
    std::fs::write(&cities, mmdb::database("City", &networks)).unwrap();
    let named = Map(vec![
        ("autonomous_system_number", Number(64_500)),
        ("autonomous_system_organization", Text("=Netz AG")),
    ]);
    let numbered = Map(vec![("autonomous_system_number", Number(64_501))]);
    let networks = [(net(0), 26, named), (net(64), 26, numbered)];
    std::fs::write(&operators, mmdb::database("ASN", &networks)).unwrap();
    let geo = Geo::open(Some(&cities), Some(&operators)).unwrap();

    let rows = [
        row("s/abc", "203.0.113.5", 4),
        row("s/abc", "203.0.113.70", 3),
        row("s/abc", "203.0.113.200", 2),
        row("s/abc", "2001:db8::1", 1),
    ];
    send(&world, "00000000000000aa-1", &encode(&rows)).await;
    counter(&world, "one", geo).round().await.unwrap();
    let expected = [("DE-BE", 4), ("FR", 3), ("unknown", 3)];
    let named = |(name, count): (&str, u64)| (name.to_owned(), count);
    assert_eq!(
        part(&world, "s/abc", Breakdown::Region).await,
        expected.map(named)
    );
    let expected = [("=Netz AG", 4), ("AS64501", 3), ("unknown", 3)];
    assert_eq!(
        part(&world, "s/abc", Breakdown::Operator).await,
        expected.map(named)
    );

    for (cities, operators, flag) in [
        (Some(Path::new("/no/such")), None, "--geo-city-db: /no/such"),
        (
            None,
            Some(Path::new("/etc/passwd")),
            "--geo-asn-db: /etc/passwd",
        ),
    ] {
        let error = Geo::open(cities, operators).unwrap_err().to_string();
        assert!(error.starts_with(flag), "{error}");
    }
}

/// Redis renews a link with each click; the cold store learns of it here.
#[tokio::test]
async fn click_extends_the_link_in_the_cold_store() {
    let world = world().await;
    let links = world.origin.links().unwrap();
    for code in ["abc", "xyz"] {
        let new = NewLink {
            id: link(&format!("s/{code}")),
            record: format!(r#"{DAY_MS} 0 {{"t":"https://a.example/"}}"#),
            labels: Labels::default(),
            life_ms: DAY_MS,
            ends_at_ms: 0,
            created_at_ms: now_ms() - 1_000 - DAY_MS / 2,
        };
        assert!(links.store().log().insert(&new).await.unwrap());
    }
    let end_ms = async |code: &str| {
        let stored = links.store().link(&link(code)).await.unwrap().unwrap();
        stored.expires_at_ms.unwrap()
    };
    let before_ms = end_ms("s/abc").await;
    // The batch was delayed, while the link was idle.
    let last_ms = now_ms() - 10_000;
    let clicked = Row {
        minute_ms: last_ms - last_ms % MINUTE_MS,
        last_ms,
        ..row("s/abc", "203.0.113.1", 1)
    };
    send(&world, "00000000000000aa-1", &encode(&[clicked])).await;
    counter(&world, "one", Geo::default())
        .round()
        .await
        .unwrap();
    assert_eq!(end_ms("s/abc").await, last_ms + DAY_MS);
    assert!(end_ms("s/xyz").await <= before_ms + 1_000);
}

/// Whether a file in this folder contains these bytes.
fn stands_in(dir: &Path, text: &[u8]) -> bool {
    let files = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    files.filter(|path| path.is_file()).any(|path| {
        let bytes = std::fs::read(path).unwrap();
        bytes.windows(text.len()).any(|window| window == text)
    })
}

/// All data of this world in Redis, uncompressed: compressed dumps may hide text.
async fn dump(world: &World) -> Vec<u8> {
    let mut plain = cmd("CONFIG");
    world
        .redis(plain.arg("SET").arg("rdbcompression").arg("no"))
        .await;
    let pattern = format!("{}:*", world.prefix);
    let Value::Array(keys) = world.redis(cmd("KEYS").arg(pattern)).await else {
        panic!("no keys");
    };
    let mut all = Vec::new();
    for key in keys {
        let Value::BulkString(key) = key else {
            panic!("{key:?}");
        };
        if let Value::BulkString(bytes) = world.redis(cmd("DUMP").arg(&key)).await {
            all.extend(key);
            all.extend(bytes);
        }
    }
    all
}

#[tokio::test]
async fn counted_ip_addresses_are_stored_nowhere() {
    let world = world().await;
    let address = "198.51.100.77";
    let spellings = [
        address.as_bytes().to_vec(),
        [198, 51, 100, 77].to_vec(),
        b"198-51-100-77".to_vec(),
    ];
    for n in 0..3 {
        let payload = encode(&[row("s/abc", address, 1), row("s/abc", "2001:db8::77", 1)]);
        send(&world, &format!("00000000000000aa-{n}"), &payload).await;
    }
    let has = |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    // The search finds the address while it is stored.
    assert!(has(&dump(&world).await, address.as_bytes()));
    let mut counter = counter(&world, "one", Geo::default());
    while counter.round().await.unwrap() > 0 {}
    assert_eq!(days(&world, "s/abc").await, (6, 2, 2));
    let dumped = dump(&world).await;
    assert!(has(&dumped, b":link:uv:"), "nothing was dumped");
    for spelling in spellings {
        assert!(!has(&dumped, &spelling), "Redis has {spelling:?}");
        assert!(
            !stands_in(world.dir.path(), &spelling),
            "SQLite has {spelling:?}"
        );
    }
    assert!(!has(&dumped, b"2001:db8::77"));
}
