//! `cargo xtask bench fitment`: import rates into SQL and Redis, memory in Redis, and the Redis time of 1,000 pairs,
//! compared with the plan of the seed document.

use super::keyspace::used;
use anyhow::{Context, Result, ensure};
use redis::aio::MultiplexedConnection;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use weir_fitment::redis::fit_put::NewerEntryPolicy;
use weir_fitment::redis::keys::FitmentKeys;
use weir_fitment::redis::{fit_put, fit_query};
use weir_fitment::{Offset, Plan, SEGMENT_LEN, Shape, Sku, Spu};
use weir_scripts::Call;
use weir_scripts::keys::DEFAULT_PREFIX;
use weir_stack::origin::{self, Origin, OriginOptions};
use weir_stack::redis::{RedisOptions, RedisServer};
use weir_stack::report::Console;
use weir_stack::{DataDir, Secrets, ports, tools};
use weir_tasks::up::Stop;

/// SKUs and vehicles per query.
const ASKED_SKUS: u32 = 200;
const ASKED_VEHICLES: u32 = 5;

/// Repetitions of the query, after a warm-up.
const ROUNDS: u32 = 2_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Number of SKUs to import
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(200..))]
    skus: u32,

    /// Number of vehicles per SKU
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    fits: u32,

    /// Number of vehicles
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=8_999_998))]
    vehicles: u32,

    /// Origin binary to measure [default: a release build]
    #[arg(long, value_name = "PATH")]
    origin: Option<PathBuf>,

    /// Also write all numbers to this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// The results.
#[derive(Debug, Clone, Serialize)]
struct FitmentFigures {
    relations: u64,
    /// Relations per second of elapsed time, and per second of the importing process's CPU time.
    sql_per_s: f64,
    sql_per_cpu_s: f64,
    sql_bytes_a_relation: f64,
    redis_per_s: f64,
    /// Relations per second of the origin's CPU time, and of Redis' CPU time.
    redis_per_origin_cpu_s: f64,
    redis_per_redis_cpu_s: f64,
    redis_bytes_a_sku: f64,
    queries: Vec<Query>,
}

/// A query of 1,000 pairs, with one plan.
#[derive(Debug, Clone, Serialize)]
struct Query {
    plan: &'static str,
    fits: u32,
    redis_us: f64,
    bytes_a_sku: f64,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let binary = match &arguments.origin {
        Some(binary) => binary.clone(),
        None => origin::ensure_built_release()?,
    };
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let measured = runtime.block_on(async {
        let mut stop = Stop::new()?;
        tokio::select! {
            measured = measure(arguments, &binary) => measured,
            () = stop.wait_for_signal() => anyhow::bail!("stopped"),
        }
    })?;
    if let Some(file) = &arguments.report {
        std::fs::write(file, serde_json::to_string_pretty(&measured)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure(arguments: &Arguments, binary: &Path) -> Result<FitmentFigures> {
    let data = DataDir::open(None)?;
    let spool = data.path.join("imports");
    std::fs::create_dir(&spool)?;
    let database = data.path.join("weir.db");
    let relations = u64::from(arguments.skus) * u64::from(arguments.fits.min(arguments.vehicles));
    let import = |kind: &str, text: String| -> Result<(f64, f64)> {
        let file = data.path.join(kind);
        std::fs::write(&file, text)?;
        import(binary, &database, &spool, kind, &file)
    };
    import("vehicles", vehicles(arguments))?;
    import("products", products(arguments))?;
    let before = std::fs::metadata(&database)?.len();
    let (sql_s, sql_cpu_s) = import("relations", relation_lines(arguments))?;
    let after = std::fs::metadata(&database)?.len();
    println!(
        "{relations} relations into SQL: {:.0}/s, {:.0} per CPU second",
        relations as f64 / sql_s,
        relations as f64 / sql_cpu_s
    );
    let tool = tools::Redis::find_or_get(&mut Console)?;
    let options = RedisOptions {
        // SQL makes relations durable.
        durable: false,
        ..RedisOptions::durable(ports::free()?, &data.path, &data.path.join("redis.log"))
    };
    let server = RedisServer::start_with(&tool, &options).await?;
    let mut redis = server.connection().await?;
    let empty = used(&mut redis).await?;
    let published = publish(
        binary,
        &data,
        &database,
        &spool,
        &server.url(),
        arguments.skus,
    )
    .await?;
    let [clock_s, origin_s] = published;
    let redis_s = processor_s(&mut redis).await?;
    let bytes_a_sku = (used(&mut redis).await? - empty) as f64 / f64::from(arguments.skus);
    println!(
        "{relations} relations into Redis: {:.0}/s; per CPU second: origin {:.0}, Redis {:.0}",
        relations as f64 / clock_s,
        relations as f64 / origin_s,
        relations as f64 / redis_s
    );
    println!(
        "a SKU with {} vehicles in Redis: {bytes_a_sku:.0} bytes, including its route and its share of the map",
        arguments.fits
    );
    Ok(FitmentFigures {
        relations,
        sql_per_s: relations as f64 / sql_s,
        sql_per_cpu_s: relations as f64 / sql_cpu_s,
        sql_bytes_a_relation: (after - before) as f64 / relations as f64,
        redis_per_s: relations as f64 / clock_s,
        redis_per_origin_cpu_s: relations as f64 / origin_s,
        redis_per_redis_cpu_s: relations as f64 / redis_s,
        redis_bytes_a_sku: bytes_a_sku,
        queries: queries(&mut redis).await?,
    })
}

fn vehicles(arguments: &Arguments) -> String {
    let mut text = String::from("vehicle,make,model,year\n");
    for number in 0..arguments.vehicles {
        let _ = writeln!(
            text,
            "{},Make {},Model {},{}",
            1_000_001 + number,
            number % 60,
            number % 900,
            1990 + number % 35
        );
    }
    text
}

fn products(arguments: &Arguments) -> String {
    let mut text = String::from("sku,spu,type,merchant\n");
    for number in 0..arguments.skus {
        let _ = writeln!(
            text,
            "{},{},tyre,m{}",
            sku_number(number),
            sku_number(number / 20 * 20),
            number % 500
        );
    }
    text
}

fn sku_number(number: u32) -> u64 {
    100_012_043_000 + u64::from(number)
}

/// Evenly spread vehicles, different for each SKU.
fn relation_lines(arguments: &Arguments) -> String {
    let count = arguments.fits.min(arguments.vehicles);
    let step = arguments.vehicles / count;
    let mut text = String::with_capacity(21 * arguments.skus as usize * count as usize);
    text.push_str("sku,vehicle\n");
    for number in 0..arguments.skus {
        let shift = number.wrapping_mul(2_654_435_761) % step;
        for at in 0..count {
            let _ = writeln!(
                text,
                "{},{}",
                sku_number(number),
                1_000_001 + shift + at * step
            );
        }
    }
    text
}

/// Imports relations. Returns the elapsed time and the CPU time.
fn import(
    binary: &Path,
    database: &Path,
    spool: &Path,
    kind: &str,
    file: &Path,
) -> Result<(f64, f64)> {
    let before = children_s();
    let start = Instant::now();
    let status = Command::new(binary)
        .arg("--database-url")
        .arg(format!("sqlite://{}", database.display()))
        .arg("--fitment")
        .arg(spool)
        .args(["import", "--kind", kind])
        .arg(file)
        .status()?;
    ensure!(status.success(), "the import of {kind} failed");
    Ok((start.elapsed().as_secs_f64(), children_s() - before))
}

/// The CPU time of ended children, in seconds.
fn children_s() -> f64 {
    processor_ticks("/proc/self/stat", 16) / 100.0
}

/// User and system time from a Linux `stat` file, in ticks of 10 ms: field `from` and the next one.
fn processor_ticks(path: impl AsRef<Path>, from: usize) -> f64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let behind_name = text.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = behind_name.split_whitespace().collect();
    // The first field after the name is the third.
    let field = |number: usize| {
        fields
            .get(number - 3)
            .and_then(|text| text.parse::<f64>().ok())
    };
    field(from).unwrap_or(0.0) + field(from + 1).unwrap_or(0.0)
}

/// The CPU time of Redis since it started, when its statistics are reset.
async fn processor_s(redis: &mut MultiplexedConnection) -> Result<f64> {
    let text: String = redis::cmd("INFO").arg("cpu").query_async(redis).await?;
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.trim().parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    Ok(of("used_cpu_user:") + of("used_cpu_sys:"))
}

/// Starts an origin with an empty Redis, and waits until everything is published. Returns elapsed seconds and the
/// origin's CPU seconds.
async fn publish(
    binary: &Path,
    data: &DataDir,
    database: &Path,
    spool: &Path,
    redis_url: &str,
    skus: u32,
) -> Result<[f64; 2]> {
    let options = OriginOptions {
        events_log: None,
        fitment: None,
        edge_secret: None,
        port: ports::free()?,
        admin_port: ports::free()?,
        database: database.to_owned(),
        redis_url: redis_url.to_owned(),
        redis_ca: None,
        key_prefix: DEFAULT_PREFIX.to_owned(),
        risk_rules: None,
        links: None,
        // No payments occur.
        provider_port: 9,
        flags: vec![
            "--fitment".to_owned(),
            spool.display().to_string(),
            "--fitment-verify-per-s=0".to_owned(),
        ],
        secrets: Secrets::random()?,
    };
    let start = Instant::now();
    let mut origin = Origin::start(binary, options, &data.path.join("origin.log")).await?;
    let url = format!("{}/metrics", origin.admin_url());
    let waited = Duration::from_secs(600);
    loop {
        let metrics = weir_stack::http::get(&url).await?.text();
        let number = |name: &str| {
            let line = metrics.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().parse::<u64>().ok())
                .unwrap_or(0)
        };
        // A rebuild writes each SKU once, and so do the pending changes: a SKU written twice counts once here.
        let published = number("weir_origin_fitment_skus_published_total ");
        if published >= 2 * u64::from(skus) {
            break;
        }
        ensure!(
            start.elapsed() < waited,
            "Redis does not get all SKUs: {published} written"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let clock_s = start.elapsed().as_secs_f64();
    let pid = origin
        .process()
        .pid()
        .context("the origin has no process")?;
    let origin_s = processor_ticks(format!("/proc/{pid}/stat"), 14) / 100.0;
    origin.process().stop();
    // Both runs wrote everything.
    Ok([clock_s / 2.0, origin_s / 2.0])
}

/// The query with both plans, and with the seed document's script without sentinels.
async fn queries(redis: &mut MultiplexedConnection) -> Result<Vec<Query>> {
    const VEHICLES: u32 = 400_000;
    let mut all = Vec::new();
    for fits in [100, 500] {
        for plan in [Plan::Directory, Plan::Bitmaps] {
            let name = match plan {
                Plan::Directory => "directory",
                Plan::Bitmaps => "bitmaps",
            };
            let keys = FitmentKeys::new("bench", &Spu::new(format!("{name}{fits}"))?);
            let before = used(redis).await?;
            let skus: Vec<Sku> = (0..ASKED_SKUS)
                .map(|n| Sku::new(sku_number(n).to_string()))
                .collect::<Result<_, _>>()?;
            for (sku, number) in skus.iter().zip(0..) {
                let step = VEHICLES / fits;
                let shift = u32::wrapping_mul(number, 2_654_435_761) % step;
                let offsets: Vec<Offset> = (0..fits)
                    .filter_map(|at| Offset::new(1 + shift + at * step))
                    .collect();
                let shape = Shape::from_offsets(plan, &offsets, VEHICLES / SEGMENT_LEN);
                send(
                    redis,
                    &fit_put::call(&keys, sku, 1, NewerEntryPolicy::Stays, &shape),
                )
                .await?;
            }
            let bytes_a_sku = (used(redis).await? - before) as f64 / f64::from(ASKED_SKUS);
            let vehicles: Vec<Offset> = (0..ASKED_VEHICLES)
                .filter_map(|n| Offset::new(1 + n * 79_000))
                .collect();
            let calls = fit_query::calls(plan, &keys, &vehicles, skus.iter());
            let redis_us = timed(redis, &calls).await?;
            println!(
                "1,000 pairs, {fits} vehicles a SKU, {name}: {redis_us:.0} µs of Redis in {} calls, {bytes_a_sku:.0} bytes a SKU",
                calls.len()
            );
            let plan = name;
            all.push(Query {
                plan,
                fits,
                redis_us,
                bytes_a_sku,
            });
        }
        all.push(seed(redis, fits).await?);
    }
    Ok(all)
}

/// As in the seed document: one script call per vehicle, one GETBIT per SKU, no sentinel, so that lost data reads as
/// "does not fit".
async fn seed(redis: &mut MultiplexedConnection, fits: u32) -> Result<Query> {
    static SCRIPT: weir_scripts::Script = weir_scripts::Script {
        name: "seed",
        source: "local r = {} for i, k in ipairs(KEYS) do r[i] = redis.call('GETBIT', k, ARGV[1]) end return r",
    };
    let keys = FitmentKeys::new("bench", &Spu::new(format!("bitmaps{fits}"))?);
    let skus: Vec<Sku> = (0..ASKED_SKUS)
        .map(|n| Sku::new(sku_number(n).to_string()))
        .collect::<Result<_, _>>()?;
    let vehicles = (0..ASKED_VEHICLES).filter_map(|n| Offset::new(1 + n * 79_000));
    let calls: Vec<Call> = vehicles
        .map(|vehicle| Call {
            script: &SCRIPT,
            keys: skus
                .iter()
                .map(|sku| keys.bitmap(sku, vehicle.segment()))
                .collect(),
            args: [vehicle.bit().to_string()].into(),
        })
        .collect();
    let redis_us = timed(redis, &calls).await?;
    println!(
        "1,000 pairs, {fits} vehicles a SKU, the seed script without a third answer: {redis_us:.0} µs of Redis"
    );
    Ok(Query {
        plan: "seed",
        fits,
        redis_us,
        bytes_a_sku: 0.0,
    })
}

fn command(call: &Call) -> redis::Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(call.script.sha1_hex()).arg(call.keys.len());
    call.words().for_each(|word| {
        command.arg(word);
    });
    command
}

async fn send(redis: &mut MultiplexedConnection, call: &Call) -> Result<()> {
    if command(call)
        .query_async::<redis::Value>(redis)
        .await
        .is_err()
    {
        let load = redis::cmd("SCRIPT")
            .arg("LOAD")
            .arg(call.script.source)
            .to_owned();
        load.query_async::<redis::Value>(redis).await?;
        command(call).query_async::<redis::Value>(redis).await?;
    }
    Ok(())
}

/// The Redis time of all calls, in microseconds.
async fn timed(redis: &mut MultiplexedConnection, calls: &[Call]) -> Result<f64> {
    for call in calls {
        send(redis, call).await?;
    }
    let mut all = redis::Pipeline::new();
    calls.iter().for_each(|call| {
        all.add_command(command(call));
    });
    for _ in 0..ROUNDS / 10 {
        all.query_async::<redis::Value>(redis).await?;
    }
    redis::cmd("CONFIG")
        .arg("RESETSTAT")
        .query_async::<redis::Value>(redis)
        .await?;
    for _ in 0..ROUNDS {
        all.query_async::<redis::Value>(redis).await?;
    }
    let text: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(redis)
        .await?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:"));
    let us = line.and_then(|line| {
        line.split("usec=")
            .nth(1)?
            .split(',')
            .next()?
            .parse::<f64>()
            .ok()
    });
    Ok(us.context("Redis has no statistics of EVALSHA")? / f64::from(ROUNDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sku_has_its_planned_number_of_relations() {
        let arguments = Arguments {
            skus: 200,
            fits: 30,
            vehicles: 1_000,
            origin: None,
            report: None,
        };
        let text = relation_lines(&arguments);
        let lines: std::collections::BTreeSet<&str> = text.lines().skip(1).collect();
        assert_eq!(lines.len(), 200 * 30);
        assert!(
            lines
                .iter()
                .all(|line| line.ends_with(|end: char| end.is_ascii_digit()))
        );
        assert_eq!(vehicles(&arguments).lines().count(), 1_001);
    }
}
