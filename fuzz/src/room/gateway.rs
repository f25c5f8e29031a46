//! A gateway with a waiting room, whose effects are applied like in Envoy.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use weir_base::resp::decode;
use weir_base::shared_data::LocalData;
use weir_engine::event::{PlainEnd, PlainRequest};
use weir_engine::{Answer, BatchId, Effect, Effects, Engine, Event, Headers, StreamId};
use weir_room::engine::WaitingRoom;
use weir_room::redis::room_tick;

/// The maximum number of events for one request: calls, repeated calls with their scripts, and turns.
const EVENTS_MAX: usize = 64;

pub(super) struct Gateway<'a> {
    engine: WaitingRoom<Rc<LocalData>>,
    effects: Effects,
    now_ms: u64,
    /// Redis' reply to a command. The argument: whether it polls the room.
    reply: &'a dyn Fn(bool) -> Vec<u8>,
    pending: VecDeque<Pending>,
    stream: StreamId,
    outcome: Option<Outcome>,
}

enum Pending {
    Turn,
    Reply(BatchId, Vec<u8>),
}

/// The outcome of a request.
#[derive(Default)]
pub(super) struct Outcome {
    /// `None`: the request passed.
    pub(super) answer: Option<Arc<Answer>>,
    /// The headers of the answer, or those added to the response.
    headers: Vec<(String, Vec<u8>)>,
}

impl<'a> Gateway<'a> {
    pub(super) fn new(
        engine: WaitingRoom<Rc<LocalData>>,
        now_ms: u64,
        reply: &'a dyn Fn(bool) -> Vec<u8>,
    ) -> Self {
        Self {
            engine,
            effects: Effects::new(),
            now_ms,
            reply,
            pending: VecDeque::new(),
            stream: 0,
            outcome: None,
        }
    }

    pub(super) fn engine_tick_ms(&self) -> Option<u64> {
        self.engine.tick_ms()
    }

    /// Sends a request with these headers. Afterwards, no state of it remains.
    pub(super) fn ask(&mut self, headers: &[(&str, &[u8])], address: &[u8]) -> Outcome {
        let mut all: Vec<(&str, &[u8])> = vec![(":method", b"GET"), (":scheme", b"https")];
        all.extend(headers);
        let request = &PlainRequest {
            headers: Headers::new(&all),
            peer_address: address.into(),
            now_ms: self.now_ms,
        };
        self.stream += 1;
        let stream = self.stream;
        self.run(Event::Request { stream, request });
        if self.outcome.is_none() {
            self.now_ms += 1_000;
            let now_ms = self.now_ms;
            self.run(Event::Tick { now_ms });
        }
        let has_passed = |outcome: &Outcome| outcome.answer.is_none();
        if self.outcome.as_ref().is_some_and(has_passed) {
            self.run(Event::Response { stream });
        }
        let end = &PlainEnd::default();
        self.run(Event::Closed { stream, end });
        assert_eq!(self.engine.open(), (0, 0));
        self.outcome.take().expect("every request has an outcome")
    }

    fn run(&mut self, event: Event<'_>) {
        self.handle(event);
        for _ in 0..EVENTS_MAX {
            let Some(pending) = self.pending.pop_front() else {
                return;
            };
            let now_ms = self.now_ms;
            self.handle(match pending {
                Pending::Turn => Event::Tick { now_ms },
                Pending::Reply(batch, reply) => Event::RedisReply {
                    batch,
                    reply: Ok(reply),
                    now_ms,
                },
            });
        }
        panic!("the gateway finds no end");
    }

    fn handle(&mut self, event: Event<'_>) {
        self.engine.handle(event, &mut self.effects);
        let mut list = Effects::list();
        self.effects.take_into(&mut list);
        list.into_iter().for_each(|effect| self.apply(effect));
        self.effects.clear_bytes();
    }

    fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::Respond { stream, answer } => {
                let text = |name: &[u8]| String::from_utf8(name.into()).expect("a header's name");
                let headers = answer.headers.iter();
                let headers = headers.map(|(name, value)| (text(name), value.into()));
                self.end(
                    stream,
                    Outcome {
                        headers: headers.collect(),
                        answer: Some(answer),
                    },
                );
            }
            Effect::Continue { stream, .. } => self.end(stream, Outcome::default()),
            Effect::AddResponseHeader { name, value, .. }
            | Effect::SetResponseHeader { name, value, .. } => {
                let outcome = self.outcome.as_mut().expect("a response to who passed");
                outcome.headers.push((name.into(), value.into()));
            }
            Effect::Call { batch, body, .. } => {
                let reply = self.replies(self.effects.bytes(&body));
                self.pending.push_back(Pending::Reply(batch, reply));
            }
            Effect::RemoveRequestHeader { name, .. } => assert_eq!(name, "x-weir-room"),
            Effect::Wake => self.pending.push_back(Pending::Turn),
            Effect::Log(..) => {}
            other => panic!("a waiting room does not do this: {other:?}"),
        }
    }

    fn end(&mut self, stream: StreamId, outcome: Outcome) {
        assert_eq!(stream, self.stream);
        assert!(self.outcome.is_none(), "it has an outcome already");
        self.outcome = Some(outcome);
    }

    fn replies(&self, mut body: &[u8]) -> Vec<u8> {
        let mut replies = Vec::new();
        while !body.is_empty() {
            let (_, used) = decode(body).expect("gateways write commands");
            let (command, rest) = body.split_at(used);
            let is = |name: &[u8]| command.windows(name.len()).any(|part| part == name);
            let source = room_tick::SCRIPT.source.as_bytes();
            let is_tick = is(room_tick::SCRIPT.sha1_hex().as_bytes()) || is(source);
            replies.extend((self.reply)(is_tick));
            body = rest;
        }
        replies
    }
}

impl Outcome {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let (_, value) = headers.find(|(existing, _)| existing == name)?;
        Some(std::str::from_utf8(value).expect("a header's value"))
    }

    /// Checks that headers allow no injection, and that the status is documented.
    pub(super) fn check(&self) {
        for (name, value) in &self.headers {
            let is_safe = |byte: &u8| *byte == b' ' || byte.is_ascii_graphic();
            assert!(
                value.iter().all(is_safe),
                "{name}: {}",
                value.escape_ascii()
            );
        }
        let status = self.answer.as_ref().map(|answer| answer.status);
        assert!(
            [None, Some(200), Some(429), Some(503)].contains(&status),
            "{status:?}"
        );
    }
}
