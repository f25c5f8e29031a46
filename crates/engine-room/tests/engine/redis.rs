//! A model of Redis that reads the calls of gateways and writes replies.

use std::collections::BTreeMap;

use weir_resp::{Value, decode};
use weir_room::draw::Seed;
use weir_room::model::{Ask, Brought, Model};
use weir_room::{Seen, Setting, Snapshot, Terms, Visitor};
use weir_scripts::{room_ask, room_tick};

#[derive(Default)]
pub struct Redis {
    /// The rooms, by the key of their state.
    pub rooms: BTreeMap<Vec<u8>, Model>,
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
        let is_tick = words[1] == room_tick::SCRIPT.sha1_hex().as_bytes();
        assert!(is_tick || words[1] == room_ask::SCRIPT.sha1_hex().as_bytes());
        let keys: usize = String::from_utf8_lossy(&words[2]).parse().unwrap();
        let (keys, args) = words[3..].split_at(keys);
        let model = self.rooms.entry(keys[0].clone()).or_default();
        let brought = brought(args);
        if is_tick {
            let renewed: Vec<_> = args[4..].iter().map(|bytes| visitor(bytes)).collect();
            return header(&model.tick(now_ms, &brought, &renewed));
        }
        let asks: Vec<Ask> = args[4..].chunks(5).map(ask).collect();
        let (snapshot, told) = model.ask(now_ms, &brought, &asks);
        let mut reply = b"*2\r\n".to_vec();
        reply.extend(header(&snapshot));
        reply.extend(format!("*{}\r\n", told.len() * 2).into_bytes());
        for (status, place) in told {
            reply.extend(format!(":{}\r\n:{place}\r\n", status as u64).into_bytes());
        }
        reply
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

fn numbers(text: &[u8]) -> Vec<u64> {
    let text = String::from_utf8_lossy(text);
    text.split(' ')
        .map(|number| number.parse().unwrap())
        .collect()
}

fn visitor(bytes: &[u8]) -> Visitor {
    Visitor::from_bytes(bytes.try_into().unwrap())
}

fn brought(args: &[Vec<u8>]) -> Brought {
    let terms = numbers(&args[0]);
    let seen = numbers(&args[2]);
    Brought {
        terms: Terms {
            session_ms: terms[0],
            claim_ms: terms[1],
            queue_max: terms[2],
            address_max: terms[3],
            address_ms: terms[4],
            life_ms: terms[5],
        },
        setting: Setting::from_numbers(numbers(&args[1]).try_into().unwrap()).unwrap(),
        seen: Seen {
            seq: seen[0],
            head: seen[1],
            floor: seen[2],
            inside: seen[3],
            drew: seen[4],
            base: seen[5],
            drawn: seen[6],
            seed_of: seen[7],
            seed: Seed::from_hex(&args[3]),
        },
    }
}

fn ask(words: &[Vec<u8>]) -> Ask {
    let number = |at: usize| numbers(&words[at])[0];
    Ask {
        visitor: visitor(&words[0]),
        place: number(1),
        order: number(2),
        joined_ms: number(3),
        address: words[4].as_slice().try_into().ok(),
    }
}

fn header(snapshot: &Snapshot) -> Vec<u8> {
    let Snapshot { seen, setting, .. } = snapshot;
    let before = [
        seen.seq,
        seen.head,
        seen.floor,
        seen.inside,
        snapshot.called,
        snapshot.is_settling.into(),
        snapshot.is_lobby.into(),
    ];
    let draw = [
        snapshot.opening,
        seen.drew,
        seen.base,
        seen.drawn,
        seen.seed_of,
    ];
    let after = [
        snapshot.joined,
        snapshot.entered,
        snapshot.missed,
        snapshot.now_ms,
    ];
    let mut reply = String::from("*22\r\n");
    for number in before.into_iter().chain(setting.numbers()).chain(draw) {
        reply.push_str(&format!(":{number}\r\n"));
    }
    let seed = seen.seed.map_or_else(|| "-".into(), Seed::to_hex);
    reply.push_str(&format!("${}\r\n{seed}\r\n", seed.len()));
    for number in after {
        reply.push_str(&format!(":{number}\r\n"));
    }
    reply.into_bytes()
}
