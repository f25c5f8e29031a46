//! Garages.

use serde_json::Value;

use super::{catalogue, fitment, vehicle};
use crate::support::World;

async fn garage(world: &World, user: &str) -> Vec<(String, bool)> {
    let answer = world.as_user(user, "GET", "/fitment/garage").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let vehicles = answer.body["vehicles"].as_array().unwrap().clone();
    let one = |of: &Value| {
        let is_default = of["is_default"].as_bool().unwrap();
        (of["vehicle"].as_str().unwrap().to_owned(), is_default)
    };
    vehicles.iter().map(one).collect()
}

async fn put(world: &World, user: &str, number: u32, query: &str) -> u16 {
    let path = format!("/fitment/garage/{}{query}", vehicle(number));
    world.as_user(user, "PUT", &path).await.status.as_u16()
}

async fn delete(world: &World, user: &str, number: u32) -> u16 {
    let path = format!("/fitment/garage/{}", vehicle(number));
    world.as_user(user, "DELETE", &path).await.status.as_u16()
}

#[tokio::test]
async fn one_vehicle_of_a_garage_is_the_default() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 30, &[]).await;
    assert_eq!(garage(&world, "alice").await, []);
    for number in [3, 1, 2] {
        assert_eq!(put(&world, "alice", number, "").await, 204);
    }
    let names = |all: Vec<(String, bool)>| {
        let defaults = all.iter().filter(|(_, is_default)| *is_default).count();
        assert_eq!(defaults, 1, "{all:?}");
        all.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(
        names(garage(&world, "alice").await)[0],
        "1000003",
        "the first one"
    );
    assert_eq!(put(&world, "alice", 2, "?default=true").await, 204);
    assert_eq!(names(garage(&world, "alice").await)[0], "1000002");
    assert_eq!(put(&world, "alice", 1, "").await, 204, "again");
    assert_eq!(delete(&world, "alice", 2).await, 204);
    assert_eq!(delete(&world, "alice", 2).await, 404);
    assert_eq!(names(garage(&world, "alice").await).len(), 2);
    assert_eq!(garage(&world, "bob").await, [], "another user's");
    // The default vehicle is retired.
    let default = garage(&world, "alice").await[0].0.parse().unwrap();
    fitment(&world)
        .store()
        .retire_vehicle(default)
        .await
        .unwrap();
    assert_eq!(garage(&world, "alice").await.len(), 1);
    put(&world, "alice", 9, "").await;
    assert_eq!(names(garage(&world, "alice").await)[0], "1000009");
}

#[tokio::test]
async fn garage_is_limited_to_20_even_for_concurrent_requests() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 30, &[]).await;
    for number in 1..=19 {
        assert_eq!(put(&world, "alice", number, "").await, 204);
    }
    let (one, two) = tokio::join!(put(&world, "alice", 20, ""), put(&world, "alice", 21, ""));
    assert_eq!([one.min(two), one.max(two)], [204, 409]);
    assert_eq!(
        put(&world, "alice", 7, "?default=true").await,
        204,
        "one that is there"
    );
    assert_eq!(garage(&world, "alice").await.len(), 20);
}

#[tokio::test]
async fn invalid_vehicle_and_anonymous_request_are_refused() {
    let world = World::with_fitment(|_| ()).await;
    assert_eq!(put(&world, "alice", 3, "").await, 404);
    for bad in ["100000a", "10000001", "0"] {
        let answer = world
            .as_user("alice", "PUT", &format!("/fitment/garage/{bad}"))
            .await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (422, "invalid_vehicle")
        );
    }
    let request = axum::http::Request::get("/fitment/garage");
    let document = world
        .public(request.body(axum::body::Body::empty()).unwrap())
        .await;
    assert_eq!(document.status, 401);
}
