//! Requests that wait for their engine's first poll.
//!
//! A new worker has not read Redis yet. If it decided immediately, it would refuse or misroute the first requests. So
//! they wait until Redis has replied once, with any reply, and at most [`HOLD_MS`] from the worker's first request on.
//! Without Redis, requests wait only once and only that long.

use alloc::collections::BTreeMap;

use crate::event::StreamId;

/// How long requests wait for the first poll, from a worker's first request on, in milliseconds. The engine retries a
/// failed poll three times within it.
pub const HOLD_MS: u64 = 1_000;

/// The maximum number of waiting requests per worker.
pub const HELD_MAX: usize = 1_024;

/// Requests of one worker that wait for its first poll, with the engine's data for each. The number is bounded.
#[derive(Debug)]
pub struct HeldRequests<T> {
    /// When waiting ends; `None` before the first request.
    until_ms: Option<u64>,
    requests: BTreeMap<StreamId, T>,
}

impl<T> Default for HeldRequests<T> {
    fn default() -> Self {
        Self {
            until_ms: None,
            requests: BTreeMap::new(),
        }
    }
}

impl<T> HeldRequests<T> {
    /// Starts the wait at the worker's first request.
    pub fn begin(&mut self, now_ms: u64) {
        self.until_ms = Some(now_ms.saturating_add(HOLD_MS));
    }

    /// Whether a request has ever arrived. Without one, the engine need not poll.
    pub fn has_begun(&self) -> bool {
        self.until_ms.is_some()
    }

    /// Whether waiting has ended. A clock that was set back ends it, too.
    pub fn is_over(&self, now_ms: u64) -> bool {
        self.until_ms
            .is_none_or(|until_ms| now_ms >= until_ms || until_ms - now_ms > HOLD_MS)
    }

    /// The number of waiting requests.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether no further request may wait.
    pub fn is_full(&self) -> bool {
        self.requests.len() >= HELD_MAX
    }

    /// Makes a stream's request wait, unless [`HeldRequests::is_full`].
    pub fn insert(&mut self, stream: StreamId, request: T) {
        self.requests.insert(stream, request);
    }

    /// Removes a stream that has ended.
    pub fn forget(&mut self, stream: StreamId) {
        self.requests.remove(&stream);
    }

    /// Removes the oldest request. Hosts number streams in order.
    pub fn pop_first(&mut self) -> Option<(StreamId, T)> {
        self.requests.pop_first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hold_begins_at_first_request_and_lasts_the_set_time() {
        let mut held = HeldRequests::<()>::default();
        assert!(held.is_over(5_000) && !held.has_begun(), "no request yet");
        held.begin(5_000);
        assert!(held.has_begun());
        let over = [4_999, 5_000, 5_999, 6_000].map(|now_ms| held.is_over(now_ms));
        assert_eq!(
            over,
            [true, false, false, true],
            "a clock that was set back is one reason"
        );
    }

    #[test]
    fn held_requests_leave_in_order_and_stay_within_capacity() {
        let mut held = HeldRequests::default();
        for stream in (0..HELD_MAX).rev() {
            assert!(!held.is_full());
            held.insert(u32::try_from(stream).unwrap(), stream);
        }
        assert!(held.is_full());
        held.forget(0);
        assert_eq!((held.len(), held.is_full()), (HELD_MAX - 1, false));
        assert_eq!(held.pop_first(), Some((1, 1)));
        assert_eq!(held.pop_first(), Some((2, 2)));
        assert!(!held.is_empty());
    }
}
