//! A release's folder, made in the fast way (the origin as tests run it, the filters as they are shipped), and tried as it is.

#![allow(clippy::indexing_slicing)]

mod chart;
mod containers;
mod folder;

/// What a test needs, or a line that says what is left out without it.
fn found<T>(tool: anyhow::Result<T>, what: &str) -> Option<T> {
    let tell = |error: &anyhow::Error| eprintln!("left out: {what} ({error:#})");
    tool.inspect_err(tell).ok()
}
