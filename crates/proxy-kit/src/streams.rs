//! The open streams to the bridge and their calls.

use std::collections::BTreeMap;

use weir_engine::BatchId;

/// A stream that was idle for this long is closed, at the latest after twice this time. Each holds a connection to
/// Redis, and firewalls drop connections that are idle for some minutes.
const REST_MS_MAX: u64 = 30_000;

/// The streams of one VM. Each has at most one call: so a reply always belongs to that call, and a timed-out call
/// affects only its own stream.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// Open and idle, the longest idle first.
    resting: Vec<u32>,
    /// How many of these, from the first on, have been idle since the last check.
    unused: usize,
    looked_at_ms: u64,
    /// Not to be reused, and not closed yet.
    worn_out: Vec<u32>,
    busy: BTreeMap<u32, Call>,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    batch: BatchId,
    since_ms: u64,
    timeout_ms: u64,
}

impl Streams {
    /// Takes the most recently used idle stream.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let stream = self.resting.pop();
        self.unused = self.unused.min(self.resting.len());
        stream
    }

    /// Whether there is an idle stream.
    pub(crate) fn is_any_resting(&self) -> bool {
        !self.resting.is_empty()
    }

    /// Starts the call `batch` on the stream.
    pub(crate) fn begin(&mut self, stream: u32, batch: BatchId, timeout_ms: u64, now_ms: u64) {
        let call = Call {
            batch,
            since_ms: now_ms,
            timeout_ms,
        };
        self.busy.insert(stream, call);
    }

    /// Ends the stream's call and returns it, if any.
    pub(crate) fn end(&mut self, stream: u32) -> Option<BatchId> {
        self.busy.remove(&stream).map(|call| call.batch)
    }

    /// Marks the stream as idle.
    pub(crate) fn rest(&mut self, stream: u32) {
        self.resting.push(stream);
    }

    /// Retires the stream: the next [`Streams::idle`] closes it.
    pub(crate) fn wear_out(&mut self, stream: u32) {
        self.worn_out.push(stream);
    }

    /// Removes a closed stream and returns its call, if any.
    pub(crate) fn remove(&mut self, stream: u32) -> Option<BatchId> {
        if let Some(index) = self.resting.iter().position(|&resting| resting == stream) {
            self.resting.remove(index);
            self.unused -= usize::from(index < self.unused);
        }
        self.worn_out.retain(|&worn_out| worn_out != stream);
        self.end(stream)
    }

    /// Removes and returns the streams to close at `now_ms`: retired ones and those idle for too long.
    pub(crate) fn idle(&mut self, now_ms: u64) -> Vec<u32> {
        let mut idle = std::mem::take(&mut self.worn_out);
        if now_ms.abs_diff(self.looked_at_ms) >= REST_MS_MAX {
            self.looked_at_ms = now_ms;
            idle.extend(self.resting.drain(..self.unused));
            self.unused = self.resting.len();
        }
        idle
    }

    /// Ends a call that has timed out, if any, and removes its stream. If the clock jumps by more than the timeout,
    /// calls end, too: their outcome is unknown, which is safe.
    pub(crate) fn expire(&mut self, now_ms: u64) -> Option<(u32, BatchId)> {
        let is_over = |call: &Call| now_ms.abs_diff(call.since_ms) >= call.timeout_ms;
        let mut busy = self.busy.iter();
        let (stream, batch) =
            busy.find_map(|(stream, call)| is_over(call).then_some((*stream, call.batch)))?;
        self.busy.remove(&stream);
        Some((stream, batch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_reused_after_its_call_has_ended() {
        let mut streams = Streams::default();
        assert_eq!(streams.take(), None);
        streams.begin(3, BatchId(30), 100, 0);
        assert_eq!(streams.take(), None, "it has a call");
        assert_eq!((streams.end(3), streams.end(3)), (Some(BatchId(30)), None));
        streams.rest(3);
        assert_eq!((streams.take(), streams.take()), (Some(3), None));
    }

    #[test]
    fn closed_stream_is_not_reused() {
        let mut streams = Streams::default();
        streams.rest(3);
        assert_eq!((streams.remove(3), streams.take()), (None, None));
        streams.begin(7, BatchId(70), 100, 0);
        assert_eq!(
            (streams.remove(7), streams.remove(7)),
            (Some(BatchId(70)), None)
        );
    }

    #[test]
    fn only_long_idle_streams_are_closed() {
        let mut streams = Streams::default();
        for stream in 1..=4 {
            streams.rest(stream);
        }
        let long = REST_MS_MAX;
        assert_eq!(
            streams.idle(10 * long),
            [0; 0],
            "they may have come to rest just now"
        );
        assert_eq!((streams.take(), streams.take()), (Some(4), Some(3)));
        streams.rest(3);
        assert_eq!(streams.remove(1), None);
        assert_eq!(streams.idle(11 * long - 1), [0; 0]);
        assert_eq!(streams.idle(11 * long), [2]);
        assert_eq!(streams.take(), Some(3), "it was used");
        streams.rest(3);
        assert_eq!(streams.idle(12 * long), [0; 0]);
        assert_eq!(streams.idle(9 * long), [3], "the clock was set back");
        assert_eq!((streams.take(), streams.idle(0)), (None, vec![]));
    }

    #[test]
    fn worn_out_stream_is_closed_immediately_and_only_once() {
        let mut streams = Streams::default();
        streams.rest(3);
        streams.wear_out(7);
        streams.wear_out(8);
        assert_eq!(streams.remove(8), None, "it was closed by the other side");
        assert_eq!(streams.idle(0), [7]);
        assert_eq!((streams.idle(0), streams.take()), (vec![0; 0], Some(3)));
    }

    #[test]
    fn call_ends_at_its_deadline_or_when_the_clock_jumps_back() {
        let mut streams = Streams::default();
        streams.begin(3, BatchId(30), 100, 1_000);
        streams.begin(7, BatchId(70), 200, 1_000);
        assert_eq!(streams.expire(1_099), None);
        assert_eq!(streams.expire(1_100), Some((3, BatchId(30))));
        assert_eq!(streams.expire(1_100), None);
        assert_eq!(streams.expire(700), Some((7, BatchId(70))));
        assert_eq!((streams.end(7), streams.take()), (None, None));
    }
}
