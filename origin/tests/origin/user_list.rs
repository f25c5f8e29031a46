//! Users whom operators block in all sales, or exempt from risk checks.

use serde_json::{Value, json};
use weir_origin::clock::now_ms;
use weir_origin::sales::store::Score;

use crate::support::{Answer, World, id, user};

async fn set_status(world: &World, name: &str, status: &str) -> Answer {
    let body = json!({ "status": status, "reason": "resells", "operator": "olga" });
    let answer = world
        .admin("PUT", &format!("/user-list/{name}"), &body)
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer
}

async fn remove(world: &World, name: &str) -> Answer {
    let body = json!({ "operator": "olga" });
    world
        .admin("DELETE", &format!("/user-list/{name}"), &body)
        .await
}

#[tokio::test]
async fn blocked_user_buys_in_no_sale_even_if_redis_lacks_the_block() {
    let world = World::new().await;
    let one_shard = json!({ "shards": 1 });
    world.sale_with("s", 4, one_shard.clone()).await;
    world.sale_with("t", 4, one_shard.clone()).await;
    let claim = async |sale: &str| world.claim_as_gateways_do(sale, "mallory").await;
    // Their claims are older than the block.
    let tickets = [claim("s").await.unwrap(), claim("t").await.unwrap()];
    let listed = set_status(&world, "mallory", "blocked").await;
    assert_eq!(listed.body["status"], "blocked");
    for ticket in &tickets {
        let refused = world.order(ticket).await;
        assert_eq!((refused.status.as_u16(), refused.code()), (403, "barred"));
        // The gateway has the block.
        assert!(claim(ticket.sale.as_str()).await.is_err());
    }
    // A sale created later: SQL refuses the first claim, and the gateway learns of the block.
    world.sale_with("u", 4, one_shard).await;
    let ticket = claim("u").await.unwrap();
    let skip = json!({ "degrade": { "skip_risk": true } });
    let skip = world.admin("PUT", "/sales/u/switch", &skip).await;
    assert!(skip.status.is_success(), "{skip:?}");
    assert_eq!(
        world.order(&ticket).await.code(),
        "barred",
        "no switch lets them in"
    );
    assert!(claim("u").await.is_err());

    let page = world
        .admin("GET", "/user-list?status=blocked", &Value::Null)
        .await;
    assert_eq!(page.body["users"][0]["user"], "mallory");
    for _ in 0..2 {
        let free = remove(&world, "mallory").await;
        assert_eq!(free.body["status"], "none", "{free:?}");
    }
    let log = remove(&world, "mallory").await.body["log"].clone();
    let words: Vec<&str> = log
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["status"].as_str().unwrap())
        .collect();
    assert_eq!(words, ["none", "blocked"]);
    assert_eq!(
        (&log[1]["operator"], &log[1]["reason"]),
        (&json!("olga"), &json!("resells"))
    );
    for sale in ["s", "t", "u"] {
        let ticket = claim(sale).await.unwrap();
        assert_eq!(world.order(&ticket).await.status, 201, "{sale}");
    }
}

#[tokio::test]
async fn allowed_user_passes_risk_check_and_sale_operator_can_block() {
    let world = World::new().await;
    let window = json!({ "from_ms": 0, "until_ms": now_ms() + 60_000 });
    world
        .sale_with("s", 4, json!({ "reservation": window }))
        .await;
    let store = world.origin.sales().store();
    store
        .reservations()
        .reserve(&id("s"), &user("alice"), now_ms())
        .await
        .unwrap();
    let score = Score {
        score: 99,
        block: true,
    };
    assert!(
        store
            .reservations()
            .set_score(&id("s"), &user("alice"), score, now_ms())
            .await
            .unwrap()
    );
    assert!(
        store
            .cooldowns()
            .is_barred(&id("s"), &user("alice"), now_ms())
            .await
            .unwrap()
    );
    set_status(&world, "alice", "allowed").await;
    assert!(
        !store
            .cooldowns()
            .is_barred(&id("s"), &user("alice"), now_ms())
            .await
            .unwrap()
    );
    assert_eq!(
        store
            .reservations()
            .blocked_page(&id("s"), None, 9)
            .await
            .unwrap(),
        []
    );
    let ticket = world.claim("s", "alice").await;
    assert_eq!(world.order(&ticket).await.status, 201);

    let path = "/sales/s/blocked/bob";
    assert_eq!(world.admin("PUT", path, &Value::Null).await.status, 204);
    set_status(&world, "bob", "allowed").await;
    assert!(
        store
            .cooldowns()
            .is_barred(&id("s"), &user("bob"), now_ms())
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn invalid_status_is_refused_and_blocked_user_cannot_reserve() {
    let world = World::new().await;
    for (body, code) in [
        (
            json!({ "status": "odd", "reason": "r", "operator": "o" }),
            "invalid_body",
        ),
        (
            json!({ "status": "blocked", "reason": "", "operator": "o" }),
            "invalid_reason",
        ),
        (
            json!({ "status": "blocked", "reason": "x".repeat(201), "operator": "o" }),
            "invalid_reason",
        ),
    ] {
        let refused = world.admin("PUT", "/user-list/u", &body).await;
        assert_eq!(refused.code(), code);
    }
    let window = json!({ "from_ms": 0, "until_ms": now_ms() + 60_000 });
    world
        .sale_with("s", 4, json!({ "reservation": window }))
        .await;
    set_status(&world, "mallory", "blocked").await;
    let refused = world
        .as_user("mallory", "POST", "/sales/s/reservations")
        .await;
    assert_eq!((refused.status.as_u16(), refused.code()), (403, "blocked"));
}
