//! The same requests on every host, and the same answers, byte for byte.
//!
//! A [vector] says what an engine is asked, at what time, with what in Redis, and what must come of it. Every
//! [host](host::Host) replays all of them, each in its real runtime. `README.md` tells how to add one.

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
