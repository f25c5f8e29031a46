//! `sdk/weir-events.js` in Chromium.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use weir_event::batch::Batch;
use weir_event::consent::Consent;
use weir_stack::report::SilentReporter;
use weir_stack::tools;
use weir_tests::{Browser, EventGateway};

const SDK: &str = include_str!("../../../sdk/weir-events.js");

/// A page whose query contains the endpoint and the visitor's consent.
const PAGE: &str = r#"<!doctype html><title>shop</title><script src="/weir-events.js"></script><script>
    const query = new URLSearchParams(location.search);
    weir.init({ url: query.get('url') || '/events', key: 'wk_shop_web', consent: query.get('consent') || 'full', page: true, cookie: true });
    </script><p>a shop"#;

const CONFIG: &str = r#"{ "keys": [{ "name": "shop-web", "kind": "browser", "key": "wk_shop_web", "origins": ["*"] }], "collect": {} }"#;

/// The page's stored events.
const KEPT: &str =
    "return Object.keys(localStorage).filter(key => key.startsWith('weir.event.')).length";

struct Visit {
    browser: Browser,
    gateway: EventGateway,
    _dir: TempDir,
}

impl Visit {
    async fn start() -> Result<Self> {
        let pages = BTreeMap::from([
            ("/", ("text/html", PAGE)),
            ("/weir-events.js", ("text/javascript", SDK)),
            ("/join", ("application/json", r#"{"joined":2}"#)),
            ("/elsewhere", ("text/html", "<p>elsewhere")),
        ]);
        let gateway = EventGateway::start(Some(CONFIG), pages).await?;
        let dir = tempfile::tempdir()?;
        let tool = tools::Chromium::find_or_get(&mut SilentReporter)?;
        let browser = Browser::start(&tool, &dir.path().join("browser")).await?;
        Ok(Self {
            browser,
            gateway,
            _dir: dir,
        })
    }

    async fn open(&self, path: &str) -> Result<()> {
        let url = format!("{}{path}", self.gateway.url());
        self.browser.open(&url).await
    }

    async fn track(&self, event_type: &str, attributes: Value) -> Result<()> {
        let script = "weir.track(arguments[0], arguments[1])";
        let arguments = [json!(event_type), attributes];
        self.browser.run(script, &arguments).await.map(drop)
    }

    /// Waits until the page stores no events.
    async fn is_empty(&self) -> Result<()> {
        let script = format!("{KEPT} === 0");
        self.browser.until(&script, &[]).await.map(drop)
    }

    /// The number of events of this type at the origin.
    fn of_type(&self, event_type: &str) -> usize {
        let events = self.gateway.origin.events();
        let of_type = |event: &&weir_event::event::Event| event.event_type.as_str() == event_type;
        events.values().filter(of_type).count()
    }
}

/// The snippet stays small, because a page waits for it.
#[test]
fn shipped_snippet_is_at_most_4_kb() {
    assert!(SDK.len() <= 4_096, "{} bytes", SDK.len());
    assert!(!SDK.contains("import ") && !SDK.contains("require("));
}

#[tokio::test(flavor = "multi_thread")]
async fn page_sends_its_view_and_tracked_events() -> Result<()> {
    let mut visit = Visit::start().await?;
    visit.open("/").await?;
    for n in 0..5 {
        visit.track("cart", json!({ "n": n })).await?;
    }
    visit.gateway.origin.expect_count(6).await?;
    visit.is_empty().await?;
    assert_eq!((visit.of_type("page"), visit.of_type("cart")), (1, 5));
    let events = visit.gateway.origin.events();
    let visitors: std::collections::BTreeSet<_> =
        events.values().map(|event| event.visitor.clone()).collect();
    assert_eq!(visitors.len(), 1);
    let visitor = visitors
        .into_iter()
        .flatten()
        .next()
        .context("no visitor")?;
    let cookie = visit.browser.run("return document.cookie", &[]).await?;
    assert!(
        cookie
            .as_str()
            .is_some_and(|text| text.contains(&format!("weir_visitor={visitor}"))),
        "{cookie}"
    );
    let own = visit.browser.run("return weir.visitor()", &[]).await?;
    assert_eq!(own, Value::from(visitor.to_string()));
    let joined = "return weir.join('/join')";
    assert_eq!(visit.browser.run(joined, &[]).await?, 2);
    for (id, event) in &events {
        assert!(
            id.len() == 36 && id.as_bytes()[14] == b'4',
            "{id} is no UUID of version 4"
        );
        assert!(event.at_ms.is_some());
    }
    let requests = visit.gateway.origin.requests();
    let mut order = Vec::new();
    for request in &requests {
        let batch = Batch::read(&request.body)?;
        ensure!(batch.sent_at_ms.is_some(), "no sent_at_ms");
        for sent in &batch.events {
            order.extend(sent.read()?.attributes.get("n").and_then(Value::as_u64));
        }
    }
    assert_eq!(order, [0, 1, 2, 3, 4], "in their order, each once");
    // The same from a page of another site: it can read the answer, or it would keep the events.
    let port = visit
        .gateway
        .url()
        .rsplit(':')
        .next()
        .context("no port")?
        .to_owned();
    let url = format!(
        "http://localhost:{port}/?url={}/events",
        visit.gateway.url()
    );
    visit.browser.open(&url).await?;
    visit.gateway.origin.expect_count(7).await?;
    visit.is_empty().await?;
    assert_eq!(visit.gateway.origin.duplicates(), 0);
    let complaints = visit.browser.complaints().await?;
    assert!(
        complaints.iter().all(|line| line.contains("favicon")),
        "{complaints:?}"
    );
    // The page does not send rejected events again, and reports the reason to the developer.
    visit.track("unknown", json!({})).await?;
    visit.is_empty().await?;
    let complaints = visit.browser.complaints().await?.concat();
    assert!(complaints.contains("is not registered"), "{complaints}");
    visit.gateway.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn unacknowledged_events_outlive_the_page_and_arrive_once() -> Result<()> {
    let mut visit = Visit::start().await?;
    visit.gateway.origin.kill();
    visit.open("/").await?;
    for n in 0..3 {
        visit.track("cart", json!({ "n": n })).await?;
    }
    visit
        .gateway
        .count_reaching("requests_total.outcome.forwarded", 1)
        .await?;
    visit.open("/").await?;
    visit.track("cart", json!({ "n": 3 })).await?;
    assert_eq!(visit.browser.run(KEPT, &[]).await?, 6);
    visit.gateway.origin.revive().await?;
    visit.gateway.origin.expect_count(6).await?;
    visit.is_empty().await?;
    assert_eq!((visit.of_type("page"), visit.of_type("cart")), (2, 4));
    // It waits as long as Retry-After requires.
    visit.gateway.origin.refuse(&[(503, Some(3)), (429, None)]);
    let before = visit.gateway.origin.requests().len();
    visit.track("late", json!({})).await?;
    visit.gateway.origin.expect_count(7).await?;
    let requests = visit.gateway.origin.requests();
    let times: Vec<u64> = requests[before..]
        .iter()
        .map(|request| Ok(request.stamps()?.received_ms))
        .collect::<Result<_>>()?;
    assert_eq!(times.len(), 3, "refused twice");
    assert!(times[1] - times[0] >= 3_000, "{times:?}");
    visit.gateway.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_events_are_counted_and_reported() -> Result<()> {
    let mut visit = Visit::start().await?;
    visit.open("/").await?;
    visit.is_empty().await?;
    // A permanent refusal.
    visit.gateway.origin.refuse(&[(400, None)]);
    visit.track("bad", json!({})).await?;
    visit.is_empty().await?;
    assert_eq!(
        visit
            .browser
            .run("return localStorage['weir.lost']", &[])
            .await?,
        "1"
    );
    visit.track("good", json!({})).await?;
    visit.is_empty().await?;
    assert_eq!(
        (
            visit.of_type("bad"),
            visit.of_type("good"),
            visit.of_type("weir.lost")
        ),
        (0, 1, 1)
    );
    assert_eq!(
        visit
            .browser
            .run("return localStorage['weir.lost']", &[])
            .await?,
        "0"
    );
    // More events than the queue holds, while the origin is down.
    visit.gateway.origin.kill();
    let many = "for (let n = 0; n < 600; n++) weir.track('many', { n })";
    visit.browser.run(many, &[]).await?;
    assert_eq!(visit.browser.run(KEPT, &[]).await?, 500);
    assert_eq!(
        visit
            .browser
            .run("return localStorage['weir.lost']", &[])
            .await?,
        "100"
    );
    visit.gateway.origin.revive().await?;
    visit.is_empty().await?;
    assert_eq!(visit.of_type("many"), 500);
    let events = visit.gateway.origin.events();
    let lost = events
        .values()
        .filter(|event| event.event_type.as_str() == "weir.lost");
    let mut counts: Vec<u64> = lost
        .filter_map(|event| event.attributes["count"].as_u64())
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 100]);
    let latest = events
        .values()
        .filter(|event| event.event_type.as_str() == "many");
    let latest = latest.filter_map(|event| event.attributes["n"].as_u64());
    assert_eq!(latest.min(), Some(100), "the oldest were lost");
    visit.gateway.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn leaving_a_page_sends_a_beacon() -> Result<()> {
    let mut visit = Visit::start().await?;
    visit.open("/").await?;
    visit.is_empty().await?;
    let leave = "weir.track('leave', {}); location.href = '/elsewhere'";
    visit.browser.run(leave, &[]).await?;
    visit.browser.wait_for_text("p", "elsewhere").await?;
    // That page has no snippet, so the event came with the beacon.
    visit.gateway.origin.expect_count(2).await?;
    assert_eq!(visit.of_type("leave"), 1);
    // A beacon returns no result to the page, so the page sends the event again. Its ID deduplicates it.
    visit.open("/").await?;
    visit.is_empty().await?;
    assert_eq!(visit.of_type("leave"), 1);
    assert_eq!(visit.gateway.origin.duplicates(), 1);
    visit.gateway.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn visitor_can_give_partial_or_no_consent() -> Result<()> {
    let mut visit = Visit::start().await?;
    visit.open("/?consent=anonymous").await?;
    visit.gateway.origin.expect_count(1).await?;
    let request = visit.gateway.origin.requests().remove(0);
    assert_eq!(request.stamps()?.consent, Consent::Anonymous);
    let events = visit.gateway.origin.events();
    assert!(events.values().all(|event| event.visitor.is_none()));
    assert_eq!(
        visit
            .browser
            .run("return localStorage['weir.visitor'] ?? null", &[])
            .await?,
        Value::Null
    );
    visit.is_empty().await?;
    // Queued events are deleted when the visitor withdraws consent.
    visit.gateway.origin.kill();
    visit.track("cart", json!({})).await?;
    visit.browser.run("weir.consent('none')", &[]).await?;
    assert_eq!(visit.browser.run(KEPT, &[]).await?, 0);
    visit.track("cart", json!({})).await?;
    assert_eq!(visit.browser.run(KEPT, &[]).await?, 0);
    visit.gateway.origin.revive().await?;
    visit.browser.run("weir.consent('full')", &[]).await?;
    visit.track("again", json!({})).await?;
    visit.is_empty().await?;
    assert_eq!((visit.of_type("cart"), visit.of_type("again")), (0, 1));
    visit.gateway.check()
}
