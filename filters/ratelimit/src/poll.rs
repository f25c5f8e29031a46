//! Rules that stand in Redis, read on ticks.

use weir_filter_kit::config::{FieldError, parse};
use weir_filter_kit::schedule::Schedule;
use weir_limit::rules::{Rules, RulesConfig};
use weir_resp::{Value, encode_command};
use weir_scripts::keys;

use crate::config::check_needs;

/// When polls are due, and what they have found.
#[derive(Debug)]
pub(crate) struct Poller {
    pub(crate) schedule: Schedule,
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
    Bad(FieldError),
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
            schedule: Schedule::new(interval_ms),
            seen: None,
        }
    }

    /// Reads the poll's reply.
    pub(crate) fn read(&mut self, reply: &Value, needs: Needs) -> Result<Found, String> {
        let bytes = match reply {
            Value::Bulk(bytes) => {
                self.schedule.reached();
                bytes
            }
            Value::Null => {
                self.schedule.reached();
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

fn read_rules(json: &[u8], needs: Needs) -> Result<Rules, FieldError> {
    let config = parse::<RulesConfig>(json)?;
    let rules = config.checked(needs.one_slot_a_call)?;
    check_needs(&rules, true, needs.has_user)?;
    Ok(rules)
}
