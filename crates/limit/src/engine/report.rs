//! What operators are told of refusals: which rules refused, and whom.

use alloc::string::String;

use crate::rules::{RULES_MAX, Rule};
use weir_engine::tally::Tally;
use weir_engine::{BatchId, Effects};
use weir_scripts::tally::{self, Subject};

/// What a rule did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleAction {
    /// It refused, as a limit was reached.
    Limited,
    /// It would have: its mode is `shadow`.
    ShadowLimited,
    /// It refused a key on its `deny` list.
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

/// What is counted: what a rule did, in all, and to one key.
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

/// However many keys there are, all rules find room.
const SPARE: usize = RULES_MAX * RuleAction::ALL.len();

impl Report {
    pub fn new(key_prefix: &str) -> Self {
        Self {
            tally: Tally::new(key_prefix, Subject::Limits),
        }
    }

    /// A rule has done this to a request of `key`, if that is known.
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

    /// Sends what was counted, if that is due.
    pub fn flush(&mut self, now_ms: u64, effects: &mut Effects) {
        self.tally.flush(now_ms, effects, |told| {
            let (what, rule) = (told.what.label(), told.rule.as_str());
            Some(match &told.key {
                None => tally::name(&[what, rule]),
                Some(key) => tally::name(&[what, rule, key]),
            })
        });
    }

    /// Whether `batch`, which has ended, was its call.
    pub fn completed(&mut self, batch: BatchId) -> bool {
        self.tally.completed(batch)
    }
}
