//! Requests that come before anything is known: they wait for an engine's first poll, for a moment.
//!
//! A worker that has just started does not know yet what stands in Redis. If it decided at once, the first requests of each
//! worker would be refused, or answered by somebody else, for no other reason. So they wait until Redis has answered once,
//! whatever it says, and at most [`HOLD_MS`] from the first request on: without Redis they stand still no longer than that,
//! and only once.

use alloc::collections::BTreeMap;

use crate::event::StreamId;

/// For how long requests wait for the first poll, from a worker's first request on, in milliseconds. A poll that fails is sent
/// again within it, three times.
pub const HOLD_MS: u64 = 1_000;

/// The most requests that wait so on one worker.
pub const HELD_MAX: usize = 1_024;

/// Requests of one worker that wait for its first poll, with what their engine keeps of each: that is to be bounded.
#[derive(Debug)]
pub struct HeldRequests<T> {
    /// From when on none waits any more; `None` before the first request.
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
    /// The worker's first request has come.
    pub fn begin(&mut self, now_ms: u64) {
        self.until_ms = Some(now_ms.saturating_add(HOLD_MS));
    }

    /// Whether a request has ever come. Where none does, nothing needs to be known.
    pub fn has_begun(&self) -> bool {
        self.until_ms.is_some()
    }

    /// Whether it is too late to wait. So it is if the clock was set back.
    pub fn is_over(&self, now_ms: u64) -> bool {
        self.until_ms
            .is_none_or(|until_ms| now_ms >= until_ms || until_ms - now_ms > HOLD_MS)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether no more may wait.
    pub fn is_full(&self) -> bool {
        self.requests.len() >= HELD_MAX
    }

    /// Lets a stream's request wait: not if [`HeldRequests::is_full`].
    pub fn insert(&mut self, stream: StreamId, request: T) {
        self.requests.insert(stream, request);
    }

    /// The stream has ended.
    pub fn forget(&mut self, stream: StreamId) {
        self.requests.remove(&stream);
    }

    /// The request of the stream that came first goes its way. Hosts number streams in their order.
    pub fn pop_first(&mut self) -> Option<(StreamId, T)> {
        self.requests.pop_first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_wait_from_the_first_one_on_and_not_longer_than_said() {
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
