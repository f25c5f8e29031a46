//! Drives the engine by events alone, without Envoy or wasm. Redis and the origin are models.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod clicks;
mod edits;
mod feed;
mod host;
mod origin;
mod properties;
mod redirects;
mod redis;
