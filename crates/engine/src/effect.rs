//! Actions that an engine requests from its host.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use crate::answer::Answer;
use crate::event::StreamId;

/// The id of a call to Redis: one batch of commands. [`Effects::call`] assigns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u32);

/// The index of a Redis in the host's list. Most engines have only one, index 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RedisId(pub u8);

/// The id of the engine's own HTTP request. [`Effects::fetch`] assigns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FetchId(pub u32);

/// The severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Details for debugging.
    Debug,
    /// A normal change.
    Info,
    /// A problem that may resolve itself.
    Warn,
    /// A problem that needs an operator.
    Error,
}

/// One action. If a stream has ended, the host skips its effects and sends
/// [`Event::Undelivered`](crate::Event::Undelivered).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Answers the stream's request. The request does not reach the upstream.
    Respond {
        /// The stream.
        stream: StreamId,
        /// The answer.
        answer: Arc<Answer>,
    },
    /// Removes every copy of a request header.
    RemoveRequestHeader {
        /// The stream.
        stream: StreamId,
        /// The header, in lower case.
        name: Cow<'static, str>,
    },
    /// Adds a request header and keeps existing ones of the same name.
    AddRequestHeader {
        /// The stream.
        stream: StreamId,
        /// The header, in lower case.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// Sets the request's `:path`.
    SetPath {
        /// The stream.
        stream: StreamId,
        /// The path.
        path: String,
    },
    /// Pauses the stream's request until its body is complete: [`Event::Body`](crate::Event::Body) delivers it. Valid
    /// only as an effect of the request's own event.
    ReadBody {
        /// The stream.
        stream: StreamId,
        /// The maximum size in bytes: a longer body is not read.
        bytes_max: usize,
    },
    /// Lets the stream's request continue.
    Continue {
        /// The stream.
        stream: StreamId,
        /// Whether the engine is finished with the stream: then the host need not report its end.
        is_over: bool,
    },
    /// Sets a header of the response to the client.
    SetResponseHeader {
        /// The stream.
        stream: StreamId,
        /// The header, in lower case.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// Adds a header to the response, such as a cookie, and keeps existing ones of the same name.
    AddResponseHeader {
        /// The stream.
        stream: StreamId,
        /// The header, in lower case.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// Sends commands to Redis. The host replies with one event: [`RedisReply`](crate::Event::RedisReply),
    /// [`NotSent`](crate::Event::NotSent) or [`Deferred`](crate::Event::Deferred).
    Call {
        /// The call.
        batch: BatchId,
        /// The Redis to call.
        redis: RedisId,
        /// The range of its commands: see [`Effects::bytes`].
        body: Range<usize>,
        /// The timeout, from `now_ms` on.
        timeout_ms: u64,
        /// The time of the event.
        now_ms: u64,
        /// Whether the host must send it now: a host without an open connection defers it.
        at_once: bool,
    },
    /// Sends an HTTP request. The host replies with [`FetchDone`](crate::Event::FetchDone).
    Fetch {
        /// The request.
        id: FetchId,
        /// The request's content and target.
        fetch: Fetch,
    },
    /// Requests an [`Event::Tick`](crate::Event::Tick) after the current event.
    Wake,
    /// Writes a log line.
    Log(Level, String),
}

/// An HTTP request of the engine's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The target cluster.
    pub cluster: Arc<str>,
    /// Its headers, with `:method`, `:path` and `:authority`.
    pub headers: Vec<(&'static str, String)>,
    /// Its body, which the host may send again; empty for none.
    pub body: Arc<[u8]>,
    /// The timeout.
    pub timeout_ms: u64,
}

/// The effects of one event, in reused memory.
#[derive(Debug, Default)]
pub struct Effects {
    list: Vec<Effect>,
    bytes: Vec<u8>,
    next_id: u32,
}

impl Effects {
    /// An empty list with capacity for the effects of most events.
    pub fn new() -> Self {
        Self {
            list: Self::list(),
            ..Self::default()
        }
    }

    /// An empty list for [`Effects::take_into`] with the same capacity.
    pub fn list() -> Vec<Effect> {
        Vec::with_capacity(8)
    }

    /// Appends `effect`.
    pub fn push(&mut self, effect: Effect) {
        self.list.push(effect);
    }

    /// Answers a stream's request.
    pub fn respond(&mut self, stream: StreamId, answer: Arc<Answer>) {
        self.push(Effect::Respond { stream, answer });
    }

    /// Lets a stream's request continue.
    pub fn go_on(&mut self, stream: StreamId) {
        let is_over = false;
        self.push(Effect::Continue { stream, is_over });
    }

    /// Lets a stream's request continue; the engine is finished with the stream.
    pub fn let_go(&mut self, stream: StreamId) {
        let is_over = true;
        self.push(Effect::Continue { stream, is_over });
    }

    /// Adds a request header.
    pub fn add_header(&mut self, stream: StreamId, name: &'static str, value: String) {
        self.push(Effect::AddRequestHeader {
            stream,
            name,
            value,
        });
    }

    /// Sets a request's path.
    pub fn set_path(&mut self, stream: StreamId, path: String) {
        self.push(Effect::SetPath { stream, path });
    }

    /// Removes all headers that only gateways may send.
    pub fn remove_gateway_headers(&mut self, stream: StreamId) {
        for name in weir_base::headers::GATEWAY_ONLY {
            self.remove_header(stream, name);
        }
    }

    /// Requests the body in the request's own event.
    pub fn read_body(&mut self, stream: StreamId, bytes_max: usize) {
        self.push(Effect::ReadBody { stream, bytes_max });
    }

    /// Removes every copy of a request header.
    pub fn remove_header(&mut self, stream: StreamId, name: impl Into<Cow<'static, str>>) {
        let name = name.into();
        self.push(Effect::RemoveRequestHeader { stream, name });
    }

    /// Sends the commands that `write` appends to the first Redis. Valid only in a turn: one event of
    /// [`Event::Tick`](crate::Event::Tick), [`Event::RedisReply`](crate::Event::RedisReply) or
    /// [`Event::FetchDone`](crate::Event::FetchDone).
    pub fn call(
        &mut self,
        timeout_ms: u64,
        now_ms: u64,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> BatchId {
        self.call_to(RedisId::default(), timeout_ms, now_ms, false, write)
    }

    /// Like [`Effects::call`], for any Redis. `at_once`: valid in every event, but the host may defer the call.
    pub fn call_to(
        &mut self,
        redis: RedisId,
        timeout_ms: u64,
        now_ms: u64,
        at_once: bool,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> BatchId {
        let batch = BatchId(self.take_id());
        let start = self.bytes.len();
        write(&mut self.bytes);
        let body = start..self.bytes.len();
        self.push(Effect::Call {
            batch,
            redis,
            body,
            timeout_ms,
            now_ms,
            at_once,
        });
        batch
    }

    /// Sends an HTTP request.
    pub fn fetch(&mut self, fetch: Fetch) -> FetchId {
        let id = FetchId(self.take_id());
        self.push(Effect::Fetch { id, fetch });
        id
    }

    /// Requests a turn.
    pub fn wake(&mut self) {
        self.push(Effect::Wake);
    }

    /// Writes a log line.
    pub fn log(&mut self, level: Level, text: impl Into<String>) {
        self.push(Effect::Log(level, text.into()));
    }

    /// Ids repeat after four billion calls; by then a call has ended.
    fn take_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        id
    }

    // --- for hosts

    /// Moves all effects to the end of `list`. The bytes of calls remain until [`Effects::clear_bytes`].
    pub fn take_into(&mut self, list: &mut Vec<Effect>) {
        match list.is_empty() {
            // Both keep their capacity.
            true => core::mem::swap(&mut self.list, list),
            false => list.append(&mut self.list),
        }
    }

    /// The commands of an [`Effect::Call`].
    pub fn bytes(&self, body: &Range<usize>) -> &[u8] {
        self.bytes.get(body.clone()).unwrap_or_default()
    }

    /// Clears the bytes of calls after the host has sent all of them.
    pub fn clear_bytes(&mut self) {
        self.bytes.clear();
    }

    /// All current effects.
    pub fn as_slice(&self) -> &[Effect] {
        &self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_run_in_the_order_of_their_requests() {
        let mut effects = Effects::new();
        let answer = Arc::new(Answer::new(200, &[("a", "b")], "c"));
        effects.read_body(1, 9);
        effects.respond(2, Arc::clone(&answer));
        effects.remove_gateway_headers(3);
        effects.add_header(3, "x-a", "b".into());
        effects.set_path(3, "/p".into());
        effects.go_on(3);
        effects.let_go(4);
        effects.log(Level::Info, "text");
        effects.wake();
        let (stream, bytes_max) = (1, 9);
        let mut expected = alloc::vec![
            Effect::ReadBody { stream, bytes_max },
            Effect::Respond { stream: 2, answer },
        ];
        let removed = weir_base::headers::GATEWAY_ONLY.map(|name| Effect::RemoveRequestHeader {
            stream: 3,
            name: name.into(),
        });
        expected.extend(removed);
        expected.extend([
            Effect::AddRequestHeader {
                stream: 3,
                name: "x-a",
                value: "b".into(),
            },
            Effect::SetPath {
                stream: 3,
                path: "/p".into(),
            },
            Effect::Continue {
                stream: 3,
                is_over: false,
            },
            Effect::Continue {
                stream: 4,
                is_over: true,
            },
            Effect::Log(Level::Info, "text".into()),
            Effect::Wake,
        ]);
        assert_eq!(effects.as_slice(), expected);
        let mut list = alloc::vec![Effect::Wake];
        effects.take_into(&mut list);
        assert_eq!(
            (list.len(), &list[1..]),
            (1 + expected.len(), &expected[..])
        );
        assert!(effects.as_slice().is_empty());
    }

    #[test]
    fn fetches_and_calls_have_distinct_ids() {
        let mut effects = Effects::new();
        let fetch = Fetch {
            cluster: "origin".into(),
            headers: Vec::new(),
            body: Arc::new([]),
            timeout_ms: 5,
        };
        let first = effects.call(5, 0, |_| {});
        let id = effects.fetch(fetch.clone());
        let next = effects.call(5, 0, |_| {});
        assert_eq!((first, id, next), (BatchId(0), FetchId(1), BatchId(2)));
        assert_eq!(effects.as_slice()[1], Effect::Fetch { id, fetch });
    }

    #[test]
    fn call_bytes_are_retained_until_sent() {
        let mut effects = Effects::new();
        let first = effects.call(5, 0, |out| out.extend_from_slice(b"GET a"));
        let second = effects.call_to(RedisId(1), 5, 0, true, |out| {
            out.extend_from_slice(b"GET bc");
        });
        assert_ne!(first, second);
        let mut list = Vec::new();
        effects.take_into(&mut list);
        assert!(effects.as_slice().is_empty());
        let sent: Vec<&[u8]> = list
            .iter()
            .map(|effect| match effect {
                Effect::Call { body, .. } => effects.bytes(body),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(sent, [b"GET a".as_slice(), b"GET bc"]);
        effects.clear_bytes();
        assert_eq!(effects.bytes(&(0..1)), b"", "the memory is free again");
        let third = effects.call(5, 0, |_| {});
        assert!(third > second, "an id is not given again");
    }
}
