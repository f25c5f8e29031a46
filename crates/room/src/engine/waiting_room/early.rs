//! Answers from memory, for hosts that decide before their HTTP stack.

use weir_base::shared_data::SharedData;
use weir_engine::{EarlyDecision, Request};
use weir_limit::rules::Request as _;

use super::WaitingRoom;
use crate::engine::room::Decision;
use crate::engine::visit::Head;

impl<D: SharedData + Clone> WaitingRoom<D> {
    /// See [`weir_engine::Engine::decide_early`]. Requests that pass, need Redis or change a room's state stay undecided.
    pub(super) fn early_decision(
        &mut self,
        request: &dyn Request,
        trusts_user: bool,
    ) -> EarlyDecision {
        let head = Head::new(request);
        if let Some(name) = self.status_of(head.path()) {
            return match self.status_answer(&name, &head, request.now_ms()) {
                Some(answer) => EarlyDecision::Answer(answer),
                None => EarlyDecision::NotConcerned,
            };
        }
        let Some(room) = self.room_of(&head) else {
            return EarlyDecision::NotConcerned;
        };
        let may_differ = self.user_header.is_some() && !trusts_user;
        // The first request starts the polls.
        if may_differ || !self.is_serving {
            return EarlyDecision::Undecided;
        }
        self.early_visit(room, &head, request.now_ms())
            .unwrap_or(EarlyDecision::Undecided)
    }

    /// The answer to a visitor who waits or is refused, if the decision changes no room.
    fn early_visit(&mut self, room: usize, head: &Head<'_>, now_ms: u64) -> Option<EarlyDecision> {
        let arrival = self.arrival(room, head, now_ms)?;
        let room = self.rooms.get_mut(room)?;
        let token = arrival.token.and_then(|token| token.content.ok());
        let is_known = token.is_none_or(|token| room.covers(&token));
        if !is_known || room.is_alone(now_ms) {
            return None;
        }
        let Decision::Wait(outcome) = room.decide(&arrival.visit.pass, now_ms) else {
            return None;
        };
        self.note(&arrival);
        let room = self.rooms.get(arrival.visit.room)?;
        let visit = arrival.visit.in_language_of(&room.config, head);
        let answer = self.queue_answer(room, &visit, outcome, now_ms);
        Some(EarlyDecision::Answer(answer))
    }
}
