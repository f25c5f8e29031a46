//! Redis: expiring strings, streams, and the scripts of links, as far as gateways and origin use them.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::collections::BTreeMap;
use std::rc::Rc;

use weir_base::resp::Value;
use weir_link::redis::keys::LinkKeys;

use crate::mutation::Mutation;
use crate::queue::START_MS;
use crate::stage::commands::{CommandArgs, ScriptCall, Scripts, no_script, number, read};
use crate::stage::history::History;
use weir_edge::shard::reply::{encode, integer, text};

/// One server.
#[derive(Debug)]
pub(super) struct Redis {
    data: Data,
    history: History<Data>,
    scripts: Scripts,
    mutation: Option<Mutation>,
    now_ms: u64,
}

/// The data that a loss may remove.
#[derive(Clone, Debug, Default)]
struct Data {
    strings: BTreeMap<Vec<u8>, Text>,
    streams: BTreeMap<Vec<u8>, Vec<Entry>>,
}

#[derive(Clone, Debug)]
struct Text {
    bytes: Rc<[u8]>,
    dies_at_ms: Option<u64>,
}

/// An entry of a stream: its ID, and its fields.
#[derive(Clone, Debug)]
struct Entry {
    id: (u64, u64),
    fields: Rc<[Vec<u8>]>,
}

impl Redis {
    pub(super) fn new(keeps_history: bool, mutation: Option<Mutation>) -> Self {
        Self {
            data: Data::default(),
            history: History::new(keeps_history),
            scripts: Scripts::default(),
            mutation,
            now_ms: START_MS,
        }
    }

    /// Restores the state of `back_us` ago; an empty one if `None`. Scripts are lost in any case.
    pub(super) fn restart(&mut self, back_us: Option<u64>, now_us: u64) {
        self.scripts.clear();
        if back_us != Some(0) {
            self.data = self.history.earlier(back_us, now_us);
        }
    }

    /// The used clicks of a link; `None` if the link is missing.
    pub(super) fn clicks_used(&self, keys: &LinkKeys) -> Option<u64> {
        self.get(&keys.record())?;
        Some(self.get(&keys.clicks()).map_or(0, number))
    }

    pub(super) fn run(&mut self, bytes: &[u8], most: u64, now_us: u64) -> Vec<u8> {
        self.now_ms = START_MS + now_us / 1_000;
        let mut replies = Vec::new();
        for words in read(bytes).iter().take(most as usize) {
            encode(&self.command(words), &mut replies);
        }
        self.history.note(now_us, &self.data);
        replies
    }

    fn command(&mut self, words: &CommandArgs) -> Value {
        let key = words.get(1).map_or(&[][..], Vec::as_slice);
        match words[0].as_slice() {
            b"GET" => self.bulk(key),
            b"STRLEN" => integer(self.get(key).map_or(0, <[u8]>::len) as u64),
            b"GETRANGE" => {
                let bytes = self.get(key).unwrap_or_default();
                let end = bytes.len().min(number(&words[3]) as usize + 1);
                Value::Bulk(bytes[..end].to_vec())
            }
            b"SET" => self.set_command(words),
            b"UNLINK" => {
                let keys = words[1..].iter();
                let removed = keys.filter(|key| self.data.strings.remove(*key).is_some());
                integer(removed.count() as u64)
            }
            b"XADD" => self.add(words),
            b"XDEL" => {
                let ids: Vec<_> = words[2..].iter().map(|id| entry_id(id)).collect();
                let stream = self.data.streams.entry(key.to_vec()).or_default();
                stream.retain(|entry| !ids.contains(&entry.id));
                integer(ids.len() as u64)
            }
            b"XRANGE" => self.range(words),
            b"XREVRANGE" => {
                let entries = self.data.streams.get(key).and_then(|stream| stream.last());
                Value::Array(entries.into_iter().map(Entry::value).collect())
            }
            b"EVAL" | b"EVALSHA" => {
                let mut scripts = std::mem::take(&mut self.scripts);
                let reply = match scripts.find(words) {
                    None => no_script(),
                    Some(call) => self.script(&call),
                };
                self.scripts = scripts;
                reply
            }
            other => panic!("no party sends {}", String::from_utf8_lossy(other)),
        }
    }

    // --- strings

    fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let found = self.data.strings.get(key)?;
        let lives = found.dies_at_ms.is_none_or(|at_ms| at_ms > self.now_ms);
        lives.then_some(&*found.bytes)
    }

    fn bulk(&self, key: &[u8]) -> Value {
        self.get(key)
            .map_or(Value::Null, |bytes| Value::Bulk(bytes.to_vec()))
    }

    fn set(&mut self, key: &[u8], bytes: &[u8], life_ms: Option<u64>) {
        let text = Text {
            bytes: bytes.into(),
            dies_at_ms: life_ms.map(|ms| self.now_ms + ms),
        };
        self.data.strings.insert(key.to_vec(), text);
    }

    /// `SET key value [NX]`
    fn set_command(&mut self, words: &CommandArgs) -> Value {
        let has_nx = words[3..].iter().any(|word| word == b"NX");
        if has_nx && self.get(&words[1]).is_some() {
            return Value::Null;
        }
        self.set(&words[1], &words[2], None);
        text("OK")
    }

    // --- streams

    /// `XADD key MAXLEN ~ n * field value …`
    fn add(&mut self, words: &CommandArgs) -> Value {
        self.append(&words[1], &words[6..])
    }

    fn append(&mut self, key: &[u8], fields: &[Vec<u8>]) -> Value {
        let now_ms = self.now_ms;
        let stream = self.data.streams.entry(key.to_vec()).or_default();
        let id = match stream.last().map(|entry| entry.id) {
            Some((ms, sequence)) if ms >= now_ms => (ms, sequence + 1),
            // Another stream has other entries with the same IDs.
            last if self.mutation == Some(Mutation::LostStreamNotNoticed) => {
                (0, last.map_or(1, |(_, sequence)| sequence + 1))
            }
            _ => (now_ms, 0),
        };
        let fields = fields.into();
        stream.push(Entry { id, fields });
        text(format!("{}-{}", id.0, id.1))
    }

    /// `XRANGE key from to`; `COUNT` is ignored.
    fn range(&self, words: &CommandArgs) -> Value {
        let from = match words[2].as_slice() {
            b"-" => (0, 0),
            id => entry_id(id),
        };
        let to = match words[3].as_slice() {
            b"+" => (u64::MAX, u64::MAX),
            id => entry_id(id),
        };
        let stream = self.data.streams.get(&words[1]);
        let entries = stream.into_iter().flatten();
        let entries = entries.filter(|entry| (from..=to).contains(&entry.id));
        let mut entries: Vec<Value> = entries.map(Entry::value).collect();
        if self.mutation == Some(Mutation::LostStreamNotNoticed) && from != (0, 0) {
            // Pretends that the last entry that the gateway read still exists.
            let is_there = matches!(entries.first(), Some(Value::Array(parts)) if parts[0] == Value::Bulk(words[2].clone()));
            if !is_there {
                let fields = Value::Array(vec![]);
                entries.insert(0, Value::Array(vec![Value::Bulk(words[2].clone()), fields]));
            }
        }
        Value::Array(entries)
    }

    // --- scripts

    fn script(&mut self, call: &ScriptCall<'_>) -> Value {
        match call.name {
            "link_read" => self.link_read(call),
            "link_back" => self.link_back(call),
            "link_clicks" => {
                let fields = [
                    b"b".to_vec(),
                    call.args[1].clone(),
                    b"d".to_vec(),
                    call.args[2].clone(),
                ];
                self.append(&call.keys[0], &fields);
                integer(1_u64)
            }
            other => panic!("nobody calls {other}"),
        }
    }

    /// Like `link_read.lua`, for links without expiry.
    fn link_read(&mut self, call: &ScriptCall<'_>) -> Value {
        let (record, clicks) = (&call.keys[0], &call.keys[1]);
        let Some(found) = self.get(record).map(<[u8]>::to_vec) else {
            return Value::Null;
        };
        let mut head = found.split(|byte| *byte == b' ');
        let max = head.nth(1).map_or(0, number);
        let mut remaining = -1;
        if max > 0 {
            let used = self.get(clicks).map_or(0, number);
            let free = max.saturating_sub(used);
            remaining = free as i64;
            if call.args[1] == b"click" {
                let mark_key = &call.keys[2];
                let mark = self.get(mark_key).map(<[u8]>::to_vec);
                let mark = match self.mutation {
                    Some(Mutation::ClicksNotNamed) => None,
                    Some(Mutation::BackForgotten) => mark.filter(|mark| mark != b"back"),
                    _ => mark,
                };
                match mark.as_deref() {
                    None if free > 0 => {
                        self.set(clicks, (used + 1).to_string().as_bytes(), None);
                        let mark_ms = number(&call.args[2]);
                        self.set(mark_key, free.to_string().as_bytes(), Some(mark_ms));
                    }
                    None | Some(b"back") => {}
                    Some(mark) => remaining = number(mark) as i64,
                }
            }
        }
        Value::Array(vec![
            Value::Bulk(found),
            Value::Integer(-1),
            Value::Integer(remaining),
        ])
    }

    /// Like `link_back.lua`.
    fn link_back(&mut self, call: &ScriptCall<'_>) -> Value {
        let (clicks, mark_key) = (&call.keys[0], &call.keys[1]);
        let mark = self.get(mark_key).map(<[u8]>::to_vec);
        self.set(mark_key, b"back", Some(number(&call.args[0])));
        let is_used = match mark.as_deref() {
            None => false,
            Some(b"back") => self.mutation == Some(Mutation::ClickReturnedTwice),
            Some(_) => true,
        };
        if !is_used || self.mutation == Some(Mutation::ClickNotReturned) {
            return integer(0_u64);
        }
        match self.get(clicks).map_or(0, number) {
            used @ 2.. => self.set(clicks, (used - 1).to_string().as_bytes(), None),
            _ => drop(self.data.strings.remove(clicks)),
        }
        integer(1_u64)
    }
}

impl Entry {
    fn value(&self) -> Value {
        let fields = self.fields.iter().cloned().map(Value::Bulk);
        let id = text(format!("{}-{}", self.id.0, self.id.1));
        Value::Array(vec![id, Value::Array(fields.collect())])
    }
}

fn entry_id(id: &[u8]) -> (u64, u64) {
    let mut parts = id.split(|byte| *byte == b'-').map(number);
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}
