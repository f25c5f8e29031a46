//! A load generator for HTTP/1.1 servers on this machine: one thread, one core, many connections.
//!
//! It has two modes ([`Pace`]):
//!
//! - **Closed loop**: each connection sends the next request as soon as it has its response. This measures a server's
//!   capacity. Latencies are those of a saturated server: they grow with the number of connections.
//! - **Open loop**: requests are due at fixed times, whether earlier ones were answered or not, like those of
//!   independent users. A latency counts from the time at which the request was *due*, not from when a connection was
//!   free to send it. Unanswered requests count, too. Stalls of the server therefore stay visible (no coordinated
//!   omission).
//!
//! Linux only: it waits with epoll and a timerfd, whose resolution is finer than a millisecond.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used)]

mod answer;
mod ask;
mod outcome;
mod run;
mod schedule;
mod wire;

pub use ask::{FullAnswer, ask};
pub use outcome::{Latencies, Outcome};
pub use run::{RunMark, run};

use std::net::SocketAddr;
use std::time::Duration;

/// The timing of requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Each connection sends a request as soon as it has its response.
    Closed,
    /// Requests are due at a fixed rate, evenly spread, over all connections together.
    Open {
        /// The rate, more than 0.
        per_second: f64,
    },
}

/// The parameters of a run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The server, on this machine.
    pub server: SocketAddr,
    /// The number of connections, each from its own loopback address.
    pub connections: usize,
    /// The timing of requests.
    pub pace: Pace,
    /// The time before the measured window.
    pub warm_up: Duration,
    /// The measured window.
    pub window: Duration,
    /// The core to run on; any core if `None`.
    pub core: Option<usize>,
}
