//! The engine on a model of Redis: what questions are answered, and what becomes of them when something fails.

mod failures;
mod host;
mod properties;
mod questions;
mod redis;
