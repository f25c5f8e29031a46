//! What Weir needs of Envoy's C ABI for dynamic modules, declared by hand, behind safe types.
//!
//! All of Weir's unsafe code for native modules is here. A module implements [`Module`] and says [`module!`]; then the library
//! exports the functions that Envoy calls, and every one of them catches panics: one that got into Envoy would end it.
//!
//! | module | |
//! |---|---|
//! | [`api`](mod@api) | the functions of Envoy that are called |
//! | [`config`] | a filter's configuration: metrics, HTTP requests, a way to call the main thread |
//! | [`connection`] | a connection: bytes before HTTP |
//! | [`filter`] | a stream: headers, body, answers, a way to call its thread |
//! | [`module`](mod@module) | what a module is |
//! | [`hooks`] | what Envoy calls |

#![deny(clippy::undocumented_unsafe_blocks)]
#![allow(unsafe_code)] // This is the crate for it: the functions of a C program have no safe types.

pub mod api;
pub mod config;
pub mod connection;
pub mod filter;
#[doc(hidden)] // For `module!`.
pub mod hooks;
pub mod module;
#[doc(hidden)] // For `module!`.
pub mod network_hooks;

pub use config::{ConfigHost, ConfigScheduler, MetricId};
pub use connection::Connection;
pub use filter::{Filter, Response, StreamScheduler};
pub use hooks::EXPORTS;
pub use module::{BodyStatus, FetchedResponse, HeadersStatus, Level, Module, ReadStatus};

use api::{Buffer, api};

/// Writes a line into Envoy's log, as its component `dynamic_modules`. From any thread; outside Envoy it is lost.
pub fn log(level: Level, text: &str) {
    if let Some(api) = api() {
        // SAFETY: Envoy copies the text; its log has a lock.
        unsafe { (api.log)(level as u32, Buffer::from_bytes(text.as_bytes())) }
    }
}
