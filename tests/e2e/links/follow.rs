//! Links created at the origin and followed at gateways.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use weir_stack::http::{self, Connection, Method};
use weir_tests::{LinkSetup, until};

use super::{SHIPPED, TARGET};

const IPHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) Mobile/15E148";

#[tokio::test(flavor = "multi_thread")]
async fn link_is_created_followed_and_counted() -> Result<()> {
    let mut gateways = SHIPPED.start().await?;
    let code = gateways.create(TARGET, json!({})).await?;
    for _ in 0..50 {
        assert_eq!(gateways.location(0, &code).await?, TARGET);
    }
    let answer = gateways.ask(0, &format!("/{code}?a=b"), &[]).await?;
    assert_eq!(
        (answer.status, answer.header("cache-control")),
        (302, Some("private, no-cache"))
    );
    let metrics = format!("{}/metrics", gateways.origin.admin_url());
    until("the origin has counted all clicks", async || {
        let response = http::get(&metrics).await;
        let response = response.map(|response| response.text()).unwrap_or_default();
        response
            .lines()
            .any(|line| line == "weir_origin_clicks_total 51")
    })
    .await?;
    gateways.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_report_is_read_on_a_host_without_links() -> Result<()> {
    let mut gateways = SHIPPED.start().await?;
    let report = json!({ "title": "Spring clicks", "days": 7 });
    let report = gateways
        .admin(Method::POST, "/link-reports", report, 201)
        .await?;
    let path = report["path"].as_str().context("no path")?;
    // Links are at 127.0.0.1.
    let other_host = gateways.authority(0).replace("127.0.0.1", "localhost");
    let page = http::get(&format!("http://{other_host}{path}")).await?;
    assert_eq!(page.status, 200);
    assert!(page.text().contains("<h1>Spring clicks</h1>"));
    let as_a_link = gateways.ask(0, path, &[]).await?;
    assert_eq!(as_a_link.status, 404);
    gateways.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn link_edit_reaches_all_gateways() -> Result<()> {
    let setup = LinkSetup {
        gateways: 2,
        ..SHIPPED
    };
    let mut gateways = setup.start().await?;
    let code = gateways.create(TARGET, json!({})).await?;
    let everywhere = async |location: &str| {
        let mut observed = true;
        for gateway in [0, 1, 0, 1, 0, 1] {
            observed &= gateways
                .location(gateway, &code)
                .await
                .is_ok_and(|at| at == location);
        }
        observed
    };
    assert!(everywhere(TARGET).await);
    let link = format!("/links/{code}");
    let edit = json!({ "target": "https://other.example/" });
    gateways.admin(Method::PATCH, &link, edit, 200).await?;
    let edited_at = std::time::Instant::now();
    until("the edit is seen", async || {
        everywhere("https://other.example/").await
    })
    .await?;
    println!("seen after {:?}", edited_at.elapsed());
    gateways
        .admin(Method::PATCH, &link, json!({ "disabled": true }), 200)
        .await?;
    until("it is disabled", async || {
        let answer = gateways.ask(0, &format!("/{code}"), &[]).await;
        answer.is_ok_and(|answer| answer.status == 410)
    })
    .await?;
    gateways.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn thousand_clicks_on_two_gateways_admit_exactly_the_limit() -> Result<()> {
    let setup = LinkSetup {
        gateways: 2,
        ..SHIPPED
    };
    let mut gateways = setup.start().await?;
    let code = gateways
        .create(TARGET, json!({ "max_clicks": 137 }))
        .await?;
    let mut clicks = JoinSet::new();
    for client in 0..100 {
        let (authority, path) = (gateways.authority(client % 2), format!("/{code}"));
        clicks.spawn(async move {
            let mut connection = Connection::open(&authority).await?;
            let mut admitted = 0;
            for _ in 0..10 {
                let answer = connection.send(Method::GET, &path, &[], "").await?;
                match answer.status {
                    302 => admitted += 1,
                    // 503: both were late. Such a click was not used, or returns.
                    410 | 503 => {}
                    other => anyhow::bail!("{other}: {}", answer.text()),
                }
            }
            Ok(admitted)
        });
    }
    let mut admitted = 0;
    while let Some(by_one) = clicks.join_next().await {
        admitted += by_one??;
    }
    assert!(admitted <= 137, "{admitted}");
    // Returned clicks are available to others.
    let late = AtomicUsize::new(0);
    until("the rest is admitted", async || {
        if admitted + late.load(Ordering::Relaxed) == 137 {
            return true;
        }
        let answer = gateways.ask(0, &format!("/{code}"), &[]).await;
        let is_admitted = answer.is_ok_and(|answer| answer.status == 302);
        late.fetch_add(is_admitted.into(), Ordering::Relaxed);
        false
    })
    .await?;
    for gateway in [0, 1, 0, 1] {
        let answer = gateways.ask(gateway, &format!("/{code}"), &[]).await?;
        assert_eq!(answer.status, 410);
    }
    gateways.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn random_codes_reach_origin_at_limited_rate_without_slowdown() -> Result<()> {
    let config =
        r#"{ "redis": {}, "origin": { "limit": { "rate": 1, "per": "1s", "burst": 10 } } }"#;
    let setup = LinkSetup {
        workers: 1,
        config: Some(config),
        ..SHIPPED
    };
    let mut gateways = setup.start().await?;
    let code = gateways.create(TARGET, json!({})).await?;
    assert_eq!(gateways.location(0, &code).await?, TARGET);
    let started = std::time::Instant::now();
    let mut connection = Connection::open(&gateways.authority(0)).await?;
    let (mut unknown, mut refused) = (0_u64, 0);
    for number in 0..2_000 {
        let answer = connection
            .send(Method::GET, &format!("/r{number:07}"), &[], "")
            .await?;
        match answer.status {
            404 => {
                assert_eq!(answer.text(), "<p>nothing here");
                unknown += 1;
            }
            503 => refused += 1,
            other => anyhow::bail!("{other}: {}", answer.text()),
        }
    }
    // The limit for the elapsed time: ten, and one per second.
    let allowed = 10 + started.elapsed().as_secs() + 1;
    assert!(unknown <= allowed, "{unknown} look-ups, {allowed} allowed");
    assert_eq!(unknown + refused, 2_000);
    assert_eq!(gateways.location(0, &code).await?, TARGET);
    gateways.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn links_follow_app_targets_rules_and_queries() -> Result<()> {
    let mut gateways = SHIPPED.start().await?;
    let fields = json!({ "pass_query": true, "status": 307, "rules": [
        { "languages": ["zh"], "target": "https://zh.example/" },
        { "platforms": ["ios"], "target": "https://ios.example/" }] });
    let code = gateways.create(TARGET, fields).await?;
    let path = format!("/{code}?a=b");
    for (name, value, expected) in [
        (
            "accept-language",
            "zh-CN,en;q=0.5",
            "https://zh.example/?a=b",
        ),
        ("user-agent", IPHONE, "https://ios.example/?a=b"),
        ("user-agent", "curl/8", "https://target.example/page?a=b"),
    ] {
        let answer = gateways.ask(0, &path, &[(name, value)]).await?;
        assert_eq!(
            (answer.status, answer.header("location")),
            (307, Some(expected))
        );
    }
    let mut connection = Connection::open(&gateways.authority(0)).await?;
    let answer = connection.send(Method::HEAD, &path, &[], "").await?;
    assert_eq!((answer.status, answer.body.len()), (307, 0));
    gateways.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_domain_pages_are_served_after_their_creation() -> Result<()> {
    let mut gateways = SHIPPED.start().await?;
    let ended = json!({ "max_clicks": 1 });
    let ended = format!("/{}", gateways.create(TARGET, ended).await?);
    assert_eq!(gateways.ask(0, &ended, &[]).await?.status, 302);
    let plain = gateways.ask(0, &ended, &[]).await?;
    assert_eq!(plain.status, 410);
    assert!(plain.text().contains("<h1>This link has expired</h1>"));
    let german = [("accept-language", "de-DE,de;q=0.9,en;q=0.8")];
    let page = gateways.ask(0, &ended, &german).await?;
    assert!(page.text().contains("<h1>Dieser Link ist abgelaufen</h1>"));
    assert_eq!(gateways.ask(0, "/", &[]).await?.status, 404);

    let mut domain = gateways
        .admin(Method::GET, "/link-domains/s", Value::Null, 200)
        .await?;
    for (field, text) in [
        ("not_found_page", "<p>never was"),
        ("gone_page", "<p>over"),
        ("unavailable_page", "<p>later"),
        ("home", "https://home.example/"),
        ("robots", "User-agent: *\nDisallow: /\n"),
    ] {
        domain[field] = text.into();
    }
    gateways
        .admin(Method::PUT, "/link-domains/s", domain, 200)
        .await?;
    // With a policy that blocks all scripts.
    let is_answered = async |path: &str, status: u16, body: &str| {
        let mut answers = true;
        for _ in 0..8 {
            let Ok(answer) = gateways.ask(0, path, &[]).await else {
                return false;
            };
            answers &= answer.status == status && answer.text() == body;
            let policy = answer.header("content-security-policy");
            answers &=
                status < 400 || policy.is_some_and(|one| one.starts_with("default-src 'none'"));
        }
        answers
    };
    // Workers load them at slightly different times, and a request reaches any worker.
    for (path, status, body) in [
        (ended.as_str(), 410, "<p>over"),
        ("/no-such", 404, "<p>never was"),
        ("/robots.txt", 200, "User-agent: *\nDisallow: /\n"),
        ("/favicon.ico", 204, ""),
    ] {
        until("the domain's own page", async || {
            is_answered(path, status, body).await
        })
        .await?;
    }
    until("the domain's home", async || {
        let home = gateways.ask(0, "/?from=card", &[]).await;
        home.is_ok_and(|one| {
            (one.status, one.header("location")) == (302, Some("https://home.example/"))
        })
    })
    .await?;
    gateways.origin.process().kill();
    gateways.redis.stop();
    let later = gateways.ask(0, "/other", &[]).await?;
    assert_eq!((later.status, later.text().as_str()), (503, "<p>later"));
    assert!(later.header("retry-after").is_some());
    gateways.check()
}
