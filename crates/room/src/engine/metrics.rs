//! What the engine counts, each under a name that stands here once.

use alloc::format;

use crate::{PassError, RoomName};
use weir_engine::Metrics;
use weir_engine::metrics::{Counter, Counters};
use weir_engine::tag;

/// How all names begin.
pub(crate) const PREFIX: &str = "weir_room";

tag! {
    /// The outcome of a request.
    Outcome {
        /// It came from inside.
        Inside = "inside",
        /// Its visitor entered.
        Entered = "entered",
        /// Its visitor entered at this gateway's own pace: Redis does not answer.
        Local = "local",
        /// The room lets everybody pass.
        Bypassed = "bypassed",
        /// Its visitor waits.
        Waiting = "waiting",
        /// Its visitor waits for the opening.
        Lobby = "lobby",
        /// Its visitor was called, and there is no room at the moment.
        Hold = "hold",
        /// Its visitor has no place yet: Redis has lost the room, or does not answer.
        Unplaced = "unplaced",
        /// Turned away: too many wait.
        Full = "full",
        /// Turned away: the address has taken enough places.
        Address = "address",
        /// Turned away: the room is closed.
        Closed = "closed",
        /// A page asked for its position.
        Status = "status",
    }
}

impl Outcome {
    /// The state that visitors are told.
    pub(crate) const fn state(self) -> &'static str {
        self.label()
    }
}

/// The counters of one room.
#[derive(Debug)]
pub(crate) struct RoomCounters {
    /// Requests, by outcome.
    pub(crate) requests: Counters<Outcome>,
    /// Newcomers who got a place.
    pub(crate) joined: Counter,
    /// Visitors who came too late for their place, or with one that was used, and stand at the end again.
    pub(crate) rejoined: Counter,
    /// Sessions that were renewed.
    pub(crate) renewed: Counter,
    /// Looks at the room in Redis that failed.
    pub(crate) polls_failed: Counter,
    /// Passes that did not count, by why.
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
        let mut total = |what: &str| metrics.counter(format!("{PREFIX}_{what}_total.room.{room}"));
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
