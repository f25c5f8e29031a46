//! Which streams to the bridge are open, and which of them have a call.

use std::collections::BTreeMap;

/// The streams of one VM. Each has one call at most: so a reply is always that call's, and a call that is given up
/// takes nothing with it but its own stream.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// Open, and without a call. There are never more than there once were calls at the same time.
    resting: Vec<u32>,
    busy: BTreeMap<u32, Call>,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    since_ms: u64,
    timeout_ms: u64,
}

impl Streams {
    /// An open stream without a call: the last that had one.
    pub(crate) fn take(&mut self) -> Option<u32> {
        self.resting.pop()
    }

    /// A call has begun on the stream.
    pub(crate) fn begin(&mut self, stream: u32, timeout_ms: u64, now_ms: u64) {
        let call = Call {
            since_ms: now_ms,
            timeout_ms,
        };
        self.busy.insert(stream, call);
    }

    /// The stream's call has ended. Whether it had one.
    pub(crate) fn end(&mut self, stream: u32) -> bool {
        self.busy.remove(&stream).is_some()
    }

    /// The stream can take another call.
    pub(crate) fn rest(&mut self, stream: u32) {
        self.resting.push(stream);
    }

    /// The stream is gone. Whether it had a call.
    pub(crate) fn remove(&mut self, stream: u32) -> bool {
        self.resting.retain(|&resting| resting != stream);
        self.end(stream)
    }

    /// Ends a call whose time is over, if there is one, and forgets its stream. A clock that was set by more than a call
    /// may take, forwards or back, ends it, too: its outcome is unknown, which is safe.
    pub(crate) fn expire(&mut self, now_ms: u64) -> Option<u32> {
        let is_over = |call: &Call| now_ms.abs_diff(call.since_ms) >= call.timeout_ms;
        let mut busy = self.busy.iter();
        let stream = busy.find_map(|(stream, call)| is_over(call).then_some(*stream))?;
        self.busy.remove(&stream);
        Some(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_used_again_when_its_call_has_ended() {
        let mut streams = Streams::default();
        assert_eq!(streams.take(), None);
        streams.begin(3, 100, 0);
        assert_eq!(streams.take(), None, "it has a call");
        assert_eq!((streams.end(3), streams.end(3)), (true, false));
        streams.rest(3);
        assert_eq!((streams.take(), streams.take()), (Some(3), None));
    }

    #[test]
    fn a_stream_that_is_gone_is_not_used_again() {
        let mut streams = Streams::default();
        streams.rest(3);
        assert_eq!((streams.remove(3), streams.take()), (false, None));
        streams.begin(7, 100, 0);
        assert_eq!((streams.remove(7), streams.remove(7)), (true, false));
    }

    #[test]
    fn a_call_ends_when_its_time_is_over_or_the_clock_was_set() {
        let mut streams = Streams::default();
        streams.begin(3, 100, 1_000);
        streams.begin(7, 200, 1_000);
        assert_eq!(streams.expire(1_099), None);
        assert_eq!(streams.expire(1_100), Some(3));
        assert_eq!(streams.expire(1_100), None);
        assert_eq!(streams.expire(700), Some(7));
        assert_eq!((streams.end(7), streams.take()), (false, None));
    }
}
