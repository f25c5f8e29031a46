//! Edits and deletions through the API: visible immediately, stored in a history.

use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use weir_link::redis::keys::LinkKeys;
use weir_origin::clock::now_ms;
use weir_origin::links::model::request::LinkRequest;

use super::api::{DAY_MS, changes, create_link, get, in_redis, name, pttl, world};
use super::id;

#[tokio::test]
async fn edit_reaches_redis_at_once_keeps_clicks_and_has_history() {
    let world = world().await;
    let link = create_link(
        &world,
        json!({"target": "https://example.com/1", "max_clicks": 9}),
    )
    .await;
    let name = name(&link);
    let path = format!("/links/{}", link["code"].as_str().unwrap());
    let clicks = LinkKeys::new(&world.prefix, &id(&name)).clicks();
    world.redis(redis::cmd("SET").arg(&clicks).arg(4)).await;

    let edit = json!({"target": "https://example.com/2", "life_days": 1, "tags": ["x"]});
    let answer = world
        .admin_with("PATCH", &path, &edit, &[("if-match", "\"1\"")])
        .await;
    assert_eq!(
        (answer.status.as_u16(), &answer.headers["etag"]),
        (200, &"\"2\"".parse().unwrap())
    );
    assert_eq!(answer.body["target"], "https://example.com/2");
    let stored = in_redis(&world, &name).await.unwrap();
    assert_eq!(
        (stored.target.as_str(), stored.version),
        ("https://example.com/2", 2)
    );
    assert!(pttl(&world, &name).await <= DAY_MS as i64);
    assert_eq!(changes(&world).await, [name.as_str()]);
    let used = world.redis(redis::cmd("GET").arg(&clicks)).await;
    assert_eq!(used, redis::Value::BulkString(b"4".to_vec()));

    let stale = world
        .admin_with("PATCH", &path, &edit, &[("if-match", "\"1\"")])
        .await;
    assert_eq!(
        (stale.status.as_u16(), stale.code()),
        (412, "version_conflict")
    );
    let refused = world
        .admin("PATCH", &path, &json!({"target": "javascript:1"}))
        .await;
    assert_eq!(refused.code(), "target_scheme");
    let off = world
        .admin("PATCH", &path, &json!({"disabled": true}))
        .await;
    assert_eq!(off.body["disabled"], true);
    assert!(in_redis(&world, &name).await.unwrap().is_disabled);
    let on = world
        .admin(
            "PATCH",
            &path,
            &json!({"disabled": false, "max_clicks": null}),
        )
        .await;
    assert_eq!(
        (&on.body["disabled"], &on.body["max_clicks"]),
        (&json!(false), &Value::Null)
    );

    let history = world
        .admin("GET", &format!("{path}/history"), &Value::Null)
        .await
        .body;
    let history = history["history"].as_array().unwrap();
    let subject: Vec<_> = history
        .iter()
        .map(|past| past["what"].as_str().unwrap())
        .collect();
    assert_eq!(subject, ["edit", "disable", "edit", "create"]);
    assert_eq!(history[3]["target"], "https://example.com/1");
    let unpublished = world
        .origin
        .links()
        .unwrap()
        .store()
        .edits()
        .unpublished(u64::MAX, 9);
    // Each is written once more, in case Redis loses it.
    assert_eq!(unpublished.await.unwrap().len(), 3);
}

/// Redis acknowledges an edit and restarts without it.
#[tokio::test]
async fn edit_lost_by_redis_is_rewritten() {
    let world = world().await;
    let link = create_link(&world, json!({"target": "https://example.com/1"})).await;
    let name = name(&link);
    let path = format!("/links/{}", link["code"].as_str().unwrap());
    let key = LinkKeys::new(&world.prefix, &id(&name)).record();
    let before = world.redis(redis::cmd("GET").arg(&key)).await;
    let redis::Value::BulkString(before) = before else {
        panic!("{before:?}");
    };
    let edit = json!({"target": "https://example.com/2"});
    world.admin("PATCH", &path, &edit).await;
    world.redis(redis::cmd("SET").arg(&key).arg(before)).await;
    let publisher = world.origin.links().unwrap().publisher();
    let written_again = async {
        while publisher.catch_up().await.unwrap() == 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), written_again)
        .await
        .unwrap();
    let stored = in_redis(&world, &name).await.unwrap();
    assert_eq!(stored.target, "https://example.com/2");
}

/// Redis loses an edit, and the repeated write too, until it stores it.
#[tokio::test]
async fn edit_is_rewritten_after_each_loss_by_redis() {
    let world = world().await;
    let link = create_link(&world, json!({"target": "https://example.com/1"})).await;
    let name = name(&link);
    let path = format!("/links/{}", link["code"].as_str().unwrap());
    let key = LinkKeys::new(&world.prefix, &id(&name)).record();
    let redis::Value::BulkString(before) = world.redis(redis::cmd("GET").arg(&key)).await else {
        panic!("no record");
    };
    let edit = json!({"target": "https://example.com/2"});
    world.admin("PATCH", &path, &edit).await;
    let links = world.origin.links().unwrap();
    let rewind = async || world.redis(redis::cmd("SET").arg(&key).arg(&before)).await;
    let notes = async || {
        links
            .store()
            .edits()
            .unpublished(u64::MAX, 9)
            .await
            .unwrap()
            .len()
    };
    let next_round = async || {
        let publisher = links.publisher();
        let looked = async {
            while publisher.catch_up().await.unwrap() == 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let looked = tokio::time::timeout(Duration::from_secs(60), looked);
        looked.await.expect("the edit is looked after");
    };
    for _ in 0..2 {
        rewind().await;
        next_round().await;
    }
    let stored = in_redis(&world, &name).await.unwrap();
    assert_eq!(stored.target, "https://example.com/2");
    assert_eq!(notes().await, 1, "it was written only just now");
    next_round().await;
    assert_eq!(notes().await, 0, "Redis has kept it");
}

/// Redis restarts from an hour-old snapshot: a link that was disabled since is enabled in it.
#[tokio::test]
async fn redis_restored_from_an_old_snapshot_gets_later_edits() {
    let world = world().await;
    let stop = CancellationToken::new();
    let publisher = world.origin.links().unwrap().publisher();
    let running = tokio::spawn(publisher.clone().run(stop.clone()));
    let link = create_link(&world, json!({"target": "https://example.com/1"})).await;
    let name = name(&link);
    let path = format!("/links/{}", link["code"].as_str().unwrap());
    let published = async || {
        let store = world.origin.links().unwrap().store();
        while !store
            .edits()
            .unpublished(u64::MAX, 9)
            .await
            .unwrap()
            .is_empty()
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    world
        .admin("PATCH", &path, &json!({"target": "https://example.com/2"}))
        .await;
    published().await;
    // The state in the snapshot.
    let key = LinkKeys::new(&world.prefix, &id(&name)).record();
    let record = world.redis(redis::cmd("GET").arg(&key)).await;
    let redis::Value::BulkString(record) = record else {
        panic!("{record:?}");
    };
    let marks: Vec<String> = world.keys("link:mark:*").await;
    assert!(!marks.is_empty());
    let old_ms = world
        .origin
        .links()
        .unwrap()
        .records()
        .mark()
        .await
        .unwrap();
    world
        .admin("PATCH", &path, &json!({"disabled": true}))
        .await;
    published().await;
    let newer = async || {
        let mark = world
            .origin
            .links()
            .unwrap()
            .records()
            .mark()
            .await
            .unwrap();
        mark > old_ms.map(|old| old + 5_000)
    };
    while !newer().await {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(in_redis(&world, &name).await.unwrap().is_disabled);

    world.redis(redis::cmd("SET").arg(&key).arg(record)).await;
    for mark in marks {
        let mut back = redis::cmd("SET");
        world.redis(back.arg(mark).arg(old_ms)).await;
    }
    let back = async {
        while !in_redis(&world, &name).await.unwrap().is_disabled {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), back)
        .await
        .unwrap();
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn concurrent_edits_all_apply_and_redis_has_the_last() {
    let world = world().await;
    let link = create_link(&world, json!({"target": "https://example.com/"})).await;
    let path = format!("/links/{}", link["code"].as_str().unwrap());
    let edit = async |n: u32| {
        let edit = json!({"target": format!("https://example.com/{n}")});
        world.admin("PATCH", &path, &edit).await.status
    };
    let done = tokio::join!(edit(1), edit(2), edit(3), edit(4));
    assert_eq!(
        done,
        (
            StatusCode::OK,
            StatusCode::OK,
            StatusCode::OK,
            StatusCode::OK
        )
    );
    let stored = get(&world, &name(&link)).await.body;
    assert_eq!(stored["version"], 5);
    let in_redis = in_redis(&world, &name(&link)).await.unwrap();
    assert_eq!(
        (in_redis.version, &json!(in_redis.target)),
        (5, &stored["target"])
    );
}

#[tokio::test]
async fn deleted_link_is_gone_everywhere_and_its_code_stays_reserved() {
    let world = world().await;
    create_link(
        &world,
        json!({"target": "https://example.com/", "code": "gone-soon"}),
    )
    .await;
    let path = "/links/gone-soon";
    let deleted = world.admin("DELETE", path, &Value::Null).await;
    assert_eq!(deleted.status, 204);
    assert_eq!(in_redis(&world, "s/gone-soon").await, None);
    assert_eq!(changes(&world).await.len(), 2);
    for (method, path) in [("GET", path), ("DELETE", path), ("PATCH", path)] {
        let answer = world.admin(method, path, &json!({})).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (404, "unknown_link"),
            "{method}"
        );
    }
    let again = json!({"target": "https://example.com/", "code": "gone-soon"});
    assert_eq!(
        world.admin("POST", "/links", &again).await.code(),
        "code_taken"
    );
    let history = world
        .admin("GET", &format!("{path}/history"), &Value::Null)
        .await;
    assert_eq!(history.body["history"][0]["what"], "delete");
}

#[tokio::test]
async fn patch_of_one_field_of_a_link_changes_no_other() {
    let world = world().await;
    let later_ms = now_ms() + DAY_MS;
    // Every field has a value other than its default.
    let fields = json!({
        "target": "https://example.com/1", "language": "zh-TW", "status": 308, "pass_query": true,
        "life_ms": 5 * DAY_MS, "max_clicks": 9, "expires_at_ms": later_ms,
        "apps": [{ "platform": "ios", "url": "weixin://a", "fallback": "https://example.com/app" }],
        "rules": [{ "platforms": ["android"], "target": "https://example.com/2" }],
        "ended_target": "https://example.com/3", "preview": { "title": "T", "text": "t" },
        "conversion": true, "tags": ["x", "y"],
        "title": "A", "note": "b", "folder": "c", "external_id": "d",
    });
    let others = json!({
        "target": "https://example.com/9", "language": null, "status": 307, "pass_query": false,
        "life_ms": 0, "max_clicks": null, "expires_at_ms": later_ms + 1, "apps": [], "rules": [],
        "ended_target": null, "preview": null, "conversion": false, "tags": ["z"],
        "title": null, "note": "e", "folder": null, "external_id": "f",
    });
    let request: LinkRequest = serde_json::from_value(fields.clone()).unwrap();
    // Only requests call the end `expires_at_ms`.
    let in_answers = |name: &str| name.replace("expires_at_ms", "ends_at_ms");
    let mut existing = fields.as_object().unwrap().clone();
    let end = existing.remove("expires_at_ms").unwrap();
    existing.insert("ends_at_ms".to_owned(), end);
    assert_eq!(json!(request.fields), json!(existing), "a field is missing");

    for (name, other) in others.as_object().unwrap() {
        let creator = world.origin.links().unwrap().creator();
        let link = json!(creator.create(request.clone()).await.unwrap());
        let path = format!("/links/{}", link["code"].as_str().unwrap());
        // A new link may not be in the cold store yet; an edit still finds it.
        let edit = json!({ name: other });
        let answer = world.admin("PATCH", &path, &edit).await;
        assert_eq!(answer.status, 200, "{name}: {answer:?}");
        let mut expected = existing.clone();
        expected.insert(in_answers(name), other.clone());
        let mut found = world.admin("GET", &path, &Value::Null).await.body;
        for untouched in [
            "domain",
            "code",
            "url",
            "disabled",
            "protected",
            "created_at_ms",
        ] {
            assert_eq!(found[untouched], link[untouched], "{name}: {untouched}");
        }
        let found = found.as_object_mut().unwrap();
        found.retain(|name, _| existing.contains_key(name));
        assert_eq!(json!(found), json!(expected), "{name}");
    }
}

#[tokio::test]
async fn null_leaves_a_required_field_unchanged() {
    let world = world().await;
    let link = create_link(
        &world,
        json!({"target": "https://example.com/1", "tags": ["x"]}),
    )
    .await;
    let path = format!("/links/{}", link["code"].as_str().unwrap());
    let edit = json!({"target": null, "status": null, "tags": null, "language": null});
    let answer = world.admin("PATCH", &path, &edit).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    for name in ["target", "status", "tags", "language"] {
        assert_eq!(answer.body[name], link[name], "{name}");
    }
    for (edit, word) in [
        (json!({"life_ms": "long"}), "life_ms"),
        (json!({"ends_at_ms": 1}), "ends_at_ms"),
        (
            json!({"apps": [{"platform": "toaster", "url": "x"}]}),
            "apps[0].platform",
        ),
    ] {
        let refused = world.admin("PATCH", &path, &edit).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (400, "invalid_body")
        );
        let detail = refused.body["detail"].as_str().unwrap();
        assert!(detail.contains(word), "{detail}");
    }
}
