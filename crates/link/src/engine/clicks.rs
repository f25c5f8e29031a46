//! Counts clicks and sends them to Redis in batches.

use crate::click_buffer::{Click, ClickBuffer};
use weir_engine::Metrics;

use crate::engine::config::ClicksConfig;
use crate::engine::job::Job;
use crate::engine::metrics::{ClickCounters, ClickOutcome, click_counters};

/// The clicks of one engine.
#[derive(Debug)]
pub(crate) struct Clicks {
    buffer: ClickBuffer,
    flush_ms: u64,
    flush_due_ms: u64,
    counters: ClickCounters,
}

impl Clicks {
    /// `unique_name` must differ between engines: it identifies batches.
    pub(crate) fn new(config: &ClicksConfig, unique_name: &str, metrics: &mut Metrics) -> Self {
        Self {
            buffer: ClickBuffer::new(unique_name, config.batches_max),
            flush_ms: config.flush_ms,
            flush_due_ms: 0,
            counters: click_counters(metrics),
        }
    }

    /// The interval between batches, in milliseconds.
    pub(crate) fn flush_ms(&self) -> u64 {
        self.flush_ms
    }

    pub(crate) fn count(&mut self, click: &Click<'_>) {
        self.counters.increment(ClickOutcome::Counted);
        self.buffer.count(click);
    }

    /// Closes a batch if it is due. Returns the batch to send now.
    pub(crate) fn flush(&mut self, now_ms: u64) -> Option<Job> {
        // A clock that was set back must not delay the batch.
        let is_due = now_ms >= self.flush_due_ms || self.flush_due_ms - now_ms > self.flush_ms;
        if !is_due {
            return None;
        }
        self.flush_due_ms = now_ms.saturating_add(self.flush_ms);
        self.buffer.close();
        let dropped = self.buffer.take_dropped();
        self.counters.add(ClickOutcome::Dropped, to_count(dropped));
        self.next()
    }

    /// Ends the batch in flight. If delivery is uncertain, it is sent again when the next one is due. Returns the batch
    /// to send now.
    pub(crate) fn completed(&mut self, is_taken: bool) -> Option<Job> {
        if !is_taken {
            self.buffer.failed();
            return None;
        }
        let clicks = self.buffer.arrived();
        self.counters.add(ClickOutcome::Sent, to_count(clicks));
        self.next()
    }

    /// The next batch; one is in flight at a time.
    fn next(&mut self) -> Option<Job> {
        let batch = self.buffer.send_next()?;
        Some(Job::Clicks {
            id: batch.id,
            payload: batch.payload.clone(),
        })
    }
}

fn to_count(clicks: u64) -> usize {
    usize::try_from(clicks).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::LinkName;
    use crate::code::DomainId;

    #[test]
    fn batches_keep_their_interval_even_when_clock_goes_back() {
        let mut clicks = Clicks::new(&ClicksConfig::default(), "test", &mut Metrics::new());
        let link = LinkName::new(&DomainId::new("s").unwrap(), b"abc").unwrap();
        let click = Click {
            link: &link,
            now_ms: 0,
            address: b"",
            user_agent: b"",
            referer: b"",
            accept_language: b"",
        };
        for (now_ms, is_sent) in [
            (10_000, true),
            (10_999, false),
            (11_000, true),
            (11_000, false),
            // The clock is more than one interval before the due time.
            (10_999, true),
            (11_998, false),
            (11_999, true),
        ] {
            clicks.count(&click);
            assert_eq!(clicks.flush(now_ms).is_some(), is_sent, "{now_ms}");
            if is_sent {
                assert!(clicks.completed(true).is_none());
            }
        }
    }
}
