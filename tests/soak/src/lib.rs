//! A soak: the whole stack at half of what it can do, with a fault in each period.
//!
//! Every period opens a sale, and all buyers go over to it. Nobody pays, so each unit is held, expires and is sold again
//! until the buyers leave; then the sale rests, and when its last hold has ended, its books must have every unit again.
//! Beside the sale, short links are followed.
//!
//! What could grow is sampled once a period: memory and file descriptors of each process, Redis' keys, logs. In the first
//! half faults kill processes. In the second half all of them live, so that a trend of one would show: growth by more
//! than a tenth.

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

// Tests from outside, in the executable of those from inside: one less to link, and none of the program.
#[cfg(test)]
extern crate self as weir_soak;
#[cfg(test)]
#[path = "../tests/short.rs"]
mod short;
