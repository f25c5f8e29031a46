//! Rules that stand in Redis, read on ticks.

use weir_core::rules::{Rules, RulesConfig};
use weir_filter_kit::config::{ConfigError, parse};
use weir_resp::{Value, encode_command};
use weir_scripts::keys;

use crate::config::{check_needs, refused};

/// What a VM that has seen no request polls by, in milliseconds: Envoy runs such a VM on its main thread,
/// from which nothing can be reached.
const IDLE_POLL_MS: u64 = 30_000;

/// By how much a tick may come before its poll is due.
const EARLY_MS_MAX: u64 = 20;

/// When polls are due, and what they have found.
#[derive(Debug)]
pub(crate) struct Poller {
    interval_ms: u64,
    is_idle: bool,
    due_ms: u64,
    token: Option<u32>,
    /// The document as last read, good or bad: most polls find it unchanged.
    seen: Option<Vec<u8>>,
}

/// What a poll has found.
#[derive(Debug)]
pub(crate) enum Found {
    /// The same as before.
    Nothing,
    /// No document: the rules of before count.
    Gone,
    /// Other rules.
    Rules(Rules),
    /// A document that is none.
    Bad(ConfigError),
}

/// What rules are checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    pub(crate) one_slot_a_call: bool,
    pub(crate) has_user: bool,
}

impl Poller {
    pub(crate) fn new(interval_ms: u64) -> Self {
        Self {
            interval_ms,
            is_idle: true,
            due_ms: 0,
            token: None,
            seen: None,
        }
    }

    /// The first request has come.
    pub(crate) fn hurry(&mut self) {
        if std::mem::take(&mut self.is_idle) {
            self.due_ms = 0;
        }
    }

    /// How far apart polls are, in milliseconds.
    pub(crate) fn interval_ms(&self) -> u64 {
        match self.is_idle && self.seen.is_none() {
            true => self.interval_ms.max(IDLE_POLL_MS),
            false => self.interval_ms,
        }
    }

    /// Whether a poll is due, and none under way. Its call's body is [`command`].
    pub(crate) fn is_due(&mut self, now_ms: u64) -> bool {
        let interval_ms = self.interval_ms();
        // A clock that was set back must not put polls off.
        let is_due = now_ms >= self.due_ms || self.due_ms - now_ms > interval_ms;
        if self.token.is_some() || !is_due {
            return false;
        }
        self.due_ms = now_ms + interval_ms - (interval_ms / 8).min(EARLY_MS_MAX);
        true
    }

    pub(crate) fn sent(&mut self, token: u32) {
        self.token = Some(token);
    }

    /// Whether the call `token` was the poll.
    pub(crate) fn landed(&mut self, token: u32) -> bool {
        self.token.take_if(|sent| *sent == token).is_some()
    }

    /// Reads the poll's reply.
    pub(crate) fn read(&mut self, reply: &Value, needs: Needs) -> Result<Found, String> {
        let bytes = match reply {
            Value::Bulk(bytes) => bytes,
            Value::Null => {
                let was_there = self
                    .seen
                    .replace(vec![])
                    .is_some_and(|seen| !seen.is_empty());
                return Ok(if was_there {
                    Found::Gone
                } else {
                    Found::Nothing
                });
            }
            Value::Error(error) => return Err(String::from_utf8_lossy(error).into_owned()),
            other => return Err(format!("{other:?}")),
        };
        if self.seen.as_ref() == Some(bytes) {
            return Ok(Found::Nothing);
        }
        self.seen = Some(bytes.clone());
        Ok(match read_rules(bytes, needs) {
            Ok(rules) => Found::Rules(rules),
            Err(error) => Found::Bad(error),
        })
    }
}

/// The poll's command.
pub(crate) fn command(key_prefix: &str) -> Vec<u8> {
    let mut body = Vec::new();
    encode_command(
        &mut body,
        [b"GET".as_slice(), &keys::limit_rules(key_prefix)],
    );
    body
}

fn read_rules(json: &[u8], needs: Needs) -> Result<Rules, ConfigError> {
    let config = parse::<RulesConfig>(json)?;
    let rules = config.checked(needs.one_slot_a_call).map_err(refused)?;
    check_needs(&rules, true, needs.has_user)?;
    Ok(rules)
}
