//! Tests of a release folder in the fast build: the origin's test build, and the shipped filters.

#![allow(clippy::indexing_slicing)]

mod chart;
mod containers;
mod folder;
mod packages;

/// Returns a tool, or prints what is skipped without it.
fn found<T>(tool: anyhow::Result<T>, subject: &str) -> Option<T> {
    let tell = |error: &anyhow::Error| eprintln!("left out: {subject} ({error:#})");
    tool.inspect_err(tell).ok()
}
