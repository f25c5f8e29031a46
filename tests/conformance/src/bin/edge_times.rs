//! `weir-edge-times <rounds> <requests>`: the size of each edge, and its response times in its runtime, as JSON.
//! Measures the shipped builds.

#![allow(clippy::indexing_slicing)]

use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_conformance::hosts::served::client::{Ask, send};
use weir_conformance::hosts::served::world::World;
use weir_conformance::hosts::wasi::Wasi;
use weir_conformance::shop::{self, HOST, LINK, ORDERS, SALE};
use weir_stack::edge::{self, Build, Server};
use weir_stack::workspace;

/// The requests: kind, method, path, and expected status.
const ASKED: [(&str, &str, &str, u16); 3] = [
    ("a link", "GET", LINK, 302),
    ("the status of a sale", "GET", SALE, 200),
    ("sold out", "POST", ORDERS, 409),
];

const USER: (&str, &str) = ("x-user-id", "alice");
const TARGET: &str = "https://target.example/";
const BAND: &str = "none";

/// The publishing interval of feeds, which are valid for 5 s.
const PUBLISH_EVERY: Duration = Duration::from_secs(1);

/// Longer than an edge takes to read its feeds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures a platform, with the number of rounds and requests per round.
type Measure = fn(usize, usize) -> Result<Value>;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).map(|count| count.parse::<usize>());
    let mut next = || arguments.next().context("how many rounds, and requests?");
    let (rounds, requests) = (next()??, next()??);
    ensure!(rounds > 0 && requests > 0, "nothing to measure");
    let platforms: [(&str, Measure); 3] = [
        ("Cloudflare Workers", cloudflare),
        ("Fastly Compute", fastly),
        ("wasi:http", wasi),
    ];
    let (mut edges, mut absent) = (vec![], vec![]);
    for (name, measure) in platforms {
        match measure(rounds, requests) {
            Ok(mut measured) => {
                measured["name"] = name.into();
                edges.push(measured);
            }
            Err(error) => absent.push(json!([name, format!("{error:#}")])),
        }
    }
    println!("{:#}", json!({ "edges": edges, "absent": absent }));
    Ok(())
}

fn now_ms() -> Result<u64> {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(u64::try_from(since_epoch.as_millis())?)
}

// --- platforms

fn cloudflare(rounds: usize, requests: usize) -> Result<Value> {
    let package = edge::workerd()?.join("node_modules/workerd/package.json");
    let package: Value = serde_json::from_slice(&std::fs::read(package)?)?;
    let version = package["version"].as_str().context("no version")?;
    let world = World::start()?;
    let variables = shop::variables_at(&shop::config(), world.address);
    let server = edge::cloudflare(Build::Shipped, &variables)?;
    Ok(json!({
        "runtime": format!("workerd {version}"),
        "gzipped": edge::gzipped(&edge::worker_files(Build::Shipped)?)?,
        "answers": Shop { world, server, published: None }.measure(rounds, requests)?,
    }))
}

fn fastly(rounds: usize, requests: usize) -> Result<Value> {
    let version = Command::new(edge::viceroy()?).arg("--version").output()?;
    let version = String::from_utf8(version.stdout)?;
    let world = World::start()?;
    let variables = shop::variables_at(&shop::config(), world.address);
    let server = edge::fastly(Build::Shipped, world.address, &variables)?;
    Ok(json!({
        "runtime": format!("Viceroy {}", version.trim().trim_start_matches("viceroy ")),
        "gzipped": edge::gzipped(&[edge::fastly_module(Build::Shipped)?])?,
        "answers": Shop { world, server, published: None }.measure(rounds, requests)?,
    }))
}

/// Without a socket: the runtime measures the time itself.
fn wasi(rounds: usize, requests: usize) -> Result<Value> {
    let mut edge = Wasi::start()?;
    let config = shop::config();
    let env = shop::variables(&config, "http://origin.test", "http://gateway.test");
    edge.order(&json!({ "start": { "env": env, "folder": null } }))?;
    let now_ms = now_ms()?;
    let feeds = shop::feeds(1, BAND, TARGET, now_ms)?.into_iter();
    let feeds: Value = feeds
        .map(|(path, text)| (path, json!([200, text])))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let answers = each(rounds, requests, |method, path, status| {
        let done = edge.order(&json!({ "ask": {
            "now_ms": now_ms, "method": method, "path": path, "host": HOST, "headers": [USER], "body": "",
            "feeds": feeds, "gateway": { "status": 500, "headers": [], "body": "" },
        } }))?;
        ensure!(done["got"]["status"] == status, "{path}: {done}");
        let took_us = done["took_us"].as_u64().context("no time")?;
        Ok(Duration::from_micros(took_us))
    })?;
    Ok(json!({
        "runtime": format!("wasmtime-wasi-http {}", wasmtime()?),
        "gzipped": edge::gzipped(&[edge::wasi_component()?])?,
        "answers": answers,
    }))
}

/// The version in the lock file.
fn wasmtime() -> Result<String> {
    let lock = std::fs::read_to_string(workspace::root().join("edge/Cargo.lock"))?;
    let (_, rest) = lock
        .split_once("name = \"wasmtime-wasi-http\"\nversion = \"")
        .context("the lock file has no wasmtime")?;
    let (version, _) = rest.split_once('"').context("no version")?;
    Ok(version.to_owned())
}

// --- measuring

/// An edge that is a server, and the origin and gateway around it.
struct Shop {
    world: World,
    server: Server,
    published: Option<Instant>,
}

impl Shop {
    fn measure(mut self, rounds: usize, requests: usize) -> Result<Value> {
        // The platform determines when it loads its feeds.
        let started = Instant::now();
        for (_, method, path, status) in ASKED {
            while let Err(error) = self.ask(method, path, status) {
                ensure!(
                    started.elapsed() < PATIENCE,
                    "{error:#}; {}",
                    self.server.log()
                );
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        each(rounds, requests, |method, path, status| {
            self.ask(method, path, status)
        })
    }

    /// Returns the response time, on a new connection.
    fn ask(&mut self, method: &str, path: &str, status: u16) -> Result<Duration> {
        if self
            .published
            .is_none_or(|at| at.elapsed() >= PUBLISH_EVERY)
        {
            self.world.traffic().feeds = shop::feeds(1, BAND, TARGET, now_ms()?)?;
            self.published = Some(Instant::now());
        }
        let ask = Ask {
            head: [method, path, HOST].map(|text| text.as_bytes().to_vec()),
            headers: vec![(USER.0.to_owned(), USER.1.as_bytes().to_vec())],
            body: vec![],
        };
        let started = Instant::now();
        let actual = send(self.server.address, &ask)?;
        let elapsed = started.elapsed();
        ensure!(
            actual.status == status,
            "{path} is answered {}",
            actual.status
        );
        Ok(elapsed)
    }
}

/// Sends requests of each kind in turn, sequentially, round by round.
fn each(
    rounds: usize,
    requests: usize,
    mut ask: impl FnMut(&str, &str, u16) -> Result<Duration>,
) -> Result<Value> {
    let mut answers = ASKED.map(|(subject, ..)| json!({ "what": subject, "rounds": [] }));
    for _ in 0..rounds {
        for ((_, method, path, status), answer) in ASKED.into_iter().zip(&mut answers) {
            let elapsed = (0..requests).map(|_| ask(method, path, status));
            let mut elapsed = elapsed.collect::<Result<Vec<_>>>()?;
            elapsed.sort_unstable();
            let quantile = |of_100: usize| {
                let at = (elapsed.len() * of_100).div_ceil(100).saturating_sub(1);
                elapsed.get(at).map(|elapsed| elapsed.as_secs_f64() * 1e3)
            };
            let round = json!({ "p50_ms": quantile(50), "p99_ms": quantile(99) });
            answer["rounds"]
                .as_array_mut()
                .context("no rounds")?
                .push(round);
        }
    }
    Ok(answers.to_vec().into())
}
