//! The outbox: order changes for a real receiver that fails, is slow, and goes offline.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use weir_origin::background::Backoff;
use weir_origin::clock::now_ms;
use weir_origin::http::server::serve;
use weir_origin::http::webhook::WebhookSender;
use weir_origin::metrics::Metrics;
use weir_origin::outbox::{ChangeWebhook, Outbox, OutboxTimes, SendOutcome, SinkName};
use weir_origin::sales::metrics::SaleMetrics;
use weir_origin::tenants::NameRange;

use crate::support::World;

pub const SECRET: &[u8] = b"orders-secret-orders-secret-orders-secret";

/// The received changes in order, and the answers to give.
#[derive(Default)]
pub struct Receiver {
    /// Orders or links with sequence numbers, in the order of acceptance.
    pub received: Mutex<Vec<(String, u64)>>,
    pub bodies: Mutex<BTreeMap<String, Value>>,
    /// Number of requests to refuse, by order.
    pub refusals: Mutex<BTreeMap<String, u32>>,
    /// Delay of each answer.
    pub pause: Mutex<Duration>,
}

impl Receiver {
    pub fn sequences(&self, order: &str) -> Vec<u64> {
        let accepted = self.received.lock().unwrap();
        let of = accepted.iter().filter(|(of, _)| of == order);
        of.map(|(_, sequence)| *sequence).collect()
    }

    pub fn refuse(&self, order: &str, times: u32) {
        let mut refusals = self.refusals.lock().unwrap();
        refusals.insert(order.to_owned(), times);
    }

    fn refuses(&self, order: &str) -> bool {
        let mut refusals = self.refusals.lock().unwrap();
        match refusals.get_mut(order) {
            Some(remaining) if *remaining > 0 => {
                *remaining -= 1;
                true
            }
            _ => false,
        }
    }
}

async fn receive(
    State(receiver): State<Arc<Receiver>>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    let (id, at_s) = (header("webhook-id"), header("webhook-timestamp"));
    let tag = header("webhook-signature");
    let tag = STANDARD.decode(tag.strip_prefix("v1,").unwrap()).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
    let signed = [id.as_bytes(), b".", at_s.as_bytes(), b".", &body].concat();
    hmac::verify(&key, &signed, &tag).expect("a signature that is right");
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["id"], json!(id));
    let (order, _) = id.rsplit_once('.').unwrap();
    let order = order.to_owned();
    let pause = *receiver.pause.lock().unwrap();
    tokio::time::sleep(pause).await;
    if receiver.refuses(&order) {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    let sequence = body["sequence"].as_u64().unwrap();
    receiver.received.lock().unwrap().push((order, sequence));
    receiver.bodies.lock().unwrap().insert(id, body);
    StatusCode::NO_CONTENT
}

/// Runs a receiver at this address until the guard is dropped.
pub async fn listen(receiver: &Arc<Receiver>, address: SocketAddr) -> (SocketAddr, DropGuard) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let listener = loop {
        match tokio::net::TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let address = listener.local_addr().unwrap();
    let router = Router::new()
        .route("/hook", post(receive))
        .with_state(receiver.clone());
    let stop = CancellationToken::new();
    tokio::spawn(serve(listener, router, stop.clone()));
    (address, stop.drop_guard())
}

pub const ANYWHERE: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

pub fn times() -> OutboxTimes {
    OutboxTimes {
        period: Duration::from_millis(10),
        backoff: Backoff {
            first: Duration::from_millis(20),
            max: Duration::from_millis(100),
        },
        ..OutboxTimes::default()
    }
}

/// Sends waiting changes of this world, like one more origin.
fn outbox(world: &World, address: SocketAddr, times: OutboxTimes) -> DropGuard {
    let stop = CancellationToken::new();
    tokio::spawn(sender(world, address, times).run(stop.clone()));
    stop.drop_guard()
}

fn sender(world: &World, address: SocketAddr, times: OutboxTimes) -> Outbox {
    let url = format!("http://{address}/hook");
    let sender = WebhookSender::new(&url, None, SECRET, Arc::new(now_ms)).unwrap();
    let sink = Arc::new(ChangeWebhook::new(sender));
    let queue = world.origin.sales().store().outbox();
    let meter = Arc::new(SaleMetrics::register(&Metrics::default()));
    Outbox::new(SinkName::Webhook, sink, queue, meter, times)
}

/// Waits until the condition holds.
pub async fn until(subject: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {subject}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn until_nothing_waits(world: &World) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let queue = world.origin.sales().store().outbox();
    while queue
        .backlog(SinkName::Webhook, &NameRange::default())
        .await
        .unwrap()
        .subjects
        > 0
    {
        assert!(Instant::now() < deadline, "something still waits");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Claims and orders a unit; returns the order's id.
async fn buy(world: &World, name: &str) -> String {
    let ticket = world.claim("s", name).await;
    let response = world.order(&ticket).await;
    assert_eq!(response.status, 201, "{response:?}");
    ticket.claim_id().to_string()
}

async fn world(total: u64, payment: Value) -> World {
    let world = World::with_outbox().await;
    world
        .sale_with("s", total, json!({ "payment": payment }))
        .await;
    world
}

#[tokio::test]
async fn changes_are_signed_and_ordered_and_failure_blocks_no_other() {
    let world = world(8, json!({ "hold": { "pay_within_ms": 400 } })).await;
    let [paid, late, cancelled] = [
        buy(&world, "alice").await,
        buy(&world, "bob").await,
        buy(&world, "carol").await,
    ];
    let receiver = Arc::new(Receiver::default());
    // More often than this test takes.
    receiver.refuse(&paid, u32::MAX);
    world.pay("alice", &format!("/orders/{paid}")).await;
    let payment = world.start_payment("bob", &format!("/orders/{late}")).await;
    let path = format!("/orders/{cancelled}/cancel");
    assert_eq!(world.as_user("carol", "POST", &path).await.status, 200);
    tokio::time::sleep(Duration::from_millis(410)).await;
    world.origin.sales().jobs().round().await.unwrap();
    let response = world.callback("late", &payment, "paid").await;
    assert_eq!(response.body["state"], "refund_due", "{response:?}");

    let (address, _listening) = listen(&receiver, ANYWHERE.into()).await;
    let _outbox = outbox(&world, address, times());
    until("the others are told", || {
        receiver.sequences(&late) == [1, 2, 3] && receiver.sequences(&cancelled) == [1, 2]
    })
    .await;
    assert_eq!(receiver.sequences(&paid), [] as [u64; 0]);
    let waiting = world.admin("GET", "/order-deliveries", &Value::Null).await;
    let waiting = &waiting.body["webhook"]["waiting"][0];
    assert_eq!(
        (
            &waiting["order"],
            &waiting["next_sequence"],
            &waiting["last_sequence"]
        ),
        (&json!(paid), &json!(1), &json!(2))
    );
    receiver.refuse(&paid, 0);
    let response = world
        .admin("POST", "/order-deliveries/retry", &Value::Null)
        .await;
    assert_eq!(response.status, 200);
    until("it is told, too", || receiver.sequences(&paid) == [1, 2]).await;
    until_nothing_waits(&world).await;

    let bodies = receiver.bodies.lock().unwrap().clone();
    let observed = |order: &str, sequence: u64| {
        let body = &bodies[&format!("{order}.{sequence}")];
        (body["type"].clone(), body["order"]["status"].clone())
    };
    for (order, sequence, kind, status) in [
        (&paid, 1, "order.created", "unpaid"),
        (&paid, 2, "order.paid", "paid"),
        (&late, 2, "order.expired", "expired"),
        (&late, 3, "order.refund_due", "expired"),
        (&cancelled, 2, "order.cancelled", "cancelled"),
    ] {
        assert_eq!(observed(order, sequence), (json!(kind), json!(status)));
    }
    let refund = &bodies[&format!("{late}.3")]["payment"];
    assert_eq!(
        refund,
        &json!({
            "payment": payment, "state": "refund_due", "reason": "order_expired", "reference": null,
        })
    );
    let path = format!("/orders/{late}/changes");
    let listed = world.admin("GET", &path, &Value::Null).await;
    assert_eq!(listed.body["changes"][2], bodies[&format!("{late}.3")]);
}

#[tokio::test]
async fn origins_share_deliveries_to_a_slow_then_lost_receiver() {
    let world = world(64, json!("at_order")).await;
    let receiver = Arc::new(Receiver::default());
    *receiver.pause.lock().unwrap() = Duration::from_millis(20);
    let (address, listening) = listen(&receiver, ANYWHERE.into()).await;
    let outboxes = [
        outbox(&world, address, times()),
        outbox(&world, address, times()),
    ];
    let mut orders = Vec::new();
    let mut listening = Some(listening);
    for n in 0..24 {
        let name = format!("user-{n}");
        let order = buy(&world, &name).await;
        world.pay(&name, &format!("/orders/{order}")).await;
        orders.push(order);
        if n == 10 {
            // No receiver listens for a while.
            listening = None;
        }
        if n == 20 {
            listening = Some(listen(&receiver, address).await.1);
        }
    }
    until_nothing_waits(&world).await;
    drop((outboxes, listening));
    for order in &orders {
        // Changes in flight when the receiver stopped may have come twice, but in order.
        let mut sequences = receiver.sequences(order);
        sequences.dedup();
        assert_eq!(sequences, [1, 2], "{order}");
    }
}

#[tokio::test]
async fn lease_of_a_dead_origin_is_taken_over_after_it_expires() {
    let world = world(8, json!("at_order")).await;
    let order = buy(&world, "alice").await;
    let queue = world.origin.sales().store().outbox();
    let lease =
        |holder, now_ms, until_ms| queue.lease(SinkName::Webhook, holder, now_ms, until_ms, 9);
    let begin_ms = now_ms();
    let dead = lease(1, begin_ms, begin_ms + 700).await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!(lease(2, begin_ms + 699, u64::MAX).await.unwrap(), []);
    let receiver = Arc::new(Receiver::default());
    let (address, _listening) = listen(&receiver, ANYWHERE.into()).await;
    let _outbox = outbox(&world, address, times());
    until("it is told", || receiver.sequences(&order) == [1]).await;
    assert!(now_ms() >= begin_ms + 700);
    until_nothing_waits(&world).await;
    // The origin was only slow, not dead: its late result changes nothing.
    world.pay("alice", &format!("/orders/{order}")).await;
    let late = SendOutcome {
        leased: dead[0].clone(),
        next_seq: 3,
        error: None,
        due_at_ms: 0,
    };
    let settled = queue.settle(SinkName::Webhook, 1, &[late]).await;
    settled.unwrap();
    until("it is told", || receiver.sequences(&order) == [1, 2]).await;
}

#[tokio::test]
async fn accepted_change_is_not_resent_after_an_origin_crash() {
    let world = world(8, json!({ "hold": { "pay_within_ms": 60_000 } })).await;
    let order = buy(&world, "alice").await;
    let path = format!("/orders/{order}/cancel");
    assert_eq!(world.as_user("alice", "POST", &path).await.status, 200);
    let receiver = Arc::new(Receiver::default());
    *receiver.pause.lock().unwrap() = Duration::from_millis(300);
    let (address, _listening) = listen(&receiver, ANYWHERE.into()).await;
    let times = OutboxTimes {
        lease: Duration::from_secs(2),
        ..times()
    };
    let dies = sender(&world, address, times).run(CancellationToken::new());
    let dies = tokio::spawn(dies);
    until("the first is told", || receiver.sequences(&order) == [1]).await;
    // In the middle of the second attempt.
    tokio::time::sleep(Duration::from_millis(150)).await;
    dies.abort();
    let _outbox = outbox(&world, address, times);
    until("the second is told", || {
        receiver.sequences(&order).contains(&2)
    })
    .await;
    until_nothing_waits(&world).await;
    assert_eq!(receiver.sequences(&order), [1, 2]);
}

#[tokio::test]
async fn concurrent_changes_are_numbered_without_gaps() {
    let world = world(64, json!("at_order")).await;
    let mut orders = Vec::new();
    for n in 0..12 {
        let name = format!("user-{n}");
        let order = buy(&world, &name).await;
        let path = format!("/orders/{order}");
        let payment = world.start_payment(&name, &path).await;
        let (event, cancel) = (format!("e-{n}"), format!("{path}/cancel"));
        let (_, reply) = tokio::join!(
            world.as_user(&name, "POST", &cancel),
            world.callback(&event, &payment, "paid"),
        );
        assert_eq!(reply.status, 200, "{reply:?}");
        orders.push((order, reply.body["state"].as_str().unwrap().to_owned()));
    }
    let store = world.origin.sales().store();
    for (order, state) in orders {
        let changes = store.outbox().changes(&order, 1, 10).await.unwrap();
        let changes = changes.iter().map(|change| (change.seq, &*change.kind));
        let expected = match state.as_str() {
            "paid" => vec![(1, "order.created"), (2, "order.paid")],
            _ => vec![
                (1, "order.created"),
                (2, "order.cancelled"),
                (3, "order.refund_due"),
            ],
        };
        assert_eq!(changes.collect::<Vec<_>>(), expected);
    }
}

#[tokio::test]
async fn delivered_changes_are_pruned_and_their_numbers_continue() {
    let world = world(8, json!("at_order")).await;
    let receiver = Arc::new(Receiver::default());
    let (address, _listening) = listen(&receiver, ANYWHERE.into()).await;
    let [order, waiting] = [buy(&world, "alice").await, buy(&world, "bob").await];
    receiver.refuse(&waiting, u32::MAX);
    let store = world.origin.sales().store();
    let bodies = || world.number("SELECT COUNT(*) FROM outbox_changes WHERE body <> ''");
    {
        let _outbox = outbox(&world, address, times());
        until("it is told", || receiver.sequences(&order) == [1]).await;
        let deadline = Instant::now() + Duration::from_secs(20);
        while store
            .outbox()
            .backlog(SinkName::Webhook, &NameRange::default())
            .await
            .unwrap()
            .subjects
            > 1
        {
            assert!(Instant::now() < deadline);
        }
    }
    while store.outbox().prune(now_ms()).await.unwrap() {}
    assert_eq!(bodies().await, 1, "what waits stays");
    world.pay("alice", &format!("/orders/{order}")).await;
    receiver.refuse(&waiting, 0);
    let _outbox = outbox(&world, address, times());
    until("it is told", || receiver.sequences(&order) == [1, 2]).await;
    until_nothing_waits(&world).await;
    while store.outbox().prune(now_ms()).await.unwrap() {}
    assert_eq!(bodies().await, 0);
    let rows = world.number("SELECT COUNT(*) FROM outbox_changes").await;
    assert_eq!(rows, 2, "a number for each order");
}
