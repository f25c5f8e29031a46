//! A load generator for HTTP/1.1 servers on this machine: one thread, one core, many connections.
//!
//! Two ways to ask ([`Pace`]):
//!
//! - **Closed loop**: each connection asks again as soon as it has its answer. It tells how much a server
//!   can do. Its latencies are those of a server at its limit: they grow with the connections.
//! - **Open loop**: requests are due at fixed times, whether earlier ones have been answered or not, as
//!   people come. A latency counts from the time at which the request was *due*, not from when a
//!   connection was free to carry it, and a request that was never answered counts, too. So a server that
//!   stalls cannot hide it by holding up the generator (coordinated omission).
//!
//! Linux only: it waits with epoll and a timerfd, whose grain is finer than a millisecond.
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

/// How requests follow each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Each connection asks as soon as it has its answer.
    Closed,
    /// So many requests are due each second, evenly spread, over all connections together.
    Open {
        /// More than 0.
        per_second: f64,
    },
}

/// What to do.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The server, on this machine.
    pub server: SocketAddr,
    /// How many connections, each from a loopback address of its own.
    pub connections: usize,
    /// How requests follow each other.
    pub pace: Pace,
    /// What is not measured before the window.
    pub warm_up: Duration,
    /// The window that is measured.
    pub window: Duration,
    /// The core to run on; any if `None`.
    pub core: Option<usize>,
}
