//! `cargo xtask bench links`: the rate of batch link creation, and the memory of links in Redis.

use super::keyspace::{Keyspace, used};
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weir_scripts::keys::DEFAULT_PREFIX;
use weir_stack::http::{Connection, Method};
use weir_stack::origin::{self, Origin, OriginOptions};
use weir_stack::redis::{RedisOptions, RedisServer};
use weir_stack::report::Console;
use weir_stack::{DataDir, Secrets, ports, tools};
use weir_tasks::up::Stop;

/// Links per request while Redis is filled.
const BATCH: u64 = 1_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Number of links to write to Redis
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    links: u64,

    /// Also write all numbers to this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// The Redis memory of a number of links.
#[derive(Debug, Clone, Copy, Serialize)]
struct LinkMemory {
    links: u64,
    per_s: f64,
    /// Bytes per link of the memory that Redis' allocator has allocated.
    bytes_by_info: f64,
    /// Bytes per link by MEMORY USAGE, which counts a key and its value without the surrounding tables.
    bytes_by_usage: f64,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let binary = origin::ensure_built_release()?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let filled = runtime.block_on(async {
        let mut stop = Stop::new()?;
        tokio::select! {
            filled = measure(arguments.links, &binary) => filled,
            () = stop.wait_for_signal() => anyhow::bail!("stopped"),
        }
    })?;
    if let Some(file) = &arguments.report {
        std::fs::write(file, serde_json::to_string_pretty(&filled)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// All running processes, newest first, which is also the stop order.
struct LinkBench {
    origin: Origin,
    redis: RedisServer,
    token: String,
    _data: DataDir,
}

async fn start(binary: &Path) -> Result<LinkBench> {
    let data = DataDir::open(None)?;
    let tool = tools::Redis::find_or_get(&mut Console)?;
    let options = RedisOptions {
        // The origin's log makes links durable.
        durable: false,
        ..RedisOptions::durable(ports::free()?, &data.path, &data.path.join("redis.log"))
    };
    let redis = RedisServer::start_with(&tool, &options).await?;
    let domains = data.path.join("links.json");
    let json = json!({"domains": [{"id": "s", "hosts": ["s.example.com"]}]});
    std::fs::write(&domains, json.to_string())?;
    let secrets = Secrets::random()?;
    let token = secrets.admin_token.clone();
    let options = OriginOptions {
        events_log: None,
        fitment: None,
        edge_secret: None,
        port: ports::free()?,
        admin_port: ports::free()?,
        database: data.path.join("weir.db"),
        redis_url: redis.url(),
        redis_ca: None,
        key_prefix: DEFAULT_PREFIX.to_owned(),
        risk_rules: None,
        links: Some(domains),
        // No payments occur.
        provider_port: 9,
        flags: vec![],
        secrets,
    };
    let origin = Origin::start(binary, options, &data.path.join("origin.log")).await?;
    Ok(LinkBench {
        origin,
        redis,
        token,
        _data: data,
    })
}

async fn measure(links: u64, binary: &Path) -> Result<LinkMemory> {
    let mut running = start(binary).await?;
    let filled = fill(&mut running, links).await?;
    wait_until_drained(&running).await?;
    Ok(filled)
}

/// Waits until the cold store has all created links.
async fn wait_until_drained(running: &LinkBench) -> Result<()> {
    let url = format!("{}/metrics", running.origin.admin_url());
    let start = Instant::now();
    loop {
        let metrics = weir_stack::http::get(&url).await?.text();
        let waiting = metrics
            .lines()
            .find_map(|line| line.strip_prefix("weir_origin_link_log_waiting_bytes "));
        if waiting == Some("0") {
            println!(
                "the cold store had all links {:.1} s later",
                start.elapsed().as_secs_f64()
            );
            return Ok(());
        }
        ensure!(
            start.elapsed() < Duration::from_secs(120),
            "the cold store does not accept links"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Fills the empty Redis. The additional memory is that of the links.
async fn fill(running: &mut LinkBench, links: u64) -> Result<LinkMemory> {
    let mut redis = running.redis.connection().await?;
    let before = used(&mut redis).await?;
    let authority = running.origin.admin_url();
    let mut http = Connection::open(authority.trim_start_matches("http://")).await?;
    let bearer = format!("Bearer {}", running.token);
    let start = Instant::now();
    for first in (0..links).step_by(BATCH as usize) {
        let count = BATCH.min(links - first);
        let batch: Vec<_> = (first..first + count).map(link).collect();
        let body = serde_json::to_vec(&batch)?;
        let headers = [("authorization", bearer.as_str())];
        let answer = http.send(Method::POST, "/links", &headers, body).await?;
        ensure!(
            answer.status == 201,
            "unexpected answer to a batch: {}",
            answer.status
        );
    }
    let per_s = links as f64 / start.elapsed().as_secs_f64();
    let after = used(&mut redis).await?;
    let keys = Keyspace::scan(&mut redis, &format!("{DEFAULT_PREFIX}:link")).await?;
    let filled = LinkMemory {
        links,
        per_s,
        bytes_by_info: (after - before) as f64 / links as f64,
        bytes_by_usage: keys.bytes as f64 / keys.keys as f64,
    };
    println!("{links} links in batches of {BATCH}: {per_s:.0} links/s");
    println!(
        "a link in Redis: {:.1} bytes by INFO memory, {:.1} by MEMORY USAGE",
        filled.bytes_by_info, filled.bytes_by_usage
    );
    Ok(filled)
}

/// A link with a target of 100 bytes.
fn link(n: u64) -> serde_json::Value {
    let path = format!("https://shop.example.com/campaigns/spring/{n:010}/");
    json!({"target": format!("{path:x<100}")})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_a_hundred_bytes() {
        assert_eq!(link(7)["target"].as_str().unwrap().len(), 100);
    }
}
