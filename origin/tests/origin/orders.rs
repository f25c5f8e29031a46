//! `POST /orders`: the effects of a claim in SQL, in Redis and in the answer.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use weir_base::headers::{CLAIM, CLAIM_SIGNATURE};
use weir_base::key::SigningKey;
use weir_sale::claim::Ticket;
use weir_sale::ledger::{Audit, ReleaseKind, checksum_of};
use weir_sale::redis::keys::ShardKeys;
use weir_sale::shard::{bucket, home_shard};

use crate::support::{Answer, SECRET, SHARDS, World, claim_headers, id, ticket, user};

#[tokio::test]
async fn claim_becomes_an_sql_order_and_is_settled_in_redis() {
    let world = World::with_sale("s", 8).await;
    let ticket = world.claim("s", "alice;1").await;
    let before = world.audit(&ticket).await;
    assert_eq!((before.held, before.bought), (1, 0));

    let answer = world.order(&ticket).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let order = ticket.claim_id().to_string();
    assert_eq!(
        answer.body,
        json!({
            "order": order, "sale": "s", "user": "alice;1", "quantity": 1, "sku": null, "price": null, "status": "unpaid",
            "pay_by_ms": null,
        })
    );

    assert_eq!(world.rows().await, [1, 1, 1]);
    assert_eq!(world.remaining().await, 7);
    let row: (String, String, String, i64) = world
        .row("SELECT id, sale_id, user_id, quantity FROM orders")
        .await;
    assert_eq!(row, (order.clone(), "s".into(), "alice;1".into(), 1));
    let row: (String, i64, String) = world
        .row("SELECT order_id, units, reason FROM change_log")
        .await;
    assert_eq!(row, (order.clone(), -1, "order".into()));
    let row: (String, String) = world
        .row("SELECT claim_id, outcome FROM claim_outcomes")
        .await;
    assert_eq!(row, (order, "ordered".into()));
    let settled = Audit {
        version: before.version + 1,
        open: 0,
        held: 0,
        records: 0,
        deadlines: 0,
        bought: 1,
        mark: 1,
        checksum: checksum_of(0, ticket.generation, true),
        ..before
    };
    assert_eq!(world.audit(&ticket).await, settled);
}

#[tokio::test]
async fn repeated_claim_returns_the_same_order() {
    let world = World::with_sale("s", 8).await;
    let ticket = world.claim("s", "alice").await;
    let first = world.order(&ticket).await;
    let again = world.order(&ticket).await;
    assert_eq!((first.status.as_u16(), again.status.as_u16()), (201, 200));
    assert_eq!(first.body, again.body);
    assert_eq!(world.rows().await, [1, 1, 1]);
    assert_eq!(world.remaining().await, 7);
    assert_eq!(world.audit(&ticket).await.bought, 1);
}

/// Sends all claims at the same time.
async fn order_all(world: &Arc<World>, tickets: Vec<Ticket>) -> Vec<Answer> {
    let mut tasks = JoinSet::new();
    for ticket in tickets {
        let world = world.clone();
        tasks.spawn(async move { world.order(&ticket).await });
    }
    tasks.join_all().await
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_concurrent_uses_of_a_claim_create_one_order() {
    let world = Arc::new(World::with_sale("s", 8).await);
    let ticket = world.claim("s", "alice").await;
    let answers = order_all(&world, vec![ticket.clone(); 20]).await;
    let mut statuses: Vec<u16> = answers.iter().map(|a| a.status.as_u16()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![200; 19], vec![201]].concat());
    assert_eq!(world.rows().await, [1, 1, 1]);
    assert_eq!(world.remaining().await, 7);
    assert_eq!(world.audit(&ticket).await.bought, 1);
}

/// Redis has granted more units than SQL has, as after a data loss.
#[tokio::test(flavor = "multi_thread")]
async fn more_claims_than_units_never_oversell() {
    let world = Arc::new(World::with_sale("s", 100).await);
    let mut tickets = Vec::new();
    for n in 0..40 {
        tickets.push(world.claim("s", &format!("user-{n}")).await);
    }
    world.set_remaining(25).await;
    let answers = order_all(&world, tickets.clone()).await;
    let count = |status: u16| answers.iter().filter(|a| a.status == status).count();
    assert_eq!((count(201), count(409)), (25, 15));
    assert_eq!(world.rows().await, [25, 25, 40]);
    assert_eq!(world.remaining().await, 0);
    for ticket in &tickets {
        assert_eq!(world.audit(ticket).await.held, 0);
    }
}

#[tokio::test]
async fn released_claim_never_becomes_an_order() {
    let world = World::with_sale("s", 8).await;
    let ticket = world.claim("s", "alice").await;
    // The decision of the reconciler.
    let released = "INSERT INTO claim_outcomes (claim_id, sale_id, user_id, outcome, at_ms)
         VALUES (?, 's', 'alice', 'released', 1)";
    let claim = ticket.claim_id().to_string();
    world.sql().await.execute(released, &[&claim]).await;
    let before = world.audit(&ticket).await;
    for _ in 0..2 {
        let answer = world.order(&ticket).await;
        assert_eq!(answer.status, 409);
        assert_eq!(answer.code(), "claim_released");
        assert_eq!(answer.headers["retry-after"], "1");
    }
    assert_eq!(world.rows().await, [0, 0, 1]);
    assert_eq!(world.remaining().await, 8);
    // Redis was updated from SQL, once: the unit is back.
    let after = world.audit(&ticket).await;
    assert_eq!(after.held, 0);
    assert_eq!(after.stock, before.stock.map(|stock| stock + 1));
    assert!(after.epoch > before.epoch);
    // The user may claim again.
    let next = world.claim("s", "alice").await;
    assert!(next.generation > ticket.generation);
    assert_eq!(world.order(&next).await.status, 201);
}

#[tokio::test]
async fn claim_without_a_unit_in_sql_is_void() {
    let world = World::with_sale("s", 8).await;
    let ticket = world.claim("s", "alice").await;
    world.set_remaining(0).await;
    let before = world.audit(&ticket).await;
    let answer = world.order(&ticket).await;
    assert_eq!(answer.status, 409);
    assert_eq!(answer.code(), "sold_out");
    // The transaction that failed at its last step left nothing; the outcome belongs to another claim.
    assert_eq!(world.rows().await, [0, 0, 1]);
    let row: (String, i64) = world.row("SELECT outcome, void FROM claim_outcomes").await;
    assert_eq!(row, ("released".into(), 1));
    // The hold has ended. Its unit never existed, so it does not return.
    let void = Audit {
        version: before.version + 1,
        open: 0,
        held: 0,
        records: 0,
        deadlines: 0,
        ..before
    };
    assert_eq!(world.audit(&ticket).await, void);
    // A repeated request finds it ended.
    let again = world.order(&ticket).await;
    assert_eq!(
        (again.status.as_u16(), again.code()),
        (409, "claim_released")
    );
    assert_eq!(world.audit(&ticket).await, void);
    assert_eq!(world.rows().await, [0, 0, 1]);
}

#[tokio::test]
async fn claim_on_a_sale_unknown_to_sql_is_void() {
    let world = World::new().await;
    let answer = world.order(&ticket("ghost", "alice", 1)).await;
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (409, "unknown_sale")
    );
    assert_eq!(world.rows().await, [0, 0, 1]);
}

#[tokio::test]
async fn claim_of_another_user_gets_no_order() {
    let world = World::with_sale("s", 8).await;
    let first = world.claim("s", "user-1").await;
    assert_eq!(world.order(&first).await.status, 201);
    let mut twin = ticket("s", "mallory", first.generation);
    twin.shard = first.shard;
    let answer = world.order(&twin).await;
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (409, "claim_released")
    );
    assert_eq!(world.rows().await, [1, 1, 1]);
    assert_eq!(world.audit(&first).await.bought, 1);
}

/// A crash between commit and settlement: the next attempt with the same claim repairs it.
#[tokio::test]
async fn order_with_lost_settlement_is_settled_by_the_next_retry() {
    let world = World::with_sale("s", 8).await;
    let ticket = world.claim("s", "alice").await;
    let placed = world
        .origin
        .sales()
        .store()
        .claims()
        .place(&ticket, 1)
        .await
        .unwrap();
    assert!(matches!(
        placed,
        weir_origin::sales::store::OrderOutcome::New(_)
    ));
    assert_eq!(world.audit(&ticket).await.held, 1);
    assert_eq!(world.order(&ticket).await.status, 200);
    let audit = world.audit(&ticket).await;
    assert_eq!((audit.held, audit.bought), (0, 1));
}

#[tokio::test]
async fn order_is_accepted_during_redis_outage() {
    let dir = tempfile::tempdir().unwrap();
    let mut redis = crate::support::redis(&dir).await;
    let world = World::on(&redis.url()).await;
    world.sale("s", 8).await;
    let ticket = world.claim("s", "alice").await;
    redis.stop();
    assert_eq!(world.order(&ticket).await.status, 201);
    assert_eq!(world.remaining().await, 7);
    redis.start_again().await.unwrap();
    assert_eq!(world.order(&ticket).await.status, 200);
    assert_eq!(world.audit(&ticket).await.bought, 1);
}

#[tokio::test]
async fn claims_without_a_gateway_signature_are_refused() {
    let world = World::with_sale("s", 8).await;
    let ticket = ticket("s", "alice", 1);
    let [(_, claim), (_, signature)] = claim_headers(&ticket);
    let foreign = |id: &str, secret: &str| {
        let key = SigningKey::new(id, secret.as_bytes()).unwrap();
        key.sign(&ticket.encode()).into_bytes()
    };
    let signed = |claim: &str| {
        let signature = crate::support::key().sign(claim);
        vec![
            (CLAIM, claim.as_bytes().to_vec()),
            (CLAIM_SIGNATURE, signature.into_bytes()),
        ]
    };
    let pair = |claim: &[u8], signature: &[u8]| {
        vec![
            (CLAIM, claim.to_vec()),
            (CLAIM_SIGNATURE, signature.to_vec()),
        ]
    };
    let mut forged = claim.clone();
    forged[3] = b't';
    let cases = [
        ("no header", vec![], 401),
        ("no signature", vec![(CLAIM, claim.clone())], 401),
        ("no claim", vec![(CLAIM_SIGNATURE, signature.clone())], 401),
        ("empty", pair(b"", b""), 403),
        ("another claim", pair(&forged, &signature), 403),
        (
            "truncated",
            pair(&claim, &signature[..signature.len() - 2]),
            403,
        ),
        (
            "half a byte",
            pair(&claim, &signature[..signature.len() - 1]),
            403,
        ),
        ("key id alone", pair(&claim, b"k1"), 403),
        (
            "foreign key",
            pair(&claim, &foreign("k1", &SECRET.to_uppercase())),
            403,
        ),
        ("foreign key id", pair(&claim, &foreign("k2", SECRET)), 403),
        ("claim not UTF-8", pair(b"v1;s;\xff", &signature), 403),
        ("signature not UTF-8", pair(&claim, b"k1;\xff\xfe"), 403),
        (
            "claim twice",
            [pair(&claim, &signature), vec![(CLAIM, claim.clone())]].concat(),
            403,
        ),
        ("signed nonsense", signed("nonsense"), 403),
        ("signed quantity 0", signed("v1;s;0;1;0;1;alice"), 403),
        ("very long", pair(&[b'a'; 30_000], &[b'b'; 30_000]), 403),
    ];
    for (case, headers, status) in cases {
        let answer = world.post_order(&headers).await;
        assert_eq!(answer.status, status, "{case}: {answer:?}");
        let code = if status == 401 {
            "claim_missing"
        } else {
            "claim_invalid"
        };
        assert_eq!(answer.code(), code, "{case}");
    }
    // The alert on differing secrets uses this count.
    let counted = "weir_origin_orders_total{outcome=\"claim_invalid\"} 13\n";
    assert!(world.origin.metrics().text().contains(counted));
    assert_eq!(world.rows().await, [0, 0, 0]);
}

/// A body that is announced but never arrives.
struct Endless;

impl hyper::body::Body for Endless {
    type Data = hyper::body::Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Self::Data>, Infallible>>> {
        Poll::Pending
    }
}

/// A body comes from the client: an oversized or endless one must not prevent the purchase of a held unit.
#[tokio::test]
async fn oversized_or_endless_body_does_not_prevent_an_order() {
    let world = World::with_sale("s", 8).await;
    let bodies = [Body::from(vec![b'x'; 10_000_000]), Body::new(Endless)];
    for (user, body) in ["alice", "bob"].into_iter().zip(bodies) {
        let ticket = world.claim("s", user).await;
        let mut request = Request::post("/orders");
        for (name, value) in claim_headers(&ticket) {
            request = request.header(name, value);
        }
        let answer = world.public(request.body(body).unwrap()).await;
        assert_eq!(answer.status, 201, "{user}");
    }
}

#[tokio::test]
async fn transaction_completes_after_its_client_disconnects() {
    let world = World::with_sale("s", 8).await;
    let ticket = world.claim("s", "alice").await;
    let other = world.lock_database().await;
    {
        let mut request = Box::pin(world.order(&ticket));
        // Drives the request until its transaction waits for the lock, then drops it.
        while world.origin.sales().orders().in_flight() == 0 {
            let step = tokio::time::timeout(Duration::from_millis(10), &mut request).await;
            assert!(step.is_err(), "answered while the database was locked");
        }
    }
    other.unlock().await;
    world.origin.sales().orders().finish().await;
    assert_eq!(world.rows().await, [1, 1, 1]);
    let audit = world.audit(&ticket).await;
    assert_eq!((audit.held, audit.bought), (0, 1));
}

#[tokio::test]
async fn sql_outage_returns_503_and_releases_no_claim() {
    let world = World::with_sale("s", 8).await;
    let ticket = world.claim("s", "alice").await;
    let before = world.audit(&ticket).await;
    let other = world.lock_database().await;
    let answer = world.order(&ticket).await;
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (503, "sql_unavailable")
    );
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(world.audit(&ticket).await, before);
    other.unlock().await;
    assert_eq!(world.order(&ticket).await.status, 201);
}

/// A late redelivery after the order changes nothing.
#[tokio::test]
async fn release_after_the_order_changes_nothing() {
    let world = World::with_sale("s", 8).await;
    let ticket = world.claim("s", "alice").await;
    assert_eq!(world.order(&ticket).await.status, 201);
    let before = world.audit(&ticket).await;
    let ledger = world.origin.sales().ledger();
    ledger
        .release(&ticket, ReleaseKind::Delivery(0))
        .await
        .unwrap();
    assert_eq!(world.audit(&ticket).await, before);
}

/// In a dry run, a request that the gate would have refused continues, and the answer contains the reason.
#[tokio::test]
async fn dry_run_refusals_keep_their_reason() {
    let world = World::with_sale("s", 8).await;
    for (word, status, code) in [
        ("sold_out", 409, "sold_out"),
        ("blocked", 403, "blocked"),
        ("unavailable", 503, "unavailable"),
        // Reasons that the gate never sends.
        ("granted", 401, "claim_missing"),
        ("nonsense", 401, "claim_missing"),
    ] {
        let headers = [(weir_base::headers::SHADOW, word.as_bytes().to_vec())];
        let answer = world.post_order(&headers).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (status, code));
        assert_eq!(answer.body["message"], answer.body["detail"]);
    }
    // With a claim it is ignored.
    let ticket = world.claim("s", "alice").await;
    let [claim, signature] = claim_headers(&ticket);
    let shadow = (weir_base::headers::SHADOW, b"sold_out".to_vec());
    let answer = world.post_order(&[claim, signature, shadow]).await;
    assert_eq!(answer.status, 201, "{answer:?}");
}

/// Redis has lost a block and grants a claim to the blocked user.
#[tokio::test]
async fn user_blocked_in_sql_cannot_order_after_redis_loss() {
    let world = World::with_sale("s", 8).await;
    let ticket = world.claim("s", "mallory").await;
    let store = world.origin.sales().store();
    let (sale, mallory) = (id("s"), user("mallory"));
    store
        .reservations()
        .block(&sale, &mallory, "test", 1)
        .await
        .unwrap();
    let refused = world.order(&ticket).await;
    assert_eq!((refused.status.as_u16(), refused.code()), (403, "barred"));
    let audit = world.audit(&ticket).await;
    assert_eq!(
        (audit.held, audit.stock),
        (0, Some(2)),
        "the unit is for others"
    );
    // The block is in Redis again.
    let set = ShardKeys::new(&world.prefix, &sale, ticket.shard).blocked(bucket(&mallory));
    let mut is_member = redis::cmd("SISMEMBER");
    let reply = world.redis(is_member.arg(set).arg("mallory")).await;
    assert_eq!(reply, redis::Value::Int(1));
}

/// Entries of the user list that Redis loses soon after the write are written again.
#[tokio::test]
async fn block_lost_by_redis_is_rewritten() {
    let world = World::with_sale("s", 8).await;
    let path = "/sales/s/blocked/mallory";
    assert_eq!(world.admin("PUT", path, &Value::Null).await.status, 204);
    let (sale, mallory) = (id("s"), user("mallory"));
    let keys = ShardKeys::new(&world.prefix, &sale, home_shard(&mallory, SHARDS));
    let set = keys.blocked(bucket(&mallory));
    world.redis(redis::cmd("DEL").arg(&set)).await;
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    world.origin.sales().jobs().round().await.unwrap();
    let mut is_member = redis::cmd("SISMEMBER");
    let reply = world.redis(is_member.arg(set).arg("mallory")).await;
    assert_eq!(reply, redis::Value::Int(1));
}

/// The ids of a page of a user's own orders, and its `next`.
async fn own_orders(world: &World, name: &str, query: &str) -> (Vec<String>, Value) {
    let page = world
        .as_user(name, "GET", &format!("/my-orders{query}"))
        .await;
    assert_eq!(page.status, 200, "{page:?}");
    let orders = page.body["orders"].as_array().unwrap();
    assert!(orders.iter().all(|order| order["user"] == name), "{page:?}");
    let time = |order: &Value| order["created_at_ms"].as_u64().unwrap();
    assert!(orders.is_sorted_by(|one, next| time(one) >= time(next)));
    let ids = orders.iter().map(|order| order["order"].as_str().unwrap());
    (ids.map(str::to_owned).collect(), page.body["next"].clone())
}

#[tokio::test]
async fn user_lists_only_own_orders_of_all_sales() {
    let world = World::new().await;
    let mut of_alice = std::collections::BTreeSet::new();
    for sale in ["a", "b", "c"] {
        world.sale_with(sale, 8, json!({})).await;
        for name in ["alice", "bob"] {
            let made = world.order(&world.claim(sale, name).await).await;
            if name == "alice" {
                of_alice.insert(made.body["order"].as_str().unwrap().to_owned());
            }
        }
    }
    let (mut seen, next) = own_orders(&world, "alice", "?limit=2").await;
    assert_eq!(seen.len(), 2);
    let after = format!("?limit=2&after={}", next.as_str().unwrap());
    let (rest, next) = own_orders(&world, "alice", &after).await;
    assert_eq!((rest.len(), next), (1, Value::Null));
    seen.extend(rest);
    assert_eq!(
        seen.into_iter().collect::<std::collections::BTreeSet<_>>(),
        of_alice
    );

    let path = format!("/orders/{}", of_alice.first().unwrap());
    let payment = world.start_payment("alice", &path).await;
    let page = world.as_user("alice", "GET", "/my-orders").await;
    let orders = page.body["orders"].as_array().unwrap();
    let paying = orders.iter().find(|order| !order["payment"].is_null());
    assert_eq!(paying.unwrap()["payment"]["payment"], payment);
    // The cursor of another user shows nothing more.
    let (of_carol, _) = own_orders(&world, "carol", &after).await;
    assert_eq!(of_carol, [""; 0]);
    for query in ["?limit=0", "?limit=101", "?after=x", "?user=alice"] {
        let path = format!("/my-orders{query}");
        let refused = world.as_user("bob", "GET", &path).await;
        assert_eq!(refused.code(), "invalid_query", "{query}");
    }
    let unsigned = Request::get("/my-orders").body(Body::empty()).unwrap();
    assert_eq!(world.public(unsigned).await.status, 401);
}
