//! Background jobs, one per file.

pub mod capacity;
pub mod clean;
pub mod clicks;
pub mod publish;
mod stream;
