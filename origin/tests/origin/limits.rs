//! Refusal counts that gateways publish, as operators read them.

use serde_json::{Value, json};
use weir_origin::clock::now_ms;
use weir_scripts::keys;
use weir_scripts::tally::{self, Subject, name};

use crate::support::World;

/// A gateway publishes these counts, this many minutes ago.
async fn tell(world: &World, subject: Subject, ago: u64, counts: &[(&[&str], u64)]) {
    let at_ms = now_ms() - ago * 60_000;
    let key = keys::tally(&world.prefix, subject, at_ms);
    let counts = counts.iter().map(|(words, count)| (name(words), *count));
    world.script(&tally::call(&key, counts)).await;
}

#[tokio::test]
async fn recent_refusals_are_listed_by_rule_and_key() {
    let world = World::new().await;
    let of = async |query: &str| {
        world
            .admin("GET", &format!("/limits/refusals{query}"), &Value::Null)
            .await
    };
    let nothing = of("").await.body;
    let seen = (&nothing["minutes"], &nothing["rules"], &nothing["keys"]);
    assert_eq!(seen, (&json!(5), &json!([]), &json!([])));
    let some: [(&[&str], u64); 2] = [(&["limited", "r"], 3), (&["limited", "r", "alice"], 3)];
    for ago in [0, 2, 30] {
        tell(&world, Subject::Limits, ago, &some).await;
    }
    for (query, limited) in [("?minutes=1", 3), ("?minutes=4", 6), ("?minutes=60", 9)] {
        let body = of(query).await.body;
        assert_eq!(body["rules"][0]["limited"], limited, "{query}: {body}");
        assert_eq!(body["keys"][0]["limited"], limited, "{query}: {body}");
    }
    // Minute by minute, oldest first: the counts are in three of them.
    let hour = of("?minutes=60").await.body;
    let minutes = hour["by_minute"].as_array().unwrap();
    let counts = minutes
        .iter()
        .filter_map(|minute| minute["rules"][0]["limited"].as_u64());
    assert_eq!((minutes.len(), counts.collect()), (60, vec![3, 3, 3]));
    let (first, last) = (&minutes[0]["at_ms"], &minutes[59]["at_ms"]);
    let span_ms = last.as_u64().unwrap() - first.as_u64().unwrap();
    assert_eq!(span_ms, 59 * 60_000);
    for query in ["?minutes=0", "?minutes=61", "?minutes=x"] {
        let refused = of(query).await;
        assert_eq!(refused.status, 400, "{query}");
        assert_eq!(refused.body["error"], "invalid_query");
    }
}
