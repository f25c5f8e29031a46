//! A real origin pulls a third-party topic and is killed meanwhile.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_log::kafka::{Feed, FeedBounds, KafkaLog, NewRecord, Places, Settings};
use weir_origin::clock::now_ms;
use weir_stack::http::{self, Method};
use weir_stack::origin::{Origin, OriginOptions};
use weir_stack::{Secrets, ports};

use super::events::{LIMIT, cluster, until};
use crate::support::{self, TOKEN};

const PARTITIONS: u16 = 3;

fn options(dir: &Path, redis_url: String) -> OriginOptions {
    OriginOptions {
        events_log: None,
        fitment: None,
        edge_secret: None,
        port: ports::free().unwrap(),
        admin_port: ports::free().unwrap(),
        database: dir.join("weir.db"),
        redis_url,
        redis_ca: None,
        key_prefix: "weir".to_owned(),
        risk_rules: None,
        links: None,
        provider_port: 9,
        flags: ["--events-log", &dir.join("events").display().to_string()]
            .map(str::to_owned)
            .into(),
        secrets: Secrets {
            events: String::new(),
            room: String::new(),
            claim: support::SECRET.to_owned(),
            token: support::SECRET.to_owned(),
            payment: support::SECRET.to_owned(),
            admin_token: TOKEN.to_owned(),
        },
    }
}

async fn admin(origin: &Origin, method: Method, path: &str, body: &Value) -> Value {
    let bearer = format!("Bearer {TOKEN}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    let url = format!("{}{path}", origin.admin_url());
    let answer = http::send(method, &url, &headers, body.to_string()).await;
    answer.unwrap().json().unwrap()
}

async fn pull(origin: &Origin) -> Value {
    admin(origin, Method::GET, "/events/pulls", &Value::Null).await["pulls"][0].clone()
}

/// The sum of its offsets: the number of records taken.
async fn offset_sum(origin: &Origin) -> u64 {
    let cursor = pull(origin).await["cursor"].clone();
    let places = cursor.as_str().unwrap().split(',');
    let place = |one: &str| one.split_once(':').map_or(0, |(_, at)| at.parse().unwrap());
    places.map(place).sum()
}

async fn stored(origin: &Origin, customer: &str) -> Vec<String> {
    let (mut ids, mut page) = (Vec::new(), String::new());
    loop {
        let path = format!("/customers/{customer}/events?limit=1000{page}");
        let body = admin(origin, Method::GET, &path, &Value::Null).await;
        let events = body["events"].as_array().unwrap().iter();
        ids.extend(events.map(|event| event["id"].as_str().unwrap().to_owned()));
        let Some(next) = body["next_page"].as_str() else {
            return ids;
        };
        page = format!("&page={next}");
    }
}

async fn produce(topic: &KafkaLog, from: usize, to: usize) {
    let event = |n: usize| match n % 1_000 {
        999 => "{\"type\"".to_owned(),
        _ => json!({"id": format!("e{n}"), "type": "view", "customer": format!("c{}", n % 8)})
            .to_string(),
    };
    let payloads: Vec<String> = (from..to).map(event).collect();
    for chunk in payloads.chunks(500) {
        let record = |(n, payload): (usize, &String)| (n as u16 % PARTITIONS, payload.clone());
        let records: Vec<_> = chunk.iter().enumerate().map(record).collect();
        let records: Vec<NewRecord<'_>> = records
            .iter()
            .map(|(partition, payload)| NewRecord {
                partition: *partition,
                payload: payload.as_bytes(),
            })
            .collect();
        topic.append(&records, now_ms()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn topic_is_read_fully_despite_origin_and_broker_failures() {
    const EVENTS: usize = 12_000;
    let (dir, mut kafka) = cluster().await;
    let url = format!("kafka://{}/clicks?partitions={PARTITIONS}", kafka.servers());
    let topic = KafkaLog::open(Settings::from_url(&url).unwrap()).unwrap();
    produce(&topic, 0, EVENTS).await;

    let file = dir.path().join("pulls.json");
    let pulls = json!({"pulls": [{"name": "shop", "every": "1s", "kafka": {"url": url}}]});
    std::fs::write(&file, pulls.to_string()).unwrap();
    let redis = support::redis(&dir).await;
    let start = async |options| {
        let log = dir.path().join("origin.log");
        Origin::start(&support::binary(), options, &log)
            .await
            .unwrap()
    };
    // Load the types first, otherwise its events become dead letters.
    let mut origin = start(options(dir.path(), redis.url())).await;
    admin(&origin, Method::PUT, "/events/types/view", &json!({})).await;
    origin.process().kill();
    let mut pulling = options(dir.path(), redis.url());
    pulling
        .flags
        .extend(["--events-pulls".to_owned(), file.display().to_string()]);
    let mut origin = start(pulling).await;

    let deadline = Instant::now() + LIMIT;
    let mut kills = 0;
    while offset_sum(&origin).await < EVENTS as u64 {
        assert!(Instant::now() < deadline, "{}", pull(&origin).await);
        if kills < 3 && offset_sum(&origin).await > kills * 2_000 {
            origin.process().kill();
            origin.start_again().await.unwrap();
            kills += 1;
        }
    }
    assert_eq!(kills, 3);

    // The brokers stop, which is reported, and return with more records.
    for n in 0..weir_stack::kafka::BROKERS {
        kafka.broker(n).kill();
    }
    until("a failure is told", async || {
        pull(&origin).await["failures"] != 0
    })
    .await;
    assert_eq!(offset_sum(&origin).await, EVENTS as u64);
    kafka.start_again().await.unwrap();
    let topic = KafkaLog::open(Settings::from_url(&url).unwrap()).unwrap();
    produce(&topic, EVENTS, EVENTS + 1_000).await;
    let all = EVENTS + 1_000;
    until("all is taken", async || {
        offset_sum(&origin).await == all as u64
    })
    .await;
    until("it works again", async || {
        pull(&origin).await["failures"] == 0
    })
    .await;

    let broken = all / 1_000;
    until("all is stored", async || {
        let group = admin(&origin, Method::GET, "/groups/store", &Value::Null).await;
        group["lag_bytes"] == 0
    })
    .await;
    let mut retained = BTreeSet::new();
    for n in 0..8 {
        for id in stored(&origin, &format!("c{n}")).await {
            assert!(retained.insert(id.clone()), "{id} is stored twice");
        }
    }
    assert_eq!(retained.len(), all - broken);
    let path = "/events/dead-letters?reason=invalid&limit=1000";
    let letters = admin(&origin, Method::GET, path, &Value::Null).await;
    // A batch that was pulled twice has its invalid records twice: they have no ids.
    assert!(letters["dead_letters"].as_array().unwrap().len() >= broken);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_a_topic_move_products() {
    let (dir, kafka) = cluster().await;
    let url = format!("kafka://{}/products?partitions=1", kafka.servers());
    let topic = KafkaLog::open(Settings::from_url(&url).unwrap()).unwrap();
    for record in [
        r#"{"sku": "S1", "version": 2, "spu": "P2", "title": "New"}"#,
        "no change",
        r#"{"sku": "S1", "version": 1, "spu": "P1"}"#,
        r#"{"sku": "S2", "version": 1, "spu": "P1"}"#,
    ] {
        let records = [NewRecord {
            partition: 0,
            payload: record.as_bytes(),
        }];
        topic.append(&records, now_ms()).await.unwrap();
    }
    let file = dir.path().join("pulls.json");
    let pulls = json!({"pulls": [{"name": "products", "every": "1s", "kafka": {"url": url}, "into": "products"}]});
    std::fs::write(&file, pulls.to_string()).unwrap();
    let redis = support::redis(&dir).await;
    let mut options = options(dir.path(), redis.url());
    let flags = ["--history", "--events-pulls", file.to_str().unwrap()];
    options.flags.extend(flags.map(str::to_owned));
    let log = dir.path().join("origin.log");
    let mut origin = Origin::start(&support::binary(), options, &log)
        .await
        .unwrap();
    until("all is taken", async || offset_sum(&origin).await == 4).await;
    origin.process().kill();
    origin.start_again().await.unwrap();
    for (sku, spu) in [("S1", "P2"), ("S2", "P1")] {
        let path = format!("/products/{sku}");
        let product = admin(&origin, Method::GET, &path, &Value::Null).await;
        assert_eq!(product["spu"], spu, "{product}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn feed_resumes_at_given_offsets_and_reports_lost_records() {
    let (_dir, kafka) = cluster().await;
    let url = format!("kafka://{}/feed?partitions=2", kafka.servers());
    let mut settings = Settings::from_url(&url).unwrap();
    settings.times.answer_max = Duration::from_secs(20);
    let feed = Feed::open(settings.clone()).unwrap();
    let bounds = FeedBounds {
        records_max: 3,
        len_max: 1_000,
    };
    let missing = feed.read(&Places::new(), bounds).await.unwrap_err();
    assert!(missing.to_string().contains("feed"), "{missing}");

    let topic = KafkaLog::open(settings).unwrap();
    let long = "x".repeat(900);
    for payload in ["a", "b", &long, "c"] {
        let records = [NewRecord {
            partition: 1,
            payload: payload.as_bytes(),
        }];
        topic.append(&records, now_ms()).await.unwrap();
    }
    let read = async |places: &Places| {
        let deadline = Instant::now() + LIMIT;
        loop {
            let fed = feed.read(places, bounds).await.unwrap();
            if !fed.records.is_empty() {
                let last = fed.records.last().unwrap().position;
                let texts = fed.records.iter().map(|record| record.payload.len());
                return (fed.began.clone(), texts.collect::<Vec<_>>(), last);
            }
            assert!(Instant::now() < deadline, "nothing comes");
        }
    };
    let start = Places::from([(0, 0), (1, 0)]);
    let (began, lens, last) = read(&Places::new()).await;
    assert_eq!((began, last < 3), (start.clone(), true));
    assert_eq!(lens[0], 1);
    // Limits of three records and of bytes; from any offset, repeatedly.
    let (began, lens, _) = read(&Places::from([(0, 0), (1, 2)])).await;
    assert_eq!((began, lens[0]), (Places::new(), 900));
    // Offsets that do not exist.
    let (began, lens, _) = read(&Places::from([(0, 0), (1, 99)])).await;
    assert_eq!((began, lens[0]), (Places::from([(1, 0)]), 1));
}
