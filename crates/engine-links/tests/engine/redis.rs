//! A model of Redis: as much of it as the engine uses.

use std::collections::BTreeMap;

use weir_link::record::Link;
use weir_resp::{Value, decode};
use weir_scripts::streams::link_changes;
use weir_scripts::{keys, link_clicks, link_read};

pub const PREFIX: &str = "weir";

/// What Redis holds.
#[derive(Default)]
pub struct Redis {
    /// Records by link, such as `s/abc`.
    pub records: BTreeMap<String, Link>,
    /// Clicks used, of links with a maximum.
    pub used: BTreeMap<String, u64>,
    /// Links in the stream of changes, by the number in their entry's id.
    pub changes: BTreeMap<usize, String>,
    last_change: usize,
    /// The document with domains.
    pub domains: String,
    /// Batches in the stream of clicks: id and payload.
    pub batches: Vec<(String, Vec<u8>)>,
}

impl Redis {
    /// Puts a link there, as the origin does, and tells of the change.
    pub fn edit(&mut self, id: &str, link: Link) {
        self.records.insert(id.to_owned(), link);
        self.tell_of(id);
    }

    /// Adds an entry to the stream of changes.
    pub fn tell_of(&mut self, id: &str) {
        self.last_change += 1;
        self.changes.insert(self.last_change, id.to_owned());
    }

    /// Runs whole commands, and gives their replies.
    pub fn run(&mut self, mut commands: &[u8]) -> Vec<u8> {
        let mut replies = Vec::new();
        while !commands.is_empty() {
            let (command, used) = decode(commands).unwrap();
            commands = &commands[used..];
            let Value::Array(words) = command else {
                panic!("{command:?}")
            };
            let words: Vec<Vec<u8>> = words.into_iter().map(text_of).collect();
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            self.run_one(&words, &mut replies);
        }
        replies
    }

    fn run_one(&mut self, words: &[&[u8]], out: &mut Vec<u8>) {
        let (domains, changes) = (keys::link_domains(PREFIX), keys::link_changes(PREFIX));
        match words {
            [b"GETRANGE", key, b"0", last] if *key == domains => {
                let length: usize = number(last) + 1;
                let end = length.min(self.domains.len());
                bulk(out, &self.domains.as_bytes()[..end]);
            }
            [b"STRLEN", key] if *key == domains => integer(out, self.domains.len() as i64),
            [b"GET", key] if *key == domains => bulk(out, self.domains.as_bytes()),
            [b"XREVRANGE", key, b"+", b"-", b"COUNT", b"1"] if *key == changes => {
                let last = self.changes.last_key_value();
                self.entries(last.map_or(0, |(number, _)| *number), 1, out);
            }
            [b"XRANGE", key, from, b"+", b"COUNT", count] if *key == changes => {
                let first = match from {
                    [b'-'] => 0,
                    id => number(id.strip_suffix(b"-0").unwrap()),
                };
                self.entries(first, number(count), out);
            }
            [b"EVALSHA", digest, keys_count, rest @ ..] => {
                let (keys, arguments) = rest.split_at(number(keys_count));
                self.run_script(digest, keys, arguments, out);
            }
            other => panic!(
                "{:?}",
                other
                    .iter()
                    .map(|word| String::from_utf8_lossy(word))
                    .collect::<Vec<_>>()
            ),
        }
    }

    /// Entries of the stream of changes.
    fn entries(&self, first: usize, count: usize, out: &mut Vec<u8>) {
        let entries: Vec<_> = self.changes.range(first..).take(count).collect();
        array(out, entries.len());
        for (number, link) in entries {
            array(out, 2);
            bulk(out, format!("{number}-0").as_bytes());
            // As the origin writes it: the field and its value are the last words of the command.
            let command = link_changes::add("weir", &link.parse().unwrap());
            let [.., field, value] = command;
            array(out, 2);
            bulk(out, &field);
            bulk(out, &value);
        }
    }

    fn run_script(&mut self, digest: &[u8], keys: &[&[u8]], args: &[&[u8]], out: &mut Vec<u8>) {
        if digest == link_read::SCRIPT.sha1_hex().as_bytes() {
            let key = String::from_utf8(keys[0].to_vec()).unwrap();
            let id = key.split(['{', '}']).nth(1).unwrap();
            self.link_read(id, args[1] == b"1", out);
        } else if digest == link_clicks::SCRIPT.sha1_hex().as_bytes() {
            let id = String::from_utf8(args[1].to_vec()).unwrap();
            self.batches.push((id, args[2].to_vec()));
            integer(out, 1);
        } else {
            panic!("an unknown script");
        }
    }

    /// As `link_read.lua`, of links without a life.
    fn link_read(&mut self, id: &str, is_click: bool, out: &mut Vec<u8>) {
        let Some(link) = self.records.get(id) else {
            return out.extend_from_slice(b"$-1\r\n");
        };
        let mut left = -1;
        if link.max_clicks > 0 {
            let used = self.used.entry(id.to_owned()).or_default();
            left = i64::try_from(link.max_clicks.saturating_sub(*used)).unwrap();
            *used += u64::from(is_click && left > 0);
        }
        array(out, 3);
        bulk(out, &link.encode());
        integer(out, -1);
        integer(out, left);
    }
}

fn text_of(value: Value) -> Vec<u8> {
    match value {
        Value::Bulk(text) => text,
        other => panic!("{other:?}"),
    }
}

fn number(text: &[u8]) -> usize {
    std::str::from_utf8(text).unwrap().parse().unwrap()
}

fn array(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(format!("*{count}\r\n").as_bytes());
}

fn integer(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(format!(":{number}\r\n").as_bytes());
}

fn bulk(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(format!("${}\r\n", text.len()).as_bytes());
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}
