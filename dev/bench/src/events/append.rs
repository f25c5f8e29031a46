//! The log in a folder: what waiting for the disk costs.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use weir_load::Pace;
use weir_stack::tools::Options;

use super::traffic::{self, Turn};
use super::{Arguments, ROUNDS, Shop, median};

/// About what one wait of the log writes.
const WRITE_LEN: usize = 16 * 1024;

/// The parts of its capacity at which the log is measured.
const PARTS: [f64; 2] = [0.1, 0.5];

/// Group commits of a second at least, on a disk that takes 10 ms.
const SYNCS: usize = 500;

#[derive(Debug, Serialize)]
pub(super) struct Measured {
    /// The disk by itself: append and fdatasync.
    fdatasync_p50_ms: f64,
    fdatasync_p99_ms: f64,
    batches: Vec<Compared>,
}

#[derive(Debug, Serialize)]
struct Compared {
    batch: u64,
    disk: Vec<Turn>,
    os: Vec<Turn>,
    /// Disk ÷ operating system: of the turns' medians.
    ratio: f64,
    /// At these parts of what the disk took at most: acknowledged events wait for it, and less for each other.
    paced: Vec<Paced>,
}

/// At one rate on both: what is the same on both is not the disk's.
#[derive(Debug, Serialize)]
struct Paced {
    part: f64,
    disk: Turn,
    os: Turn,
}

pub(super) async fn measure(arguments: &Arguments, tools: &Options) -> Result<Measured> {
    let disk = open(tools, "disk").await?;
    let os = open(tools, "os").await?;
    let [fdatasync_p50_ms, fdatasync_p99_ms] = fdatasync(disk.stack.data_dir())?;
    println!(
        "the disk: append and fdatasync, p50 {fdatasync_p50_ms:.2} ms, p99 {fdatasync_p99_ms:.2} ms"
    );
    let mut batches = Vec::new();
    for batch in [1, 20] {
        batches.push(compare(arguments, batch, &disk, &os, fdatasync_p99_ms)?);
    }
    Ok(Measured {
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

fn compare(
    arguments: &Arguments,
    batch: u64,
    disk: &Shop,
    os: &Shop,
    fdatasync_p99_ms: f64,
) -> Result<Compared> {
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
    let rate = |turns: &[Turn]| median(turns.iter().map(|turn| turn.events_per_s));
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
        let one = Paced {
            part,
            disk: turn(disk, pace())?,
            os: turn(os, pace())?,
        };
        println!(
            "  at {part} of it: p50 {:.2} ms, p99 {:.2} ms, {:.1} times the disk's own; \
             by the operating system p50 {:.2} ms, p99 {:.2} ms",
            one.disk.p50_ms,
            one.disk.p99_ms,
            one.disk.p99_ms / fdatasync_p99_ms,
            one.os.p50_ms,
            one.os.p99_ms
        );
        paced.push(one);
    }
    Ok(Compared {
        batch,
        ratio: most / without,
        disk: on_disk,
        os: in_os,
        paced,
    })
}

/// Half of all and 99 of 100 are no longer than this, in milliseconds.
fn fdatasync(dir: &Path) -> Result<[f64; 2]> {
    let path = dir.join("fdatasync");
    let mut file = File::create(&path)?;
    let mut took = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        let start = Instant::now();
        file.write_all(&[7; WRITE_LEN])?;
        file.sync_data()?;
        took.push(start.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    std::fs::remove_file(path)?;
    took.sort();
    let at = |part: usize| {
        took.get(SYNCS * part / 100)
            .map_or(f64::NAN, |took| took.as_secs_f64() * 1e3)
    };
    Ok([at(50), at(99)])
}
