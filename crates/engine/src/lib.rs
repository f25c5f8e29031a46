//! What every engine of Weir is made of.
//!
//! An engine is a state machine: it takes an [`Event`] and writes [`Effect`]s into a buffer. It makes no host call, has
//! no clock, no socket and no randomness, so the same engine runs in any host: in Envoy as WebAssembly, in a native
//! module, at an edge, in a simulation. A host applies the effects, in one place, and decides nothing.
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
//! - [`event`], [`effect`]: what goes in and what comes out.
//! - [`pump`]: batches requests for Redis. [`redis`]: classifies failed calls. [`refusals`]: counts and logs what Redis refuses.
//!   [`breaker`]: when to leave something alone.
//! - [`headers`], [`answer`]: headers as bytes, and the gateway's own answers. [`page`]: answers for browsers.
//! - [`poll`]: when to read documents from Redis, with back-off. [`held`]: requests that wait until that has happened once.
//! - [`metrics`]: counters that the host collects.
//! - [`setup`]: what a host gives for an engine to be made.
//! - [`config`], [`keys`]: configuration, refused with the path of the field that is wrong, and signing keys in it.
//! - [`early`]: decisions before the HTTP stack of a host.
//! - [`edges`]: what edges say of the requests that they send.

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
pub use headers::Headers;
pub use metrics::Metrics;

/// A policy that any host can run.
pub trait Engine {
    /// Its name, in logs.
    const NAME: &'static str;

    /// Handles one event. What is to be done goes into `effects`; the host does it, in order, before the next event.
    fn handle(&mut self, event: Event<'_>, effects: &mut Effects);

    /// Decides on the head of a request, if that needs nothing else: no Redis, no body and no filter that runs before this one.
    /// `trusts_user`: the header that names the user is final. If it is not, the decision must not depend on the user.
    fn decide_early(&mut self, request: &dyn Request, trusts_user: bool) -> EarlyDecision {
        let _ = (request, trusts_user);
        EarlyDecision::Undecided
    }

    /// How far apart ticks should be now, in milliseconds, if there is anything to do in them. It may change with
    /// each event.
    fn tick_ms(&self) -> Option<u64>;

    /// What it counts.
    fn metrics(&mut self) -> &mut Metrics;
}
