//! Background jobs, one per file.

pub mod map;
pub mod publish;
pub mod sweep;
