//! A Redis Cluster: each command goes to the node that owns its key.
//!
//! The client reads the slot map from any node, and again after a reply reports a moved slot. A redirected command did
//! not run on the refusing node, so the client sends it again to the node that the reply names.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::task::JoinSet;
use tokio::time::Instant;
use weir_base::resp::{Direction, Framer, Value, decode, encode_command};
use weir_engine::redis::{DefiniteFailure, Failure, Reply, classify};

use super::Dial;
use super::server::Server;

/// The number of slots, from the Redis Cluster specification.
const SLOTS: u16 = 16_384;

/// The maximum number of redirects per command.
const REDIRECTS_MAX: usize = 3;

/// The bulk strings that are parsed of a command: a script's first key is the fourth.
const ARGUMENTS_READ: usize = 4;

/// The owner of each slot.
#[derive(Default)]
struct Map {
    /// By the last slot of each range: its first slot and the node.
    ranges: BTreeMap<u16, (u16, Rc<Server>)>,
}

/// A cluster.
pub(super) struct Cluster {
    seeds: Vec<Rc<Server>>,
    dial: Dial,
    nodes: RefCell<BTreeMap<String, Rc<Server>>>,
    map: RefCell<Map>,
    /// Whether the next call must read the map first.
    is_stale: Cell<bool>,
}

/// Commands of one call for the same node.
struct Group {
    node: Rc<Server>,
    bytes: Vec<u8>,
    /// The index of each command in the call, and its bytes for a retry.
    commands: Vec<(usize, Vec<u8>)>,
}

impl Cluster {
    pub(super) fn new(seeds: Vec<Server>, dial: Dial) -> Self {
        Self {
            seeds: seeds.into_iter().map(Rc::new).collect(),
            dial,
            nodes: RefCell::default(),
            map: RefCell::default(),
            is_stale: Cell::new(true),
        }
    }

    pub(super) fn close_idle(&self) {
        self.seeds.iter().for_each(|node| node.close_idle());
        let nodes = self.nodes.borrow();
        nodes.values().for_each(|node| node.close_idle());
    }

    pub(super) async fn call(&self, commands: &[u8], deadline: Instant) -> Reply {
        if self.is_stale.get() {
            self.read_map(deadline).await?;
        }
        let commands = split(commands);
        let mut replies = vec![Vec::new(); commands.len()];
        let mut waiting: Vec<(usize, Vec<u8>)> = commands
            .into_iter()
            .map(<[u8]>::to_vec)
            .enumerate()
            .collect();
        for redirects in 0..=REDIRECTS_MAX {
            let done = send_all(self.groups(waiting), deadline).await;
            waiting = Vec::new();
            for (place, command, reply) in done {
                match redirection(&reply) {
                    Some(Redirection::Moved) if redirects < REDIRECTS_MAX => {
                        self.is_stale.set(true);
                        waiting.push((place, command));
                    }
                    _ => {
                        if let Some(of) = replies.get_mut(place) {
                            *of = self.call_asking(command, reply, deadline).await;
                        }
                    }
                }
            }
            if waiting.is_empty() {
                break;
            }
            if let Err(failure) = self.read_map(deadline).await {
                for (place, _) in waiting.drain(..) {
                    if let Some(of) = replies.get_mut(place) {
                        *of = as_reply(&failure);
                    }
                }
                break;
            }
        }
        Ok(replies.concat())
    }

    /// Follows an `ASK` redirect: returns the reply of the node that `reply` names.
    async fn call_asking(&self, command: Vec<u8>, reply: Vec<u8>, deadline: Instant) -> Vec<u8> {
        let Some(Redirection::Ask(address)) = redirection(&reply) else {
            return reply;
        };
        let mut both = Vec::new();
        encode_command(&mut both, [b"ASKING".as_slice()]);
        both.extend_from_slice(&command);
        match self.node(&address).call(&both, 2, deadline).await {
            Ok(replies) => match split_replies(&replies).last() {
                Some(last) => last.to_vec(),
                None => reply,
            },
            Err(failure) => as_reply(&failure),
        }
    }

    fn groups(&self, commands: Vec<(usize, Vec<u8>)>) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for (place, command) in commands {
            let Some(node) = self.node_of(&command) else {
                continue;
            };
            let existing = groups
                .iter()
                .position(|group| Rc::ptr_eq(&group.node, &node));
            let index = existing.unwrap_or_else(|| {
                groups.push(Group {
                    node,
                    bytes: Vec::new(),
                    commands: Vec::new(),
                });
                groups.len() - 1
            });
            if let Some(group) = groups.get_mut(index) {
                group.bytes.extend_from_slice(&command);
                group.commands.push((place, command));
            }
        }
        groups
    }

    fn node_of(&self, command: &[u8]) -> Option<Rc<Server>> {
        let slot = key(command).map_or(0, slot);
        let map = self.map.borrow();
        let range = map.ranges.range(slot..).next();
        let of_slot = range.filter(|(_, (first, _))| *first <= slot);
        // Any node can report an unassigned slot.
        let node = of_slot.map(|(_, (_, node))| node).or(self.seeds.first());
        node.map(Rc::clone)
    }

    fn node(&self, address: &str) -> Rc<Server> {
        let mut nodes = self.nodes.borrow_mut();
        if let Some(node) = nodes.get(address) {
            return Rc::clone(node);
        }
        let node = Rc::new(Server::new(vec![address.to_owned()], self.dial.clone()));
        nodes.insert(address.to_owned(), Rc::clone(&node));
        node
    }

    /// Queries nodes until one returns the slot map.
    async fn read_map(&self, deadline: Instant) -> Result<(), Failure> {
        let mut command = Vec::new();
        encode_command(&mut command, [b"CLUSTER".as_slice(), b"SLOTS"]);
        let mut all: Vec<Rc<Server>> = self.nodes.borrow().values().cloned().collect();
        all.extend(self.seeds.iter().cloned());
        let mut failure = Failure::from(DefiniteFailure::NotSent);
        for node in all {
            match node.call(&command, 1, deadline).await {
                Ok(reply) => {
                    let host = crate::settings::host_and_port(node.address());
                    let host = host.map(|(host, _)| host.to_owned()).unwrap_or_default();
                    if let Some(ranges) = read_slots(&reply, &host) {
                        self.take_map(ranges);
                        return Ok(());
                    }
                    if let Some(error) = reply.strip_prefix(b"-") {
                        let error = String::from_utf8_lossy(error).trim_end().to_owned();
                        failure = DefiniteFailure::Reply(error).into();
                    }
                }
                // The call itself was not sent, even if this query failed.
                Err(Failure::Definite(why)) => failure = why.into(),
                Err(why) => {
                    failure = DefiniteFailure::Refused(why.to_string()).into();
                }
            }
        }
        Err(failure)
    }

    fn take_map(&self, ranges: Vec<(u16, u16, String)>) {
        let addresses = ranges.iter().map(|(_, _, address)| address.clone());
        let there: std::collections::BTreeSet<String> = addresses.collect();
        let of = |(first, last, address): (u16, u16, String)| (last, (first, self.node(&address)));
        let map = ranges.into_iter().map(of).collect();
        self.map.borrow_mut().ranges = map;
        // Connections of removed nodes close with them.
        let mut nodes = self.nodes.borrow_mut();
        nodes.retain(|address, _| there.contains(address));
        self.is_stale.set(false);
    }
}

/// Sends each group to its node, all concurrently. Returns each command's index, bytes and reply.
async fn send_all(groups: Vec<Group>, deadline: Instant) -> Vec<(usize, Vec<u8>, Vec<u8>)> {
    let mut calls = JoinSet::new();
    for group in groups {
        calls.spawn_local(async move {
            let count = group.commands.len();
            let reply = group.node.call(&group.bytes, count, deadline).await;
            (group.commands, reply)
        });
    }
    let mut done = Vec::new();
    while let Some(Ok((commands, reply))) = calls.join_next().await {
        match reply {
            Ok(replies) => {
                let each = commands.into_iter().zip(split_replies(&replies));
                done.extend(each.map(|((place, command), reply)| (place, command, reply.to_vec())));
            }
            Err(failure) => {
                let reply = as_reply(&failure);
                let each = commands.into_iter();
                done.extend(each.map(|(place, command)| (place, command, reply.clone())));
            }
        }
    }
    done
}

/// Converts a node's failure into an error reply that [`weir_engine::redis::classify`] maps back to the same failure.
fn as_reply(failure: &Failure) -> Vec<u8> {
    let text = match failure {
        Failure::Definite(DefiniteFailure::Login(error) | DefiniteFailure::Reply(error))
            if matches!(classify(error.as_bytes()), Failure::Definite(_)) =>
        {
            error.clone()
        }
        Failure::Definite(_) => format!("CLUSTERDOWN {failure}"),
        Failure::Unknown(_) => format!("ERR {failure}"),
    };
    let text = text.replace(['\r', '\n'], " ");
    format!("-{text}\r\n").into_bytes()
}

enum Redirection {
    /// Permanently: the map has changed.
    Moved,
    /// Only this time, to this node.
    Ask(String),
}

fn redirection(reply: &[u8]) -> Option<Redirection> {
    let error = reply.strip_prefix(b"-")?;
    let text = std::str::from_utf8(error).ok()?.trim_end();
    // A redirect inside a script may follow writes of the same script, so it must not be retried.
    if text.contains("script:") || text.contains("user_script") {
        return None;
    }
    let mut words = text.split(' ');
    match (words.next()?, words.next()?, words.next()?) {
        ("MOVED", _, _) => Some(Redirection::Moved),
        ("ASK", _, address) => Some(Redirection::Ask(address.to_owned())),
        _ => None,
    }
}

/// Splits pipelined commands.
fn split(commands: &[u8]) -> Vec<&[u8]> {
    frames(commands, Direction::Commands)
}

fn split_replies(replies: &[u8]) -> Vec<&[u8]> {
    frames(replies, Direction::Replies)
}

fn frames(mut bytes: &[u8], direction: Direction) -> Vec<&[u8]> {
    let mut framer = Framer::new(direction);
    let mut frames = Vec::new();
    while let Ok(progress) = framer.advance(bytes, 1)
        && progress.frames == 1
        && let Some((frame, rest)) = bytes.split_at_checked(progress.used)
    {
        frames.push(frame);
        bytes = rest;
    }
    frames
}

/// The first key of a command. For scripts it follows the script and the number of keys. For all other commands that
/// engines send, it is the first argument.
fn key(command: &[u8]) -> Option<&[u8]> {
    let mut arguments = [b"".as_slice(); ARGUMENTS_READ];
    // `*<count>\r\n`, then each argument as a bulk string.
    let (_, mut rest) = line(command)?;
    for argument in &mut arguments {
        let Some((text, behind)) = bulk(rest) else {
            break;
        };
        (*argument, rest) = (text, behind);
    }
    let [name, first, _, third] = arguments;
    let is_script = name.eq_ignore_ascii_case(b"EVAL") || name.eq_ignore_ascii_case(b"EVALSHA");
    let key = if is_script { third } else { first };
    (!key.is_empty()).then_some(key)
}

fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let (line, rest) = bytes.split_at_checked(end)?;
    Some((line, rest.get(2..)?))
}

fn bulk(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = line(bytes.strip_prefix(b"$")?)?;
    let length = std::str::from_utf8(length).ok()?.parse().ok()?;
    let (text, rest) = rest.split_at_checked(length)?;
    Some((text, rest.get(2..)?))
}

/// The slot of a key. If it has a non-empty hash tag `{…}`, only the tag is hashed.
fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|start| {
        let inner = key.get(start + 1..)?;
        let end = inner.iter().position(|&byte| byte == b'}')?;
        inner.get(..end).filter(|tag| !tag.is_empty())
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM, as the cluster specification defines it.
fn crc16(bytes: &[u8]) -> u16 {
    const POLYNOMIAL: u16 = 0x1021;
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { POLYNOMIAL }
        })
    })
}

/// Parses the reply to `CLUSTER SLOTS` into slot ranges with their primaries' addresses. `host` replaces an empty
/// address, which a node returns if it does not know its own. `None` if the reply is malformed.
fn read_slots(reply: &[u8], host: &str) -> Option<Vec<(u16, u16, String)>> {
    let (Value::Array(ranges), _) = decode(reply).ok()? else {
        return None;
    };
    let ranges: Option<Vec<_>> = ranges.iter().map(|range| read_range(range, host)).collect();
    ranges.filter(|ranges| !ranges.is_empty())
}

fn read_range(range: &Value, host: &str) -> Option<(u16, u16, String)> {
    let Value::Array(range) = range else {
        return None;
    };
    let [
        Value::Integer(first),
        Value::Integer(last),
        Value::Array(primary),
        ..,
    ] = range.as_slice()
    else {
        return None;
    };
    let [name, Value::Integer(port), ..] = primary.as_slice() else {
        return None;
    };
    let name = match name {
        Value::Bulk(name) if !name.is_empty() => String::from_utf8(name.clone()).ok()?,
        _ => host.to_owned(),
    };
    let number = |number: &i64| u16::try_from(*number).ok();
    let address = match name.contains(':') {
        true => format!("[{name}]:{port}"),
        false => format!("{name}:{port}"),
    };
    Some((number(first)?, number(last)?, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_map_to_the_slots_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot(b"foo{{bar}}zap"), crc16(b"{bar") % SLOTS);
        let command = |words: &[&str]| {
            let mut out = Vec::new();
            encode_command(&mut out, words.iter().map(|word| word.as_bytes()));
            out
        };
        let of = |words: &[&str]| key(&command(words)).map(<[u8]>::to_vec);
        assert_eq!(of(&["GET", "a"]).unwrap(), b"a");
        assert_eq!(of(&["evalsha", "00", "1", "k", "v"]).unwrap(), b"k");
        assert_eq!(of(&["PING"]), None);
        let two = [command(&["GET", "a"]), command(&["GET", "b"])].concat();
        assert_eq!(split(&two).len(), 2);
    }

    #[test]
    fn slot_map_names_the_primary_of_each_range() {
        let reply = b"*2\r\n*3\r\n:0\r\n:100\r\n*2\r\n$9\r\n127.0.0.1\r\n:7000\r\n*3\r\n:101\r\n:16383\r\n*2\r\n$0\r\n\r\n:7001\r\n";
        let ranges = read_slots(reply, "h").unwrap();
        let expected = [(0, 100, "127.0.0.1:7000"), (101, 16_383, "h:7001")];
        assert_eq!(
            ranges,
            expected.map(|(first, last, node)| (first, last, node.to_owned()))
        );
        assert!(read_slots(b"-ERR This instance has cluster support disabled\r\n", "h").is_none());
    }

    #[test]
    fn node_failure_keeps_its_kind() {
        use weir_engine::redis::UnknownFailure;
        let kind = |failure: Failure| {
            let reply = as_reply(&failure);
            let error = reply.strip_prefix(b"-").unwrap();
            classify(error.strip_suffix(b"\r\n").unwrap())
        };
        assert!(matches!(
            kind(DefiniteFailure::Refused("a\r\nb".into()).into()),
            Failure::Definite(_)
        ));
        assert!(matches!(
            kind(UnknownFailure::Lost.into()),
            Failure::Unknown(_)
        ));
        for response in [
            DefiniteFailure::Login("WRONGPASS no".into()),
            DefiniteFailure::Reply("WRONGPASS no".into()),
        ] {
            let expected = Failure::from(DefiniteFailure::Reply("WRONGPASS no".into()));
            assert_eq!(kind(response.into()), expected);
        }
        let unclear = kind(DefiniteFailure::Login("ERR no such command".into()).into());
        assert!(matches!(unclear, Failure::Definite(_)), "{unclear:?}");
    }

    #[test]
    fn only_completely_refused_commands_are_resent() {
        assert!(matches!(
            redirection(b"-MOVED 1 a:7\r\n"),
            Some(Redirection::Moved)
        ));
        assert!(
            matches!(redirection(b"-ASK 1 a:7\r\n"), Some(Redirection::Ask(node)) if node == "a:7")
        );
        assert!(redirection(b"-MOVED 1 a:7 script: f, on @user_script:3.\r\n").is_none());
        assert!(redirection(b"+MOVED 1 a:7\r\n").is_none());
    }
}
