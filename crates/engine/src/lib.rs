//! The base of all Weir engines.
//!
//! An engine is a state machine: it takes an [`Event`] and writes [`Effect`]s into a buffer. It makes no host call and
//! has no clock, socket or randomness. So the same engine runs in any host: in Envoy as WebAssembly, in a native
//! module, at an edge, in a simulation. The host applies the effects and makes no decisions.
//!
//! ```text
//!          Event                           Effect
//! Request (stream, head)          Respond · AddRequestHeader · RemoveRequestHeader · Continue
//! Response, Closed                SetResponseHeader · AddResponseHeader
//! RedisReply, NotSent, Deferred   Call
//! FetchDone                       Fetch
//! Undelivered                     Log
//! Tick                            Wake
//! ```
//!
//! - [`event`], [`effect`]: inputs and outputs.
//! - [`pump`]: batches requests for Redis. [`redis`]: classifies failed calls. [`refusals`]: counts and logs commands
//!   that Redis refuses. [`breaker`]: a counted circuit breaker.
//! - [`headers`], [`answer`]: headers as bytes, and the gateway's own answers. [`page`]: answers for browsers.
//! - [`poll`]: schedules reads of documents from Redis, with back-off. [`held`]: requests that wait for the first read.
//! - [`metrics`]: counters that the host collects.
//! - [`setup`]: what an engine needs from its host at startup.
//! - [`config`], [`keys`]: reads configurations and signing keys; errors contain the path of the field.
//! - [`early`]: decisions before a host's HTTP stack.
//! - [`edges`]: requests forwarded by edges.
//! - [`gateway_report`]: what an engine runs, for operators.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod answer;
pub mod breaker;
pub mod config;
pub mod early;
pub mod edges;
pub mod effect;
pub mod event;
pub mod gateway_report;
pub mod headers;
pub mod held;
pub mod keys;
pub mod metrics;
pub mod page;
pub mod poll;
pub mod pump;
pub mod redis;
pub mod refusals;
pub mod setup;
pub mod tally;

pub use answer::Answer;
pub use early::EarlyDecision;
pub use effect::{BatchId, Effect, Effects, Fetch, FetchId, Level, RedisId};
pub use event::{Event, Request, StreamEnd, StreamId};
pub use gateway_report::{Description, ItemKind, ReportedItem, Reporting};
pub use headers::Headers;
pub use metrics::Metrics;

/// A policy that runs in any host.
pub trait Engine {
    /// The name in log lines.
    const NAME: &'static str;

    /// Handles one event. The host applies `effects` in order before the next event.
    fn handle(&mut self, event: Event<'_>, effects: &mut Effects);

    /// Decides from the head of a request, if no other input is needed: no Redis, no body and no earlier filter.
    /// `trusts_user`: the header with the user's name is final. Otherwise the decision must not depend on the user.
    fn decide_early(&mut self, request: &dyn Request, trusts_user: bool) -> EarlyDecision {
        let _ = (request, trusts_user);
        EarlyDecision::Undecided
    }

    /// The interval between ticks in milliseconds; `None` without periodic work. It may change with each event.
    fn tick_ms(&self) -> Option<u64>;

    /// Its metrics.
    fn metrics(&mut self) -> &mut Metrics;

    /// What it runs, for operators; `None` without a Redis that could hold it. Called on ticks only.
    fn describe(&self) -> Option<Description> {
        None
    }

    /// Changes with what it runs.
    fn revision(&self) -> u64 {
        0
    }
}
