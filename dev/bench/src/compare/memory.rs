//! The gateway's memory with many users.

use super::measure::Effort;
use super::request::{Kind, Writer};
use super::scenario::ONE;
use super::server::{BenchEnv, Server};
use super::system::System;
use crate::gateway::resident;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_load::{Pace, Plan, ask};

/// The number of users.
pub(super) const USERS: u64 = 1_000_000;

/// V8 reserves at least this much address space after each module memory, so that accesses need no bounds checks.
const GUARD_BYTES: u64 = 4 << 30;

const READY_LIMIT: Duration = Duration::from_secs(30);

/// The gateway's memory, in bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Memory {
    /// Resident memory as the kernel reports it, in total.
    pub(super) resident: u64,
    /// The memory of each VM: of the filter and the bridge, on the worker and on the main thread.
    pub(super) vms: Vec<u64>,
}

/// The memory at each stage.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Memories {
    pub(super) at_start: Memory,
    pub(super) users: u64,
    pub(super) after_users: Memory,
    /// The idle time before the last stage, in seconds.
    pub(super) rest_s: u64,
    pub(super) after_rest: Memory,
}

impl Memories {
    /// The largest VM, in MiB. `None` if the kernel's list of mappings has an unexpected format.
    pub(super) fn largest_vm_mib(&self) -> Option<f64> {
        let vms = self.after_users.vms.iter().chain(&self.after_rest.vms);
        vms.max().map(|bytes| *bytes as f64 / 1_048_576.0)
    }
}

/// Lets all users order through the shipped configuration, including limits, and then lets the gateway idle.
pub(super) async fn measure(
    bench_env: &BenchEnv<'_>,
    rest: Duration,
    effort: &Effort,
) -> Result<Memories> {
    let mut server = bench_env.start(System::Weir, Kind::Sale).await?;
    let pid = *server.pids.first().context("a process")?;
    ready(&server)?;
    let at_start = Memory::read(pid)?;
    let mut users = 0;
    while users < USERS {
        let plan = Plan {
            server: server.address,
            connections: ONE,
            pace: Pace::Closed,
            warm_up: Duration::ZERO,
            window: effort.window.max(Duration::from_secs(2)),
            core: Some(bench_env.cores.load),
        };
        let mut writer = writer(users + 1)?;
        let run = move || weir_load::run(&plan, &mut |n, to| writer.write(n, to), &mut |_| {});
        let outcome = tokio::task::spawn_blocking(move || std::thread::spawn(run).join());
        let outcome = outcome
            .await?
            .ok()
            .context("the load generator has ended")??;
        let answers: u64 = outcome.statuses.values().sum();
        ensure!(answers > 0, "no answers");
        users += answers;
        server.check()?;
    }
    let after_users = Memory::read(pid)?;
    tokio::time::sleep(rest).await;
    server.check()?;
    Ok(Memories {
        at_start,
        users,
        after_users,
        rest_s: rest.as_secs(),
        after_rest: Memory::read(pid)?,
    })
}

fn writer(first: u64) -> Result<Writer> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let now_ms = u64::try_from(now.as_millis())?;
    Writer::new(Kind::Claim, System::Weir, first, now_ms)
}

fn ready(server: &Server) -> Result<()> {
    let deadline = Instant::now() + READY_LIMIT;
    loop {
        let mut text = Vec::new();
        writer(0)?.write(0, &mut text);
        let answer = ask(server.address, &text);
        if answer.as_ref().is_ok_and(|answer| answer.status == 200) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "not ready: {answer:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Memory {
    fn read(pid: u32) -> Result<Self> {
        let file = format!("/proc/{pid}/maps");
        let maps = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
        Ok(Self {
            resident: resident(pid)?,
            vms: vms_in(&maps),
        })
    }
}

/// Finds module memories: the accessible start of a very large reservation.
fn vms_in(maps: &str) -> Vec<u64> {
    let mappings: Vec<Mapping<'_>> = maps.lines().filter_map(Mapping::read).collect();
    let pairs = mappings.iter().zip(mappings.iter().skip(1));
    let is_memory = |(memory, guard): &(&Mapping<'_>, &Mapping<'_>)| {
        memory.end == guard.start
            && memory.rights.starts_with("rw-")
            && guard.rights.starts_with("---")
            && guard.end - guard.start >= GUARD_BYTES
    };
    pairs
        .filter(is_memory)
        .map(|(memory, _)| memory.end - memory.start)
        .collect()
}

struct Mapping<'a> {
    start: u64,
    end: u64,
    rights: &'a str,
}

impl<'a> Mapping<'a> {
    /// Parses a line like `7f0c00000000-7f0c00200000 rw-p 00000000 00:00 0`.
    fn read(line: &'a str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        Some(Self {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            rights: words.next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vm_memory_is_the_mapping_before_its_guard() {
        let maps = "\
            10000000-10200000 rw-p 00000000 00:00 0\n\
            10200000-210000000 ---p 00000000 00:00 0\n\
            300000000-300400000 rw-p 00000000 00:00 0\n\
            300400000-300500000 ---p 00000000 00:00 0\n\
            400000000-400400000 rw-p 00000000 00:00 0    [heap]\n";
        assert_eq!(vms_in(maps), [0x20_0000]);
    }
}
