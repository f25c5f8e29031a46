//! Cold lists of browse history are rebuilt from the archive if no other store has them.

use std::process::Command;

use serde_json::{Value, json};
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use weir_origin::clock::now_ms;
use weir_stack::http::Method;

use super::support::{World, until};

const DAY_MS: u64 = 86_400_000;

async fn skus(world: &World, whose: &str) -> Vec<String> {
    let path = format!("/history?{whose}&limit=200");
    let list = world.admin(Method::GET, &path, &Value::Null).await;
    assert_eq!(list["complete"], true, "{list}");
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| item["sku"].as_str().unwrap().to_owned())
        .collect()
}

/// Deletes all lists from Redis and the cold store.
async fn lose_lists(world: &World) {
    let mut redis = world.redis.connection().await.unwrap();
    let _: () = redis::cmd("FLUSHALL")
        .query_async(&mut redis)
        .await
        .unwrap();
    let database = world.dir.path().join("weir.db");
    let options = SqliteConnectOptions::new().filename(database);
    let mut sql = options.connect().await.unwrap();
    for statement in ["DELETE FROM history_cold", "DELETE FROM history_begins"] {
        sqlx::query(statement).execute(&mut sql).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cold_lists_are_rebuilt_from_the_archive_without_deletions() {
    let folder = |dir: &std::path::Path| dir.join("archive").display().to_string();
    let mut world = World::with_flags(&folder, &[], &["--history"]).await;
    let now_ms = now_ms();
    let view = |n: u64, user: Value, sku: &str, at_ms: u64| {
        let mut event = json!({"id": format!("e{n}"), "type": "view", "at_ms": at_ms, "attributes": {"sku": sku}});
        event
            .as_object_mut()
            .unwrap()
            .extend(user.as_object().unwrap().clone());
        event
    };
    let alice = json!({"customer": "alice"});
    world
        .push(json!([
            view(1, alice.clone(), "1", now_ms - DAY_MS),
            view(2, alice.clone(), "2", now_ms - 3_000),
            view(3, alice.clone(), "3", now_ms - 2_000),
            view(4, alice.clone(), "2", now_ms - 1_000),
            view(5, json!({"visitor": "v1"}), "4", now_ms - 1_000),
            view(6, json!({"customer": "carol"}), "5", now_ms - 1_000),
            {"id": "e7", "type": "cart", "customer": "alice", "attributes": {"sku": "9"}},
            {"id": "e8", "type": "view", "customer": "alice"},
        ]))
        .await;
    world.until_archived().await;
    until("views are noted", async || {
        skus(&world, "user=alice").await == ["2", "3", "1"]
    })
    .await;
    let bearer = format!("Bearer {}", super::support::TOKEN);
    for path in ["/history/3?user=alice", "/history?user=carol"] {
        let url = format!("{}{path}", world.origin.admin_url());
        let headers = [("authorization", bearer.as_str())];
        let deleted = weir_stack::http::send(Method::DELETE, &url, &headers, "").await;
        assert_eq!(deleted.unwrap().status, 204);
    }
    world.origin.process().kill();
    lose_lists(&world).await;
    // The log no longer has the events, either.
    std::fs::remove_dir_all(world.dir.path().join("events")).unwrap();
    let rebuild = || {
        let mut command = Command::new(weir_stack::origin::ensure_built().unwrap());
        let database = world.dir.path().join("weir.db");
        command
            .arg("--database-url")
            .arg(format!("sqlite://{}", database.display()))
            .args(["--redis-url", &world.redis.url(), "--history"])
            .arg("--events-archive")
            .arg(world.dir.path().join("archive"))
            .args(["rebuild-history", "--days", "2"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    // The rebuild is idempotent.
    for _ in 0..2 {
        assert_eq!(rebuild(), "6 views of 2 days written to the cold store\n");
    }
    world.origin.start_again().await.unwrap();
    assert_eq!(skus(&world, "user=alice").await, ["2", "1"]);
    assert_eq!(skus(&world, "visitor=v1").await, ["4"]);
    assert_eq!(skus(&world, "user=carol").await, [""; 0]);
}
