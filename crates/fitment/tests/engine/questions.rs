//! Responses to queries and page requests.

use serde_json::json;
use weir_fitment::{Cluster, Placement, Spu};

use crate::host::{Host, home, question, sku};

/// Ten vehicles, and two products with three SKUs.
fn shop() -> Host {
    let mut host = Host::new();
    host.put("S1", &home("P1"), &[1, 3]);
    host.put("S2", &home("P1"), &[]);
    host.put("S3", &home("P2"), &[2]);
    host
}

#[test]
fn answers_follow_the_order_of_the_queried_pairs() {
    let mut host = shop();
    let (status, reply) = host.answer(&question(&[3, 1, 2], &["S3", "S1", "S2", "S1"]));
    assert_eq!(status, 200);
    assert_eq!(reply["vehicles"], json!(["1000003", "1000001", "1000002"]));
    let expected = json!([
        { "sku": "S3", "answers": ["does_not", "does_not", "fits"] },
        { "sku": "S1", "answers": ["fits", "fits", "does_not"] },
        { "sku": "S2", "answers": ["does_not", "does_not", "does_not"] },
        { "sku": "S1", "answers": ["fits", "fits", "does_not"] },
    ]);
    assert_eq!(reply["skus"], expected);
    assert_eq!(host.metric("requests_total.outcome.answered"), 1);
    assert_eq!(host.metric("pairs_total.answer.fits"), 5);
    assert_eq!(host.metric("pairs_total.answer.does_not"), 7);
    assert_eq!(host.engine.waiting(), 0);
}

#[test]
fn placement_is_cached_and_a_hint_avoids_its_lookup() {
    let mut host = shop();
    host.answer(&question(&[1], &["S1", "S2"]));
    let reads = host.redis.calls["fit_route"];
    host.answer(&question(&[1], &["S1", "S2"]));
    assert_eq!(host.redis.calls["fit_route"], reads, "it is remembered");
    assert_eq!(host.redis.calls["fit_query"], 2, "one call for one product");
    let hinted = r#"{"vehicles":["1000002"],"skus":[{"sku":"S3","spu":"P2"}]}"#;
    let (_, reply) = host.answer(hinted);
    assert_eq!(reply["skus"][0]["answers"], json!(["fits"]));
    assert_eq!(host.redis.calls["fit_route"], reads);
    // A wrong hint costs a lookup, and changes no answer.
    host.put("S4", &home("P2"), &[5]);
    let wrong = r#"{"vehicles":["1000005"],"skus":[{"sku":"S4","spu":"P1"}]}"#;
    let (_, reply) = host.answer(wrong);
    assert_eq!(reply["skus"][0]["answers"], json!(["fits"]));
}

#[test]
fn moved_product_is_found_at_its_new_placement() {
    let mut host = shop();
    host.answer(&question(&[1], &["S1"]));
    // New location, route, old location: the order in which the origin moves it.
    host.put("S1", &home("P9"), &[1]);
    let old = host
        .redis
        .products
        .get_mut(&("home".into(), Spu::new("P1").unwrap()));
    old.unwrap().drop(0, &[(sku("S1"), 100)]);
    let (status, reply) = host.answer(&question(&[1, 3], &["S1"]));
    assert_eq!(status, 200);
    assert_eq!(reply["skus"][0]["answers"], json!(["fits", "does_not"]));
}

#[test]
fn query_missing_in_redis_is_sent_to_origin_at_limited_rate() {
    let mut host = shop();
    let body = question(&[1], &["S1", "S9"]);
    for _ in 0..3 {
        let stream = host.ask(&body);
        host.run();
        assert!(host.has_passed(stream));
    }
    let (status, reply) = host.answer(&body);
    assert_eq!(status, 200);
    assert_eq!(reply["skus"][0]["answers"], json!(["fits"]));
    assert_eq!(reply["skus"][1]["answers"], json!(["unknown"]));
    assert_eq!(host.metric("requests_total.outcome.forwarded"), 3);
    assert_eq!(host.metric("requests_total.outcome.limited"), 1);
    host.advance(1_000);
    let stream = host.ask(&body);
    host.run();
    assert!(host.has_passed(stream), "a second later one more may");
}

#[test]
fn unknown_vehicle_is_also_forwarded_to_the_origin() {
    let mut host = shop();
    let stream = host.ask(&question(&[1, 11], &["S1"]));
    host.run();
    assert!(host.has_passed(stream), "an offset beyond the map");
    host.map(1, 11);
    host.advance(1_000);
    let (_, reply) = host.answer(&question(&[1, 11], &["S1"]));
    assert_eq!(reply["skus"][0]["answers"], json!(["fits", "does_not"]));
}

#[test]
fn removed_sku_is_unknown_without_an_origin_call() {
    let mut host = shop();
    host.redis.routes.put(&sku("S1"), 100, false, None);
    let (status, reply) = host.answer(&question(&[1], &["S1"]));
    assert_eq!(status, 200);
    assert_eq!(reply["skus"][0]["answers"], json!(["unknown"]));
}

#[test]
fn products_of_other_clusters_are_queried_in_their_cluster() {
    let config = r#"{"redis":{},"clusters":{"own":"redis_own"}}"#;
    let mut host = Host::with(config);
    let own = Placement {
        cluster: Cluster::new("own").unwrap(),
        spu: Spu::new("P1").unwrap(),
    };
    host.put("S1", &own, &[1]);
    host.put("S2", &home("P1"), &[2]);
    let (status, reply) = host.answer(&question(&[1, 2], &["S1", "S2"]));
    assert_eq!(status, 200);
    let expected = json!([
        { "sku": "S1", "answers": ["fits", "does_not"] },
        { "sku": "S2", "answers": ["does_not", "fits"] },
    ]);
    assert_eq!(reply["skus"], expected);
    // A hint does not contain the Redis server.
    let hinted = r#"{"vehicles":["1000001"],"skus":[{"sku":"S1","spu":"P1"}]}"#;
    let (_, reply) = host.answer(hinted);
    assert_eq!(reply["skus"][0]["answers"], json!(["fits"]));
}

#[test]
fn large_query_for_many_products_is_answered_completely() {
    let mut host = Host::with(r#"{"redis":{},"places_max":10}"#);
    let names: Vec<String> = (0..200).map(|number| format!("S{number}")).collect();
    for (number, name) in (0..200).zip(&names) {
        host.put(name, &home(&format!("P{number}")), &[1 + number % 10]);
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for _ in 0..2 {
        let (status, reply) = host.answer(&question(&[1, 2, 3, 4, 5], &names));
        assert_eq!(status, 200);
        for number in 0..200 {
            let fits = |vehicle| match vehicle == number % 10 {
                true => "fits",
                false => "does_not",
            };
            let expected: Vec<_> = (0..5).map(fits).collect();
            assert_eq!(
                reply["skus"][number]["answers"],
                json!(expected),
                "S{number}"
            );
        }
    }
}

#[test]
fn only_fresh_sku_pages_are_served_from_redis() {
    let mut host = shop();
    let path = "/fitment/skus?vehicle=1000001&after=57";
    let stream = host.request("GET", path, "");
    host.run();
    assert!(host.has_passed(stream), "there is no such page");
    let page = r#"{"vehicle":"1000001","skus":["S1"]}"#;
    let key = ("1000001".to_owned(), "57".to_owned());
    host.redis.pages.insert(key.clone(), (1, page.to_owned()));
    let stream = host.request("GET", path, "");
    host.run();
    assert_eq!(host.response(stream).1["skus"], json!(["S1"]));
    // An import makes the page stale.
    host.map(2, 10);
    host.learn();
    let stream = host.request("GET", path, "");
    host.run();
    assert!(host.has_passed(stream));
    host.redis.pages.insert(key, (2, page.to_owned()));
    let stream = host.request("GET", path, "");
    host.run();
    assert!(host.is_answered(stream));
}

#[test]
fn requests_for_other_paths_pass_through() {
    let mut host = shop();
    for path in [
        "/",
        "/fitment",
        "/fitment/check/",
        "/fitment/checks",
        "/fitment/skus/1",
    ] {
        let stream = host.request("POST", path, "x");
        assert!(host.has_passed(stream), "{path}");
    }
}

#[test]
fn invalid_fitment_queries_are_rejected_at_the_gateway() {
    let mut host = shop();
    let many = |count: u32| -> Vec<String> { (0..count).map(|n| format!("S{n}")).collect() };
    let many_skus = json!({ "vehicles": ["1000001"], "skus": many(201) }).to_string();
    let six: Vec<String> = (1..=6).map(|n| format!("100000{n}")).collect();
    let six = json!({ "vehicles": six, "skus": ["S1"] }).to_string();
    let letters = json!({ "vehicles": ["10000x1"], "skus": ["S1"] }).to_string();
    let long = " ".repeat(70_000);
    for (body, status, error) in [
        (many_skus.as_str(), 422, "invalid_sku_count"),
        (&six, 422, "invalid_vehicle_count"),
        (&letters, 422, "invalid_vehicle"),
        ("", 400, "invalid_body"),
        ("{", 400, "invalid_body"),
        (&long, 413, "body_too_long"),
    ] {
        let (reply, json) = host.answer(body);
        assert_eq!((reply, json["error"].as_str()), (status, Some(error)));
    }
    let length = [("content-length", "70000")];
    let stream = host.request_with("POST", "/fitment/check", &length, "");
    assert_eq!(host.response(stream).0, 413, "before it is read");
    let stream = host.request("GET", "/fitment/check", "");
    assert_eq!(host.response(stream).0, 405);
    assert_eq!(host.told_header(stream, "allow").as_deref(), Some("POST"));
    let stream = host.request("POST", "/fitment/skus?vehicle=1000001", "");
    assert_eq!(host.response(stream).0, 405);
    let stream = host.request("GET", "/fitment/skus?vehicle=1000001", "body");
    assert_eq!(host.response(stream).0, 400);
    let stream = host.request("GET", "/fitment/skus?vehicle=abc", "");
    assert_eq!(host.response(stream).1["error"], "invalid_vehicle");
    assert_eq!(host.metric("requests_total.outcome.malformed"), 11);
    assert_eq!(host.redis.calls.get("fit_query"), None);
    assert_eq!(host.engine.waiting(), 0);
}
