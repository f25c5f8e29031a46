//! Background jobs.

pub mod fold;
