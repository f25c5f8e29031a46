//! The part of Envoy's C ABI for dynamic modules that Weir uses, declared by hand, behind safe types.
//!
//! This crate contains all unsafe code of Weir's native modules. A module implements [`Module`] and invokes
//! [`module!`]. The library then exports the functions that Envoy calls. Each of them catches panics, because a panic
//! that reaches Envoy aborts the process.
//!
//! | module | |
//! |---|---|
//! | [`api`](mod@api) | the Envoy functions that the module calls |
//! | [`config`] | a filter's configuration: metrics, HTTP requests, a scheduler for the main thread |
//! | [`connection`] | a connection: bytes before HTTP |
//! | [`filter`] | a stream: headers, body, local replies, a scheduler for its thread |
//! | [`module`](mod@module) | the trait that a module implements |
//! | [`hooks`] | the hooks that Envoy calls |

#![deny(clippy::undocumented_unsafe_blocks)]
#![allow(unsafe_code)] // This is the crate for it: the functions of a C program have no safe types.

pub mod api;
#[doc(hidden)] // For `module!`.
pub mod bootstrap_hooks;
pub mod config;
pub mod connection;
pub mod filter;
#[doc(hidden)] // For `module!`.
pub mod hooks;
pub mod module;
#[doc(hidden)] // For `module!`.
pub mod network_hooks;

pub use config::{ConfigHost, ConfigScheduler, MetricId};
pub use connection::{Connection, ConnectionHandle, ConnectionScheduler};
pub use filter::{Filter, Response, StreamScheduler};
pub use hooks::EXPORTS;
pub use module::{BodyStatus, FetchedResponse, HeadersStatus, Level, Module, ReadStatus};

use api::{Buffer, api};

/// Writes a line to Envoy's log as component `dynamic_modules`, from any thread. Outside Envoy it does nothing.
pub fn log(level: Level, text: &str) {
    if let Some(api) = api() {
        // SAFETY: Envoy copies the text; its log is thread-safe.
        unsafe { (api.log)(level as u32, Buffer::from_bytes(text.as_bytes())) }
    }
}

/// The number of worker threads. Call it on the main thread.
pub fn worker_count() -> usize {
    // SAFETY: the function takes no arguments.
    let count = api().map_or(1, |api| unsafe { (api.concurrency)() });
    usize::try_from(count).unwrap_or(1)
}

/// Whether Envoy only validates its configuration (`--mode validate`). Call it on the main thread.
pub fn is_validating() -> bool {
    // SAFETY: the function takes no arguments.
    api().is_some_and(|api| unsafe { (api.is_validating)() })
}
