//! Draws: a random choice among all reservations, which anyone can verify.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use weir_origin::clock::now_ms;
use weir_origin::sales::draw::check::{self, CheckDrawCommand};
use weir_origin::sales::ledger::UserList;
use weir_sale::ledger::{Checks, ClaimReply};

use crate::support::{Answer, World, id, sale_json, user};

const PATH: &str = "/sales/s/reservations";
const USERS: [&str; 5] = ["alice", "bob", "carol", "dave", "erin"];

/// A loaded sale with one shard that draws two winners; reservations are open.
async fn world() -> World {
    let world = World::new().await;
    let soon = now_ms() + 120_000;
    let window = json!({ "from_ms": 0, "until_ms": soon });
    let members = json!({
        "shards": 1, "starts_at_ms": soon, "reservation": window, "draw": { "winners": 2 },
    });
    world.sale_with("s", 8, members).await;
    world
}

async fn enter_all(world: &World) -> BTreeMap<String, String> {
    let mut tickets = BTreeMap::new();
    for name in USERS {
        let entered = world.as_user(name, "POST", PATH).await;
        assert_eq!(
            (entered.status.as_u16(), &entered.body["state"]),
            (201, &json!("entered"))
        );
        let ticket = entered.body["ticket"].as_str().unwrap();
        tickets.insert(ticket.to_owned(), name.to_owned());
    }
    assert_eq!(tickets.len(), USERS.len());
    tickets
}

/// Ends the reservations and starts the sale.
async fn end_reservations(world: &World) {
    let end = "UPDATE sales SET reserve_until_ms = 2, starts_at_ms = 3 WHERE id = 's'";
    world.sql().await.execute(end, &[]).await;
}

async fn draw(world: &World) -> Answer {
    world
        .public(Request::get("/sales/s/draw").body(Body::empty()).unwrap())
        .await
}

async fn entries(world: &World, query: &str) -> (u16, String) {
    let request = Request::get(format!("/sales/s/draw/entries{query}"));
    let answer = world.raw(request.body(Body::empty()).unwrap()).await;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// The winner of each position.
async fn winners(world: &World) -> BTreeMap<u64, &'static str> {
    let mut winners = BTreeMap::new();
    for name in USERS {
        let response = world.as_user(name, "GET", PATH).await;
        match response.body["place"].as_u64() {
            Some(place) => {
                assert_eq!(response.body["state"], "reserved", "{name}");
                winners.insert(place, name);
            }
            None => assert_eq!(response.body["state"], "not_drawn", "{name}"),
        }
    }
    winners
}

async fn draw_all(world: &World) {
    world.origin.sales().drawer().draw_all().await.unwrap();
}

const RESERVED: Checks = Checks {
    blocked: false,
    reserved: true,
    drain: false,
};

#[tokio::test]
async fn only_drawn_users_buy_and_the_draw_is_verifiable() {
    let world = world().await;
    let before = draw(&world).await;
    let commitment = before.body["commitment"].as_str().unwrap().to_owned();
    assert_eq!(
        (&before.body["seed"], &before.body["entries"]),
        (&Value::Null, &Value::Null)
    );
    let tickets = enter_all(&world).await;
    assert_eq!(
        entries(&world, "").await.0,
        409,
        "who has entered is not told before the end"
    );
    draw_all(&world).await;
    for name in USERS {
        let early = world.claim_with_checks("s", name, RESERVED).await;
        assert_eq!(early, Err(ClaimReply::NotReserved), "{name}");
    }
    end_reservations(&world).await;
    draw_all(&world).await;

    let body = draw(&world).await.body;
    assert_eq!(body["commitment"], commitment);
    assert_eq!((&body["entries"], &body["winners"]), (&json!(5), &json!(2)));
    // The same in pages.
    let (_, all) = entries(&world, "").await;
    let (_, first) = entries(&world, "?limit=3").await;
    let last = first.lines().last().unwrap();
    let (_, rest) = entries(&world, &format!("?limit=3&after={last}")).await;
    assert_eq!(format!("{first}{rest}"), all);
    assert_eq!(entries(&world, "?after=x").await.0, 400);

    // The command computes the same winners as those that may buy.
    let file = |name: &str, text: &str| {
        let path = world.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let mut command = CheckDrawCommand {
        draw: file("draw.json", &body.to_string()),
        entries: file("entries.txt", &all),
        commitment: Some(commitment),
        ticket: tickets.keys().cloned().collect(),
    };
    let output = check::run(&command).unwrap();
    command.commitment = Some("00".to_owned());
    assert!(check::run(&command).is_err());
    let winners = winners(&world).await;
    assert_eq!(winners.keys().copied().collect::<Vec<_>>(), [1, 2]);
    for (ticket, name) in &tickets {
        let line = output
            .lines()
            .find(|line| line.starts_with(ticket.as_str()))
            .unwrap();
        let place = winners.iter().find(|(_, winner)| *winner == name);
        match place {
            Some((place, _)) => assert!(line.ends_with(&format!("rank {place}, won")), "{line}"),
            None => assert!(line.ends_with("not won"), "{line}"),
        }
        // Gateways have the same winners, and SQL refuses all others.
        let claimed = world.claim_with_checks("s", name, RESERVED).await;
        assert_eq!(claimed.is_ok(), place.is_some(), "{name}");
        let ticket = match claimed {
            Ok(ticket) => ticket,
            Err(_) => world
                .claim_with_checks("s", name, Checks::default())
                .await
                .unwrap(),
        };
        let expected = if place.is_some() { 201 } else { 403 };
        assert_eq!(world.order(&ticket).await.status, expected, "{name}");
    }
}

#[tokio::test]
async fn concurrent_and_interrupted_draws_give_the_same_result() {
    let world = world().await;
    enter_all(&world).await;
    end_reservations(&world).await;
    let sales = world.origin.sales();
    let (one, other) = (sales.drawer(), sales.drawer());
    let sale = id("s");
    let (first, second) = tokio::join!(one.draw(&sale), other.draw(&sale));
    first.unwrap();
    second.unwrap();
    let (won, reply) = (winners(&world).await, draw(&world).await.body);
    // A repeated draw changes nothing.
    one.draw(&sale).await.unwrap();
    assert_eq!(draw(&world).await.body, reply);

    // It crashed after it had stored one winner.
    let mut sql = world.sql().await;
    let dies = "UPDATE draws SET drawn_at_ms = NULL, admitted_at_ms = NULL WHERE sale_id = 's'";
    sql.execute(dies, &[]).await;
    let half = "UPDATE reservations SET admitted = 0, place = NULL WHERE place = 2";
    sql.execute(half, &[]).await;
    assert_eq!(
        draw(&world).await.body["seed"],
        Value::Null,
        "not before all winners stand"
    );
    draw_all(&world).await;
    assert_eq!(winners(&world).await, won);

    // It crashed before it published the winners to gateways.
    let dies = "UPDATE draws SET admitted_at_ms = NULL WHERE sale_id = 's'";
    sql.execute(dies, &[]).await;
    let stored = sales.store().sale(&sale).await.unwrap().unwrap();
    for name in won.values() {
        let winner = user(name);
        let erased = sales
            .ledger()
            .erase_user(&stored.sale, UserList::Reserved, &winner);
        erased.await.unwrap();
        let claimed = world.claim_with_checks("s", name, RESERVED).await;
        assert_eq!(claimed, Err(ClaimReply::NotReserved));
    }
    draw_all(&world).await;
    for name in won.values() {
        assert!(
            world.claim_with_checks("s", name, RESERVED).await.is_ok(),
            "{name}"
        );
    }
}

#[tokio::test]
async fn closed_draw_list_rejects_entries_and_withdrawals() {
    let world = world().await;
    enter_all(&world).await;
    let response = world.as_user("erin", "DELETE", PATH).await;
    assert_eq!(response.status, 200);
    let store = world.origin.sales().store();
    store.draws().close_draw(&id("s"), now_ms()).await.unwrap();
    // Its clock is behind: for this origin, reservations are still open.
    let late = world.as_user("frank", "POST", PATH).await;
    assert_eq!(
        (late.status.as_u16(), late.code()),
        (409, "reservation_closed")
    );
    let late = world.as_user("alice", "DELETE", PATH).await;
    assert_eq!(
        (late.status.as_u16(), late.code()),
        (409, "reservation_closed")
    );
    assert_eq!(store.draws().draw_entries(&id("s")).await.unwrap().len(), 4);
}

#[tokio::test]
async fn draw_list_that_differs_from_the_published_is_not_drawn() {
    let world = world().await;
    enter_all(&world).await;
    end_reservations(&world).await;
    let store = world.origin.sales().store();
    store.draws().close_draw(&id("s"), now_ms()).await.unwrap();
    let reply = store
        .draws()
        .set_draw_list(&id("s"), 6, &"0".repeat(64))
        .await
        .unwrap();
    assert_eq!(reply.unwrap().list, Some((6, "0".repeat(64))));
    draw_all(&world).await;
    let draw = draw(&world).await.body;
    assert_eq!(
        (&draw["drawn_at_ms"], &draw["seed"]),
        (&Value::Null, &Value::Null)
    );
    let response = world.as_user("alice", "GET", PATH).await;
    assert_eq!(response.body["state"], "entered");
}

#[tokio::test]
async fn draw_terms_are_fixed_once_reservations_open() {
    let world = World::new().await;
    let mut new = sale_json("s", 4);
    new["draw"] = json!({ "winners": 2 });
    let refused = world.admin("POST", "/sales", &new).await;
    assert_eq!(refused.code(), "invalid_sale");
    assert_eq!(refused.body["errors"][0]["pointer"], "/draw", "{refused:?}");
    let (opens, starts) = (now_ms() + 60_000, now_ms() + 120_000);
    new["starts_at_ms"] = json!(starts);
    new["reservation"] = json!({ "from_ms": opens, "until_ms": starts });
    assert_eq!(world.admin("POST", "/sales", &new).await.status, 201);
    let patch = async |changes: Value| world.admin("PATCH", "/sales/s", &changes).await;
    let commitment = draw(&world).await.body["commitment"].clone();
    assert_eq!(patch(json!({ "draw": { "winners": 3 } })).await.status, 200);
    let body = draw(&world).await.body;
    assert_eq!(
        (&body["winners"], &body["commitment"]),
        (&json!(3), &commitment)
    );
    let open = json!({ "from_ms": 0, "until_ms": starts });
    assert_eq!(patch(json!({ "reservation": open })).await.status, 200);
    for changes in [
        json!({ "draw": { "winners": 4 } }),
        json!({ "draw": null }),
        json!({ "reservation": { "from_ms": 0, "until_ms": starts - 1 } }),
    ] {
        let refused = patch(changes.clone()).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (409, "sale_drawing"),
            "{changes}"
        );
    }
    assert_eq!(patch(json!({ "title": "Shoes" })).await.status, 200);
    assert_eq!(draw(&world).await.body["commitment"], commitment);
    let none = Request::get("/sales/x/draw").body(Body::empty()).unwrap();
    assert_eq!(world.public(none).await.code(), "no_draw");
    let store = world.origin.sales().store();
    let debug = format!("{:?}", store.draws().draw(&id("s")).await.unwrap());
    assert!(debug.contains("Seed(secret)"), "{debug}");
}
