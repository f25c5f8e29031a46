//! Merges of a guest's views after sign-in.

use serde_json::json;
use weir_history::{DELETIONS_MAX, Sku};

use super::{Clock, guest, list, lose, record, user};
use crate::support::World;

#[tokio::test]
async fn guest_views_are_merged_into_the_user_once() {
    let clock = Clock::at_noon();
    let world = World::with_history(|settings| clock.set(settings)).await;
    let history = world.origin.history().unwrap().clone();
    let (now, alice, visitor) = (clock.now_ms(), user("alice"), guest("v1"));
    record(
        &history,
        &visitor,
        &[(1, now - 9), (2, now - 8), (3, now - 7)],
    )
    .await;
    record(&history, &alice, &[(2, now - 20), (3, now - 1)]).await;
    let joined = [(3, now - 1), (2, now - 8), (1, now - 9)];
    let body = json!({ "visitor": "v1" });
    let answer = world
        .as_user_with("alice", "POST", "/history/join", &body)
        .await;
    assert_eq!(
        answer.body,
        json!({ "joined": 3, "complete": true }),
        "{answer:?}"
    );
    assert_eq!(list(&history, &alice).await, joined);
    assert_eq!(list(&history, &visitor).await, []);
    // Again, also after the log has redelivered the guest's views.
    let again = world
        .as_user_with("alice", "POST", "/history/join", &body)
        .await;
    assert_eq!(again.body["joined"], 0);
    record(
        &history,
        &visitor,
        &[(1, now - 9), (2, now - 8), (3, now - 7)],
    )
    .await;
    assert_eq!(list(&history, &visitor).await, []);
    assert_eq!(list(&history, &alice).await, joined);
    // The next user of this browser sees nothing of alice's.
    world
        .as_user_with("bob", "POST", "/history/join", &body)
        .await;
    assert_eq!(list(&history, &user("bob")).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_joins_count_each_view_once() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let history = world.history(|settings| clock.set(settings)).await;
    let (now, alice, visitor) = (clock.now_ms(), user("alice"), guest("v1"));
    let views: Vec<_> = (1..=30).map(|sku| (sku, now - sku)).collect();
    record(&history, &visitor, &views).await;
    let joins: Vec<_> = (0..12)
        .map(|_| {
            let (history, visitor, alice) = (history.clone(), visitor.clone(), alice.clone());
            tokio::spawn(async move { history.join(&visitor, &alice).await.unwrap().views })
        })
        .collect();
    let mut sum = 0;
    for join in joins {
        sum += join.await.unwrap();
    }
    assert_eq!(sum, 30);
    assert_eq!(list(&history, &alice).await.len(), 30);
}

#[tokio::test]
async fn interrupted_join_is_repeated() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let history = world.history(|settings| clock.set(settings)).await;
    let (now, alice, visitor) = (clock.now_ms(), user("alice"), guest("v1"));
    record(&history, &visitor, &[(1, now - 9), (2, now - 8)]).await;
    let views = history.views(&visitor).await.unwrap().views;
    history.give(&views, &alice).await.unwrap();
    // The origin died. Alice deletes one of the views before the next merge, and a late view arrives.
    history.delete(&alice, &[Sku::from(1)]).await.unwrap();
    record(&history, &visitor, &[(3, now - 30)]).await;
    let joined = history.join(&visitor, &alice).await.unwrap();
    assert_eq!(joined.views, 3);
    assert_eq!(list(&history, &alice).await, [(2, now - 8), (3, now - 30)]);
    // The same if Redis loses all data, before and after.
    lose(&world).await;
    assert_eq!(history.join(&visitor, &alice).await.unwrap().views, 0);
    record(
        &history,
        &visitor,
        &[(1, now - 9), (2, now - 8), (3, now - 30)],
    )
    .await;
    assert_eq!(list(&history, &visitor).await, []);
}

#[tokio::test]
async fn guest_view_recorded_after_the_join_is_kept() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let history = world.history(|settings| clock.set(settings)).await;
    let (now, alice, visitor) = (clock.now_ms(), user("alice"), guest("v1"));
    record(&history, &visitor, &[(1, now - 3)]).await;
    history.join(&visitor, &alice).await.unwrap();
    // It was viewed before the merged one.
    record(&history, &visitor, &[(2, now - 9)]).await;
    assert_eq!(history.join(&visitor, &alice).await.unwrap().views, 1);
    assert_eq!(list(&history, &alice).await, [(1, now - 3), (2, now - 9)]);
}

#[tokio::test]
async fn guest_with_maximum_deletions_can_still_be_joined() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let history = world.history(|settings| clock.set(settings)).await;
    let (now, alice, visitor) = (clock.now_ms(), user("alice"), guest("v1"));
    let skus: Vec<Sku> = (0..DELETIONS_MAX as u64).map(Sku::from).collect();
    for some in skus.chunks(500) {
        history.delete(&visitor, some).await.unwrap();
    }
    record(&history, &visitor, &[(9_999_999, now - 3)]).await;
    history.join(&visitor, &alice).await.unwrap();
    assert_eq!(list(&history, &alice).await, [(9_999_999, now - 3)]);
    assert_eq!(list(&history, &visitor).await, []);
}
