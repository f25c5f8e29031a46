//! When to poll for what stands in Redis.

/// What a VM that has seen no request polls by, in milliseconds: Envoy runs such a VM on its main thread,
/// from which nothing can be reached.
const IDLE_POLL_MS: u64 = 30_000;

/// By how much a tick may come before its poll is due.
const EARLY_MS_MAX: u64 = 20;

/// When polls are due, and which call is one.
#[derive(Debug)]
pub struct Schedule {
    interval_ms: u64,
    is_idle: bool,
    due_ms: u64,
    token: Option<u32>,
}

impl Schedule {
    /// Polls `interval_ms` apart, from the first request on; until then seldom.
    pub fn new(interval_ms: u64) -> Self {
        Self {
            interval_ms,
            is_idle: true,
            due_ms: 0,
            token: None,
        }
    }

    /// The first request has come: a poll is due now.
    pub fn hurry(&mut self) {
        if std::mem::take(&mut self.is_idle) {
            self.due_ms = 0;
        }
    }

    /// Something was found, so something can be reached: polls need not wait for a request.
    pub fn reached(&mut self) {
        self.is_idle = false;
    }

    /// The next poll is due at once: the last one has told of more.
    pub fn again(&mut self) {
        self.due_ms = 0;
    }

    /// How far apart polls are, in milliseconds.
    pub fn interval_ms(&self) -> u64 {
        match self.is_idle {
            true => self.interval_ms.max(IDLE_POLL_MS),
            false => self.interval_ms,
        }
    }

    /// Whether a poll is due, and none under way. If it is not sent, the next one is due an interval later.
    pub fn is_due(&mut self, now_ms: u64) -> bool {
        let interval_ms = self.interval_ms();
        // A clock that was set back must not put polls off.
        let is_due = now_ms >= self.due_ms || self.due_ms - now_ms > interval_ms;
        if self.token.is_some() || !is_due {
            return false;
        }
        self.due_ms = now_ms + interval_ms - (interval_ms / 8).min(EARLY_MS_MAX);
        true
    }

    /// The poll was sent as the call `token`.
    pub fn sent(&mut self, token: u32) {
        self.token = Some(token);
    }

    /// Whether the call `token`, which has come back, was the poll.
    pub fn completed(&mut self, token: u32) -> bool {
        self.token.take_if(|sent| *sent == token).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_are_an_interval_apart_and_one_at_a_time() {
        let mut schedule = Schedule::new(250);
        assert_eq!(schedule.interval_ms(), IDLE_POLL_MS);
        assert!(schedule.is_due(1_000_000));
        assert!(!schedule.is_due(1_000_000));
        schedule.hurry();
        assert_eq!(schedule.interval_ms(), 250);
        assert!(schedule.is_due(1_000_001));
        schedule.sent(7);
        assert!(!schedule.is_due(1_001_000), "one is under way");
        assert!(!schedule.completed(8));
        assert!(schedule.completed(7));
        assert!(schedule.is_due(1_001_000));
        assert!(!schedule.is_due(1_001_229));
        assert!(schedule.is_due(1_001_230), "a tick may be early");
        schedule.again();
        assert!(schedule.is_due(1_001_231));
        assert!(schedule.is_due(0), "the clock was set back");
    }

    #[test]
    fn what_is_reached_is_polled_without_a_request() {
        let mut schedule = Schedule::new(250);
        schedule.reached();
        assert_eq!(schedule.interval_ms(), 250);
    }
}
