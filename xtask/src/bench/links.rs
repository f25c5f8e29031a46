//! `cargo xtask bench links`: how many short links an origin makes, and what they take in Redis.

use super::keyspace::{Keyspace, used};
use super::turns;
use crate::up::Stop;
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use weir_scripts::keys::DEFAULT_PREFIX;
use weir_stack::http::{Connection, Method};
use weir_stack::origin::{self, Origin, OriginOptions};
use weir_stack::redis::{RedisOptions, RedisServer};
use weir_stack::report::Console;
use weir_stack::{DataDir, Secrets, command, ports, tools};

const LUA: &str = include_str!("links.lua");

/// Links of one request while Redis is filled.
const BATCH: u64 = 1_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many connections make links at the same time
    #[arg(long, default_value_t = 32)]
    connections: u32,

    /// For how many seconds, in each round; one round before the first is not counted
    #[arg(long, default_value_t = 10)]
    seconds: u32,

    /// How often
    #[arg(long, default_value_t = 3)]
    rounds: u32,

    /// How many links Redis is filled with; 0: none
    #[arg(long, default_value_t = 1_000_000)]
    links: u64,

    /// Write all numbers to this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// What wrk has seen in one round.
#[derive(Debug, Clone, Copy, Serialize)]
struct Round {
    per_s: f64,
    errors: u64,
    p50_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    max_ms: f64,
}

/// What a number of links takes in Redis.
#[derive(Debug, Clone, Copy, Serialize)]
struct Filled {
    links: u64,
    per_s: f64,
    /// Of all that Redis' allocator has given out, a link's share.
    bytes_by_info: f64,
    /// By MEMORY USAGE, which counts a key and its value, and not the tables around them.
    bytes_by_usage: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    rounds: Vec<Round>,
    filled: Option<Filled>,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    turns::check_tools()?;
    let binary = origin::ensure_built_release()?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let report = runtime.block_on(async {
        let mut stop = Stop::new()?;
        tokio::select! {
            measured = measure(arguments, &binary) => measured,
            () = stop.asked() => anyhow::bail!("stopped"),
        }
    })?;
    if let Some(file) = &arguments.report {
        std::fs::write(file, serde_json::to_string_pretty(&report)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    let failed = report.rounds.iter().any(|round| round.errors > 0);
    Ok(ExitCode::from(u8::from(failed)))
}

/// Everything that runs, with the newest first: it ends first, too.
struct Running {
    origin: Origin,
    redis: RedisServer,
    token: String,
    _data: DataDir,
}

async fn start(binary: &Path) -> Result<Running> {
    let data = DataDir::open(None)?;
    let tool = tools::Redis::find_or_get(&mut Console)?;
    let options = RedisOptions {
        // What makes a link durable is the origin's log.
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
        port: ports::free()?,
        admin_port: ports::free()?,
        database: data.path.join("weir.db"),
        redis_url: redis.url(),
        redis_ca: None,
        key_prefix: DEFAULT_PREFIX.to_owned(),
        risk_rules: None,
        links: Some(domains),
        secrets,
    };
    let origin = Origin::start(binary, options, &data.path.join("origin.log")).await?;
    Ok(Running {
        origin,
        redis,
        token,
        _data: data,
    })
}

async fn measure(arguments: &Arguments, binary: &Path) -> Result<Report> {
    let mut running = start(binary).await?;
    let script = running._data.path.join("links.lua");
    std::fs::write(&script, LUA)?;
    let mut rounds = Vec::new();
    for n in 0..=arguments.rounds {
        let round = storm(arguments, &running, &script)?;
        let note = if n == 0 { " (not counted)" } else { "" };
        println!("round {n}: {}{note}", line(&round));
        rounds.extend((n > 0).then_some(round));
        wait_until_drained(&running).await?;
    }
    let filled = match arguments.links {
        0 => None,
        links => Some(fill(&mut running, links).await?),
    };
    Ok(Report { rounds, filled })
}

fn line(round: &Round) -> String {
    format!(
        "{:.0} links/s, p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, longest {:.1} ms, {} errors",
        round.per_s, round.p50_ms, round.p99_ms, round.p999_ms, round.max_ms, round.errors
    )
}

fn storm(arguments: &Arguments, running: &Running, script: &Path) -> Result<Round> {
    let mut wrk = Command::new("wrk");
    wrk.args(["-t", "1", "-c", &arguments.connections.to_string()]);
    wrk.args(["-d", &format!("{}s", arguments.seconds), "--timeout", "10s"]);
    wrk.arg("-s").arg(script);
    wrk.arg("-H")
        .arg(format!("authorization: Bearer {}", running.token));
    wrk.arg(running.origin.admin_url());
    let limit = Duration::from_secs(u64::from(arguments.seconds) + 60);
    let said = command::succeed(&mut wrk, limit)?;
    said.lines()
        .find_map(read)
        .with_context(|| format!("wrk said nothing of use:\n{said}"))
}

/// The line that `links.lua` writes.
fn read(line: &str) -> Option<Round> {
    let numbers = line.strip_prefix("weir ")?;
    let numbers: Vec<f64> = numbers
        .split(' ')
        .map(|number| number.parse().ok())
        .collect::<Option<_>>()?;
    let &[requests, micros, errors, p50, p99, p999, max] = numbers.as_slice() else {
        return None;
    };
    Some(Round {
        per_s: (requests - errors) / micros * 1e6,
        errors: errors as u64,
        p50_ms: p50 / 1e3,
        p99_ms: p99 / 1e3,
        p999_ms: p999 / 1e3,
        max_ms: max / 1e3,
    })
}

/// The cold store has all that was made: the next round begins as this one did.
async fn wait_until_drained(running: &Running) -> Result<()> {
    let url = format!("{}/metrics", running.origin.admin_url());
    let start = Instant::now();
    loop {
        let metrics = weir_stack::http::get(&url).await?.text();
        let waiting = metrics
            .lines()
            .find_map(|line| line.strip_prefix("weir_origin_link_log_waiting_bytes "));
        if waiting == Some("0") {
            println!(
                "         the cold store had all of it {:.1} s later",
                start.elapsed().as_secs_f64()
            );
            return Ok(());
        }
        ensure!(
            start.elapsed() < Duration::from_secs(120),
            "the cold store does not take links"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Into an empty Redis, so that all that it needs more is the links'.
async fn fill(running: &mut Running, links: u64) -> Result<Filled> {
    let mut redis = running.redis.connection().await?;
    redis::cmd("FLUSHALL").exec_async(&mut redis).await?;
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
            "a batch was answered {}",
            answer.status
        );
    }
    let per_s = links as f64 / start.elapsed().as_secs_f64();
    let after = used(&mut redis).await?;
    let keys = Keyspace::scan(&mut redis, &format!("{DEFAULT_PREFIX}:link")).await?;
    let filled = Filled {
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
    wait_until_drained(running).await?;
    Ok(filled)
}

/// With a target of 100 bytes.
fn link(n: u64) -> serde_json::Value {
    let path = format!("https://shop.example.com/campaigns/spring/{n:010}/");
    json!({"target": format!("{path:x<100}")})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_line_is_read() {
        let round = read("weir 100000 10000000 0 900 2500 6900 12000").unwrap();
        assert_eq!((round.per_s, round.errors), (10_000.0, 0));
        assert_eq!((round.p50_ms, round.p99_ms, round.p999_ms), (0.9, 2.5, 6.9));
        assert!(read("Running 10s test").is_none());
    }

    #[test]
    fn targets_have_a_hundred_bytes() {
        assert_eq!(link(7)["target"].as_str().unwrap().len(), 100);
        // As the Lua writes them.
        let lua = "https://shop.example.com/campaigns/spring/".len() + 6 + 1 + 10 + 41;
        assert_eq!(lua, 100);
    }
}
