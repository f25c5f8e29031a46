//! Reads rules from Redis.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::redis::keys;
use crate::rules::{Rules, RulesConfig};
use weir_base::FieldError;
use weir_base::resp::{Value, encode_command};
use weir_engine::config::parse;
use weir_engine::metrics::Counter;
use weir_engine::poll::Schedule;
use weir_engine::redis::Failure;
use weir_engine::{BatchId, Effects, Level, Metrics};

use crate::engine::config::{CheckedConfig, check_needs};

/// Polls Redis for rules on ticks. Unreadable or invalid rules change nothing.
#[derive(Debug)]
pub struct Reload {
    schedule: Schedule,
    interval_ms: u64,
    key: Vec<u8>,
    needs: RuleRequirements,
    /// The last document, valid or not: most polls return the same. `None`: there was none.
    observed: Option<Vec<u8>>,
    /// Counts new rules that took effect.
    loaded: Counter,
    /// Counts new rules that were rejected.
    refused: Counter,
    /// Counts failed reads.
    failed: Counter,
}

/// The result of a poll.
#[derive(Debug)]
enum RulesPoll {
    /// Unchanged.
    Nothing,
    /// The document was removed.
    Gone,
    /// New rules.
    Rules(Rules),
    /// New rules that are invalid.
    Bad(FieldError),
}

/// The settings that rules may require.
#[derive(Clone, Copy, Debug)]
struct RuleRequirements {
    one_slot_a_call: bool,
    has_user: bool,
}

impl Reload {
    /// `None` if `reload` is off.
    pub fn new(config: &CheckedConfig, metrics: &mut Metrics) -> Option<Self> {
        // Always defined, so that dashboards do not depend on the configuration.
        let mut counter =
            |subject: &str| metrics.counter(format!("weir_ratelimit_{subject}_total"));
        let loaded = counter("rules_loaded");
        let refused = counter("rules_refused");
        let failed = counter("polls_failed");
        let interval_ms = config.poll_interval_ms?;
        let redis = config.redis.as_ref()?;
        Some(Self {
            schedule: Schedule::new(interval_ms),
            interval_ms,
            key: keys::limit_rules(&redis.key_prefix),
            needs: RuleRequirements {
                one_slot_a_call: config.one_slot_a_call,
                has_user: config.user_header.is_some(),
            },
            observed: None,
            loaded,
            refused,
            failed,
        })
    }

    /// The interval between ticks in milliseconds.
    pub fn tick_ms(&self) -> u64 {
        self.schedule.tick_ms()
    }

    /// Makes a poll due soon, at the first request.
    pub fn poll_soon(&mut self) {
        self.schedule.poll_soon();
    }

    /// Sends a poll if one is due.
    pub fn poll(&mut self, now_ms: u64, effects: &mut Effects) {
        if self.schedule.is_due(now_ms) {
            let write = |out: &mut Vec<u8>| encode_command(out, [b"GET".as_slice(), &self.key]);
            let batch = effects.call(self.interval_ms, now_ms, write);
            self.schedule.sent(batch);
        }
    }

    /// Whether the ended call `batch` was the poll.
    pub fn is_poll(&mut self, batch: BatchId) -> bool {
        self.schedule.completed(batch)
    }

    /// Reads the poll's replies. Returns new rules, if any. A worker without requests may have no connection to Redis:
    /// then it neither counts nor logs a failed poll.
    pub fn read(
        &mut self,
        replies: &Result<Vec<Value>, Failure>,
        is_serving: bool,
        effects: &mut Effects,
    ) -> Option<Rules> {
        match self.find(replies) {
            Ok(found) => {
                if self.schedule.succeeded() {
                    effects.log(Level::Info, "rules can be read again");
                }
                self.take(found, effects)
            }
            Err(reason) => {
                if is_serving {
                    self.note_failure(&reason, effects);
                }
                None
            }
        }
    }

    fn note_failure(&mut self, reason: &str, effects: &mut Effects) {
        self.failed.increment();
        if self.schedule.failed() {
            let text = format!("cannot read the rules, using the previous ones: {reason}");
            effects.log(Level::Warn, text);
        }
    }

    fn take(&mut self, found: RulesPoll, effects: &mut Effects) -> Option<Rules> {
        match found {
            RulesPoll::Nothing => {}
            RulesPoll::Gone => {
                let text = "no rules in Redis, using the previous ones";
                effects.log(Level::Warn, text);
            }
            RulesPoll::Bad(error) => {
                self.refused.increment();
                let text = format!("invalid rules in Redis, using the previous ones: {error}");
                effects.log(Level::Error, text);
            }
            RulesPoll::Rules(rules) => {
                self.loaded.increment();
                let count = rules.iter().count();
                effects.log(Level::Info, format!("{count} rules loaded from Redis"));
                return Some(rules);
            }
        }
        None
    }

    fn find(&mut self, replies: &Result<Vec<Value>, Failure>) -> Result<RulesPoll, String> {
        let replies = replies.as_ref().map_err(ToString::to_string)?;
        match replies.first() {
            Some(Value::Null) => Ok(match self.observed.take() {
                Some(_) => RulesPoll::Gone,
                None => RulesPoll::Nothing,
            }),
            Some(Value::Bulk(json)) if self.observed.as_ref() == Some(json) => {
                Ok(RulesPoll::Nothing)
            }
            Some(Value::Bulk(json)) => {
                let rules = read_rules(json, self.needs);
                self.observed = Some(json.clone());
                Ok(rules.map_or_else(RulesPoll::Bad, RulesPoll::Rules))
            }
            Some(Value::Error(error)) => Err(String::from_utf8_lossy(error).into_owned()),
            other => Err(format!("unexpected reply {other:?}")),
        }
    }
}

fn read_rules(json: &[u8], needs: RuleRequirements) -> Result<Rules, FieldError> {
    let config = parse::<RulesConfig>(json)?;
    let rules = config.checked(needs.one_slot_a_call)?;
    check_needs(&rules, true, needs.has_user)?;
    Ok(rules)
}
