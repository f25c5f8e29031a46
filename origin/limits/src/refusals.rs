//! Refusal counts that gateways write to Redis; see [`weir_scripts::tally`].

use std::collections::BTreeMap;

use redis::from_redis_value;
use serde::Serialize;
use utoipa::ToSchema;
use weir_scripts::keys;
use weir_scripts::tally::{Subject, words};

use weir_origin_core::clock::now_ms;
use weir_origin_core::redis::{CallError, Redis};

/// Milliseconds of a minute.
const MINUTE_MS: u64 = 60_000;

/// Maximum number of keys in a report.
const KEYS_MAX: usize = 100;

/// Refusals of the last minutes.
#[derive(Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = LimitRefusals)]
pub(super) struct Refusals {
    /// Number of minutes, including the current one.
    #[schema(minimum = 1)]
    minutes: u64,
    /// Rules by name.
    rules: Vec<RuleRefusals>,
    /// The top-k refused keys, at most 100, most refused first.
    keys: Vec<KeyRefusals>,
    /// Refusals by minute, oldest first.
    by_minute: Vec<MinuteRefusals>,
}

/// Refusals of one minute.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = LimitMinuteRefusals)]
struct MinuteRefusals {
    /// Start of the minute, in milliseconds since the Unix epoch.
    at_ms: u64,
    /// Rules by name.
    rules: Vec<RuleRefusals>,
}

/// Refusals of a rule.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = LimitRuleRefusals)]
struct RuleRefusals {
    /// Its name.
    rule: String,
    #[serde(flatten)]
    requests: Requests,
}

/// Refusals of a rule for one key.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = LimitKeyRefusals)]
struct KeyRefusals {
    /// The rule's name.
    rule: String,
    /// Values of the rule's key: addresses and users in clear, headers, cookies and parameters as hashes.
    key: String,
    #[serde(flatten)]
    requests: Requests,
}

/// Counts of refused requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = LimitRefusalCounts)]
struct Requests {
    /// Requests refused by the limit.
    limited: u64,
    /// Requests that a dry run would have refused (mode `shadow`).
    shadow_limited: u64,
    /// Requests whose key is on its `deny` list.
    denied: u64,
}

impl Requests {
    fn count(&mut self, subject: &str, count: u64) {
        match subject {
            "limited" => self.limited += count,
            "shadow_limited" => self.shadow_limited += count,
            "denied" => self.denied += count,
            // A newer gateway may count other outcomes.
            _ => {}
        }
    }

    const fn total(self) -> u64 {
        self.limited + self.shadow_limited + self.denied
    }
}

impl Refusals {
    /// Reads the counts of the last `minutes` minutes, including the current one.
    pub(super) async fn read(redis: &Redis, minutes: u64) -> Result<Self, CallError> {
        let now_ms = now_ms();
        let keys = keys::tallies(redis.prefix(), Subject::Limits, now_ms, minutes);
        let commands = keys.map(|key| {
            let mut command = redis::cmd("HGETALL");
            command.arg(key);
            command
        });
        let replies = redis.send_all(commands.collect()).await?;
        let (mut counts, mut by_minute) = (Vec::new(), Vec::new());
        for (ago, reply) in (0..).zip(replies) {
            let minute: Vec<(Vec<u8>, u64)> = from_redis_value(reply)
                .map_err(|error| CallError::unexpected("HGETALL", error.to_string()))?;
            let at_ms = (now_ms / MINUTE_MS).saturating_sub(ago) * MINUTE_MS;
            let rules = by_rule(&minute);
            by_minute.push(MinuteRefusals { at_ms, rules });
            counts.extend(minute);
        }
        by_minute.reverse();
        Ok(Self {
            by_minute,
            ..Self::from_counts(minutes, &counts)
        })
    }

    fn from_counts(minutes: u64, counts: &[(Vec<u8>, u64)]) -> Self {
        let mut keys = BTreeMap::<(String, String), Requests>::new();
        for (name, count) in counts {
            let name = String::from_utf8_lossy(name);
            if let [subject, rule, key] = words(&name).as_slice() {
                let of = ((*rule).to_owned(), (*key).to_owned());
                keys.entry(of).or_default().count(subject, *count);
            }
        }
        let mut keys: Vec<_> = keys
            .into_iter()
            .map(|((rule, key), requests)| KeyRefusals {
                rule,
                key,
                requests,
            })
            .collect();
        keys.sort_by_key(|of| std::cmp::Reverse(of.requests.total()));
        keys.truncate(KEYS_MAX);
        Self {
            minutes,
            rules: by_rule(counts),
            keys,
            by_minute: Vec::new(),
        }
    }
}

/// The sums of each rule.
fn by_rule(counts: &[(Vec<u8>, u64)]) -> Vec<RuleRefusals> {
    let mut rules = BTreeMap::<String, Requests>::new();
    for (name, count) in counts {
        let name = String::from_utf8_lossy(name);
        if let [what, rule] = words(&name).as_slice() {
            let requests = rules.entry((*rule).to_owned()).or_default();
            requests.count(what, *count);
        }
    }
    let rules = rules.into_iter();
    rules
        .map(|(rule, requests)| RuleRefusals { rule, requests })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_scripts::tally::name;

    fn named(words: &[&str], count: u64) -> (Vec<u8>, u64) {
        (name(words).into_bytes(), count)
    }

    #[test]
    fn minute_counts_add_up_and_most_refused_key_comes_first() {
        let refusals = Refusals::from_counts(
            2,
            &[
                named(&["limited", "logins"], 3),
                named(&["limited", "logins", "alice"], 1),
                named(&["limited", "logins", "bob"], 2),
                named(&["shadow_limited", "all"], 7),
                named(&["denied", "logins"], 1),
                named(&["limited", "logins", "alice"], 4),
                named(&["limited", "logins"], 4),
                named(&["rerouted", "logins"], 9),
                named(&["of", "a", "later", "gateway"], 9),
            ],
        );
        let body = serde_json::to_value(&refusals).unwrap();
        let expected = serde_json::json!({
            "minutes": 2,
            "rules": [
                { "rule": "all", "limited": 0, "shadow_limited": 7, "denied": 0 },
                { "rule": "logins", "limited": 7, "shadow_limited": 0, "denied": 1 },
            ],
            "keys": [
                { "rule": "logins", "key": "alice", "limited": 5, "shadow_limited": 0, "denied": 0 },
                { "rule": "logins", "key": "bob", "limited": 2, "shadow_limited": 0, "denied": 0 },
            ],
            "by_minute": [],
        });
        assert_eq!(body, expected);
    }

    #[test]
    fn most_refused_keys_are_reported_of_many() {
        let counts = (0..300).map(|n| named(&["limited", "r", &n.to_string()], n + 1));
        let refusals = Refusals::from_counts(1, &counts.collect::<Vec<_>>());
        assert_eq!(refusals.keys.len(), KEYS_MAX);
        assert_eq!(refusals.keys[0].key, "299");
    }
}
