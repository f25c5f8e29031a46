//! Work in the background: each file is one job.

pub mod map;
pub mod publish;
pub mod sweep;
