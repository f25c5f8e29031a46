//! Removed views stay removed, whichever process dies in between.

use serde_json::{Value, json};
use weir_history::{DELETIONS_MAX, REMOVALS_MS, Sku, ViewedProduct};
use weir_origin::history::Outcome;
use weir_origin::history::remove::{RemovalTiming, RemoveError};
use weir_origin::history::store::RemovalOutcome;

use super::{Clock, cold, list, lose, record, user, viewed};
use crate::support::World;

#[tokio::test]
async fn deleted_views_return_only_when_viewed_again() {
    let clock = Clock::at_noon();
    let world = World::with_history(|settings| clock.set(settings)).await;
    let history = world.origin.history().unwrap().clone();
    let (now, alice) = (clock.now_ms(), user("alice"));
    let views = [
        (1, now - 9),
        (2, now - 8),
        (3, now - 7),
        (4, now - 6),
        (5, now - 5),
    ];
    record(&history, &alice, &views).await;
    let one = world.as_user("alice", "DELETE", "/history/2").await;
    assert_eq!(one.status, 204, "{one:?}");
    let body = json!({ "skus": ["3", "4", "unknown"] });
    let many = world
        .as_user_with("alice", "POST", "/history/delete", &body)
        .await;
    assert_eq!(many.status, 204);
    assert_eq!(list(&history, &alice).await, [(5, now - 5), (1, now - 9)]);
    // Again, and after a redelivery from the log.
    assert_eq!(
        world.as_user("alice", "DELETE", "/history/2").await.status,
        204
    );
    let outcomes = record(&history, &alice, &views).await;
    assert_eq!(
        outcomes.iter().filter(|o| **o == Outcome::Removed).count(),
        3
    );
    assert_eq!(list(&history, &alice).await, [(5, now - 5), (1, now - 9)]);
    let all = world.as_user("alice", "DELETE", "/history").await;
    assert_eq!(all.status, 204);
    assert_eq!(
        record(&history, &alice, &views).await,
        [Outcome::Removed; 5]
    );
    assert_eq!(list(&history, &alice).await, []);
    clock.pass(1);
    record(&history, &alice, &[(2, now + 1)]).await;
    assert_eq!(list(&history, &alice).await, [(2, now + 1)]);
    // An operator deletes it for a user.
    let by_name = world
        .admin("DELETE", "/history?user=alice", &Value::Null)
        .await;
    assert_eq!(by_name.status, 204);
    assert_eq!(list(&history, &alice).await, []);
}

#[tokio::test]
async fn view_with_a_future_time_is_deleted_too() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let history = world.history(|settings| clock.set(settings)).await;
    let (now, alice) = (clock.now_ms(), user("alice"));
    let views = [(1, now + 5_000), (2, now + 6_000)];
    record(&history, &alice, &views).await;
    history.delete(&alice, &[Sku::from(1)]).await.unwrap();
    assert_eq!(list(&history, &alice).await, [(2, now + 6_000)]);
    history.clear(&alice).await.unwrap();
    lose(&world).await;
    record(&history, &alice, &views).await;
    assert_eq!(list(&history, &alice).await, []);
}

/// Stores a deletion in SQL, like an origin that died before it updated Redis.
async fn delete_and_die(history: &weir_origin::history::History, deleted: &[ViewedProduct]) {
    let recorded = history
        .store()
        .removed()
        .delete(&user("alice"), deleted)
        .await
        .unwrap();
    assert!(matches!(recorded, RemovalOutcome::Done(_)));
}

#[tokio::test]
async fn crash_between_sql_and_redis_restores_no_deleted_view() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let history = world.history(|settings| clock.set(settings)).await;
    let (now, alice) = (clock.now_ms(), user("alice"));
    let views = [(1, now - 9), (2, now - 8)];
    record(&history, &alice, &views).await;
    history.fold_owner(&alice).await.unwrap();
    list(&history, &alice).await;
    delete_and_die(&history, &[viewed(1, now)]).await;
    // Another origin finds it, and applies it once to Redis and the cold store.
    let other = world.history(|settings| clock.set(settings)).await;
    assert_eq!(other.apply_removals(now - 1).await.unwrap(), 0, "too young");
    assert_eq!(other.apply_removals(now).await.unwrap(), 1);
    assert_eq!(other.apply_removals(now).await.unwrap(), 0);
    assert_eq!(list(&history, &alice).await, [(2, now - 8)]);
    assert_eq!(cold(&history, &alice).await, [(2, now - 8)]);
    assert_eq!(record(&history, &alice, &views).await[0], Outcome::Removed);
    // The same, but Redis loses all data before the next read.
    delete_and_die(&history, &[viewed(2, now)]).await;
    lose(&world).await;
    record(&history, &alice, &views).await;
    assert_eq!(list(&history, &alice).await, []);
    assert_eq!(other.apply_removals(now).await.unwrap(), 1);
    assert_eq!(list(&history, &alice).await, []);
}

#[tokio::test]
async fn crash_during_clearing_restores_no_view() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let history = world.history(|settings| clock.set(settings)).await;
    let (now, alice) = (clock.now_ms(), user("alice"));
    record(&history, &alice, &[(1, now - 9), (2, now + 8)]).await;
    history.fold_owner(&alice).await.unwrap();
    history.store().removed().clear(&alice, now).await.unwrap();
    assert_eq!(history.apply_removals(now).await.unwrap(), 1);
    assert_eq!(list(&history, &alice).await, [(2, now + 8)]);
    assert_eq!(cold(&history, &alice).await, [(2, now + 8)]);
}

#[tokio::test]
async fn removal_during_redis_outage_counts_and_redis_catches_up() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let history = world.history(|settings| clock.set(settings)).await;
    let (now, alice) = (clock.now_ms(), user("alice"));
    record(&history, &alice, &[(1, now - 9), (2, now - 8)]).await;
    list(&history, &alice).await;
    let database = weir_origin::origin::open_database(&world.database_url())
        .await
        .unwrap();
    let set = |settings: &mut weir_origin::history::Settings| clock.set(settings);
    let away = world.history_in(database, "redis://127.0.0.1:1", set);
    let removed = away.delete(&alice, &[Sku::from(1)]).await.unwrap();
    assert_eq!(removed, RemovalTiming::Soon);
    assert_eq!(history.apply_removals(now).await.unwrap(), 1);
    assert_eq!(list(&history, &alice).await, [(2, now - 8)]);
}

#[tokio::test]
async fn cleared_bytes_leave_cold_store_and_deleted_ones_at_next_fold() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let history = world.history(|settings| clock.set(settings)).await;
    let (now, alice) = (clock.now_ms(), user("alice"));
    record(&history, &alice, &[(1, now - 9), (2, now - 8)]).await;
    history.fold_owner(&alice).await.unwrap();
    history.delete(&alice, &[Sku::from(1)]).await.unwrap();
    history.fold_owner(&alice).await.unwrap();
    assert_eq!(cold(&history, &alice).await, [(2, now - 8)]);
    history.clear(&alice).await.unwrap();
    assert_eq!(world.number("SELECT COUNT(*) FROM history_cold").await, 0);
}

#[tokio::test]
async fn deletion_records_are_bounded_and_removed_when_unneeded() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let history = world.history(|settings| clock.set(settings)).await;
    let alice = user("alice");
    let skus: Vec<Sku> = (0..DELETIONS_MAX as u64).map(Sku::from).collect();
    for some in skus.chunks(500) {
        assert_eq!(
            history.delete(&alice, some).await.unwrap(),
            RemovalTiming::Now
        );
    }
    let one_more = history.delete(&alice, &[Sku::from(1_000_000)]).await;
    assert!(
        matches!(one_more, Err(RemoveError::TooMany)),
        "{one_more:?}"
    );
    // Known SKUs may be deleted again.
    history.delete(&alice, &skus[..2]).await.unwrap();
    history.clear(&alice).await.unwrap();
    assert_eq!(
        world.number("SELECT COUNT(*) FROM history_deleted").await,
        0
    );
    history
        .delete(&alice, &[Sku::from(1_000_000)])
        .await
        .unwrap();
    assert_eq!(
        world.number("SELECT COUNT(*) FROM history_unapplied").await,
        0
    );
    clock.pass(REMOVALS_MS + 1);
    assert_eq!(history.forget_old().await.unwrap(), 2);
    assert_eq!(
        world.number("SELECT COUNT(*) FROM history_cleared").await,
        0
    );
}
