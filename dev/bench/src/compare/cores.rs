//! CPU pinning, and CPU time of processes.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use weir_stack::command;

/// The cores of servers, Redis and the load generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cores {
    /// The core of each server's only worker and its sidecar.
    pub(super) server: usize,
    pub(super) load: usize,
    /// Its own core if there are enough, else the generator's.
    pub(super) redis: usize,
}

impl Cores {
    pub(super) fn of_this_machine() -> Result<Self> {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        Self::from_count(count)
    }

    fn from_count(count: usize) -> Result<Self> {
        ensure!(
            count >= 2,
            "this machine has one core, but the server and the load generator need one each"
        );
        Ok(Self {
            server: 0,
            load: 1,
            redis: if count > 2 { 2 } else { 1 },
        })
    }
}

/// Pins all threads of a process to one core. Threads that it starts later inherit the pinning.
pub(super) fn pin(pid: u32, core: usize) -> Result<()> {
    let mut taskset = Command::new("taskset");
    taskset.args(["--all-tasks", "--pid", "--cpu-list", &core.to_string()]);
    command::succeed(taskset.arg(pid.to_string()), Duration::from_secs(10))
        .context("cannot bind a process to a core: install taskset (util-linux)")?;
    Ok(())
}

/// The child processes of `pid`.
pub(super) fn children(pid: u32) -> Vec<u32> {
    let file = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// The CPU time of all threads of these processes, in nanoseconds.
pub(super) fn on_core_ns(pids: &[u32]) -> u64 {
    pids.iter().map(|pid| on_core_of(*pid)).sum()
}

fn on_core_of(pid: u32) -> u64 {
    let Ok(tasks) = Path::new("/proc")
        .join(pid.to_string())
        .join("task")
        .read_dir()
    else {
        return 0;
    };
    let time = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    tasks.flatten().filter_map(time).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_never_shares_its_core() {
        assert!(Cores::from_count(1).is_err());
        for count in 2..9 {
            let cores = Cores::from_count(count).unwrap();
            assert!(cores.server != cores.load && cores.server != cores.redis);
            assert!(cores.redis < count && (count == 2 || cores.redis != cores.load));
        }
    }

    /// In a single-threaded process: the kernel no longer counts the time of ended threads, such as test threads.
    #[test]
    fn time_on_a_core_grows_with_work() {
        let shell = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn();
        let mut shell = shell.unwrap();
        let pids = [shell.id()];
        let on_core = |than_ns| {
            let grown = || Some(on_core_ns(&pids)).filter(|&ns| ns > than_ns);
            (0..1_000).find_map(|_| {
                std::thread::sleep(Duration::from_millis(10));
                grown()
            })
        };
        let first = on_core(0);
        let second = first.and_then(on_core);
        shell.kill().unwrap();
        shell.wait().unwrap();
        assert!(first < second, "{first:?}, then {second:?}");
        assert_eq!(on_core_ns(&pids), 0, "a process that has ended");
    }
}
