//! The cost of a request in the filters' VMs, independent of the machine.
//!
//! The built filters run in a Proxy-Wasm host for tests, gate and bridge together, before a real Redis. Counted are
//! wasm instructions (fuel), calls from the VM to the host, bytes copied between the two, and commands for Redis: the
//! same on every machine, so that a change that costs more is seen at once. Ticks do not count: they come so often a
//! second, however many requests there are.

mod events;
mod path;
pub mod profile;
mod redis;

pub use path::Path;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use weir_base::id::{SaleId, UserId};
use weir_base::key::{KeyRing, SigningKey};
use weir_host_test::{Host, Stream};
use weir_sale::token;

/// Requests of a scenario: one batch's worth.
pub const REQUESTS: u64 = 64;

/// Requests that make batches of one, four and eight, after which only a full one goes.
const BUSY: u64 = 1 + 4 + 8;

/// Where the virtual clock starts.
const NOW_MS: u64 = 1_700_000_000_000;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A browser's.
const USER_AGENT: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 \
    (KHTML, like Gecko) Version/18.1 Mobile/15E148 Safari/604.1";

/// As in the benchmark.
const USER_LIMIT: &str = r#"{ "user_header": "x-user-id", "rules": [{ "name": "per-user", "key": ["user"],
    "slots": 32768, "limit": { "rate": 1000000, "per": "1s" } }] }"#;

/// Of one request, all VMs together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    /// What happens.
    pub scenario: &'static str,
    /// Wasm instructions.
    pub fuel: f64,
    /// Calls from the VMs to the host.
    pub host_calls: f64,
    /// Bytes copied between VMs and host.
    pub bytes_copied: f64,
    /// Commands for Redis.
    pub redis_commands: f64,
}

/// The costs of every scenario.
///
/// # Errors
/// When a filter cannot be built or a Redis not started, and when a request is not answered as it must be.
pub fn all() -> Result<Vec<Cost>> {
    let mut path = Path::start(false)?;
    let mut costs = vec![
        path.cost("rejected locally: no token", 403, |n| order("tokened", n))?,
        path.cost("rejected locally: not started", 403, |n| order("later", n))?,
        path.cost("rejected locally: sold out", 409, |n| order("gone", n))?,
        path.cost("order token minted", 200, |n| RequestSpec {
            path: "/sales/open/checkout".to_owned(),
            ..order("open", n)
        })?,
        path.cost_of_batch("admission in Redis, 64 in a batch", 0, |n| order("open", n))?,
        path.cost_of_batch(
            "order token checked, and admission, 64 in a batch",
            0,
            with_token,
        )?,
    ];
    costs.push(path.cost_one_by_one("admission in Redis, 1 in a batch", 1_000)?);
    let mut limited = Path::start(true)?;
    costs.push(limited.cost_of_batch(
        "admission with limits on user and address, 64 in a batch",
        0,
        |n| order("open", n),
    )?);
    costs.push(user_limit()?);
    let mut existing = Path::for_links(1_000)?;
    costs.push(existing.cost("redirect from memory", 302, click)?);
    costs.push(existing.cost("redirect from memory, first click", 302, first_click)?);
    let mut unknown = Path::for_links(0)?;
    costs.push(unknown.cost_of_batch("redirect from Redis, 64 in a batch", 302, click)?);
    costs.extend(events::all()?);
    Ok(costs)
}

/// One request.
#[derive(Debug, Clone)]
pub struct RequestSpec {
    method: &'static str,
    host: &'static str,
    path: String,
    address: String,
    user_agent: Option<&'static str>,
    user: String,
    token: Option<String>,
}

fn order(sale: &str, user: u64) -> RequestSpec {
    RequestSpec {
        method: "POST",
        host: "localhost",
        path: format!("/sales/{sale}/orders"),
        address: "192.0.2.1".to_owned(),
        user_agent: None,
        user: format!("u{user:011}"),
        token: None,
    }
}

/// A click on the link of number `n`.
fn click(n: u64) -> RequestSpec {
    RequestSpec {
        method: "GET",
        host: "bench.test",
        user_agent: Some(USER_AGENT),
        path: format!("/{}", link_code(n)),
        ..order("", n)
    }
}

/// The same, by somebody who has not clicked yet: a row of its own for the statistics.
fn first_click(n: u64) -> RequestSpec {
    RequestSpec {
        address: format!("198.51.100.{n}"),
        ..click(n)
    }
}

/// Seven digits.
fn link_code(n: u64) -> String {
    format!("{:07}", 1_000_003 * (n + 1))
}

fn with_token(user: u64) -> RequestSpec {
    let mint = || {
        let key = SigningKey::new("t1", SECRET.as_bytes()).ok()?;
        let (sale, user) = (
            SaleId::new("tokened").ok()?,
            UserId::new(format!("u{user:011}")).ok()?,
        );
        Some(token::mint(
            &KeyRing::new(vec![key]).ok()?,
            &sale,
            &user,
            NOW_MS - 5_000,
        ))
    };
    RequestSpec {
        token: mint(),
        ..order("tokened", user)
    }
}

impl RequestSpec {
    fn send(&self, host: &Host) -> Stream {
        let mut request = host
            .request(0)
            .method(self.method)
            .header(":authority", self.host)
            .header("x-forwarded-for", &self.address)
            .path(&self.path)
            .header("x-user-id", &self.user)
            .property(&["source", "address"], "192.0.2.1:1");
        if let Some(user_agent) = self.user_agent {
            request = request.header("user-agent", user_agent);
        }
        if let Some(token) = &self.token {
            request = request.header("x-weir-order-token", token);
        }
        request.send()
    }
}

/// A limit per user, of requests that pass.
fn user_limit() -> Result<Cost> {
    let host = Host::builder()
        .module_file(weir_stack::wasm::filter("ratelimit")?)
        .vm_id("weir-ratelimit")
        .plugin_config(USER_LIMIT)
        .start_at_ns(NOW_MS * 1_000_000)
        .start()
        .context("the limiter does not start")?;
    let pass = |from: u64| {
        let mut users = from..from + REQUESTS;
        users.all(|user| {
            let request = host.request(0).path("/api/things");
            request
                .header("x-user-id", format!("u{user:011}"))
                .send()
                .is_continued()
        })
    };
    // The first makes the table.
    ensure!(pass(0), "somebody is refused");
    let before = host.cost();
    ensure!(pass(REQUESTS), "somebody is refused");
    let after = host.cost();
    Ok(Cost::between(
        "local limit per user",
        &before,
        &after,
        REQUESTS,
        0,
    ))
}

impl Cost {
    fn between(
        scenario: &'static str,
        before: &weir_host_test::Cost,
        after: &weir_host_test::Cost,
        requests: u64,
        redis_commands: u64,
    ) -> Self {
        let each = |count: u64| count as f64 / requests as f64;
        Self {
            scenario,
            fuel: each(after.fuel - before.fuel),
            host_calls: each(after.host_calls_total() - before.host_calls_total()),
            bytes_copied: each(after.bytes_copied - before.bytes_copied),
            redis_commands: each(redis_commands),
        }
    }
}
