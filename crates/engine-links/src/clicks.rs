//! Clicks: counted here, and sent to Redis in batches.

use weir_engine::Metrics;
use weir_link::click_buffer::{Click, ClickBuffer};

use crate::config::ClicksConfig;
use crate::job::Job;
use crate::metrics::{ClickCounters, ClickOutcome, click_counters};

/// The clicks of one engine.
#[derive(Debug)]
pub(crate) struct Clicks {
    buffer: ClickBuffer,
    flush_ms: u64,
    flush_due_ms: u64,
    counters: ClickCounters,
}

impl Clicks {
    /// No other engine has this name: batches are told apart by it.
    pub(crate) fn new(config: &ClicksConfig, unique_name: &str, metrics: &mut Metrics) -> Self {
        Self {
            buffer: ClickBuffer::new(unique_name, config.batches_max),
            flush_ms: config.flush_ms,
            flush_due_ms: 0,
            counters: click_counters(metrics),
        }
    }

    /// How far apart batches are, in milliseconds.
    pub(crate) fn flush_ms(&self) -> u64 {
        self.flush_ms
    }

    pub(crate) fn count(&mut self, click: &Click<'_>) {
        self.counters.increment(ClickOutcome::Counted);
        self.buffer.count(click);
    }

    /// Closes a batch if that is due. Returns what is to be sent now.
    pub(crate) fn flush(&mut self, now_ms: u64) -> Option<Job> {
        // A clock that was set back must not put it off.
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

    /// The batch under way was taken, or may not have been: then it goes again when the next one is due. Returns what is
    /// to be sent now.
    pub(crate) fn completed(&mut self, is_taken: bool) -> Option<Job> {
        if !is_taken {
            self.buffer.failed();
            return None;
        }
        let clicks = self.buffer.arrived();
        self.counters.add(ClickOutcome::Sent, to_count(clicks));
        self.next()
    }

    /// The next batch. One is under way at a time.
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
