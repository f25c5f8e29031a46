//! Counts refusals by rule and key for operators.

use alloc::string::String;

use crate::rules::{RULES_MAX, Rule};
use weir_engine::tally::Tally;
use weir_engine::{BatchId, Effects};
use weir_scripts::tally::{self, Subject};

/// The action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleAction {
    /// It refused a request at its limit.
    Limited,
    /// It would have refused a request, but its mode is `shadow`.
    ShadowLimited,
    /// It refused a key in its `deny` list.
    Denied,
}

impl RuleAction {
    const ALL: [Self; 3] = [Self::Limited, Self::ShadowLimited, Self::Denied];

    const fn label(self) -> &'static str {
        match self {
            Self::Limited => "limited",
            Self::ShadowLimited => "shadow_limited",
            Self::Denied => "denied",
        }
    }
}

/// The key of a count: an action of a rule, in total or for one key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CountKey {
    what: RuleAction,
    rule: String,
    key: Option<String>,
}

/// Counts refusals for operators.
#[derive(Debug)]
pub struct Report {
    tally: Tally<CountKey>,
}

/// The space reserved for the totals of all rules, regardless of the number of keys.
const SPARE: usize = RULES_MAX * RuleAction::ALL.len();

impl Report {
    pub fn new(key_prefix: &str) -> Self {
        Self {
            tally: Tally::new(key_prefix, Subject::Limits),
        }
    }

    /// Counts an action of a rule, and its key if known.
    pub fn count(&mut self, action: RuleAction, rule: &Rule, key: Option<&[u8]>) {
        let reply = |key| CountKey {
            what: action,
            rule: rule.name.clone(),
            key,
        };
        self.tally.count(reply(None));
        if let Some(key) = key {
            self.tally
                .count_sparing(reply(Some(rule.describe_key(key))), SPARE);
        }
    }

    /// Sends the counts if they are due.
    pub fn flush(&mut self, now_ms: u64, effects: &mut Effects) {
        self.tally.flush(now_ms, effects, |reply| {
            let (subject, rule) = (reply.what.label(), reply.rule.as_str());
            Some(match &reply.key {
                None => tally::name(&[subject, rule]),
                Some(key) => tally::name(&[subject, rule, key]),
            })
        });
    }

    /// Whether the ended call `batch` was its call.
    pub fn completed(&mut self, batch: BatchId) -> bool {
        self.tally.completed(batch)
    }
}
