//! A soak test: the whole stack at half of its capacity, with a fault in each period.
//!
//! Every period opens a sale, and all buyers move to it. No buyer pays, so each unit is held, expires and is sold again
//! until the buyers leave. The old sale then rests. After its last hold has expired, all its units must be back.
//! Visitors follow short links in parallel.
//!
//! Each period samples what could grow: memory and file descriptors of each process, Redis keys, logs. Faults kill
//! processes only in the first half. In the second half all processes keep running, so that a trend would be visible:
//! growth by more than a tenth.

mod faults;
mod load;
mod plot;
mod report;
mod sales;
mod sample;
mod soak;
mod trend;

pub use faults::Fault;
pub use report::Report;
pub use soak::{Settings, run};

// External tests in the executable of the internal ones: one less to link. The program does not contain them.
#[cfg(test)]
extern crate self as weir_soak;
#[cfg(test)]
#[path = "../tests/short.rs"]
mod short;
