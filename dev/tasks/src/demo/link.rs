//! A short link: created, drawn as a QR code, clicked by many, and its statistics.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON and YAML that this module has made"
)]

use super::qr;
use super::teller::StoryPrinter;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinSet;
use weir_stack::Stack;
use weir_stack::http::{Connection, Method, Request};

/// The number of people, each with an own address, and the clicks per person.
const PEOPLE: u32 = 500;
const CLICKS_EACH: u32 = 20;

/// The total number of clicks.
const CLICKS: u64 = PEOPLE as u64 * CLICKS_EACH as u64;

/// The number of concurrent people.
const AT_ONCE: usize = 64;

/// The maximum wait for complete statistics, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(200);

const TARGET: &str = "https://example.com/autumn/catalogue?utm_source=poster";

/// The link's host: this machine, so that the person who runs the demo can open the link.
const HOST: &str = "localhost";

/// Kinds of visitors: user agent, language, and referring page.
const KINDS: [(&str, &str, &str); 5] = [
    (
        "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Mobile/15E148 Safari/604.1",
        "en-GB,en;q=0.9",
        "",
    ),
    (
        "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Mobile Safari/537.36",
        "zh-CN,zh;q=0.9",
        "https://social.example/feed",
    ),
    (
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
        "de-DE,de;q=0.8",
        "https://news.example/today",
    ),
    (
        "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0",
        "fr",
        "https://news.example/",
    ),
    (
        "Mozilla/5.0 (Linux; Android 13; M2012K11AC) AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 Chrome/116.0.0.0 Mobile Safari/537.36 MicroMessenger/8.0.49",
        "zh-CN",
        "",
    ),
];

/// The results.
#[derive(Debug)]
pub(super) struct LinkShow {
    url: String,
    /// Answers that redirected to the target.
    redirected: u64,
    elapsed: Duration,
    /// The statistics from the origin.
    stats: Value,
}

/// The origin's domains configuration for links on this port.
pub(super) fn domains(port: u16) -> String {
    let domain = json!({ "id": "s", "hosts": [HOST], "scheme": "http", "port": port });
    json!({ "domains": [domain] }).to_string()
}

/// Runs all steps with a gateway for links on `port`.
pub(super) async fn play(
    stack: &Mutex<Stack>,
    port: u16,
    teller: &mut StoryPrinter,
) -> Result<LinkShow> {
    let gateway = stack.lock().await.start_link_gateway(port).await?;
    let link = make(&*stack.lock().await).await?;
    let text = |name: &str| -> Result<String> {
        let text = link[name].as_str();
        Ok(text
            .with_context(|| format!("no {name}: {link}"))?
            .to_owned())
    };
    let (url, code) = (text("url")?, text("code")?);
    teller.tell("short link", format!("{url} created for {TARGET}"));
    for line in qr::lines(&url, teller.has_colours())? {
        println!("{line}");
    }
    let (redirected, elapsed) = click(&gateway, &url).await?;
    let rate = redirected as f64 / elapsed.as_secs_f64().max(f64::EPSILON);
    let text = format!("{redirected} by {PEOPLE} people through Envoy, {rate:.0}/s");
    teller.tell("clicks", text);
    let stats = settled(stack, &code).await?;
    teller.tell(
        "statistics",
        format!("the origin counted {}", stats["clicks"]),
    );
    Ok(LinkShow {
        url,
        redirected,
        elapsed,
        stats,
    })
}

async fn make(stack: &Stack) -> Result<Value> {
    let body = json!({ "target": TARGET, "tags": ["demo"] }).to_string();
    let answer = stack.admin(Method::POST, "/links", &body, 201).await?;
    Ok(answer)
}

/// All people click. Returns the number of redirects and the duration.
async fn click(gateway: &str, url: &str) -> Result<(u64, Duration)> {
    let (_, rest) = url.split_once("://").context("the link has no scheme")?;
    let (host, path) = rest.split_once('/').context("the link has no path")?;
    let address = Arc::new(LinkAddress {
        authority: gateway.trim_start_matches("http://").to_owned(),
        host: host.to_owned(),
        path: format!("/{path}"),
    });
    let started = Instant::now();
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut people = JoinSet::new();
    for person in 0..PEOPLE {
        let (address, turn) = (address.clone(), room.clone().acquire_owned().await?);
        people.spawn(async move {
            let clicked = address.click(person).await;
            drop(turn);
            clicked
        });
    }
    let mut redirected = 0;
    while let Some(clicked) = people.join_next().await {
        redirected += clicked??;
    }
    Ok((redirected, started.elapsed()))
}

/// The address of the link.
struct LinkAddress {
    authority: String,
    host: String,
    path: String,
}

impl LinkAddress {
    /// One person's clicks, on one connection from an own address.
    async fn click(&self, person: u32) -> Result<u64> {
        let (agent, language, referrer) = KINDS[person as usize % KINDS.len()];
        let mut connection = Connection::open(&self.authority).await?;
        let mut redirected = 0;
        for _ in 0..CLICKS_EACH {
            let request = Request::get(&self.path)
                .header("host", &self.host)
                .header("user-agent", agent)
                .header("accept-language", language);
            let request = match referrer {
                "" => request,
                page => request.header("referer", page),
            };
            let answer = connection.send_request(request.body(Default::default())?);
            let answer = answer.await?;
            redirected += u64::from(answer.header("location") == Some(TARGET));
        }
        Ok(redirected)
    }
}

/// Returns the statistics once they include all clicks, or after a timeout.
async fn settled(stack: &Mutex<Stack>, code: &str) -> Result<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let path = format!("/links/{code}/stats?by=day");
        let stats = stack
            .lock()
            .await
            .admin(Method::GET, &path, "", 200)
            .await?;
        ensure!(stats["clicks"].is_u64(), "no clicks: {stats}");
        if stats["clicks"].as_u64() >= Some(CLICKS) || Instant::now() >= deadline {
            return Ok(stats);
        }
        tokio::time::sleep(POLL).await;
    }
}

impl LinkShow {
    /// The required results: whether each holds, and a description.
    pub(super) fn checks(&self) -> [(bool, String); 2] {
        let (redirected, counted) = (self.redirected, &self.stats["clicks"]);
        [
            (
                redirected == CLICKS,
                format!("{redirected} of {CLICKS} clicks on {} redirected", self.url),
            ),
            (
                *counted == json!(CLICKS),
                format!("its statistics have {counted} clicks"),
            ),
        ]
    }

    /// The statistics as a small table.
    pub(super) fn table(&self) -> String {
        let mut out = String::new();
        let stats = &self.stats;
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{}: {} clicks, about {} visitors from {} addresses",
            self.url, stats["clicks"], stats["visitors"], stats["addresses"]
        );
        for part in ["devices", "systems", "browsers", "referrers", "languages"] {
            let _ = writeln!(out, "  {part:<11}{}", values(&stats[part]));
        }
        out
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "url": self.url,
            "redirected": self.redirected,
            "took_s": self.elapsed.as_secs_f64(),
            "stats": self.stats,
        })
    }
}

/// The values of a breakdown, the largest first.
fn values(part: &Value) -> String {
    let mut values: Vec<(&String, u64)> = part
        .as_object()
        .into_iter()
        .flatten()
        .map(|(value, clicks)| (value, clicks.as_u64().unwrap_or(0)))
        .collect();
    values.sort_by_key(|(_, clicks)| std::cmp::Reverse(*clicks));
    let message = values
        .iter()
        .map(|(value, clicks)| format!("{value} {clicks}"));
    message.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
impl LinkShow {
    /// A result for tests with these numbers of redirects and counted clicks.
    pub(super) fn of(redirected: u64, counted: u64) -> Self {
        Self {
            url: "https://s.example/abc".to_owned(),
            redirected,
            elapsed: Duration::from_secs(1),
            stats: json!({
                "clicks": counted, "visitors": 500, "addresses": 500,
                "devices": { "desktop": 4_000, "mobile": 6_000 },
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_or_extra_click_is_reported() {
        let holds = |show: &LinkShow| show.checks().map(|(holds, _)| holds);
        assert_eq!(holds(&LinkShow::of(CLICKS, CLICKS)), [true, true]);
        assert_eq!(holds(&LinkShow::of(CLICKS - 1, CLICKS)), [false, true]);
        assert_eq!(holds(&LinkShow::of(CLICKS, CLICKS + 1)), [true, false]);
    }

    #[test]
    fn table_lists_the_largest_first() {
        let table = LinkShow::of(CLICKS, CLICKS).table();
        assert!(
            table.contains("devices    mobile 6000, desktop 4000"),
            "{table}"
        );
    }
}
