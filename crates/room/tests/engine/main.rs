//! The engine on a model of Redis: who enters, who waits, and what happens on failures.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod early;
mod failures;
mod properties;
mod redis;
mod visits;
mod world;
