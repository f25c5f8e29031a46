//! The engine's counters; each name is defined here once.

use alloc::format;

use crate::{PassError, RoomName};
use weir_engine::Metrics;
use weir_engine::metrics::{Counter, Counters};
use weir_engine::tag;

/// The prefix of all names.
pub(crate) const PREFIX: &str = "weir_room";

tag! {
    /// The outcome of a request.
    Outcome {
        /// The visitor has an active session.
        Inside = "inside",
        /// The visitor entered.
        Entered = "entered",
        /// The visitor entered at this gateway's own rate during a Redis outage.
        Local = "local",
        /// The room is bypassed.
        Bypassed = "bypassed",
        /// The visitor waits.
        Waiting = "waiting",
        /// The visitor waits for the opening.
        Lobby = "lobby",
        /// The visitor was called and waits for capacity.
        Hold = "hold",
        /// The visitor has no position yet: Redis has lost the room or does not answer.
        Unplaced = "unplaced",
        /// Refused: the queue is full.
        Full = "full",
        /// Refused: the address has reached its limit of positions.
        Address = "address",
        /// Refused: the room is closed.
        Closed = "closed",
        /// A page requested its position.
        Status = "status",
    }
}

impl Outcome {
    /// The state in answers to visitors.
    pub(crate) const fn state(self) -> &'static str {
        self.label()
    }
}

/// The counters of one room.
#[derive(Debug)]
pub(crate) struct RoomCounters {
    /// Requests, by outcome.
    pub(crate) requests: Counters<Outcome>,
    /// New visitors with a position.
    pub(crate) joined: Counter,
    /// Visitors who got a new position at the end, because theirs had expired or was used.
    pub(crate) rejoined: Counter,
    /// Renewed sessions.
    pub(crate) renewed: Counter,
    /// Failed ticks.
    pub(crate) polls_failed: Counter,
    /// Refused queue tokens, by reason.
    pub(crate) passes_refused: Counters<PassError>,
}

impl RoomCounters {
    pub(crate) fn new(metrics: &mut Metrics, room: &RoomName) -> Self {
        let requests = Counters::new(metrics, Outcome::ALL, |outcome| {
            format!(
                "{PREFIX}_requests_total.room.{room}.outcome.{}",
                outcome.label()
            )
        });
        let passes_refused = Counters::new(metrics, PassError::ALL, |error| {
            format!(
                "{PREFIX}_passes_refused_total.room.{room}.reason.{}",
                error.label()
            )
        });
        let mut total =
            |subject: &str| metrics.counter(format!("{PREFIX}_{subject}_total.room.{room}"));
        Self {
            requests,
            passes_refused,
            joined: total("joined"),
            rejoined: total("rejoined"),
            renewed: total("renewed"),
            polls_failed: total("polls_failed"),
        }
    }
}
