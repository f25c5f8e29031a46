//! `Idempotency-Key`: repeated attempts to buy create one order.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::Request;
use hyper::body::Frame;
use redis::Cmd;
use tokio::task::JoinSet;
use weir_base::headers::IDEMPOTENCY_KEY;
use weir_sale::claim::Ticket;
use weir_sale::idempotency::IdempotencyKey;
use weir_sale::ledger::ClaimReply;
use weir_sale::redis::keys::ShardKeys;

use crate::support::{Answer, World, claim_headers, id, user};

/// A sale with a limit of two units per user.
async fn world(units: u64) -> World {
    let world = World::new().await;
    let cap = serde_json::json!({ "user_cap": 2 });
    world.sale_with("s", units, cap).await;
    world
}

async fn post(world: &World, ticket: &Ticket, key: &str, body: impl Into<Body>) -> Answer {
    let mut request = Request::post("/orders").header(IDEMPOTENCY_KEY, key);
    for (name, value) in claim_headers(ticket) {
        request = request.header(name, value);
    }
    world.public(request.body(body.into()).unwrap()).await
}

#[tokio::test]
async fn retry_gets_the_existing_order_and_no_second_unit() {
    let world = world(8).await;
    let first = world.claim("s", "alice").await;
    let response = post(&world, &first, "\"k-1\"", "{}").await;
    assert_eq!(response.status, 201, "{response:?}");
    // Redis has lost the attempt, and grants a second claim.
    let spare = world.claim_with_cap("s", "alice", 2).await.unwrap();
    assert_ne!(spare.claim_id(), first.claim_id());
    let again = post(&world, &spare, "k-1", "{}").await;
    assert_eq!(again.status, 200, "{again:?}");
    assert_eq!(again.body, response.body);
    assert_eq!(world.number("SELECT COUNT(*) FROM orders").await, 1);
    assert_eq!(world.remaining().await, 7);
    let audit = world.audit(&first).await;
    assert_eq!((audit.held, audit.bought), (0, 1), "the spare unit is back");

    let next = world.claim_with_cap("s", "alice", 2).await.unwrap();
    let second = post(&world, &next, "k-2", "{}").await;
    assert_eq!(second.status, 201, "another key is another order");
    assert_ne!(second.body["order"], response.body["order"]);
}

#[tokio::test]
async fn idempotency_key_is_valid_for_one_request_only() {
    let world = world(8).await;
    let first = world.claim("s", "alice").await;
    let response = post(&world, &first, "k", r#"{"size":"M"}"#).await;
    assert_eq!(response.status, 201, "{response:?}");
    let refused = post(&world, &first, "k", r#"{"size":"L"}"#).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    assert_eq!(refused.code(), "idempotency_key_reused");
    let spare = world.claim_with_cap("s", "alice", 2).await.unwrap();
    let refused = post(&world, &spare, "k", r#"{"size":"L"}"#).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    let audit = world.audit(&first).await;
    assert_eq!((audit.held, audit.bought), (0, 1));
    // Keys of other users are independent.
    let bobs = world.claim("s", "bob").await;
    let response = post(&world, &bobs, "k", r#"{"size":"L"}"#).await;
    assert_eq!(response.status, 201, "{response:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_concurrent_attempts_and_claims_make_one_order() {
    let world = Arc::new(world(40).await);
    let mut tasks = JoinSet::new();
    for n in 0..20 {
        // Claims that no shard has, as if Redis had lost each one before the next.
        let ticket = Ticket {
            generation: 1_000 + n,
            ..crate::support::ticket("s", "alice", 1)
        };
        let world = world.clone();
        tasks.spawn(async move { post(&world, &ticket, "k", "{}").await });
    }
    let answers = tasks.join_all().await;
    let created = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(created, 1, "{answers:?}");
    let order = |answer: &Answer| answer.body["order"].clone();
    let orders: HashSet<String> = answers
        .iter()
        .map(|answer| order(answer).to_string())
        .collect();
    assert_eq!(orders.len(), 1, "{answers:?}");
    assert_eq!(world.number("SELECT COUNT(*) FROM orders").await, 1);
    assert_eq!(world.remaining().await, 39);
}

/// A user limited to one order gets the same claim again, so several attempts may belong to one order.
#[tokio::test]
async fn attempt_that_returned_an_existing_order_keeps_it() {
    let world = World::with_sale("s", 8).await;
    let claim = world.claim("s", "alice").await;
    let response = post(&world, &claim, "a", "{}").await;
    assert_eq!(response.status, 201, "{response:?}");
    let same = post(&world, &claim, "b", "{}").await;
    assert_eq!((same.status.as_u16(), &same.body), (200, &response.body));

    // A rebuilt Redis gets both attempts, also from pages of one.
    let (sale, store) = (id("s"), world.origin.sales().store());
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store
            .attempts()
            .attempts_page(&sale, claim.shard, after.as_ref(), 1);
        let Some(one) = page.await.unwrap().pop() else {
            break;
        };
        found.push(one.1.as_str().to_owned());
        after = Some(one);
    }
    assert_eq!(found, ["a", "b"]);

    let path = format!("/orders/{}/cancel", claim.claim_id());
    let cancelled = world.as_user("alice", "POST", &path).await;
    assert_eq!(cancelled.status, 200, "{cancelled:?}");
    let spare = world.claim("s", "alice").await;
    assert_ne!(spare.claim_id(), claim.claim_id());
    let again = post(&world, &spare, "b", "{}").await;
    assert_eq!(again.status, 200, "{again:?}");
    assert_eq!(again.body["order"], response.body["order"]);
    assert_eq!(again.body["status"], "cancelled");
    assert_eq!(world.number("SELECT COUNT(*) FROM orders").await, 1);
}

/// A body that breaks off.
struct HungUp;

impl hyper::body::Body for HungUp {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        Poll::Ready(Some(Err(std::io::Error::other("the client hung up"))))
    }
}

#[tokio::test]
async fn unreadable_request_releases_its_claim() {
    let world = world(8).await;
    let ticket = world.claim("s", "alice").await;
    let long = vec![b'x'; 64 * 1024 + 1];
    let refused = post(&world, &ticket, "k", long).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (400, "invalid_body")
    );
    assert_eq!(
        world.audit(&ticket).await.held,
        0,
        "its unit is there for others"
    );
    let ticket = world.claim("s", "alice").await;
    let broken = Body::new(HungUp);
    let refused = post(&world, &ticket, "k", broken).await;
    assert_eq!(refused.code(), "invalid_body");
    assert_eq!(world.audit(&ticket).await.held, 0);
    let ticket = world.claim("s", "alice").await;
    let refused = post(&world, &ticket, "no key", "{}").await;
    let code = (refused.status.as_u16(), refused.code());
    assert_eq!(code, (400, "invalid_idempotency_key"));
    let ticket = world.claim("s", "alice").await;
    let response = post(&world, &ticket, "k", "{}").await;
    assert_eq!(response.status, 201, "{response:?}");
}

#[tokio::test]
async fn redis_has_the_granted_attempt_after_rebuild() {
    let world = world(1).await;
    let key = IdempotencyKey::read(b"k").unwrap();
    let first = world.try_attempt("s", "alice", Some(key.tag()), 2).await;
    let Ok(ticket) = world.ticket("s", "alice", first) else {
        panic!("{first:?}");
    };
    let response = post(&world, &ticket, "k", "{}").await;
    assert_eq!(response.status, 201, "{response:?}");
    let ordered = ClaimReply::Ordered {
        generation: ticket.generation,
        quantity: 1,
    };
    let again = world.try_attempt("s", "alice", Some(key.tag()), 2).await;
    assert_eq!(again, ordered, "nothing is left, and nothing is needed");

    let keys = ShardKeys::new(&world.prefix, &id("s"), ticket.shard);
    for lost in [
        keys.stock(),
        keys.claims(),
        keys.attempt(&user("alice"), key.tag()),
    ] {
        let mut forget = Cmd::new();
        world.redis(forget.arg("DEL").arg(lost)).await;
    }
    let rebuilt = world
        .admin("POST", "/sales/s/rebuild", &serde_json::Value::Null)
        .await;
    assert_eq!(rebuilt.body["shards_rebuilt"], 1, "{rebuilt:?}");
    let again = world.try_attempt("s", "alice", Some(key.tag()), 2).await;
    assert_eq!(again, ordered);
}
