//! The other filters of the library, one by one. `e2e` with `WEIR_HOST=native` tests them completely.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::json;
use weir_stack::http::{self, Method};
use weir_stack::native::Host;
use weir_tests::{EventGateway, LinkSetup, RedisPath, Setup, until};

#[tokio::test(flavor = "multi_thread")]
async fn all_workers_share_one_limit() -> Result<()> {
    Host::Native.choose();
    let setup = Setup {
        gateways: 1,
        workers: 2,
        redis: RedisPath::None,
        // An engine's memory is its own, but limits are shared.
        config: r#"{ "native": { "engines": 2 }, "user_header": "x-user-id", "rules": [
            { "name": "all", "limit": { "rate": 1, "per": "1h", "burst": 20 } }] }"#,
    };
    let mut limiters = setup.start().await?;
    let burst = limiters.burst("/", "anyone", 50).await?;
    assert_eq!((burst.passed.len(), burst.limited.len()), (20, 30));
    let name = "limited_total.rule.all";
    assert_eq!(limiters.count_reaching(name, 30).await?, 30);
    limiters.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn link_is_resolved_from_redis_and_then_from_memory() -> Result<()> {
    Host::Native.choose();
    let setup = LinkSetup {
        gateways: 1,
        workers: 2,
        config: None,
    };
    let mut gateways = setup.start().await?;
    let target = "https://target.example/page";
    let code = gateways.create(target, json!({})).await?;
    for _ in 0..50 {
        assert_eq!(gateways.location(0, &code).await?, target);
    }
    let found = async |place: &str| {
        let stat = format!("wasmcustom.weir_shortlink_found_total.place.{place}");
        gateways.envoys[0].stat(&stat).await.unwrap_or(0)
    };
    // All workers share one memory: one of them has queried Redis for all.
    until("it is counted", async || {
        found("memory").await == 49 && found("redis").await == 1
    })
    .await?;
    gateways.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_stamped_and_forwarded() -> Result<()> {
    Host::Native.choose();
    let mut gateway = EventGateway::start(None, BTreeMap::new()).await?;
    let headers = [
        ("content-type", "application/json"),
        ("x-weir-write-key", "wk_shop_web"),
        ("x-weir-address", "6.6.6.0/24"),
    ];
    let event = r#"{"id":"e1","type":"view","attributes":{"sku":"a1"}}"#;
    let answer = gateway
        .ask(Method::POST, "/events", &headers, event)
        .await?;
    assert_eq!(answer.status, 202, "{}", answer.text());
    let received = gateway.origin.requests().remove(0);
    let stamps = received.stamps()?;
    assert_eq!(stamps.key.as_str(), "shop-web");
    let address = stamps.address.map(|network| network.to_string());
    assert!(address.is_some_and(|address| address.starts_with("127.")));
    gateway.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn fitment_query_is_sent_in_a_body() -> Result<()> {
    let builder = weir_stack::Stack::builder().host(Host::Native).workers(2);
    let mut stack = builder.key_prefix("native-fit").fitment().start().await?;
    for (kind, file) in [
        (
            "vehicles",
            "vehicle,make,model,year\n1000001,Make,Model,2020\n1000002,Make,Model,2020\n",
        ),
        ("products", "sku,spu,type,merchant\nS0,P0,tyre,m1\n"),
        ("relations", "sku,vehicle\nS0,1000001\n"),
    ] {
        let path = format!("/fitment/imports?kind={kind}&format=csv");
        let accepted = stack.admin(Method::POST, &path, file, 202).await?;
        let path = format!("/fitment/imports/{}", accepted["id"]);
        until("an import is done", async || {
            let import = stack.admin(Method::GET, &path, "", 200).await;
            import.is_ok_and(|import| import["state"] == "done")
        })
        .await?;
    }
    Host::Native.choose();
    let gateway = stack
        .start_fitment_gateway(weir_stack::ports::free()?)
        .await?;
    let url = format!("{gateway}/fitment/check");
    let body = json!({ "vehicles": ["1000001", "1000002"], "skus": ["S0"] }).to_string();
    let stat = "wasmcustom.weir_fitment_requests_total.outcome.answered";
    until("the gateway answers by itself", async || {
        let headers = [("content-type", "application/json")];
        let answer = http::send(Method::POST, &url, &headers, body.clone()).await;
        let document = answer.and_then(|answer| answer.json());
        let is_right = document
            .is_ok_and(|document| document["skus"][0]["answers"] == json!(["fits", "does_not"]));
        let Some(envoy) = &stack.fitment_gateway else {
            return false;
        };
        is_right && envoy.stat(stat).await.is_ok_and(|count| count > 0)
    })
    .await?;
    Ok(stack.check_children()?)
}
