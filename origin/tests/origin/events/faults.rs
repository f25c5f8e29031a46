//! Failures: SQL outages, a full log, and consumers that never acknowledge.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::groups::with_noting;
use super::*;

async fn post(world: &World, path: &str, body: &Value) -> Value {
    let answer = world.admin("POST", path, body).await;
    assert!(answer.status.is_success(), "{answer:?}");
    answer.body
}

/// The log does not need SQL: events accepted meanwhile are stored after the outage.
#[tokio::test]
async fn events_are_accepted_during_sql_outage() {
    let world = world(|_| {}).await;
    send(&world, &server(), &json!(view("before", "alice"))).await;
    until_stored(&world, "alice", 1).await;
    let mut lock = world.sql().await;
    if crate::support::backing() == crate::support::Backing::SqliteAndSingle {
        lock.execute("BEGIN IMMEDIATE", &[]).await;
    } else {
        lock.execute("START TRANSACTION", &[]).await;
        lock.execute("SELECT * FROM event_positions FOR UPDATE", &[])
            .await;
    }
    for n in 0..20 {
        let answer = send(&world, &server(), &json!(view(&format!("e{n}"), "alice"))).await;
        assert_eq!(verdicts(&answer), ["accepted"]);
    }
    let refused = send(&world, &server(), &json!({"type": "none"})).await;
    assert_eq!(verdicts(&refused), ["unknown_type"]);
    until("the group says that it cannot go on", async || {
        group(&world, "store").await["state"] == "outage"
    })
    .await;
    assert_eq!(stored(&world, "alice").await, ["before"]);
    lock.unlock().await;
    until_stored(&world, "alice", 21).await;
    until_dead(&world, "reason=unknown_type", 1).await;
    assert_eq!(stored(&world, "alice").await.len(), 21);
}

/// A group that never acknowledges fills the log. Then events are refused and none is lost, until an operator acts.
#[tokio::test]
async fn silent_consumer_fills_the_log_and_nothing_is_lost() {
    let (world, timing) = with_noting(|settings| {
        settings.limits.waiting_len_max = 200_000;
        settings.limits.file_len = 20_000;
        settings.retention = weir_log::Retention::NONE;
    })
    .await;
    timing.hang(true);
    let mut used = 0;
    let refused = loop {
        let mut event = view(&format!("e{used}"), &format!("c{used}"));
        event["attributes"]["text"] = "x".repeat(5_000).into();
        let answer = send(&world, &server(), &event).await;
        if answer.status != 202 {
            break answer;
        }
        used += 1;
        assert!(used < 1_000, "the log has no end");
    };
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (503, "events_full")
    );
    assert_eq!(refused.headers["retry-after"], "5");
    assert_eq!(world.origin.events().unwrap().state(), "full");
    until_caught_up(&world, "store").await;
    for n in 0..used {
        assert_eq!(stored(&world, &format!("c{n}")).await.len(), 1);
    }
    until("it is an outage", async || {
        group(&world, "noting").await["state"] == "outage"
    })
    .await;
    assert!(
        group(&world, "noting").await["error"]
            .as_str()
            .unwrap()
            .contains("did not finish within")
    );

    post(&world, "/groups/noting/seek", &json!({"to": "end"})).await;
    until("there is room", async || {
        send(&world, &server(), &json!(view("after", "bob")))
            .await
            .status
            == 202
    })
    .await;
    assert_eq!(world.origin.events().unwrap().state(), "ok");
    timing.hang(false);
    until("the group goes on", async || timing.of("bob") == ["after"]).await;
}

/// Old records that all groups handled are deleted; unhandled ones stay.
#[tokio::test]
async fn log_keeps_events_that_a_group_has_not_handled() {
    let (world, timing) = with_noting(|settings| {
        settings.limits.file_len = 2_000;
        settings.retention = weir_log::Retention::NONE;
    })
    .await;
    post(&world, "/groups/noting/pause", &Value::Null).await;
    until("paused", async || {
        group(&world, "noting").await["state"] == "paused"
    })
    .await;
    for n in 0..100 {
        send(&world, &server(), &json!(view(&format!("e{n}"), "alice"))).await;
    }
    until_stored(&world, "alice", 100).await;
    let log = world.origin.events().unwrap().log().clone();
    let files = || {
        std::fs::read_dir(world.dir.path().join("events"))
            .unwrap()
            .count()
    };
    let before = files();
    log.retain(u64::MAX).unwrap();
    assert_eq!(files(), before);
    post(&world, "/groups/noting/resume", &Value::Null).await;
    until("handled", async || timing.of("alice").len() == 100).await;
    until_caught_up(&world, "noting").await;
    log.retain(u64::MAX).unwrap();
    assert!(files() < before, "{} {before}", files());
}

#[tokio::test]
async fn expired_events_and_dead_letters_are_deleted() {
    let clock = Arc::new(AtomicU64::new(now_ms()));
    let read = clock.clone();
    let world = world(|settings| {
        settings.dead_letters_kept_ms = 3_600_000;
        settings.clock = Arc::new(move || read.load(Ordering::Relaxed));
    })
    .await;
    put_type(&world, "short", &json!({"retention": "1h"})).await;
    let mut short = view("short", "alice");
    short["type"] = "short".into();
    send(
        &world,
        &server(),
        &json!([view("long", "alice"), short, {"type": "none"}]),
    )
    .await;
    until_stored(&world, "alice", 2).await;
    until_dead(&world, "", 1).await;
    let store = world.origin.events().unwrap().store();
    let later = now_ms() + 3_600_001;
    assert_eq!(store.clean_events(later, 100).await.unwrap(), 1);
    assert_eq!(store.clean_events(later, 100).await.unwrap(), 0);
    assert_eq!(
        store
            .letters()
            .clean_dead_letters(later - 3_600_000)
            .await
            .unwrap(),
        1
    );
    assert_eq!(stored(&world, "alice").await, ["long"]);
}

#[tokio::test]
async fn second_origin_on_one_log_directory_is_refused() {
    let world = world(|_| {}).await;
    let other = World::on("redis://127.0.0.1:1").await;
    let settings = Settings::new(world.dir.path().join("events"));
    let refused = other
        .origin
        .with_events(settings)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("is in use by another process"),
        "{refused}"
    );
}
