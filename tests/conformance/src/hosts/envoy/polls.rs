//! Detects which engines have read their documents, by monitoring all Redis commands.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use weir_fitment::redis::keys::VehicleMapKeys;
use weir_limit::redis::keys::limit_rules;
use weir_link::redis::keys::link_domains;
use weir_room::RoomName;
use weir_room::redis::keys::RoomKeys;
use weir_sale::redis::keys;

use crate::hosts::engine::REDIS_CLUSTER;
use crate::store::Connection;
use crate::vector::Vector;

/// An engine in use ticks twice a second.
const PATIENCE: Duration = Duration::from_secs(20);

/// The first command of a poll and its key, which identify it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Poll {
    line: String,
    /// The number of polls at an engine's start until it has read everything. The second follows soon after the first,
    /// independent of the interval; a map of vehicles is read in parts.
    pub(super) at_start: usize,
}

impl Poll {
    /// The polls of a vector's engine, if it reads anything.
    pub(super) fn of(vector: &Vector) -> Option<Self> {
        let redis = vector.config.get("redis")?;
        let cluster = redis.get("cluster").and_then(|cluster| cluster.as_str());
        if cluster.is_some_and(|cluster| cluster != REDIS_CLUSTER) {
            return None;
        }
        let prefix = vector.key_prefix()?;
        let (command, key, at_start) = match vector.engine.as_str() {
            "seckill-gate" => ("GET", keys::catalogue(prefix), 2),
            "shortlink-redirect" => ("GETRANGE", link_domains(prefix), 2),
            "waiting-room" => ("EVALSHA", room_state(vector, prefix)?, 2),
            "fitment" => ("EVALSHA", VehicleMapKeys::new(prefix).head(), 4),
            _ if vector.config.get("reload")?.as_bool()? => ("GET", limit_rules(prefix), 2),
            _ => return None,
        };
        let key = String::from_utf8_lossy(&key);
        let line = format!("\"{command}\" \"{key}\"");
        Some(Self { line, at_start })
    }
}

/// The key that an engine with this single room reads.
fn room_state(vector: &Vector, prefix: &str) -> Option<Vec<u8>> {
    let room = vector.config["rooms"].get(0)?.get("name")?.as_str()?;
    Some(RoomKeys::new(prefix, &RoomName::new(room)?).state())
}

type Counts = Arc<(Mutex<BTreeMap<String, usize>>, Condvar)>;

/// Counts polls.
pub(super) struct Polls(Counts);

impl Polls {
    /// Monitors the Redis on this port until it ends.
    pub(super) fn watch(port: u16) -> Result<Self> {
        let mut connection = Connection::open(port)?;
        connection.exchange(b"*1\r\n$7\r\nMONITOR\r\n")?;
        connection.wait_for_ever()?;
        let counts = Counts::default();
        let watched = Arc::clone(&counts);
        std::thread::spawn(move || {
            while let Ok(line) = connection.reply() {
                note(&String::from_utf8_lossy(&line), &watched);
            }
        });
        Ok(Self(counts))
    }

    /// The number of polls so far.
    pub(super) fn count(&self, poll: &Poll) -> usize {
        let counts = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(&poll.line).copied().unwrap_or(0)
    }

    /// Waits until there were `count` polls.
    pub(super) fn wait(&self, poll: &Poll, count: usize) -> Result<()> {
        let (counts, changed) = &*self.0;
        let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        let is_missing = |counts: &mut BTreeMap<String, usize>| {
            counts
                .get(&poll.line)
                .is_none_or(|existing| *existing < count)
        };
        let waited = changed.wait_timeout_while(counts, PATIENCE, is_missing);
        let waited = waited.unwrap_or_else(PoisonError::into_inner);
        ensure!(!waited.1.timed_out(), "no poll: {poll:?}");
        Ok(())
    }
}

/// Parses a line such as `+1700000000.000000 [0 127.0.0.1:4711] "GET" "weir:catalogue"`.
fn note(line: &str, counts: &Counts) {
    if let Some((_, command)) = line.split_once("] ") {
        let words: Vec<&str> = command.trim_end().splitn(5, ' ').collect();
        // For a script, the digest and the number of keys precede the key.
        let key = match words.as_slice() {
            ["\"EVALSHA\"", _, _, key, ..] | [_, key, ..] => Some(key),
            _ => None,
        };
        if let Some(key) = key {
            let poll = format!("{} {key}", words[0]);
            let mut existing = counts.0.lock().unwrap_or_else(PoisonError::into_inner);
            *existing.entry(poll).or_default() += 1;
            counts.1.notify_all();
        }
    }
}
