//! Folds from Redis to the cold store, and loads back.

use std::time::Duration;

use redis::cmd;
use tokio_util::sync::CancellationToken;
use weir_history::{COLD_MS, DAY_MS, Sku, VIEWS_MAX};
use weir_origin::history::jobs::fold::FoldSummary;
use weir_origin::history::{History, Settings};
use weir_origin::redis::Redis;

use super::{Clock, cold, list, lose, record, user};
use crate::support::{World, redis as own_redis};

async fn fold(history: &History) -> FoldSummary {
    history.fold(&CancellationToken::new()).await.unwrap()
}

async fn lists_of(history: &History, users: u64) -> Vec<Vec<(u64, u64)>> {
    let mut lists = vec![];
    for number in 0..users {
        lists.push(list(history, &user(&format!("u{number}"))).await);
    }
    lists
}

#[tokio::test]
async fn changed_lists_are_in_the_cold_store_on_the_next_day() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let history = world.history(|settings| clock.set(settings)).await;
    let (now, users) = (clock.now_ms(), 30);
    assert_eq!(fold(&history).await, FoldSummary::default());
    for number in 0..users {
        let owner = user(&format!("u{number}"));
        record(
            &history,
            &owner,
            &[(number, now - 9), (1_000 + number, now - 8)],
        )
        .await;
    }
    assert_eq!(
        fold(&history).await,
        FoldSummary::default(),
        "the day is not over"
    );
    clock.pass(DAY_MS);
    let folded = fold(&history).await;
    assert_eq!(
        folded,
        FoldSummary {
            lists: users,
            failures: 0
        }
    );
    assert_eq!(
        cold(&history, &user("u7")).await,
        [(1_007, now - 8), (7, now - 9)]
    );
    let before = lists_of(&history, users).await;
    // A second fold finds nothing to do.
    assert_eq!(fold(&history).await, FoldSummary::default());
    lose(&world).await;
    assert_eq!(lists_of(&history, users).await, before);
    assert!(before.iter().all(|list| list.len() == 2));
}

#[tokio::test]
async fn repeated_fold_is_idempotent_and_merges_by_latest_time() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let history = world.history(|settings| clock.set(settings)).await;
    let (now, alice) = (clock.now_ms(), user("alice"));
    record(&history, &alice, &[(1, now - 9), (2, now - 8)]).await;
    history.fold_owner(&alice).await.unwrap();
    let version = history.cold().read(&alice).await.unwrap().version;
    history.fold_owner(&alice).await.unwrap();
    assert_eq!(history.cold().read(&alice).await.unwrap().version, version);
    // Redis has lost them and has other views; the older view of 2 is a late delivery.
    lose(&world).await;
    record(&history, &alice, &[(2, now - 20), (3, now - 3)]).await;
    history.fold_owner(&alice).await.unwrap();
    assert_eq!(
        cold(&history, &alice).await,
        [(3, now - 3), (2, now - 8), (1, now - 9)]
    );
    assert_eq!(
        list(&history, &alice).await,
        [(3, now - 3), (2, now - 8), (1, now - 9)]
    );
}

#[tokio::test]
async fn two_origins_fold_concurrently() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let first = world.history(|settings| clock.set(settings)).await;
    let second = world.history(|settings| clock.set(settings)).await;
    let (now, users) = (clock.now_ms(), 40);
    for number in 0..users {
        record(
            &first,
            &user(&format!("u{number}")),
            &[(number, now - 9), (77, now - number)],
        )
        .await;
    }
    fold(&first).await;
    let before = lists_of(&first, users).await;
    clock.pass(DAY_MS);
    let (one, other) = tokio::join!(fold(&first), fold(&second));
    assert_eq!(one.failures + other.failures, 0);
    // The other origin does the part that the first one left unfinished.
    fold(&second).await;
    lose(&world).await;
    assert_eq!(lists_of(&second, users).await, before);
    // Two origins fold the same owner at once: one writes, the other reads again.
    let alice = user("u1");
    record(&first, &alice, &[(5, now - 2)]).await;
    let both = tokio::join!(first.fold_owner(&alice), second.fold_owner(&alice));
    both.0.unwrap();
    both.1.unwrap();
    assert_eq!(cold(&first, &alice).await, list(&first, &alice).await);
}

#[tokio::test]
async fn fold_part_belongs_to_one_origin_until_its_lease_ends() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let history = world.history(|settings| clock.set(settings)).await;
    let store = history.store();
    let now = clock.now_ms();
    store.folds().note_days(now).await.unwrap();
    store.folds().note_days(now).await.unwrap();
    let today = now / DAY_MS;
    let open = store.folds().open_parts(today, "a", now).await.unwrap();
    // Includes yesterday: midnight may have passed just before the first start.
    assert_eq!(open.len(), 32);
    let mut part = open[0];
    assert!(
        store
            .folds()
            .take_part(part, "a", now, now + 100)
            .await
            .unwrap()
    );
    assert!(
        !store
            .folds()
            .take_part(part, "b", now + 99, now + 200)
            .await
            .unwrap()
    );
    assert!(
        store
            .folds()
            .take_part(part, "b", now + 100, now + 200)
            .await
            .unwrap()
    );
    part.next_slot += 1;
    assert!(
        !store
            .folds()
            .advance_part(part, "a", now + 300)
            .await
            .unwrap()
    );
    assert!(
        store
            .folds()
            .advance_part(part, "b", now + 300)
            .await
            .unwrap()
    );
    assert_eq!(
        store
            .folds()
            .open_parts(today, "c", now)
            .await
            .unwrap()
            .len(),
        31
    );
    part.next_slot = part.end();
    assert!(
        store
            .folds()
            .advance_part(part, "b", now + 300)
            .await
            .unwrap()
    );
    assert!(
        !store
            .folds()
            .take_part(part, "b", now + 999, now + 1_000)
            .await
            .unwrap()
    );
    assert_eq!(
        store.folds().oldest_open_day(today).await.unwrap(),
        Some(today - 1)
    );
}

#[tokio::test]
async fn missed_days_are_folded_and_the_lag_is_reported() {
    let clock = Clock::at_noon();
    let world = World::with_history(|settings| clock.set(settings)).await;
    let history = world.origin.history().unwrap().clone();
    let (now, alice) = (clock.now_ms(), user("alice"));
    fold(&history).await;
    record(&history, &alice, &[(1, now - 9)]).await;
    let lag = async || {
        let metrics = world.origin.metrics().text();
        let line = metrics
            .lines()
            .find(|line| line.starts_with("weir_origin_history_fold_lag_seconds "));
        line.unwrap().rsplit(' ').next().unwrap().to_owned()
    };
    assert_eq!(lag().await, "0");
    clock.pass(3 * DAY_MS);
    // An origin that stops immediately folds nothing, and still reports the lag.
    let stopped = CancellationToken::new();
    stopped.cancel();
    history.fold(&stopped).await.unwrap();
    assert_eq!(lag().await, "259200", "three days");
    assert_eq!(fold(&history).await.lists, 1);
    assert_eq!(lag().await, "0");
    assert_eq!(cold(&history, &alice).await, [(1, now - 9)]);
}

#[tokio::test]
async fn expired_views_are_removed_from_the_cold_store() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let history = world.history(|settings| clock.set(settings)).await;
    let (now, alice, bob) = (clock.now_ms(), user("alice"), user("bob"));
    record(&history, &alice, &[(1, now - 10)]).await;
    record(&history, &bob, &[(1, now - 10), (2, now)]).await;
    history.fold_owner(&alice).await.unwrap();
    history.fold_owner(&bob).await.unwrap();
    clock.pass(COLD_MS - 5);
    lose(&world).await;
    assert_eq!(list(&history, &bob).await, [(2, now)]);
    assert_eq!(history.forget_old().await.unwrap(), 1);
    assert_eq!(cold(&history, &alice).await, []);
    history.fold_owner(&bob).await.unwrap();
    assert_eq!(cold(&history, &bob).await, [(2, now)]);
}

#[tokio::test]
async fn list_with_free_room_is_refilled_from_the_cold_store() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let few = |settings: &mut Settings| {
        clock.set(settings);
        settings.bounds.views_max = 3;
    };
    let history = world.history(few).await;
    let (now, alice) = (clock.now_ms(), user("alice"));
    record(
        &history,
        &alice,
        &[(1, now - 9), (2, now - 8), (3, now - 7)],
    )
    .await;
    history.fold_owner(&alice).await.unwrap();
    // They displace 1 and 2 from Redis.
    record(&history, &alice, &[(4, now - 6), (5, now - 5)]).await;
    assert_eq!(
        list(&history, &alice).await,
        [(5, now - 5), (4, now - 6), (3, now - 7)]
    );
    history.delete(&alice, &[Sku::from(5)]).await.unwrap();
    assert_eq!(
        list(&history, &alice).await,
        [(4, now - 6), (3, now - 7), (2, now - 8)]
    );
}

#[tokio::test]
async fn unreadable_cold_value_is_kept_and_reported() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let history = world.history(|settings| clock.set(settings)).await;
    let (now, alice) = (clock.now_ms(), user("alice"));
    fold(&history).await;
    record(&history, &alice, &[(1, now - 9)]).await;
    history.fold_owner(&alice).await.unwrap();
    // The format of a later version of Weir.
    let update = "UPDATE history_cold SET value = ?";
    world.sql().await.execute_bytes(update, b"\x09later").await;
    clock.pass(DAY_MS);
    assert_eq!(
        fold(&history).await,
        FoldSummary {
            lists: 0,
            failures: 1
        }
    );
    lose(&world).await;
    let views = history.views(&alice).await.unwrap();
    assert_eq!((views.views.len(), views.is_complete), (0, false));
    let value: (Vec<u8>,) = world.row("SELECT value FROM history_cold").await;
    assert_eq!(value.0, b"\x09later");
}

/// Redis loses all data; the views in the log are recorded again.
#[tokio::test]
async fn cold_store_and_log_restore_the_same_lists_after_flushall() {
    let dir = tempfile::tempdir().unwrap();
    let server = own_redis(&dir).await;
    let clock = Clock::at_noon();
    let world = World::on(&server.url()).await;
    let history = world.history(|settings| clock.set(settings)).await;
    let (day, users) = (clock.now_ms(), 20);
    fold(&history).await;
    let views = |number: u64, from: u64, at: u64| -> Vec<(u64, u64)> {
        (0..150)
            .map(|n| (number * 1_000 + from + n, at - n * 60_000))
            .collect()
    };
    for number in 0..users {
        record(
            &history,
            &user(&format!("u{number}")),
            &views(number, 0, day),
        )
        .await;
    }
    clock.pass(DAY_MS);
    fold(&history).await;
    let today = clock.now_ms();
    for number in 0..users {
        let owner = user(&format!("u{number}"));
        record(&history, &owner, &views(number, 100, today)).await;
        history
            .delete(&owner, &[Sku::from(number * 1_000 + 240)])
            .await
            .unwrap();
    }
    history.clear(&user("u3")).await.unwrap();
    let before = lists_of(&history, users).await;
    let mut connection = server.connection().await.unwrap();
    let _: () = cmd("FLUSHALL").query_async(&mut connection).await.unwrap();
    // The log has the views of today, and some of yesterday.
    for number in 0..users {
        let owner = user(&format!("u{number}"));
        record(&history, &owner, &views(number, 100, today)).await;
        record(&history, &owner, &views(number, 0, day)[..40]).await;
    }
    assert_eq!(lists_of(&history, users).await, before);
    assert_eq!(before[0].len(), VIEWS_MAX);
    assert_eq!(before[3].len(), 0);
}

/// The origin warns if Redis does not use the packed encoding; this test checks the setting that it reads.
#[tokio::test]
async fn history_jobs_run_and_stop() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let history = world.history(|settings| clock.set(settings)).await;
    let (now, alice) = (clock.now_ms(), user("alice"));
    fold(&history).await;
    record(&history, &alice, &[(1, now - 9), (2, now - 8)]).await;
    list(&history, &alice).await;
    history
        .store()
        .removed()
        .delete(&alice, &[super::viewed(1, now)])
        .await
        .unwrap();
    clock.pass(DAY_MS);
    let stop = CancellationToken::new();
    let jobs = history.spawn(&stop);
    let is_done = async || {
        let redis = Redis::new(&world.redis_url, &world.prefix).unwrap();
        redis.ping().await.unwrap();
        let cold = cold(&history, &alice).await;
        cold == [(2, now - 8)] && list(&history, &alice).await == [(2, now - 8)]
    };
    while !is_done().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.cancel();
    for job in jobs {
        job.await.unwrap();
    }
}
