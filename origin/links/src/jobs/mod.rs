//! Work in the background: each file is one job.

pub mod capacity;
pub mod clean;
pub mod clicks;
pub mod publish;
mod stream;
