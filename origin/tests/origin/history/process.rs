//! A Redis that lost all or recent views is detected automatically, and deleted views stay deleted.

use serde_json::{Value, json};
use weir_stack::http::Method;
use weir_stack::origin::Origin;
use weir_stack::redis::{RedisOptions, RedisServer};
use weir_stack::report::SilentReporter;
use weir_stack::{ports, tools};

use crate::events_process::{admin, options_of, register, start_with, until};

/// An origin with history, and a Redis that restarts with its last saved snapshot.
struct Shop {
    redis: RedisServer,
    origin: Origin,
    sent: u64,
    _dir: tempfile::TempDir,
}

impl Shop {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tool = tools::Redis::find_or_get(&mut SilentReporter).unwrap();
        let log = dir.path().join("redis.log");
        let options = RedisOptions {
            durable: false,
            ..RedisOptions::durable(ports::free().unwrap(), dir.path(), &log)
        };
        let redis = RedisServer::start_with(&tool, &options).await.unwrap();
        let mut options = options_of(dir.path(), redis.url());
        options.flags.push("--history".to_owned());
        let origin = start_with(options, dir.path()).await;
        register(&origin).await;
        Self {
            redis,
            origin,
            sent: 0,
            _dir: dir,
        }
    }

    async fn view(&mut self, sku: u64) {
        self.sent += 1;
        let id = format!("e{}", self.sent);
        let event =
            json!({"id": id, "type": "view", "customer": "alice", "attributes": {"sku": sku}});
        let answer = admin(&self.origin, Method::POST, "/events", &event).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
    }

    async fn delete(&self, sku: u64) {
        let path = format!("/history/{sku}?user=alice");
        let answer = admin(&self.origin, Method::DELETE, &path, &Value::Null).await;
        assert_eq!(answer.status, 204, "{}", answer.text());
    }

    /// The list, if it is available now.
    async fn list(&self) -> Option<Vec<u64>> {
        let path = "/history?user=alice";
        let answer = admin(&self.origin, Method::GET, path, &Value::Null).await;
        if answer.status != 200 {
            return None;
        }
        let body = answer.json().unwrap();
        let items = body["items"].as_array().unwrap().iter();
        Some(
            items
                .map(|item| item["sku"].as_str().unwrap().parse().unwrap())
                .collect(),
        )
    }

    /// Waits for this list. Products in `never` must not be shown meanwhile.
    async fn until_list(&self, expected: &[u64], never: &[u64]) {
        until(&format!("{expected:?}"), async || {
            let list = self.list().await;
            let displayed = list.iter().flatten().find(|sku| never.contains(sku));
            assert_eq!(displayed, None, "it came back");
            list.is_some_and(|list| list == expected)
        })
        .await;
    }

    async fn command(&self, command: &redis::Cmd) {
        let mut connection = self.redis.connection().await.unwrap();
        let _: redis::Value = command.query_async(&mut connection).await.unwrap();
    }

    async fn losses(&self) -> u64 {
        let metrics = admin(&self.origin, Method::GET, "/metrics", &Value::Null)
            .await
            .text();
        let name = "weir_origin_event_group_losses_total{group=\"history\"} ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(0, |number| number.parse().unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn flushed_redis_recovers_its_lists_without_deleted_entries() {
    let mut shop = Shop::new().await;
    for sku in [1, 2, 3] {
        shop.view(sku).await;
    }
    shop.until_list(&[3, 2, 1], &[]).await;
    shop.delete(2).await;
    let before = shop.losses().await;
    shop.command(&redis::cmd("FLUSHALL")).await;
    // The loss is detected without new events.
    shop.until_list(&[3, 1], &[2]).await;
    assert_eq!(shop.losses().await, before + 1);
    // The loss is also detected while events arrive.
    shop.delete(3).await;
    shop.command(&redis::cmd("FLUSHALL")).await;
    shop.view(4).await;
    shop.until_list(&[4, 1], &[2, 3]).await;
    assert_eq!(shop.losses().await, before + 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_restored_from_an_old_snapshot_catches_up() {
    let mut shop = Shop::new().await;
    for sku in [1, 2, 3] {
        shop.view(sku).await;
    }
    shop.until_list(&[3, 2, 1], &[]).await;
    shop.command(&redis::cmd("SAVE")).await;
    shop.delete(1).await;
    shop.view(4).await;
    shop.until_list(&[4, 3, 2], &[1]).await;
    let before = shop.losses().await;
    shop.redis.kill();
    shop.redis.start_again().await.unwrap();
    shop.until_list(&[4, 3, 2], &[1]).await;
    until("it is counted", async || shop.losses().await == before + 1).await;

    // Only a deletion is lost, no view. The deleted product is never shown, not even by the first read.
    shop.command(&redis::cmd("SAVE")).await;
    shop.delete(2).await;
    shop.until_list(&[4, 3], &[1, 2]).await;
    shop.redis.kill();
    shop.redis.start_again().await.unwrap();
    shop.until_list(&[4, 3], &[1, 2]).await;
    assert_eq!(shop.losses().await, before + 1);
    // A seek by an operator does not count as a loss.
    for to in ["start", "end"] {
        let path = "/groups/history/seek";
        let query = admin(&shop.origin, Method::POST, path, &json!({ "to": to })).await;
        assert_eq!(query.status, 200, "{}", query.text());
    }
    shop.view(5).await;
    shop.until_list(&[5, 4, 3], &[1, 2]).await;
    assert_eq!(shop.losses().await, before + 1);
}
