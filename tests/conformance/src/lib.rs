//! Sends the same requests to every host, and compares the answers byte by byte.
//!
//! A [vector] defines the requests to an engine, their times, the contents of Redis, and the expected results. Every
//! [host](host::Host) replays all vectors in its real runtime. `README.md` explains how to add a host.

#![allow(clippy::expect_used)]

pub mod host;
pub mod hosts;
pub mod make;
pub mod shop;
pub mod store;
pub mod suite;
pub mod text;
pub mod tokens;
pub mod vector;
