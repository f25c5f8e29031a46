//! Redis: the model of a waiting room behind the gateways' commands.

use weir_base::resp::Value;
use weir_room::model::Model;
use weir_room::redis::room_model::ModelCall;
use weir_room::{RoomState, Setting, Snapshot};

use crate::mutation::Mutation;
use crate::queue::START_MS;
use crate::stage::commands::{ScriptCall, Scripts, no_script, read};
use crate::stage::history::History;
use weir_edge::shard::reply::encode;

/// One server.
pub(super) struct Redis {
    room: Model,
    history: History<Model>,
    scripts: Scripts,
    mutation: Option<Mutation>,
    /// The room's state after the last call.
    pub(super) last: Snapshot,
}

impl Redis {
    pub(super) fn new(keeps_history: bool, mutation: Option<Mutation>) -> Self {
        Self {
            room: Model::default(),
            history: History::new(keeps_history),
            scripts: Scripts::default(),
            mutation,
            last: Snapshot::default(),
        }
    }

    pub(super) fn set(&mut self, mut setting: Setting) {
        if self.mutation == Some(Mutation::PaceNotKept) {
            setting.per_minute = 0;
        }
        self.room.set(setting);
    }

    /// Restores the state of `back_us` ago; an empty one if `None`. Scripts are lost in any case.
    pub(super) fn restart(&mut self, back_us: Option<u64>, now_us: u64) {
        self.scripts.clear();
        if back_us != Some(0) {
            self.room = self.history.earlier(back_us, now_us);
        }
    }

    pub(super) fn run(&mut self, bytes: &[u8], most: u64, now_us: u64) -> Vec<u8> {
        let mut replies = Vec::new();
        let mut scripts = std::mem::take(&mut self.scripts);
        for words in read(bytes).iter().take(most as usize) {
            let reply = match scripts.find(words) {
                None => no_script(),
                Some(call) => self.script(&call, START_MS + now_us / 1_000),
            };
            encode(&reply, &mut replies);
        }
        self.scripts = scripts;
        self.history.note(now_us, &self.room);
        replies
    }

    fn script(&mut self, call: &ScriptCall<'_>, now_ms: u64) -> Value {
        let mut call = ModelCall::read(call.name, call.args).expect("a gateway's call");
        let presented = &mut call.context;
        match self.mutation {
            Some(Mutation::RoomNotCounted) => self.room.lose_inside(),
            Some(Mutation::PlacesNotRemembered) => self.room.lose_places(),
            Some(Mutation::PlacesWaitForEver) => presented.terms.claim_ms = u64::from(u32::MAX),
            Some(Mutation::HoldsForgotten) => self.room.forget_holds(),
            Some(Mutation::GatewaysNotHeard) => presented.observed = RoomState::default(),
            _ => {}
        }
        let done = call.run(&mut self.room, now_ms);
        if self.mutation == Some(Mutation::QueueForgotten) {
            self.room.lose_state();
        }
        self.last = done.snapshot;
        done.reply
    }
}
