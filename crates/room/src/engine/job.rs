//! Jobs for Redis, and how they are grouped into script calls.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::Renewal;
use crate::redis::keys::RoomKeys;
use crate::redis::room::CallContext;
use crate::redis::room_ask::{self, VisitorRequest};
use crate::redis::room_tick;
use weir_engine::pump::{Pending, Plan, PlannedBatch};

/// A job for Redis.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// The room's index in the configuration.
    pub(crate) room: usize,
    /// The room's keys.
    pub(crate) keys: Arc<RoomKeys>,
    /// The engine's state of the room.
    pub(crate) context: CallContext,
    /// The kind of job.
    pub(crate) kind: Kind,
}

/// The kind of a job.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// A visitor requests a position or admission.
    Ask(VisitorRequest),
    /// Reads the room's state and renews these sessions.
    Tick(Vec<Renewal>),
}

/// Groups all visitors of one room into one call; ticks are separate calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByRoom;

impl Plan for ByRoom {
    type Job = Job;

    fn plan(&self, requests: Vec<Pending<Job>>, _now_ms: u64) -> Vec<PlannedBatch<Job>> {
        let mut ticks = Vec::new();
        let mut rooms: Vec<(usize, Vec<Pending<Job>>)> = Vec::new();
        for pending in requests {
            let room = pending.job.room;
            match &pending.job.kind {
                Kind::Tick(renewed) => ticks.push(PlannedBatch {
                    call: room_tick::call(&pending.job.keys, &pending.job.context, renewed),
                    requests: Vec::from([pending]),
                }),
                Kind::Ask(_) => match rooms.iter_mut().find(|(existing, _)| *existing == room) {
                    Some((_, asks)) => asks.push(pending),
                    None => rooms.push((room, Vec::from([pending]))),
                },
            }
        }
        let requested = rooms.into_iter().filter_map(|(_, asks)| ask(asks));
        requested.chain(ticks).collect()
    }
}

/// Sorts visitors by arrival, which matters after an outage, when many requests arrive at once.
fn ask(mut requests: Vec<Pending<Job>>) -> Option<PlannedBatch<Job>> {
    requests.sort_by_key(|pending| match &pending.job.kind {
        Kind::Ask(ask) => (ask.order, ask.joined_ms),
        Kind::Tick(_) => (0, 0),
    });
    let asks: Vec<VisitorRequest> = requests
        .iter()
        .filter_map(|pending| pending.job.ask())
        .collect();
    let latest = requests
        .iter()
        .max_by_key(|pending| pending.job.context.observed.seq)?;
    let call = room_ask::call(&latest.job.keys, &latest.job.context, &asks);
    Some(PlannedBatch { call, requests })
}

impl Job {
    /// The visitor of the job, unless it is a tick.
    pub(crate) fn ask(&self) -> Option<VisitorRequest> {
        match &self.kind {
            Kind::Ask(ask) => Some(*ask),
            Kind::Tick(_) => None,
        }
    }
}
