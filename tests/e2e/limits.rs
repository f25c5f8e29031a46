//! Rate limits per user and per address, with identities from Envoy.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::time::sleep;
use weir_stack::Stack;
use weir_stack::envoy::{GATE, set};
use weir_stack::http::{Connection, Method, Response};
use weir_tests::{stock_balance, until, verdict};

/// The lowest possible rate, so that almost nothing recovers during a test.
const RATE_PER_S: u32 = 1;

const USER_BURST: usize = 5;
const ADDRESS_BURST: usize = 40;

/// A caller with more successful requests than this is not limited at all.
const TRIES_MAX: usize = 400;

const HOME: Ipv4Addr = Ipv4Addr::new(127, 0, 7, 1);
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 7, 2);

/// A gateway of two workers with low limits, and a sale named after its prefix.
async fn limited(sale: &str) -> Result<Stack> {
    let rate = |burst| json!({ "rate": RATE_PER_S, "per": "1s", "burst": burst });
    let stack = Stack::builder()
        .workers(2)
        .key_prefix(sale)
        .edit_config(move |config| {
            config.edit_filter(GATE, |json| {
                set(json, "/limits/user", rate(USER_BURST))?;
                set(json, "/limits/address", rate(ADDRESS_BURST))
            })
        })
        .start()
        .await?;
    stack.open_sale(sale, 1_000, 4).await?;
    Ok(stack)
}

/// A caller at one address, with a new connection per request, to reach both workers.
struct Caller<'a> {
    stack: &'a Stack,
    sale: &'a str,
    address: Ipv4Addr,
}

impl Caller<'_> {
    async fn buy(&self, user: &str, forwarded_for: Option<&str>) -> Result<Response> {
        let authority = self.stack.gateway_authority();
        let mut connection = Connection::open_from(self.address, &authority).await?;
        let mut headers = vec![("x-user-id", user)];
        headers.extend(forwarded_for.map(|address| ("x-forwarded-for", address)));
        let path = format!("/sales/{}/orders", self.sale);
        connection.send(Method::POST, &path, &headers, "").await
    }

    /// Sends requests as `users` until one is limited. Returns the number that passed, and the refusal.
    async fn flood(&self, users: impl Fn(usize) -> String) -> Result<(usize, Response)> {
        for passed in 0..TRIES_MAX {
            let answer = self.buy(&users(passed), None).await?;
            if answer.status == 429 {
                return Ok((passed, answer));
            }
            let is_decided = matches!(verdict(&answer), "granted" | "cap_reached");
            ensure!(is_decided, "{}: {}", answer.status, answer.text());
        }
        anyhow::bail!("never limited")
    }
}

/// The wait in a limited caller's answer.
fn told_to_wait(answer: &Response) -> Result<Duration> {
    ensure!((answer.status, verdict(answer)) == (429, "rate_limited"));
    ensure!(answer.json()?["error"] == "rate_limited");
    let seconds = answer.header("retry-after").context("no Retry-After")?;
    Ok(Duration::from_secs(seconds.parse()?))
}

/// The gateway's count of limited requests, once it is at least `least`.
async fn counted(stack: &Stack, least: u64) -> Result<u64> {
    let stat = "wasmcustom.weir_seckill_gate_requests_total.verdict.rate_limited";
    until("the gateway has told", async || {
        stack
            .envoy
            .stat(stat)
            .await
            .is_ok_and(|count| count >= least)
    })
    .await?;
    stack.envoy.stat(stat).await
}

#[tokio::test(flavor = "multi_thread")]
async fn flooding_user_is_limited_and_others_are_not() -> Result<()> {
    let stack = limited("user-flood").await?;
    // A user has one limit across all addresses and workers.
    let (mut passed, mut answers) = (0, Vec::new());
    for last in 1..=50 {
        let address = Ipv4Addr::new(127, 0, 8, last);
        let caller = caller(&stack, "user-flood", address);
        let answer = caller.buy("mallory", None).await?;
        match answer.status {
            429 => answers.push(answer),
            _ => passed += 1,
        }
    }
    assert!(passed >= USER_BURST, "{passed}");
    let limited = answers.first().context("mallory is never limited")?;
    told_to_wait(limited)?;
    let limited_count = answers.len() as u64;
    assert_eq!(counted(&stack, limited_count).await?, limited_count);
    let home = caller(&stack, "user-flood", HOME);
    for user in ["alice", "bob", "carol"] {
        let answer = home.buy(user, None).await?;
        assert_eq!((answer.status, verdict(&answer)), (201, "granted"));
    }
    assert_eq!(stock_balance(&stack, "user-flood").await?.orders, 4);
    // A refusal consumes nothing, so a caller passes after the announced wait.
    let last = home.flood(|_| "mallory".to_owned()).await?.1;
    sleep(told_to_wait(&last)?).await;
    let answer = home.buy("mallory", None).await?;
    assert_eq!((answer.status, verdict(&answer)), (409, "cap_reached"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn flooding_user_behind_nat_leaves_quota_to_others() -> Result<()> {
    let stack = limited("nat").await?;
    let home = caller(&stack, "nat", HOME);
    for _ in 0..10 * ADDRESS_BURST {
        home.buy("mallory", None).await?;
    }
    // Only mallory's admitted requests were charged to the address.
    for n in 0..ADDRESS_BURST - 2 * USER_BURST {
        let answer = home.buy(&format!("neighbour-{n}"), None).await?;
        assert_eq!((answer.status, verdict(&answer)), (201, "granted"), "{n}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn flooding_address_is_limited_across_names_and_others_are_not() -> Result<()> {
    let stack = limited("address-flood").await?;
    let home = caller(&stack, "address-flood", HOME);
    let (passed, limited) = home.flood(|n| format!("name-{n}")).await?;
    assert!(passed >= ADDRESS_BURST, "{passed}");
    assert_eq!(counted(&stack, 1).await?, 1);
    // The next user is new, so the address was limited.
    let elsewhere = caller(&stack, "address-flood", ELSEWHERE);
    let name = format!("name-{passed}");
    let answer = elsewhere.buy(&name, None).await?;
    assert_eq!((answer.status, verdict(&answer)), (201, "granted"));
    sleep(told_to_wait(&limited)?).await;
    let answer = home.buy("patient", None).await?;
    assert_eq!((answer.status, verdict(&answer)), (201, "granted"));
    assert_eq!(
        stock_balance(&stack, "address-flood").await?.orders,
        passed as u64 + 2
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn client_cannot_choose_its_address() -> Result<()> {
    let stack = limited("forged").await?;
    let home = caller(&stack, "forged", HOME);
    let since = Instant::now();
    let mut passed = 0;
    for n in 0..TRIES_MAX {
        let forged = format!("198.51.{}.{}", n / 250, n % 250 + 1);
        let answer = home.buy(&format!("name-{n}"), Some(&forged)).await?;
        passed += usize::from(answer.status != 429);
    }
    // The maximum for one address in this time, rounded up to a second.
    let rate = since.elapsed().as_secs() + 1;
    let allowed = ADDRESS_BURST as u64 + rate * u64::from(RATE_PER_S);
    assert!(passed >= ADDRESS_BURST, "{passed}");
    assert!(passed as u64 <= allowed, "{passed} of {allowed}");
    Ok(())
}

fn caller<'a>(stack: &'a Stack, sale: &'a str, address: Ipv4Addr) -> Caller<'a> {
    Caller {
        stack,
        sale,
        address,
    }
}
