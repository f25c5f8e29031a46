//! A model of the Redis commands that the engine uses.

use std::collections::BTreeMap;

use weir_base::resp::{Value, decode};
use weir_link::record::Link;
use weir_link::redis::link_changes;
use weir_link::redis::{keys, link_back, link_clicks, link_read};

pub const PREFIX: &str = "weir";

/// The data in Redis.
#[derive(Default)]
pub struct Redis {
    /// Records by link, such as `s/abc`.
    pub records: BTreeMap<String, Link>,
    /// Clicks used, of links with a click limit.
    pub used: BTreeMap<String, u64>,
    /// Markers of clicks by key: the clicks left before, or `None` if returned.
    marks: BTreeMap<Vec<u8>, Option<u64>>,
    /// Remaining lifetime of links, in milliseconds, if they have one.
    pub left_ms: Option<i64>,
    /// How many reads renewed a lifetime or used a click.
    pub renewals: usize,
    /// Links in the stream of changes, by the number in the entry's ID.
    pub changes: BTreeMap<usize, String>,
    last_change: usize,
    /// The document with domains.
    pub domains: String,
    /// Batches in the stream of clicks: id and payload.
    pub batches: Vec<(String, Vec<u8>)>,
}

impl Redis {
    /// Stores a link like the origin, and reports the change.
    pub fn edit(&mut self, id: &str, link: Link) {
        self.records.insert(id.to_owned(), link);
        self.tell_of(id);
    }

    /// Adds an entry to the stream of changes.
    pub fn tell_of(&mut self, id: &str) {
        self.last_change += 1;
        self.changes.insert(self.last_change, id.to_owned());
    }

    /// Runs whole commands, and returns their replies.
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
            let mark = (args[1] == b"click").then(|| keys[2].to_vec());
            self.renewals += usize::from(args[1] != b"look");
            let id = id.to_owned();
            self.link_read(&id, mark, out);
        } else if digest == link_back::SCRIPT.sha1_hex().as_bytes() {
            let key = String::from_utf8(keys[0].to_vec()).unwrap();
            let id = key.split(['{', '}']).nth(1).unwrap();
            let was = self.marks.insert(keys[1].to_vec(), None);
            let was_used = matches!(was, Some(Some(_)));
            if let (true, Some(used)) = (was_used, self.used.get_mut(id)) {
                *used -= 1;
            }
            integer(out, was_used.into());
        } else if digest == link_clicks::SCRIPT.sha1_hex().as_bytes() {
            let id = String::from_utf8(args[1].to_vec()).unwrap();
            self.batches.push((id, args[2].to_vec()));
            integer(out, 1);
        } else {
            panic!("an unknown script");
        }
    }

    fn link_read(&mut self, id: &str, mark: Option<Vec<u8>>, out: &mut Vec<u8>) {
        let Some((link, remaining)) = self.read(id, mark) else {
            return out.extend_from_slice(b"$-1\r\n");
        };
        array(out, 3);
        bulk(out, &link.encode());
        integer(out, self.left_ms.unwrap_or(-1));
        integer(out, remaining.map_or(-1, |remaining| remaining as i64));
    }

    /// Like `link_read.lua` for links without a lifetime: the link, and the clicks that were left. `mark`: the key of a
    /// click's marker.
    pub fn read(&mut self, id: &str, mark: Option<Vec<u8>>) -> Option<(Link, Option<u64>)> {
        let link = self.records.get(id)?.clone();
        if link.max_clicks == 0 {
            return Some((link, None));
        }
        let used = self.used.entry(id.to_owned()).or_default();
        let mut remaining = link.max_clicks.saturating_sub(*used);
        if let Some(mark) = mark {
            match self.marks.get(&mark) {
                Some(Some(before)) => remaining = *before,
                Some(None) => {}
                None if remaining > 0 => {
                    *used += 1;
                    self.marks.insert(mark, Some(remaining));
                }
                None => {}
            }
        }
        Some((link, Some(remaining)))
    }

    /// Loses everything except the domains, which the origin writes again.
    pub fn flush(&mut self) {
        let domains = core::mem::take(&mut self.domains);
        *self = Self {
            domains,
            ..Self::default()
        };
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
