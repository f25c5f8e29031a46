//! Delivers views to the origin in batches, one at a time, with retries. If too many batches wait, the oldest are
//! dropped.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use crate::answer::Answer;
use crate::consent::Consent;
use crate::name::KeyName;
use crate::stamps::{Kind, Stamps};
use weir_base::hash::stable_hash;
use weir_engine::event::FetchResponse;
use weir_engine::{Effects, Fetch, FetchId, Level};

use crate::engine::config::OutboxConfig;
use crate::engine::metrics::{EventCounters, Views};

/// The `:authority` of requests to the origin.
const AUTHORITY: &str = "weir-gateway";

/// Minimum retry delay of a failed batch, in milliseconds.
const RETRY_MS_MIN: u64 = 1_000;
const RETRY_MS_MAX: u64 = 30_000;

/// A batch to send.
#[derive(Clone, Debug)]
struct Batch {
    body: Arc<[u8]>,
    views: usize,
}

/// The views of one worker.
#[derive(Debug)]
pub(crate) struct Outbox {
    config: OutboxConfig,
    cluster: Arc<str>,
    key: KeyName,
    /// The prefix of event ids, unique to this worker.
    name: String,
    sequence: u64,
    /// The open batch: an unterminated JSON list.
    open: Vec<u8>,
    open_views: usize,
    open_since_ms: u64,
    /// Batches to send, the oldest first. A batch in flight is the first.
    closed: VecDeque<Batch>,
    under_way: Option<FetchId>,
    retry_at_ms: u64,
    retry_ms: u64,
    is_failing: bool,
    is_rejecting: bool,
    counters: Arc<EventCounters>,
}

/// The origin's result for a batch.
#[derive(Debug, PartialEq, Eq)]
enum BatchOutcome {
    /// The origin returned a verdict per view. `why`: the first rejection.
    Judged { rejected: usize, why: String },
    /// The origin refused the batch permanently.
    Refused(u16),
    /// The delivery failed or is uncertain. The origin may have sent a minimum delay until the retry.
    Failed { wait_ms: u64 },
}

impl Outbox {
    pub(crate) fn new(
        config: OutboxConfig,
        key: KeyName,
        unique_name: &str,
        counters: Arc<EventCounters>,
    ) -> Self {
        Self {
            cluster: config.cluster.as_str().into(),
            config,
            key,
            name: format!("o.{:016x}", stable_hash(unique_name.as_bytes())),
            sequence: 0,
            open: Vec::new(),
            open_views: 0,
            open_since_ms: 0,
            closed: VecDeque::new(),
            under_way: None,
            retry_at_ms: 0,
            retry_ms: RETRY_MS_MIN,
            is_failing: false,
            is_rejecting: false,
            counters,
        }
    }

    /// The id of the next view.
    pub(crate) fn next_id(&mut self) -> String {
        self.sequence += 1;
        format!("{}-{}", self.name, self.sequence)
    }

    /// Adds a view.
    pub(crate) fn push(&mut self, json: &[u8], now_ms: u64, effects: &mut Effects) {
        // Its comma or bracket, and the last bracket.
        let is_full = self.open_views >= self.config.events_max
            || self.open.len() + json.len() + 2 > self.config.bytes_max;
        if is_full {
            self.close();
            effects.wake();
        }
        if self.open_views == 0 {
            self.open_since_ms = now_ms;
            // Requests ticks.
            effects.wake();
        }
        self.open
            .push(if self.open_views == 0 { b'[' } else { b',' });
        self.open.extend_from_slice(json);
        self.open_views += 1;
    }

    /// Closes the open batch. If too many wait, the oldest one that is not in flight is dropped.
    fn close(&mut self) {
        if self.open_views == 0 {
            return;
        }
        self.open.push(b']');
        let body = Arc::from(mem::take(&mut self.open));
        let views = mem::take(&mut self.open_views);
        self.closed.push_back(Batch { body, views });
        if self.closed.len() > self.config.batches_max {
            let oldest = usize::from(self.under_way.is_some());
            if let Some(dropped) = self.closed.remove(oldest) {
                self.counters.views.add(Views::Dropped, dropped.views);
            }
        }
    }

    /// Closes and sends due batches.
    pub(crate) fn flush(&mut self, now_ms: u64, effects: &mut Effects) {
        if is_past(
            self.open_since_ms.saturating_add(self.config.flush_ms),
            self.config.flush_ms,
            now_ms,
        ) {
            self.close();
        }
        if self.under_way.is_none() && is_past(self.retry_at_ms, RETRY_MS_MAX, now_ms) {
            self.send(now_ms, effects);
        }
    }

    fn send(&mut self, now_ms: u64, effects: &mut Effects) {
        let Some(batch) = self.closed.front() else {
            return;
        };
        let stamps = Stamps {
            key: self.key.clone(),
            // Only events of such a key may name customers.
            kind: Kind::Server,
            received_ms: now_ms,
            // One batch contains views of many clients.
            address: None,
            consent: Consent::Full,
        };
        let mut headers = Vec::from([
            (":method", "POST".to_string()),
            (":path", self.config.path.clone()),
            (":authority", AUTHORITY.to_string()),
            ("content-type", "application/json".to_string()),
        ]);
        headers.extend(stamps.headers());
        let fetch = Fetch {
            cluster: Arc::clone(&self.cluster),
            headers,
            body: Arc::clone(&batch.body),
            timeout_ms: self.config.timeout_ms,
        };
        self.under_way = Some(effects.fetch(fetch));
    }

    /// Handles the end of a delivery: sends the next batch, or retries this one later.
    pub(crate) fn ended(
        &mut self,
        fetch: FetchId,
        response: Option<&FetchResponse>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        if self.under_way.take_if(|sent| *sent == fetch).is_none() {
            return;
        }
        match BatchOutcome::read(response) {
            BatchOutcome::Failed { wait_ms } => self.failed(wait_ms, now_ms, effects),
            accepted => {
                self.complete_batch(&accepted, effects);
                self.send(now_ms, effects);
            }
        }
    }

    fn complete_batch(&mut self, accepted: &BatchOutcome, effects: &mut Effects) {
        let Some(batch) = self.closed.pop_front() else {
            return;
        };
        let views = &self.counters.views;
        match accepted {
            BatchOutcome::Judged { rejected, why } => {
                let rejected = batch.views.min(*rejected);
                views.add(Views::Rejected, rejected);
                views.add(Views::Accepted, batch.views - rejected);
                // The usual cause is an unregistered type. Then all views are rejected, and one log line is enough.
                if !mem::replace(&mut self.is_rejecting, rejected > 0) && rejected > 0 {
                    let text = format!("the origin rejects views: {why}");
                    effects.log(Level::Warn, text);
                }
            }
            BatchOutcome::Refused(status) => {
                views.add(Views::Refused, batch.views);
                let text = format!(
                    "the origin refused {} views with status {status}",
                    batch.views
                );
                effects.log(Level::Warn, text);
            }
            BatchOutcome::Failed { .. } => {}
        }
        self.retry_ms = RETRY_MS_MIN;
        self.retry_at_ms = 0;
        if mem::take(&mut self.is_failing) {
            effects.log(Level::Info, "the origin accepts views again");
        }
    }

    fn failed(&mut self, wait_ms: u64, now_ms: u64, effects: &mut Effects) {
        self.counters.batches_failed.increment();
        let wait_ms = wait_ms.clamp(self.retry_ms, RETRY_MS_MAX);
        self.retry_at_ms = now_ms.saturating_add(wait_ms);
        self.retry_ms = (2 * self.retry_ms).min(RETRY_MS_MAX);
        if !mem::replace(&mut self.is_failing, true) {
            let text = "the origin does not accept views: they are queued, and the oldest are dropped when the queue is full";
            effects.log(Level::Warn, text);
        }
    }

    /// The interval between ticks while views wait, in milliseconds.
    pub(crate) fn tick_ms(&self) -> Option<u64> {
        let is_idle = self.open_views == 0 && self.closed.is_empty();
        // At least as often as a retry may be due.
        (!is_idle).then(|| self.config.flush_ms.min(RETRY_MS_MIN))
    }
}

impl BatchOutcome {
    fn read(response: Option<&FetchResponse>) -> Self {
        let Some(response) = response else {
            return Self::Failed { wait_ms: 0 };
        };
        match response.status {
            200..=299 => match serde_json::from_slice::<Answer>(&response.body) {
                Ok(answer) => Self::from_answer(answer),
                // The server is not an origin of events.
                Err(_) => Self::Refused(response.status),
            },
            408 | 425 | 429 | 500.. => Self::Failed {
                wait_ms: retry_after_ms(response),
            },
            status => Self::Refused(status),
        }
    }
}

impl BatchOutcome {
    fn from_answer(answer: Answer) -> Self {
        let mut verdicts = answer.verdicts.into_iter();
        Self::Judged {
            rejected: answer.rejected,
            why: verdicts
                .find_map(|verdict| verdict.message)
                .unwrap_or_default(),
        }
    }
}

fn retry_after_ms(response: &FetchResponse) -> u64 {
    let seconds = response.header("retry-after");
    let seconds = seconds.and_then(|seconds| seconds.parse::<u64>().ok());
    seconds.unwrap_or(0).saturating_mul(1_000)
}

/// Whether `due_ms`, which was set at most `ahead_ms` in the future, has passed. A clock that was set back must not
/// delay it.
fn is_past(due_ms: u64, ahead_ms: u64, now_ms: u64) -> bool {
    now_ms >= due_ms || due_ms - now_ms > ahead_ms
}
