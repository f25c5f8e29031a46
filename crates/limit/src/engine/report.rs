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
    pub fn count(&mut self, what: RuleAction, rule: &Rule, key: Option<&[u8]>) {
        let told = |key| CountKey {
            what,
            rule: rule.name.clone(),
            key,
        };
        self.tally.count(told(None));
        if let Some(key) = key {
            self.tally.count_sparing(told(Some(rule.shown(key))), SPARE);
        }
    }

    /// Sends the counts if they are due.
    pub fn flush(&mut self, now_ms: u64, effects: &mut Effects) {
        self.tally.flush(now_ms, effects, |told| {
            let (what, rule) = (told.what.label(), told.rule.as_str());
            Some(match &told.key {
                None => tally::name(&[what, rule]),
                Some(key) => tally::name(&[what, rule, key]),
            })
        });
    }

    /// Whether the ended call `batch` was its call.
    pub fn completed(&mut self, batch: BatchId) -> bool {
        self.tally.completed(batch)
    }
}
