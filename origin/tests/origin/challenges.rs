//! Challenges that a sale requires before it issues an order token.

use serde_json::{Value, json};
use weir_origin::clock::now_ms;

use crate::support::{World, sale_json};

#[tokio::test]
async fn challenge_of_a_sale_is_editable_until_the_sale_starts() {
    let world = World::new().await;
    let mut new = sale_json("s", 4);
    new["starts_at_ms"] = json!(now_ms() + 60_000);
    for (token, challenge) in [
        (false, json!({ "captcha": {} })),
        (true, json!({ "proof_of_work": { "bits": 7 } })),
        (true, json!({ "proof_of_work": { "bits": 27 } })),
    ] {
        new["token"] = json!(token);
        new["challenge"] = challenge;
        let refused = world.admin("POST", "/sales", &new).await;
        assert_eq!(refused.code(), "invalid_sale", "{refused:?}");
        assert_eq!(refused.body["errors"][0]["pointer"], "/challenge");
    }
    for unreadable in [
        json!({ "proof_of_work": { "bits": 300 } }),
        json!({ "proof_of_work": {} }),
        json!({ "captcha": { "site_key": "k" } }),
        json!({ "riddle": {} }),
        json!("captcha"),
    ] {
        new["challenge"] = unreadable;
        let refused = world.admin("POST", "/sales", &new).await;
        assert_eq!(refused.code(), "invalid_body", "{refused:?}");
    }
    let work = json!({ "proof_of_work": { "bits": 18 } });
    new["challenge"] = work.clone();
    let response = world.admin("POST", "/sales", &new).await;
    assert_eq!(response.status, 201, "{response:?}");
    assert_eq!(response.body["challenge"], work);
    let wants =
        async || world.admin("GET", "/sales/s", &Value::Null).await.body["challenge"].clone();
    assert_eq!(wants().await, work);
    let patch = async |changes: Value| world.admin("PATCH", "/sales/s", &changes).await;
    // A change of another field keeps it.
    assert_eq!(
        patch(json!({ "title": "Shoes" })).await.body["challenge"],
        work
    );
    let captcha = json!({ "captcha": {} });
    let changed = patch(json!({ "challenge": captcha })).await;
    assert_eq!(changed.body["challenge"], captcha);
    let refused = patch(json!({ "token": false })).await;
    assert_eq!(refused.code(), "invalid_sale", "a challenge needs tokens");
    let answer = patch(json!({ "challenge": null, "token": false })).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.body["challenge"], Value::Null);
    assert_eq!(wants().await, Value::Null);
}
