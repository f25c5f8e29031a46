//! Users read and cancel their reservations.

use serde_json::{Value, json};
use weir_origin::clock::now_ms;
use weir_origin::sales::store::WithdrawOutcome;
use weir_sale::claim::Ticket;
use weir_sale::ledger::{Checks, ClaimReply};

use crate::support::{Answer, World};

const PATH: &str = "/sales/s/reservations";

/// A world with a sale of one shard that requires reservations.
async fn world(world: World) -> World {
    let window = json!({ "from_ms": 0, "until_ms": now_ms() + 60_000 });
    let members = json!({ "shards": 1, "reservation": window });
    world.sale_with("s", 4, members).await;
    world
}

/// Claims a unit like a gateway, in a sale that requires reservations.
async fn claim(world: &World, name: &str) -> Result<Ticket, ClaimReply> {
    let checks = Checks {
        reserved: true,
        ..Checks::default()
    };
    world.claim_with_checks("s", name, checks).await
}

/// The status and state of an answer.
fn status_and_state(answer: &Answer) -> (u16, &Value) {
    (answer.status.as_u16(), &answer.body["state"])
}

#[tokio::test]
async fn withdrawn_reservation_stops_user_at_gate_and_in_sql() {
    let world = world(World::new().await).await;
    let none = world.as_user("alice", "GET", PATH).await;
    assert_eq!(
        (none.status.as_u16(), none.code()),
        (404, "unknown_reservation")
    );
    let before_ms = now_ms();
    let answer = world.as_user("alice", "POST", PATH).await;
    assert_eq!(status_and_state(&answer), (201, &json!("reserved")));
    let response = world.as_user("alice", "GET", PATH).await;
    assert_eq!(status_and_state(&response), (200, &json!("reserved")));
    assert!(response.body["at_ms"].as_u64().unwrap() >= before_ms);
    let again = world.as_user("alice", "POST", PATH).await;
    assert_eq!(again.body, response.body, "as it was made");
    assert_eq!(world.as_user("bob", "GET", PATH).await.status, 404);

    // It was claimed before the reservation: SQL refuses it.
    let early = claim(&world, "alice").await.unwrap();
    for _ in 0..2 {
        let reply = world.as_user("alice", "DELETE", PATH).await;
        assert_eq!(status_and_state(&reply), (200, &json!("cancelled")));
        assert_eq!(reply.body["at_ms"], Value::Null);
    }
    let refused = world.order(&early).await;
    assert_eq!((refused.status.as_u16(), refused.code()), (403, "barred"));
    assert_eq!(claim(&world, "alice").await, Err(ClaimReply::NotReserved));
    assert_eq!(world.as_user("alice", "GET", PATH).await.status, 404);

    // A second reservation restores the previous state.
    let answer = world.as_user("alice", "POST", PATH).await;
    assert_eq!(answer.status, 201);
    let ticket = claim(&world, "alice").await.unwrap();
    assert_eq!(world.order(&ticket).await.status, 201);
    // An order stays, even if the reservation is cancelled.
    assert_eq!(world.as_user("alice", "DELETE", PATH).await.status, 200);
    let order = format!("/orders/{}", ticket.claim_id());
    assert_eq!(world.as_user("alice", "GET", &order).await.status, 200);
}

#[tokio::test]
async fn stale_reservation_in_redis_is_rejected_and_cleared() {
    let world = world(World::new().await).await;
    assert_eq!(world.as_user("alice", "POST", PATH).await.status, 201);
    let sales = world.origin.sales();
    // The origin died between SQL and Redis.
    let (id, user) = (crate::support::id("s"), crate::support::user("alice"));
    let store = sales.store();
    for expected in [WithdrawOutcome::Now, WithdrawOutcome::Again] {
        let cancelled = store
            .reservations()
            .cancel_reservation(&id, &user)
            .await
            .unwrap();
        assert_eq!(cancelled, expected);
    }
    let ticket = claim(&world, "alice").await.unwrap();
    assert_eq!(world.order(&ticket).await.code(), "barred");
    assert_eq!(
        claim(&world, "alice").await,
        Err(ClaimReply::NotReserved),
        "the refusal has told the gateway"
    );
}

#[tokio::test]
async fn reservation_cancelled_without_redis_reports_pending_work() {
    let dir = tempfile::tempdir().unwrap();
    let server = crate::support::redis(&dir).await;
    let world = world(World::on(&server.url()).await).await;
    assert_eq!(world.as_user("alice", "POST", PATH).await.status, 201);
    drop(server);
    let response = world.as_user("alice", "DELETE", PATH).await;
    assert_eq!(
        (response.status.as_u16(), response.code()),
        (503, "redis_unavailable")
    );
    assert_eq!(world.as_user("alice", "GET", PATH).await.status, 404);
}

#[tokio::test]
async fn unknown_sale_and_sale_without_reservations_have_none() {
    let world = World::with_sale("free", 4).await;
    for method in ["GET", "DELETE"] {
        let unknown = world.as_user("alice", method, "/sales/x/reservations");
        assert_eq!(unknown.await.code(), "unknown_sale", "{method}");
        let path = "/sales/free/reservations";
        let anonymous = axum::http::Request::builder().method(method).uri(path);
        let anonymous = anonymous.body(axum::body::Body::empty()).unwrap();
        assert_eq!(world.public(anonymous).await.code(), "user_missing");
    }
    let free = "/sales/free/reservations";
    let none = world.as_user("alice", "GET", free).await;
    assert_eq!(none.code(), "unknown_reservation");
    assert_eq!(world.as_user("alice", "DELETE", free).await.status, 200);
}
