//! The log in a folder: the cost of waiting for the disk.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use serde::Serialize;
use weir_load::Pace;
use weir_stack::tools::Options;

use super::traffic::{self, TrafficFigures};
use super::{Arguments, ROUNDS, Shop, median};

/// The approximate size of one group commit.
const WRITE_LEN: usize = 16 * 1024;

/// The loads at which the log is measured, relative to its capacity.
const PARTS: [f64; 2] = [0.1, 0.5];

/// At least a second of group commits, on a disk with 10 ms latency.
const SYNCS: usize = 500;

#[derive(Debug, Serialize)]
pub(super) struct AppendFigures {
    /// The disk alone: append and fdatasync.
    fdatasync_p50_ms: f64,
    fdatasync_p99_ms: f64,
    batches: Vec<DiskComparison>,
}

#[derive(Debug, Serialize)]
struct DiskComparison {
    batch: u64,
    disk: Vec<TrafficFigures>,
    os: Vec<TrafficFigures>,
    /// Disk ÷ operating system: the ratio of the turns' medians.
    ratio: f64,
    /// Results at fractions of the disk's maximum rate: acknowledged events wait for the disk, and less for each other.
    paced: Vec<PacedFigures>,
}

/// Results at one rate on both. Costs that are equal on both are not caused by the disk.
#[derive(Debug, Serialize)]
struct PacedFigures {
    part: f64,
    disk: TrafficFigures,
    os: TrafficFigures,
    /// The disk alone while the processors are equally busy: measured during another turn without waiting.
    fdatasync_p99_ms: f64,
}

pub(super) async fn measure(arguments: &Arguments, tools: &Options) -> Result<AppendFigures> {
    let disk = open(tools, "disk").await?;
    let os = open(tools, "os").await?;
    let [fdatasync_p50_ms, fdatasync_p99_ms] = fdatasync(disk.stack.data_dir(), || true)?;
    println!(
        "the disk: append and fdatasync, p50 {fdatasync_p50_ms:.2} ms, p99 {fdatasync_p99_ms:.2} ms"
    );
    let mut batches = Vec::new();
    for batch in [1, 20] {
        batches.push(compare(arguments, batch, &disk, &os)?);
    }
    Ok(AppendFigures {
        fdatasync_p50_ms,
        fdatasync_p99_ms,
        batches,
    })
}

async fn open(tools: &Options, sync: &str) -> Result<Shop> {
    let configure =
        |builder: weir_stack::Builder| builder.events().origin_flags(["--events-log-sync", sync]);
    let shop = Shop::open(tools, sync, configure).await?;
    shop.pause(&["store", "history"]).await?;
    Ok(shop)
}

fn compare(arguments: &Arguments, batch: u64, disk: &Shop, os: &Shop) -> Result<DiskComparison> {
    let turn = |shop: &Shop, pace| {
        traffic::send(
            shop.server()?,
            &shop.stack.event_key,
            batch,
            pace,
            arguments.turn(),
        )
    };
    let (mut on_disk, mut in_os) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        on_disk.push(turn(disk, Pace::Closed)?);
        in_os.push(turn(os, Pace::Closed)?);
    }
    let rate = |turns: &[TrafficFigures]| median(turns.iter().map(|turn| turn.events_per_s));
    let (most, without) = (rate(&on_disk), rate(&in_os));
    println!(
        "batches of {batch}: {most:.0} events/s acknowledged by the disk, {without:.0} by the operating system: {:.2}; \
         p99 at the limit {:.1} ms and {:.1} ms",
        most / without,
        median(on_disk.iter().map(|turn| turn.p99_ms)),
        median(in_os.iter().map(|turn| turn.p99_ms)),
    );
    let mut paced = Vec::new();
    for part in PARTS {
        let per_second = most / batch as f64 * part;
        let pace = || Pace::Open { per_second };
        let (disk_turn, os_turn) = (turn(disk, pace())?, turn(os, pace())?);
        let is_over = AtomicBool::new(false);
        let beside = thread::scope(|scope| {
            let syncs = scope.spawn(|| fdatasync(disk.stack.data_dir(), || is_over.load(Relaxed)));
            let beside = turn(os, pace());
            is_over.store(true, Relaxed);
            let [_, p99_ms] = syncs
                .join()
                .map_err(|_| anyhow!("the disk's thread panicked"))??;
            beside.map(|_| p99_ms)
        })?;
        let one = PacedFigures {
            part,
            disk: disk_turn,
            os: os_turn,
            fdatasync_p99_ms: beside,
        };
        println!(
            "  at {part} of it: p50 {:.2} ms, p99 {:.2} ms; by the operating system p50 {:.2} ms, p99 {:.2} ms; \
             the disk's own p99 meanwhile {:.2} ms: {:.1}",
            one.disk.p50_ms,
            one.disk.p99_ms,
            one.os.p50_ms,
            one.os.p99_ms,
            one.fdatasync_p99_ms,
            one.disk.p99_ms / one.fdatasync_p99_ms
        );
        paced.push(one);
    }
    Ok(DiskComparison {
        batch,
        ratio: most / without,
        disk: on_disk,
        os: in_os,
        paced,
    })
}

/// The p50 and p99 of fdatasync, in milliseconds. Measures at least [`SYNCS`] times, and until `is_over`.
fn fdatasync(dir: &Path, is_over: impl Fn() -> bool) -> Result<[f64; 2]> {
    let path = dir.join("fdatasync");
    let mut file = File::create(&path)?;
    let mut elapsed = Vec::with_capacity(SYNCS);
    while elapsed.len() < SYNCS || !is_over() {
        let start = Instant::now();
        file.write_all(&[7; WRITE_LEN])?;
        file.sync_data()?;
        elapsed.push(start.elapsed());
        thread::sleep(Duration::from_millis(1));
    }
    std::fs::remove_file(path)?;
    elapsed.sort();
    let at = |part: usize| {
        elapsed
            .get(elapsed.len() * part / 100)
            .map_or(f64::NAN, |elapsed| elapsed.as_secs_f64() * 1e3)
    };
    Ok([at(50), at(99)])
}
