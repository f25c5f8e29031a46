//! Detects that all work in Envoy and Redis has finished.
//!
//! Each filter of the native module has its own thread and connections, so no single request can wait behind all
//! others, as a fence does in WebAssembly. But a thread with work runs or is about to run. When all threads sleep at
//! one moment, only timers remain.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weir_stack::envoy::Envoy;

use crate::store::Store;

/// Longer than the work of any request on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Name prefixes of the relevant threads of Envoy: its main thread, its workers, and the module's.
const OF_ENVOY: [&str; 3] = ["envoy", "wrk:", "weir"];

/// The threads that must sleep.
pub(super) struct Threads(Vec<PathBuf>);

/// The state of a thread at one moment.
#[derive(PartialEq, Eq)]
struct ThreadSample {
    sleeps: bool,
    /// The number of context switches: a sleeping thread with the same number has not run since.
    switches: u64,
}

impl Threads {
    /// The threads of an Envoy with all its filters, and of a Redis.
    pub(super) fn of(envoy: &mut Envoy, store: &mut Store) -> Result<Self> {
        let envoy = envoy.process().pid().context("Envoy has ended")?;
        let redis = store.pid().context("Redis has ended")?;
        let mut threads = vec![status_of(redis, &redis.to_string())];
        for thread in std::fs::read_dir(format!("/proc/{envoy}/task"))? {
            let path = thread?.path().join("status");
            let status = std::fs::read_to_string(&path)?;
            let name = field(&status, "Name:").context("a thread without a name")?;
            if OF_ENVOY.iter().any(|start| name.starts_with(start)) {
                threads.push(path);
            }
        }
        Ok(Self(threads))
    }

    /// Waits until all of them sleep at one moment.
    pub(super) fn wait(&self) -> Result<()> {
        let started = Instant::now();
        let mut before = self.look()?;
        loop {
            let now = self.look()?;
            // Then none ran between the end of the first sample and the start of the second.
            if now == before && now.iter().all(|observed| observed.sleeps) {
                return Ok(());
            }
            ensure!(started.elapsed() < PATIENCE, "Envoy does not come to rest");
            before = now;
        }
    }

    fn look(&self) -> Result<Vec<ThreadSample>> {
        self.0.iter().map(|path| ThreadSample::at(path)).collect()
    }
}

impl ThreadSample {
    fn at(path: &Path) -> Result<Self> {
        let status = std::fs::read_to_string(path)
            .with_context(|| format!("no thread at {}", path.display()))?;
        let number = |name| {
            let text = field(&status, name).with_context(|| format!("no {name}"))?;
            Ok::<u64, anyhow::Error>(text.parse()?)
        };
        Ok(Self {
            sleeps: field(&status, "State:").is_some_and(|state| state.starts_with('S')),
            switches: number("voluntary_ctxt_switches:")? + number("nonvoluntary_ctxt_switches:")?,
        })
    }
}

fn status_of(process: u32, thread: &str) -> PathBuf {
    format!("/proc/{process}/task/{thread}/status").into()
}

/// A field of a thread's `status`.
fn field<'s>(status: &'s str, name: &str) -> Option<&'s str> {
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix(name))?;
    Some(value.trim())
}
