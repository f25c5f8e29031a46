//! The state of one room, and who may enter.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::draw::{Draw, Seed};
use crate::pace::Pace;
use crate::redis::keys::RoomKeys;
use crate::redis::room::CallContext;
use crate::redis::room_tick::RENEWED_MAX;
use crate::{Pass, PassError, Renewal, RoomState, Setting, Snapshot, Visitor};
use weir_base::key::KeyRing;
use weir_base::language::Language;
use weir_base::shared_data::SharedData;
use weir_engine::Metrics;
use weir_engine::poll::Schedule;

use crate::engine::answer::{QueueAnswer, cookie_name};
use crate::engine::config::CheckedRoom;
use crate::engine::local::Local;
use crate::engine::metrics::{Outcome, RoomCounters};

/// How long ticks must fail before a gateway admits visitors on its own, in milliseconds.
const ALONE_AFTER_MS: u64 = 3_000;

/// Poll interval for visitors who were called or should soon get a position, in milliseconds.
const SOON_MS: u64 = 2_000;

/// Maximum sessions that wait for renewal, with about 24 bytes each.
const RENEWALS_MAX: usize = 65_536;

/// One room.
#[derive(Debug)]
pub(crate) struct Room<D> {
    pub(crate) config: CheckedRoom,
    pub(crate) keys: Arc<RoomKeys>,
    pub(crate) cookie: alloc::string::String,
    pub(crate) schedule: Schedule,
    pub(crate) counters: RoomCounters,
    is_ticking: bool,
    /// Since when ticks have failed, in milliseconds since the Unix epoch.
    failing_since_ms: Option<u64>,
    snapshot: Option<Snapshot>,
    observed: RoomState,
    draw: Option<Draw>,
    pace: Pace,
    /// When `snapshot` arrived, by this gateway's clock, in milliseconds.
    heard_ms: u64,
    /// Sessions to renew, with their `entered_at`: see [`Renewal`].
    renewals: BTreeMap<Visitor, Option<u64>>,
    local: Local<D>,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Passes, without a change of the queue token.
    Pass(Outcome),
    /// Passes, and the visitor gets a session.
    Enter(Outcome),
    /// Redis decides. `order` is the visitor's position after a draw.
    Ask { order: u64 },
    /// The visitor waits or is refused.
    Wait(Outcome),
}

impl<D: SharedData> Room<D> {
    pub(crate) fn new(
        config: CheckedRoom,
        data: D,
        prefix: &str,
        poll_interval_ms: u64,
        metrics: &mut Metrics,
    ) -> Self {
        Self {
            keys: Arc::new(RoomKeys::new(prefix, &config.name)),
            cookie: cookie_name(&config.name),
            schedule: Schedule::new(poll_interval_ms),
            counters: RoomCounters::new(metrics, &config.name),
            is_ticking: false,
            failing_since_ms: None,
            snapshot: None,
            observed: RoomState::default(),
            draw: None,
            pace: Pace::default(),
            heard_ms: 0,
            renewals: BTreeMap::new(),
            local: Local::new(data, &config.name, config.local_per_minute),
            config,
        }
    }

    /// The settings in force, as last read.
    pub(crate) fn setting(&self) -> Setting {
        self.snapshot
            .map_or(self.config.setting, |snapshot| snapshot.setting)
    }

    /// The context of a script call.
    pub(crate) fn call_context(&self, ring: &KeyRing, now_ms: u64) -> CallContext {
        let setting = self.setting();
        let mut observed = self.observed;
        let opening = observed.next_opening(setting.opens_at_ms).unwrap_or(0);
        let is_drawn = opening <= observed.drew;
        if !is_drawn && opening != observed.seed_of {
            observed.seed_of = opening;
            observed.seed = Some(Seed::offer(ring, &self.config.name, opening));
        }
        CallContext {
            terms: self.config.terms,
            setting,
            observed,
            asked_ms: self.snapshot.map_or(0, |snapshot| {
                snapshot.now_ms + now_ms.saturating_sub(self.heard_ms)
            }),
        }
    }

    // --- looks at Redis

    /// The sessions to renew, if a tick is due.
    pub(crate) fn due(&mut self, now_ms: u64) -> Option<Vec<Renewal>> {
        if self.is_ticking || !self.schedule.is_due(now_ms) {
            return None;
        }
        self.is_ticking = true;
        let mut renewed = Vec::new();
        while let Some((visitor, entered_at)) = self.renewals.pop_first() {
            renewed.push(Renewal {
                visitor,
                entered_at,
            });
            if renewed.len() == RENEWED_MAX {
                break;
            }
        }
        if !self.renewals.is_empty() {
            self.schedule.again();
        }
        Some(renewed)
    }

    /// Handles a tick's reply. Returns whether ticks failed before.
    pub(crate) fn ticked(&mut self, snapshot: Snapshot, now_ms: u64) -> bool {
        self.is_ticking = false;
        self.failing_since_ms = None;
        self.apply_snapshot(snapshot, now_ms);
        self.schedule.succeeded()
    }

    /// Handles a failed tick, and queues its renewals again. Returns whether it is the first failure in a row.
    pub(crate) fn tick_failed(&mut self, renewed: &[Renewal], now_ms: u64) -> bool {
        self.is_ticking = false;
        self.failing_since_ms.get_or_insert(now_ms);
        self.counters.polls_failed.increment();
        renewed.iter().for_each(|renewal| self.renew(*renewal));
        self.schedule.failed()
    }

    /// Applies a snapshot from Redis.
    pub(crate) fn apply_snapshot(&mut self, snapshot: Snapshot, now_ms: u64) {
        // A later reply has overtaken this one: ignore it.
        if self
            .snapshot
            .is_some_and(|existing| existing.now_ms > snapshot.now_ms)
        {
            self.observed.merge(&RoomState {
                inside: self.observed.inside,
                called: self.observed.called,
                ..snapshot.observed
            });
            return;
        }
        self.observed.apply_latest(&snapshot.observed);
        self.snapshot = Some(snapshot);
        self.heard_ms = now_ms;
        self.draw = self.observed.draw();
        self.pace.note(now_ms, self.observed.head);
    }

    fn renew(&mut self, renewal: Renewal) {
        let Renewal {
            visitor,
            entered_at,
        } = renewal;
        let is_full = self.renewals.len() >= RENEWALS_MAX;
        if !is_full || self.renewals.contains_key(&visitor) {
            let existing = self.renewals.entry(visitor).or_default();
            *existing = existing.or(entered_at);
        }
    }

    // --- requests

    /// Learns from a client's token how far the queue had been called, or counts the refused token.
    pub(crate) fn note_token(&mut self, token: Result<Pass, PassError>) {
        match token {
            Ok(pass) => {
                self.observed.seq = self.observed.seq.max(pass.place);
                self.observed.head = self.observed.head.max(pass.head);
            }
            Err(error) => self.counters.passes_refused.increment(error),
        }
    }

    /// Whether the state already covers the token.
    pub(crate) fn covers(&self, token: &Pass) -> bool {
        token.place <= self.observed.seq && token.head <= self.observed.head
    }

    /// The renewed token of an active session, if the current one is due.
    pub(crate) fn renewed(&mut self, pass: &Pass, now_ms: u64) -> Option<Pass> {
        let session_ms = self.config.terms.session_ms;
        let is_young = pass.until_ms.saturating_sub(now_ms) > session_ms / 4 * 3;
        if is_young {
            return None;
        }
        self.renew(pass.visitor.into());
        self.counters.renewed.increment();
        Some(self.inside(pass, now_ms))
    }

    /// The token of a visitor who enters now.
    pub(crate) fn inside(&self, pass: &Pass, now_ms: u64) -> Pass {
        Pass {
            head: self.observed.head,
            until_ms: now_ms + self.config.terms.session_ms,
            ..*pass
        }
    }

    /// The token of a waiting visitor.
    pub(crate) fn outside(&self, pass: &Pass) -> Pass {
        Pass {
            head: self.observed.head,
            until_ms: 0,
            ..*pass
        }
    }

    /// Whether the Redis outage has lasted so long that this gateway admits visitors on its own.
    pub(crate) fn is_alone(&self, now_ms: u64) -> bool {
        let since = self.failing_since_ms;
        since.is_some_and(|since_ms| now_ms.saturating_sub(since_ms) >= ALONE_AFTER_MS)
    }

    pub(crate) fn is_lobby(&self, now_ms: u64) -> bool {
        match self.snapshot {
            Some(snapshot) => snapshot.is_lobby,
            None => self.config.setting.opens_at_ms > now_ms,
        }
    }

    fn order(&self, place: u64) -> u64 {
        self.draw.as_ref().map_or(place, |draw| draw.order(place))
    }

    /// Decides on a request with this token.
    pub(crate) fn decide(&mut self, pass: &Pass, now_ms: u64) -> Decision {
        let mode = self.setting().mode;
        if mode == crate::Mode::Bypass {
            return Decision::Pass(Outcome::Bypassed);
        }
        if pass.is_inside(now_ms) {
            return Decision::Pass(Outcome::Inside);
        }
        if pass.place == 0 && !mode.takes_newcomers() {
            return Decision::Wait(Outcome::Closed);
        }
        let is_lobby = self.is_lobby(now_ms);
        if pass.place > 0 && is_lobby {
            return Decision::Wait(Outcome::Lobby);
        }
        let order = self.order(pass.place);
        if self.is_alone(now_ms) {
            return match mode.calls() && !is_lobby {
                true => self.decide_alone(pass, order, now_ms),
                false => Decision::Wait(Outcome::waiting(pass)),
            };
        }
        let queue_max = self.config.terms.queue_max;
        let is_full = queue_max > 0
            && self.observed.seq - self.observed.head.min(self.observed.seq) >= queue_max;
        match pass.place {
            0 if is_full => Decision::Wait(Outcome::Full),
            0 => Decision::Ask { order: 0 },
            _ if order > self.observed.head => Decision::Wait(Outcome::Waiting),
            _ => Decision::Ask { order },
        }
    }

    fn decide_alone(&mut self, pass: &Pass, order: u64, now_ms: u64) -> Decision {
        let head = self
            .local
            .call(self.observed.head, self.observed.seq, now_ms);
        self.observed.head = self.observed.head.max(head);
        let is_next = match pass.place {
            // After all visitors with known positions.
            0 => head >= self.observed.seq && self.local.take(now_ms),
            _ => order <= head,
        };
        if !is_next {
            return Decision::Wait(Outcome::waiting(pass));
        }
        // Reported to Redis when it is back.
        self.renew(Renewal {
            visitor: pass.visitor,
            entered_at: Some(order),
        });
        Decision::Enter(Outcome::Local)
    }

    /// The answer to a visitor who waits or is refused.
    pub(crate) fn queue_answer(
        &self,
        pass: &Pass,
        outcome: Outcome,
        language: Language,
        now_ms: u64,
    ) -> QueueAnswer {
        let ahead = self.order(pass.place).saturating_sub(self.observed.head);
        let is_waiting = outcome == Outcome::Waiting && ahead > 0;
        let setting = self.setting();
        // The pace of the last minute says nothing about a queue that does not move.
        let is_paused = outcome == Outcome::Waiting && !setting.mode.calls();
        let wait_ms = match is_waiting && !is_paused {
            true => self.pace.wait_ms(ahead, setting.per_minute),
            false => None,
        };
        let opens_at_ms = match outcome {
            Outcome::Lobby => self.setting().opens_at_ms,
            _ => 0,
        };
        QueueAnswer {
            outcome,
            language,
            position: is_waiting.then_some(ahead),
            wait_ms,
            is_paused,
            poll_ms: self.poll_ms(outcome, wait_ms, opens_at_ms.saturating_sub(now_ms)),
            opens_at_ms,
            pass: None,
        }
    }

    fn poll_ms(&self, outcome: Outcome, wait_ms: Option<u64>, opens_in_ms: u64) -> u64 {
        let poll = self.config.poll;
        let within = |ms: u64| ms.clamp(poll.min_ms, poll.max_ms);
        match outcome {
            Outcome::Waiting => within(wait_ms.map_or(poll.max_ms, |wait_ms| wait_ms / 10)),
            Outcome::Lobby => within(opens_in_ms),
            Outcome::Full | Outcome::Address | Outcome::Closed => poll.max_ms,
            _ => SOON_MS.min(poll.max_ms),
        }
    }
}

impl Outcome {
    /// The answer to a waiting visitor.
    fn waiting(pass: &Pass) -> Self {
        match pass.place {
            0 => Self::Unplaced,
            _ => Self::Waiting,
        }
    }
}
