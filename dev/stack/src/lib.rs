//! Finds, builds and runs Weir's dependencies: the wasm toolchain, Envoy, Redis, the filters and the origin.
//!
//! `cargo xtask` and the end-to-end tests share this code, so tests cover what people run. This crate writes all files
//! under `<workspace>/target/weir/`, unless a data folder is set.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! let mut stack = weir_stack::Stack::builder().workers(2).start().await?;
//! stack.open_sale("summer", 100, 4).await?;
//! let answer = weir_stack::http::get(&stack.buy_url("summer")).await?;
//! assert_eq!(answer.status, 404, "buying is a POST");
//! stack.check_children()?;
//! # Ok(())
//! # }
//! ```

#![allow(clippy::panic)]

mod backing;
pub mod build;
pub mod cassandra;
pub mod certificates;
pub mod command;
pub mod edge;
pub mod envoy;
pub mod fault;
pub mod http;
pub mod kafka;
pub mod kubernetes;
pub mod mariadb;
pub mod native;
pub mod objects;
pub mod origin;
pub mod ports;
pub mod postgres;
pub mod process;
pub mod provider;
pub mod redis;
pub mod report;
pub mod s3;
pub mod sale;
mod secrets;
pub mod server;
mod stack;
pub mod storefront;
pub mod tools;
pub mod wasm;
pub mod workspace;

pub use backing::Backing;
pub use secrets::Secrets;
pub use stack::{Builder, DataDir, Faults, GatewayOptions, Stack};
