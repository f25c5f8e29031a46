//! Buyers, and visitors of links.

use anyhow::Result;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use weir_load::{Outcome, Pace, Plan, RunMark};

/// HTTP connections of each kind of load.
const CONNECTIONS: usize = 16;

/// The length of a window: short, because a gateway's death ends it.
const WINDOW: Duration = Duration::from_secs(2);

/// The duration of a capacity measurement.
const PROBE: Duration = Duration::from_secs(5);

/// The pause while the server is down.
const PAUSE: Duration = Duration::from_millis(200);

/// The requests of a kind of load, by number.
pub(crate) type Ask = Arc<dyn Fn(u64) -> String + Send + Sync>;

/// The results of a load since the last sample.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoadSample {
    pub(crate) answers: u64,
    /// Answers with status 500 and above.
    pub(crate) errors: u64,
    /// The highest p99 of a window.
    pub(crate) p99_ms: f64,
    /// Windows that ended because the server was down.
    pub(crate) broken: u64,
}

/// A load that runs until it is dropped.
pub(crate) struct Load {
    observed: Arc<Mutex<LoadSample>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The requests per second that `server` answers.
pub(crate) fn capacity(server: SocketAddr, ask: &Ask) -> Result<f64> {
    let outcome = window(server, ask, Pace::Closed, PROBE, 0)?;
    Ok(outcome.rate())
}

impl Load {
    /// Sends `per_second` requests to `server`, regardless of the answers. Numbers begin at `first`.
    pub(crate) fn start(server: SocketAddr, ask: Ask, per_second: f64, first: u64) -> Self {
        let recorded = Arc::new(Mutex::new(LoadSample::default()));
        let is_over = Arc::new(AtomicBool::new(false));
        let (its_seen, ends) = (Arc::clone(&recorded), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            let mut next = first;
            while !ends.load(Ordering::Relaxed) {
                let outcome = window(server, &ask, Pace::Open { per_second }, WINDOW, next);
                // More than one window can send, including delayed requests.
                next += (per_second * 10.0 * WINDOW.as_secs_f64()) as u64;
                note(&its_seen, outcome);
            }
        });
        Self {
            observed: recorded,
            is_over,
            thread: Some(thread),
        }
    }

    /// The results since the last call.
    pub(crate) fn take(&self) -> LoadSample {
        let mut observed = self
            .observed
            .lock()
            .unwrap_or_else(|held| held.into_inner());
        std::mem::take(&mut *observed)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn note(observed: &Mutex<LoadSample>, outcome: Result<Outcome>) {
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(_) => {
            observed
                .lock()
                .unwrap_or_else(|held| held.into_inner())
                .broken += 1;
            return std::thread::sleep(PAUSE);
        }
    };
    let errors = outcome.statuses.range(500..).map(|(_, count)| count);
    let errors: u64 = errors.sum();
    let mut observed = observed.lock().unwrap_or_else(|held| held.into_inner());
    observed.answers += outcome.statuses.values().sum::<u64>();
    observed.errors += errors;
    observed.p99_ms = observed.p99_ms.max(outcome.latencies.percentile_ms(99.0));
}

fn window(
    server: SocketAddr,
    ask: &Ask,
    pace: Pace,
    window: Duration,
    first: u64,
) -> Result<Outcome> {
    let plan = Plan {
        server,
        connections: CONNECTIONS,
        pace,
        warm_up: Duration::ZERO,
        window,
        core: None,
    };
    let mut request = |number: u64, text: &mut Vec<u8>| {
        text.extend_from_slice(ask(first + number).as_bytes());
    };
    weir_load::run(&plan, &mut request, &mut |_: RunMark| {})
}

/// An HTTP/1.1 request without a body.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n");
    for (name, value) in headers {
        // Writing to a String cannot fail.
        let _ = write!(text, "{name}: {value}\r\n");
    }
    if method == "POST" {
        text += "content-length: 0\r\n";
    }
    text + "\r\n"
}
