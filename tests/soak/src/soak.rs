//! Runs the soak test.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use crate::faults::Fault;
use crate::load::{self, Ask, Load, LoadSample};
use crate::report::{Period, Report};
use crate::sales::Sales;
use crate::sample::Sample;
use anyhow::{Context, Result};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use weir_stack::http::Method;
use weir_stack::{GatewayOptions, Stack, ports};

/// The only domain of links; requests use the gateway's address as host.
const DOMAINS: &str = r#"{ "domains": [{ "id": "s", "hosts": ["127.0.0.1"], "scheme": "http" }] }"#;

/// The number of links.
const LINKS: usize = 200;

/// How many sales pass before a sale is checked: its last hold expires during the next one.
const RESTS: usize = 1;

/// The parameters.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The number of periods, each with a sale and a fault.
    pub periods: u32,
    /// The length of a period: a minute, or less in tests.
    pub period: Duration,
    /// The seed for the sequence of faults.
    pub seed: u64,
    /// Requests per second of each kind of load; half of the measured capacity if `None`.
    pub per_second: Option<f64>,
}

/// Runs a soak test, and prints each period as it ends.
///
/// # Errors
/// A process does not start, cannot be restarted after a fault, or ends unexpectedly. Unbalanced sales and growth are
/// not errors: see [`Report::is_good`].
pub fn run(settings: &Settings) -> Result<Report> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(soak(settings))
}

async fn soak(settings: &Settings) -> Result<Report> {
    let mut stack = start().await?;
    let links = make_links(&stack).await?;
    let current = Arc::new(RwLock::new(open(&stack, 0).await?));
    let (buyers, followers) = (buyers(&current), followers(links));
    let (gateway, link_gateway) = addresses(&stack)?;
    let rates = rates(settings, gateway, &buyers, link_gateway, &followers).await?;
    let mut report = Report::new(settings.periods, rates);
    let loads = [
        Load::start(gateway, buyers, rates.0, u64::from(u32::MAX)),
        Load::start(link_gateway, followers, rates.1, 0),
    ];
    let mut sales = Sales::default();
    let faults = Fault::schedule(settings.periods, settings.seed);
    for (number, fault) in (1..).zip(faults) {
        let ends = Instant::now() + settings.period;
        fault.strike(&mut stack, settings.period / 12).await?;
        stack.check_children()?;
        let opened = open(&stack, number).await?;
        let remaining = std::mem::replace(
            &mut *current.write().unwrap_or_else(PoisonError::into_inner),
            opened,
        );
        sales.leave(remaining);
        let checked = sales.check(&stack, RESTS).await;
        sleep(ends.saturating_duration_since(Instant::now())).await;
        let [buying, following] = loads.each_ref().map(Load::take);
        report.add(Period {
            fault,
            checked,
            buying,
            following,
            sample: Sample::take(&mut stack).await?,
        });
    }
    drop(loads);
    report.checked(sales.check(&stack, 0).await);
    stack.stop();
    Ok(report)
}

async fn start() -> Result<Stack> {
    // No buyer pays, and buyers return.
    let builder = Stack::builder().holds_may_expire();
    let builder = builder.workers(1).links(DOMAINS);
    let builder = builder.faults_before_redis().faults_before_origin();
    let mut stack = builder.faults_behind_origin().start().await?;
    stack.start_gateway(GatewayOptions::default()).await?;
    stack.start_link_gateway(ports::free()?).await?;
    Ok(stack)
}

/// Opens the sale of a period. Retries, because a fault of the origin may have just ended.
async fn open(stack: &Stack, number: u32) -> Result<String> {
    // Each attempt has its own name, because the previous one may have succeeded.
    static TRIES: AtomicU32 = AtomicU32::new(0);
    let mut tries = 0;
    loop {
        let name = format!("soak-{number}-{}", TRIES.fetch_add(1, Ordering::Relaxed));
        match Sales::open(stack, &name).await {
            Ok(()) => return Ok(name),
            Err(error) if tries == 10 => return Err(error.context("cannot open a sale")),
            Err(_) => sleep(Duration::from_secs(1)).await,
        }
        tries += 1;
    }
}

async fn make_links(stack: &Stack) -> Result<Vec<String>> {
    let mut codes = Vec::new();
    for number in 0..LINKS {
        let target = format!("https://example.com/{number}");
        let body = json!({ "target": target }).to_string();
        let response = stack.admin(Method::POST, "/links", &body, 201).await?;
        codes.push(response["code"].as_str().context("no code")?.to_owned());
    }
    Ok(codes)
}

/// Each request is from another user.
fn buyers(current: &Arc<RwLock<String>>) -> Ask {
    let current = Arc::clone(current);
    Arc::new(move |number| {
        let sale = current.read().unwrap_or_else(PoisonError::into_inner);
        let user = format!("buyer-{number}");
        load::request(
            "POST",
            &format!("/sales/{sale}/orders"),
            &[("x-user-id", &user)],
        )
    })
}

fn followers(links: Vec<String>) -> Ask {
    Arc::new(move |number| {
        let at = number as usize % links.len();
        let code = links.get(at).map_or("", String::as_str);
        load::request("GET", &format!("/{code}"), &[])
    })
}

fn addresses(stack: &Stack) -> Result<(SocketAddr, SocketAddr)> {
    let gateway = stack.gateway_authority().parse()?;
    let links = stack.link_gateway.as_ref().context("no link gateway")?;
    let links = links.url().trim_start_matches("http://").parse()?;
    Ok((gateway, links))
}

/// Half of the capacity of both kinds of load at the same time.
async fn rates(
    settings: &Settings,
    gateway: SocketAddr,
    buyers: &Ask,
    link_gateway: SocketAddr,
    followers: &Ask,
) -> Result<(f64, f64)> {
    if let Some(rate) = settings.per_second {
        return Ok((rate, rate));
    }
    let (buyers, followers) = (Arc::clone(buyers), Arc::clone(followers));
    let both = tokio::join!(
        tokio::task::spawn_blocking(move || load::capacity(gateway, &buyers)),
        tokio::task::spawn_blocking(move || load::capacity(link_gateway, &followers)),
    );
    Ok((both.0?? / 2.0, both.1?? / 2.0))
}

/// A short description of a load's results.
pub(crate) fn in_words(sample: &LoadSample) -> String {
    let LoadSample {
        answers,
        errors,
        p99_ms,
        broken,
    } = sample;
    let mut text = format!("{answers} answers, {errors} of them 5xx, worst p99 {p99_ms:.1} ms");
    if *broken > 0 {
        text += &format!(", {broken} windows broken");
    }
    text
}
