//! A model of Redis that parses the calls of gateways and writes replies.

use std::collections::BTreeMap;

use weir_base::resp::{Value, decode};
use weir_room::Snapshot;
use weir_room::model::Model;
use weir_room::redis::room_model::ModelCall;
use weir_room::redis::{room_ask, room_tick};

#[derive(Default)]
pub struct Redis {
    /// The rooms, by their state key.
    pub rooms: BTreeMap<Vec<u8>, Model>,
    /// The room's state after the last call.
    pub last: Snapshot,
    /// How many script calls were made.
    pub calls: usize,
}

impl Redis {
    /// The replies to these commands.
    pub fn run(&mut self, mut body: &[u8], now_ms: u64) -> Vec<u8> {
        let mut replies = Vec::new();
        while !body.is_empty() {
            let (command, used) = decode(body).unwrap();
            body = &body[used..];
            self.calls += 1;
            replies.extend(self.command(&words(&command), now_ms));
        }
        replies
    }

    fn command(&mut self, words: &[Vec<u8>], now_ms: u64) -> Vec<u8> {
        let scripts = [&room_tick::SCRIPT, &room_ask::SCRIPT];
        let mut scripts = scripts.into_iter();
        let script = scripts.find(|script| words[1] == script.sha1_hex().as_bytes());
        let keys: usize = String::from_utf8_lossy(&words[2]).parse().unwrap();
        let (keys, args) = words[3..].split_at(keys);
        let model = self.rooms.entry(keys[0].clone()).or_default();
        let call = ModelCall::read(script.unwrap().name, args).unwrap();
        let done = call.run(model, now_ms);
        self.last = done.snapshot;
        encode(&done.reply)
    }
}

fn words(command: &Value) -> Vec<Vec<u8>> {
    let Value::Array(words) = command else {
        panic!("{command:?}")
    };
    let text = |word: &Value| match word {
        Value::Bulk(text) => text.clone(),
        other => panic!("{other:?}"),
    };
    words.iter().map(text).collect()
}

fn encode(value: &Value) -> Vec<u8> {
    match value {
        Value::Integer(number) => format!(":{number}\r\n").into_bytes(),
        Value::Bulk(bytes) => {
            let head = format!("${}\r\n", bytes.len()).into_bytes();
            [head.as_slice(), bytes, b"\r\n"].concat()
        }
        Value::Array(values) => {
            let head = format!("*{}\r\n", values.len()).into_bytes();
            let values = values.iter().flat_map(encode);
            head.into_iter().chain(values).collect()
        }
        other => panic!("{other:?}"),
    }
}
