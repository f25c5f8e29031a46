//! Two origins on one Kafka and one database, while one broker dies, and while all are down.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use weir_event::consent::Consent;
use weir_event::name::KeyName;
use weir_event::stamps::{Kind, Stamps};
use weir_origin::clock::now_ms;
use weir_origin::events::groups::{Delivery, HandleFuture, Handler, NewGroup, Outcome};
use weir_origin::events::metrics::EventMetrics;
use weir_origin::events::{Events, LogLocation, Settings};
use weir_origin::metrics::Metrics;
use weir_origin::origin::open_database;
use weir_stack::kafka::KafkaCluster;
use weir_stack::report::SilentReporter;
use weir_stack::tools;

use crate::support::{Answer, World};

/// Time limit of a wait: brokers restart meanwhile.
pub const LIMIT: Duration = Duration::from_secs(120);

const CUSTOMERS: usize = 20;

/// Records its events by customer, and which origin handled them.
#[derive(Debug)]
struct RecordingHandler {
    origin: &'static str,
    handled: Arc<Mutex<BTreeMap<String, Vec<String>>>>,
    by_origin: Arc<Mutex<BTreeMap<&'static str, usize>>>,
}

impl Handler for RecordingHandler {
    fn handle<'a>(&'a self, events: &'a [Delivery]) -> HandleFuture<'a> {
        Box::pin(async move {
            let mut handled = self.handled.lock().unwrap();
            *self
                .by_origin
                .lock()
                .unwrap()
                .entry(self.origin)
                .or_default() += events.len();
            let note = |event: &Delivery| {
                let customer = event.envelope.customer.as_ref().unwrap().as_str();
                let ids = handled.entry(customer.to_owned()).or_default();
                ids.push(event.envelope.id.as_str().to_owned());
                Outcome::Done
            };
            events.iter().map(note).collect()
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn origins_share_work_and_lose_nothing_when_a_broker_crashes() {
    let (_dir, mut kafka) = cluster().await;
    let url = format!("kafka://{}/shop?partitions=8", kafka.servers());
    let (handled, by_origin) = (Arc::default(), Arc::default());
    let timing = |origin| RecordingHandler {
        origin,
        handled: Arc::clone(&handled),
        by_origin: Arc::clone(&by_origin),
    };
    let first = World::with_events(|settings| on_kafka(settings, &url, timing("first"))).await;
    let put = first.admin("PUT", "/events/types/view", &json!({})).await;
    assert!(put.status.is_success(), "{put:?}");
    let mut sent = 0;
    for _ in 0..10 {
        sent = send_until_taken(&first, sent).await;
    }
    until("handled by the first", async || {
        total(&handled) >= sent * CUSTOMERS
    })
    .await;

    let stop = second_origin(&first, &url, timing("second")).await;
    until("work for the second", async || {
        sent = send_until_taken(&first, sent).await;
        by_origin
            .lock()
            .unwrap()
            .get("second")
            .is_some_and(|count| *count > 20)
    })
    .await;
    kafka.broker(1).kill();
    for _ in 0..20 {
        sent = send_until_taken(&first, sent).await;
    }
    kafka.start_again().await.unwrap();
    // The second origin ends, and the first one owns all partitions.
    stop.cancel();
    sent = send_until_taken(&first, sent).await;

    let all: Vec<String> = (0..sent).map(|n| n.to_string()).collect();
    for customer in 0..CUSTOMERS {
        let expected: Vec<String> = all.iter().map(|n| format!("{customer}-{n}")).collect();
        let name = format!("c{customer}");
        until(&format!("events of {name} in SQL"), async || {
            stored(&first, &name).await.len() == expected.len()
        })
        .await;
        assert_eq!(stored(&first, &name).await, expected);
        until(&format!("events of {name} handled"), async || {
            in_order(&handled, &name).len() == expected.len()
        })
        .await;
        assert_eq!(in_order(&handled, &name), expected);
    }
    until("no lag", async || {
        let answer = first.admin("GET", "/groups/noting", &Value::Null).await;
        // The brokers may not be reachable yet.
        let positions = answer.body["positions"].as_array().map(Vec::len);
        positions == Some(8) && answer.body["lag_records"] == 0
    })
    .await;
    without_brokers(&first, &mut kafka, &mut sent).await;
}

/// Refused with `retry-after`, and accepted once the brokers are back.
async fn without_brokers(world: &World, kafka: &mut KafkaCluster, sent: &mut usize) {
    for n in 0..weir_stack::kafka::BROKERS {
        kafka.broker(n).kill();
    }
    let answer = send(world, *sent).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
    kafka.start_again().await.unwrap();
    *sent = send_until_taken(world, *sent).await;
    let last = format!("0-{}", *sent - 1);
    until("the last event", async || {
        stored(world, "c0").await.contains(&last)
    })
    .await;
}

/// A cluster for this test only.
pub async fn cluster() -> (TempDir, KafkaCluster) {
    let dir = tempfile::tempdir().unwrap();
    let tool = tools::Kafka::find_or_get(&mut SilentReporter).unwrap();
    let kafka = KafkaCluster::start(&tool, dir.path()).await.unwrap();
    (dir, kafka)
}

fn on_kafka(settings: &mut Settings, url: &str, handler: RecordingHandler) {
    let mut kafka = weir_log::kafka::Settings::from_url(url).unwrap();
    // A short session timeout, because a test waits for it.
    kafka.times.session = Duration::from_secs(3);
    settings.partitions = kafka.partitions();
    settings.home = LogLocation::Kafka(kafka);
    settings
        .groups
        .push(NewGroup::new("noting", Arc::new(handler)));
}

/// One more origin on the same database. It ends with the token.
async fn second_origin(first: &World, url: &str, handler: RecordingHandler) -> CancellationToken {
    let database = format!("sqlite://{}/weir.db", first.dir.path().display());
    let database = open_database(&database).await.unwrap();
    let mut settings = Settings::new("unused".into());
    on_kafka(&mut settings, url, handler);
    let metrics = EventMetrics::register(&Metrics::default());
    let events = Events::open(settings, database, metrics).await.unwrap();
    let stop = CancellationToken::new();
    events.spawn(&stop);
    stop
}

pub async fn until(subject: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so().await {
        assert!(Instant::now() < deadline, "never: {subject}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Sends one event per customer until all are accepted: while a broker dies, the result of some appends is unknown.
async fn send_until_taken(world: &World, n: usize) -> usize {
    let deadline = Instant::now() + LIMIT;
    loop {
        let answer = send(world, n).await;
        if answer.status == 202 {
            assert_eq!(answer.body["rejected"], 0, "{answer:?}");
            return n + 1;
        }
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(Instant::now() < deadline, "never taken: {answer:?}");
    }
}

async fn send(world: &World, n: usize) -> Answer {
    let event = |customer: usize| json!({ "id": format!("{customer}-{n}"), "type": "view", "customer": format!("c{customer}") });
    let body: Vec<Value> = (0..CUSTOMERS).map(event).collect();
    let stamps = Stamps {
        key: KeyName::new("shop").unwrap(),
        kind: Kind::Server,
        received_ms: now_ms(),
        address: None,
        consent: Consent::Full,
    };
    let mut request = Request::builder().method("POST").uri("/events");
    for (name, value) in stamps.headers() {
        request = request.header(name, value);
    }
    let request = request.header("content-type", "application/json");
    let body = Body::from(Value::from(body).to_string());
    world.public(request.body(body).unwrap()).await
}

/// The ids of a customer's events in SQL, in order.
async fn stored(world: &World, customer: &str) -> Vec<String> {
    let path = format!("/customers/{customer}/events?limit=1000");
    let answer = world.admin("GET", &path, &Value::Null).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let events = answer.body["events"].as_array().unwrap().iter();
    let id = |event: &Value| event["id"].as_str().unwrap().to_owned();
    events.map(id).collect()
}

type Ids = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

fn total(handled: &Ids) -> usize {
    let handled = handled.lock().unwrap();
    handled.values().map(Vec::len).sum()
}

/// A customer's handled events in order, each once, by its first handling. Delivery is at least once and ordered.
fn in_order(handled: &Ids, customer: &str) -> Vec<String> {
    let mut first = Vec::new();
    for id in handled.lock().unwrap().get(customer).into_iter().flatten() {
        if !first.contains(id) {
            first.push(id.clone());
        }
    }
    first
}
