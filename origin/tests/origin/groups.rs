//! Groups of sales with a common limit of units per user.

use serde_json::{Value, json};
use weir_origin::clock::now_ms;
use weir_origin::sales::jobs::archive::ArchiveRules;
use weir_sale::claim::Ticket;

use crate::support::{Answer, World, claim_headers, sale_json};

/// Sales `red`, `blue` and `white`, with one unit per user each and two in total; `green` is not in the group.
async fn world() -> World {
    in_groups(World::new().await).await
}

async fn in_groups(world: World) -> World {
    for (name, group) in [
        ("red", json!({ "id": "shoes", "user_cap": 2 })),
        ("blue", json!({ "id": "shoes", "user_cap": 2 })),
        ("white", json!({ "id": "shoes", "user_cap": 2 })),
        ("green", Value::Null),
    ] {
        let members = json!({ "group": group });
        world.sale_with(name, 20, members).await;
    }
    world
}

async fn order(world: &World, ticket: &Ticket) -> Answer {
    world.post_order_with(&claim_headers(ticket), "").await
}

/// Buys one unit; returns the status and the error code.
async fn buy(world: &World, sale: &str, user: &str) -> (u16, String) {
    let ticket = world.claim(sale, user).await;
    let answer = order(world, &ticket).await;
    let code = match answer.status.as_u16() {
        201 => String::new(),
        _ => answer.code().to_owned(),
    };
    (answer.status.as_u16(), code)
}

fn bought() -> (u16, String) {
    (201, String::new())
}

fn refused() -> (u16, String) {
    (409, "group_cap".to_owned())
}

#[tokio::test]
async fn group_cap_limits_units_per_user_across_sales() {
    let world = world().await;
    assert_eq!(buy(&world, "red", "alice").await, bought());
    assert_eq!(buy(&world, "white", "alice").await, bought());
    assert_eq!(buy(&world, "blue", "alice").await, refused());
    // The unit is free again; other users and sales are not affected.
    let audit = world.admin("GET", "/sales/blue/audit", &Value::Null).await;
    let terms = &audit.body["terms"];
    assert_eq!(
        (&terms["stock"], &terms["claims"]),
        (&json!(20), &json!(0)),
        "{audit:?}"
    );
    assert_eq!(buy(&world, "blue", "bob").await, bought());
    assert_eq!(buy(&world, "green", "alice").await, bought());
    let response = world.admin("GET", "/sales/red", &Value::Null).await;
    assert_eq!(
        response.body["group"],
        json!({ "id": "shoes", "user_cap": 2 })
    );
}

#[tokio::test]
async fn released_order_frees_room_under_the_group_cap() {
    let world = world().await;
    let ticket = world.claim("red", "alice").await;
    assert_eq!(order(&world, &ticket).await.status, 201);
    assert_eq!(buy(&world, "blue", "alice").await, bought());
    assert_eq!(buy(&world, "white", "alice").await, refused());
    let path = format!("/orders/{}/cancel", ticket.claim_id());
    for _ in 0..2 {
        let cancelled = world.as_user("alice", "POST", &path).await;
        assert_eq!(cancelled.status, 200, "{cancelled:?}");
    }
    assert_eq!(buy(&world, "white", "alice").await, bought());
    assert_eq!(buy(&world, "red", "alice").await, refused());
}

#[tokio::test]
async fn concurrent_orders_of_several_sales_respect_the_group_cap() {
    let world = world().await;
    for round in 0..6 {
        let user = format!("user-{round}");
        let mut tickets = Vec::new();
        for sale in ["red", "blue", "white"] {
            tickets.push(world.claim(sale, &user).await);
        }
        let (one, two, three) = tokio::join!(
            order(&world, &tickets[0]),
            order(&world, &tickets[1]),
            order(&world, &tickets[2])
        );
        let answers = [one, two, three];
        let created = answers.iter().filter(|answer| answer.status == 201);
        assert_eq!(created.count(), 2, "{answers:?}");
    }
}

#[tokio::test]
async fn group_users_are_deleted_with_the_last_sale() {
    let rules = ArchiveRules {
        after_ms: Some(0),
        settle_ms: 0,
    };
    let world = in_groups(World::with_archive(rules).await).await;
    let ticket = world.claim("red", "alice").await;
    assert_eq!(order(&world, &ticket).await.status, 201);
    world
        .pay("alice", &format!("/orders/{}", ticket.claim_id()))
        .await;
    let ends = [
        (
            "UPDATE sales SET starts_at_ms = 1, ends_at_ms = ? WHERE id = 'white'",
            1,
        ),
        (
            "UPDATE sales SET starts_at_ms = 1, ends_at_ms = ? WHERE id = 'red'",
            1,
        ),
        (
            "UPDATE sales SET starts_at_ms = 1, ends_at_ms = ? WHERE id = 'blue'",
            0,
        ),
    ];
    for (end, remaining) in ends {
        let now = now_ms().to_string();
        world.sql().await.execute(end, &[&now]).await;
        world.origin.sales().archiver().round().await.unwrap();
        let rows = world.number("SELECT COUNT(*) FROM group_buyers").await;
        assert_eq!(rows, remaining, "{end}");
    }
}

#[tokio::test]
async fn invalid_group_is_refused_with_a_reason() {
    let world = World::new().await;
    for (group, part) in [
        (
            json!({ "id": "g", "user_cap": 0 }),
            "group: user_cap must be",
        ),
        (
            json!({ "id": "acme--g", "user_cap": 1 }),
            "group: must belong to the sale's tenant",
        ),
    ] {
        let mut body = sale_json("s", 4);
        body["group"] = group;
        let answer = world.admin("POST", "/sales", &body).await;
        let message = answer.body["detail"].as_str().unwrap_or_default();
        assert_eq!(answer.status, 422, "{answer:?}");
        assert!(message.contains(part), "{message}");
    }
}
