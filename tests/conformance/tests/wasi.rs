//! `edge/wasi` in its runtime: forbidden actions, and behaviour during failures of origin and gateway. Needs the
//! feature `wasi`.
#![cfg(feature = "wasi")]

use std::path::Path;

use serde_json::{Value, json};
use weir_base::headers::{CLAIM, CLAIM_SIGNATURE, EDGE, EDGE_SIGNATURE, USER};
use weir_base::stamp::Stamp;
use weir_conformance::hosts::wasi::Wasi;
use weir_conformance::hosts::wasi::feeds::keys;
use weir_conformance::shop;

const NOW_MS: u64 = 1_700_000_000_000;

fn start(edge: &mut Wasi, folder: Option<&Path>) {
    let env = shop::variables(&shop::config(), "http://origin.test", "http://gateway.test");
    edge.order(&json!({ "start": { "env": env, "folder": folder } }))
        .unwrap();
}

/// All feeds: a sale with this band, a link, and one with a click limit.
fn feeds(band: &str) -> Value {
    let feeds = shop::feeds(1, band, "https://target.example/", NOW_MS).unwrap();
    let feeds = feeds
        .into_iter()
        .map(|(path, text)| (path, json!([200, text])));
    Value::Object(feeds.collect())
}

fn ask(
    edge: &mut Wasi,
    method: &str,
    path: &str,
    headers: Value,
    feeds: &Value,
    gateway: Value,
) -> Value {
    let order = json!({ "ask": {
        "now_ms": NOW_MS, "method": method, "path": path, "host": shop::HOST, "headers": headers, "body": "",
        "feeds": feeds, "gateway": gateway,
    } });
    edge.order(&order).unwrap()
}

fn created() -> Value {
    json!({ "status": 201, "headers": [["x-weir-verdict", "granted"]], "body": "{}" })
}

fn header<'a>(message: &'a Value, name: &str) -> Vec<&'a str> {
    let headers = message["headers"].as_array().unwrap().iter();
    let named = headers.filter(|header| header[0] == name);
    named.map(|header| header[1].as_str().unwrap()).collect()
}

#[test]
fn edge_claims_nothing_counts_no_clicks_and_trusts_no_client() {
    let mut edge = Wasi::start().unwrap();
    start(&mut edge, None);
    let forged = json!([
        ["x-user-id", "mallory"],
        [CLAIM, "v1;s;0;1;1;1;mallory"],
        [CLAIM_SIGNATURE, "k1;00"],
        [USER, "v1;1;mallory"],
        [EDGE, "v1;0;test-1;;POST;/"],
        [EDGE_SIGNATURE, "e1;00"],
    ]);
    let feeds = feeds("high");
    // Each order request and each click on a link with a click limit goes to the gateway.
    for (method, path) in [("POST", "/sales/s/orders"), ("GET", "/max")].repeat(20) {
        let done = ask(&mut edge, method, path, forged.clone(), &feeds, created());
        assert_eq!(done["got"]["status"], 201, "{done}");
        let observed = &done["seen"];
        for name in [CLAIM, CLAIM_SIGNATURE, USER] {
            assert!(header(observed, name).is_empty(), "{observed}");
        }
        let (stamps, signatures) = (header(observed, EDGE), header(observed, EDGE_SIGNATURE));
        assert_eq!((stamps.len(), signatures.len()), (1, 1), "{observed}");
        let requested = (method, path);
        let stamp = Stamp::verify(
            &keys().unwrap(),
            stamps[0],
            signatures[0],
            requested,
            NOW_MS,
        );
        assert_eq!(stamp.unwrap().edge, "test-1");
    }
    let done = ask(&mut edge, "GET", "/abc", json!([]), &feeds, created());
    assert_eq!(
        header(&done["got"], "location"),
        ["https://target.example/"]
    );
    assert!(done["seen"].is_null());
}

#[test]
fn edge_polls_the_origin_and_survives_without_it() {
    let mut edge = Wasi::start().unwrap();
    start(&mut edge, None);
    let body = json!({});
    let done = ask(&mut edge, "GET", "/abc", json!([]), &body, created());
    assert_eq!(done["asked"].as_array().unwrap().len(), 3);
    assert_eq!(
        done["got"]["status"], 201,
        "it knows nothing: a gateway answers"
    );
    let done = ask(&mut edge, "GET", "/abc", json!([]), &body, created());
    assert_eq!(done["asked"], json!([]), "it has just asked");
    let done = ask(&mut edge, "GET", "/abc", json!([]), &body, Value::Null);
    assert_eq!(done["got"]["status"], 503, "{done}");
    assert_eq!(header(&done["got"], "retry-after"), ["1"]);
}

#[test]
fn wasi_instances_share_polled_data() {
    let mut edge = Wasi::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    start(&mut edge, Some(folder.path()));
    let buy = |edge: &mut Wasi, feeds: &Value| {
        let user = json!([["x-user-id", "alice"]]);
        let done = ask(edge, "POST", "/sales/s/orders", user, feeds, created());
        done["got"]["status"].as_u64().unwrap()
    };
    assert_eq!(buy(&mut edge, &feeds("none")), 409);
    // The next instance finds no origin.
    start(&mut edge, Some(folder.path()));
    assert_eq!(buy(&mut edge, &json!({})), 409);
    let done = ask(&mut edge, "GET", "/abc", json!([]), &json!({}), created());
    assert_eq!(done["got"]["status"], 302);
    // An instance without the folder has no data.
    start(&mut edge, None);
    assert_eq!(buy(&mut edge, &json!({})), 201);
}
