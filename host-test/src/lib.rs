//! A Proxy-Wasm host for tests.
//!
//! It loads *built* Proxy-Wasm modules (ABI 0.2.1, as the Rust SDK builds them) and drives them like stock Envoy:
//! contexts, callbacks and host calls in Envoy's order, with Envoy's statuses and the traps that kill a worker in
//! production. It is independent of the tested filters; any project can use it.
//!
//! Differences from running Envoy:
//!
//! - **The test controls time.** The clock is virtual. Ticks, timeouts and delayed replies occur in [`Host::advance`],
//!   in the order of their times. The same test gives the same result every time.
//! - **The test controls the event loop.** Calls and queue notifications of a request occur in later turns:
//!   [`Host::turn`], [`Host::run_until_idle`].
//! - **The test plays every upstream.** A closure answers calls, in any order, late, or never ([`Upstream`], [`Reply`],
//!   [`Host::answer`]). Redis is a script, command by command ([`Upstream::scripted_resp`]), or a real server
//!   ([`Upstream::resp`]).
//! - **Faults are easy to test.** Clients disconnect ([`Stream::disconnect`]), host calls fail or trap
//!   ([`Host::fail_next`], [`Host::trap_next`]), headers contain invalid UTF-8.
//! - **Anything that crashes Envoy fails the test**, with an explanation ([`Host::violations`]). The cost of a request
//!   is counted exactly ([`Stream::cost`]).
//!
//! # An HTTP filter
//!
//! Usually, Cargo builds the module as a file ([`Builder::module_file`]). This self-contained example has its module as
//! text. It pauses each request and calls the cluster `stock`. A 200 resumes the request; any other response, or none,
//! gives a 503.
//!
//! ```
//! use std::time::Duration;
//! use weir_host_test::{Host, Reply, Upstream};
//!
//! # let module = r#"(module
//! #   (import "env" "proxy_http_call" (func $call (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
//! #   (import "env" "proxy_get_header_map_value" (func $get (param i32 i32 i32 i32 i32) (result i32)))
//! #   (import "env" "proxy_set_effective_context" (func $enter (param i32) (result i32)))
//! #   (import "env" "proxy_continue_stream" (func $continue (param i32) (result i32)))
//! #   (import "env" "proxy_send_local_response" (func $reply (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
//! #   (memory (export "memory") 1)
//! #   (data (i32.const 0) "stock") (data (i32.const 8) ":status") (data (i32.const 16) "sold out\n")
//! #   (data (i32.const 64) "\03\00\00\00\07\00\00\00\03\00\00\00\05\00\00\00\01\00\00\00\0a\00\00\00\05\00\00\00"
//! #     ":method\00GET\00:path\00/\00:authority\00stock\00")
//! #   (global $waiting (mut i32) (i32.const 0))
//! #   (func (export "malloc") (param i32) (result i32) (i32.const 4096))
//! #   (func (export "proxy_abi_version_0_2_1"))
//! #   (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
//! #     (global.set $waiting (local.get 0))
//! #     (drop (call $call (i32.const 0) (i32.const 5) (i32.const 64) (i32.const 65) (i32.const 0) (i32.const 0)
//! #       (i32.const 0) (i32.const 0) (i32.const 200) (i32.const 32)))
//! #     (i32.const 1))
//! #   (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
//! #     (if (call $enter (global.get $waiting)) (then (return)))
//! #     (if (i32.eqz (call $get (i32.const 6) (i32.const 8) (i32.const 7) (i32.const 40) (i32.const 44)))
//! #       (then (if (i32.eq (i32.load8_u (i32.load (i32.const 40))) (i32.const 50))
//! #         (then (drop (call $continue (i32.const 0))) (return)))))
//! #     (drop (call $reply (i32.const 503) (i32.const 0) (i32.const 0) (i32.const 16) (i32.const 9)
//! #       (i32.const 0) (i32.const 0) (i32.const -1)))))"#;
//! let host = Host::builder()
//!     .module_wat(module) // or .module_file("target/…/my_filter.wasm")
//!     .vm_id("shop")
//!     .plugin_config(r#"{"cluster": "stock"}"#)
//!     .workers(2)
//!     .cluster("stock", Upstream::replies([Reply::ok("1 left"), Reply::status(410, "none left")]))
//!     .start()?; // an error, with what the filter logged, if it refuses its configuration
//!
//! // The first request pauses until the next turn of the loop; then it passes, with a header that is not UTF-8.
//! let first = host.request(0).path("/buy").header("x-user", b"u\xff1").send();
//! assert!(first.is_paused());
//! host.run_until_idle();
//! assert!(first.is_continued());
//! assert_eq!(first.upstream_request().headers.get("x-user"), Some(&b"u\xff1"[..]));
//! first.respond(201, [("location", "/orders/1")], "thanks");
//! assert_eq!(first.status(), Some(201));
//!
//! // The second one gets a refusal.
//! let second = host.request(0).path("/buy").send();
//! host.run_until_idle();
//! let reply = second.reply().expect("a reply of the filter's own");
//! assert_eq!((reply.status, reply.body_text().as_str()), (503, "sold out\n"));
//!
//! // No third reply is scripted: the call is held, and times out after 200 ms of virtual time.
//! let third = host.request(1).send();
//! host.advance(Duration::from_millis(199));
//! assert!(third.is_paused());
//! host.advance(Duration::from_millis(1));
//! assert_eq!(third.status(), Some(503));
//!
//! // A client that leaves while the filter waits must not affect others.
//! let gone = host.request(1).send();
//! gone.disconnect();
//! let call = &host.calls()[0];
//! assert!(host.answer(call.id, Reply::ok("1 left")));
//! host.run_until_idle();
//! host.assert_sound(); // dropping the host checks the same
//!
//! // The cost of a request is exact, so a test can limit it.
//! assert!(first.cost().fuel < 1_000);
//! assert_eq!(first.cost().host_calls("proxy_http_call"), 1);
//! # Ok::<(), weir_host_test::StartError>(())
//! ```
//!
//! # A network filter
//!
//! ```
//! use weir_host_test::Host;
//!
//! # let module = r#"(module
//! #   (import "env" "proxy_set_buffer_bytes" (func $set (param i32 i32 i32 i32 i32) (result i32)))
//! #   (memory (export "memory") 1) (data (i32.const 0) "hello, ")
//! #   (func (export "malloc") (param i32) (result i32) (i32.const 4096))
//! #   (func (export "proxy_abi_version_0_2_1"))
//! #   (func (export "proxy_on_downstream_data") (param i32 i32 i32) (result i32)
//! #     (if (i32.lt_u (local.get 1) (i32.const 4)) (then (return (i32.const 1))))
//! #     (drop (call $set (i32.const 2) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 7)))
//! #     (i32.const 0)))"#;
//! // A filter that waits for four bytes and then prepends a greeting.
//! let host = Host::builder().module_wat(module).start()?;
//! let connection = host.connection(0);
//! assert_eq!(connection.downstream("wo"), b"");
//! assert_eq!(connection.held_downstream(), b"wo");
//! assert_eq!(connection.downstream("rld"), b"hello, world");
//! assert_eq!(connection.upstream("fine"), b"fine");
//! connection.downstream_close();
//! # Ok::<(), weir_host_test::StartError>(())
//! ```
//!
//! # Surprising behaviour, here as in Envoy
//!
//! - A call belongs to the *root* context, whichever context dispatched it. The end of a stream cancels nothing: the
//!   reply still arrives, and the stream's id is no longer valid.
//! - A gRPC stream belongs to the root context as well. If the other side closes it, the filter must still cancel it,
//!   in the close callback. A stream must not be cancelled during its message callback.
//! - Envoy shows a request's headers until they have passed. Later, reading them gives `BadArgument`, on which the SDK
//!   panics. They are readable again in `proxy_on_log`.
//! - A local reply passes the response callbacks of the filter that sent it.
//! - Answering *another* stream from a stream's own callback also stops the latter, whatever the callback returns.
//! - Resuming inside a callback that then returns "pause" has no effect: the stream hangs.
//! - The beginning of a buffer can be replaced, and its end extended; changes in the middle are refused.
//! - Shared data has no create-if-absent and no delete. Counters refuse an increment of 0.
//! - A stream ends with log, done, delete; a connection with done, log, delete.
//! - All VMs get the same nanosecond: a name derived from the time is not unique. In Envoy it is almost unique.
//! - One callback that answers hundreds of streams overflows V8's stack. Here, more than
//!   [`answers_per_callback`](Builder::answers_per_callback) kill the VM.
//!
//! # Limitations
//!
//! The host does not support: `proxy_grpc_call` (importing it is fine, calling it traps), the metadata that gRPC
//! streams receive, HTTP metadata, several plugins in one VM, chains of filters, watermarks, buffer limits, and Envoy's
//! timeouts of routes and streams. A stream that hangs stays [`Hung`](StreamState::Hung). The test sets all properties;
//! none are derived from the request. Between the end of a stream and its destruction in the next turn, Envoy still
//! accepts its id; this host refuses it at once.

#![allow(clippy::expect_used, clippy::panic)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod abi;
mod builder;
mod calls;
mod grpc;
mod host;
mod http;
mod net;
mod plugin;
mod process;
mod redis;
mod resp;
mod stream;
mod upstream;
mod vm;
mod world;

pub use abi::{Headers, LogLevel, Status};
pub use builder::Builder;
pub use host::Host;
pub use http::{LocalReply, Message, StreamState};
pub use net::{ConnState, Connection};
pub use plugin::{FailurePolicy, StartError};
pub use redis::{RespCommand, RespValue};
pub use stream::{RequestBuilder, Stream};
pub use upstream::{Call, CallId, Reply, Upstream};
pub use world::{Cost, LogLine, Thread, Violation};
