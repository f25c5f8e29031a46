//! What waits in the pump, and how it is grouped into script calls.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::Renewal;
use crate::redis::keys::RoomKeys;
use crate::redis::room::CallContext;
use crate::redis::room_ask::{self, VisitorRequest};
use crate::redis::room_tick;
use weir_engine::pump::{Pending, Plan, PlannedBatch};

/// What is asked of Redis.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Which room, by its place in the configuration.
    pub(crate) room: usize,
    /// Its keys.
    pub(crate) keys: Arc<RoomKeys>,
    /// What the engine knew of it.
    pub(crate) brought: CallContext,
    /// For what.
    pub(crate) kind: Kind,
}

/// For what Redis is asked.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// A visitor's place or entry.
    Ask(VisitorRequest),
    /// How the room is, and that these sessions live on.
    Tick(Vec<Renewal>),
}

/// All who ask for one room go in one call; looks at rooms are calls of their own.
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
                    call: room_tick::call(&pending.job.keys, &pending.job.brought, renewed),
                    requests: Vec::from([pending]),
                }),
                Kind::Ask(_) => match rooms.iter_mut().find(|(known, _)| *known == room) {
                    Some((_, asks)) => asks.push(pending),
                    None => rooms.push((room, Vec::from([pending]))),
                },
            }
        }
        let asked = rooms.into_iter().filter_map(|(_, asks)| ask(asks));
        asked.chain(ticks).collect()
    }
}

/// Who came first asks first: it matters after Redis was away, when many come at once.
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
        .max_by_key(|pending| pending.job.brought.seen.seq)?;
    let call = room_ask::call(&latest.job.keys, &latest.job.brought, &asks);
    Some(PlannedBatch { call, requests })
}

impl Job {
    /// The visitor who asks, if one does.
    pub(crate) fn ask(&self) -> Option<VisitorRequest> {
        match &self.kind {
            Kind::Ask(ask) => Some(*ask),
            Kind::Tick(_) => None,
        }
    }
}
