//! The built-in risk check: a file of rules.

use std::path::Path;

use serde::Deserialize;

use super::{RiskScorer, ScoreFuture};
use crate::store::{UnscoredReservation, Visitor};

/// Rules about users' names, addresses and agents, as JSON: `{"rules": [{"users": ["mallory"], "score": 100}, {"glob":
/// "bot-*", "agent": "curl/*", "score": 90}]}`.
///
/// A rule matches if all its conditions match. The result is the highest score of the matching rules; 0 if none
/// matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    /// Exact user ids.
    #[serde(default)]
    users: Vec<String>,
    /// Pattern of user ids: `*` matches any text. With `users`, one of the two must match.
    glob: Option<String>,
    /// Pattern of addresses.
    address: Option<String>,
    /// Pattern of `User-Agent`.
    agent: Option<String>,
    score: u32,
}

/// Why rules cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RulesFileError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    File(#[from] std::io::Error),
    /// It does not have the form of [`Rules`].
    #[error("{0}")]
    Form(#[from] serde_path_to_error::Error<serde_json::Error>),
}

impl Rules {
    /// Reads rules from a file.
    ///
    /// # Errors
    /// When the file cannot be read or is invalid.
    pub fn read(path: &Path) -> Result<Self, RulesFileError> {
        Self::parse(&std::fs::read_to_string(path)?)
    }

    /// Parses rules from JSON.
    ///
    /// # Errors
    /// When the JSON is invalid.
    pub fn parse(text: &str) -> Result<Self, RulesFileError> {
        let mut json = serde_json::Deserializer::from_str(text);
        Ok(serde_path_to_error::deserialize(&mut json)?)
    }

    /// Returns the score of a user.
    pub fn score_of(&self, user: &str, visitor: &Visitor) -> u32 {
        let matching = self.rules.iter().filter(|rule| rule.matches(user, visitor));
        matching.map(|rule| rule.score).max().unwrap_or(0)
    }
}

impl Rule {
    fn matches(&self, user: &str, visitor: &Visitor) -> bool {
        let is_of =
            |form: &Option<String>, text: &str| form.as_deref().is_none_or(|form| fits(form, text));
        let names_nobody = self.users.is_empty() && self.glob.is_none();
        let names_anything = !names_nobody || self.address.is_some() || self.agent.is_some();
        let is_named = names_nobody
            || self.users.iter().any(|name| name == user)
            || self.glob.as_deref().is_some_and(|glob| fits(glob, user));
        names_anything
            && is_named
            && is_of(&self.address, &visitor.address)
            && is_of(&self.agent, &visitor.agent)
    }
}

/// Whether `text` matches `glob`. Matches each part between stars at its first occurrence, without backtracking, so
/// matching is fast for all texts.
fn fits(glob: &str, text: &str) -> bool {
    let Some((first, rest)) = glob.split_once('*') else {
        return glob == text;
    };
    let Some(mut text) = text.strip_prefix(first) else {
        return false;
    };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        let Some((_, after)) = text.split_once(part) else {
            return false;
        };
        text = after;
    }
    text.ends_with(last)
}

impl RiskScorer for Rules {
    fn score<'a>(&'a self, reservation: &'a UnscoredReservation) -> ScoreFuture<'a> {
        Box::pin(async move { Ok(self.score_of(reservation.user.as_str(), &reservation.visitor)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_their_patterns() {
        for (glob, text, expected) in [
            ("bot-*", "bot-7", true),
            ("bot-*", "robot-7", false),
            ("*-x", "a-x", true),
            ("*-x", "a-xy", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "acb", false),
            ("ab*ba", "aba", false),
            ("*", "", true),
            ("*a**b*", "xaxb", true),
            ("plain", "plain", true),
            ("plain", "plains", false),
        ] {
            assert_eq!(fits(glob, text), expected, "{glob} {text}");
        }
    }

    #[test]
    fn rule_matches_if_all_its_conditions_match() {
        let text = r#"{"rules":[{"address":"192.0.2.*","score":10},{"agent":"curl/*","score":20},
            {"glob":"bot-*","address":"192.0.2.*","agent":"curl/*","score":30},{"score":99}]}"#;
        let rules = Rules::parse(text).unwrap();
        let score = |user: &str, address: &str, agent: &str| {
            let (address, agent) = (address.into(), agent.into());
            rules.score_of(user, &Visitor { address, agent })
        };
        assert_eq!(score("alice", "198.51.100.1", "Mozilla/5.0"), 0);
        assert_eq!(score("alice", "192.0.2.7", "Mozilla/5.0"), 10);
        assert_eq!(score("alice", "192.0.2.7", "curl/8.0"), 20);
        assert_eq!(score("bot-1", "192.0.2.7", "curl/8.0"), 30);
        assert_eq!(score("bot-1", "198.51.100.1", "curl/8.0"), 20);
    }

    #[test]
    fn highest_score_wins_and_invalid_file_errors_name_the_field() {
        let text = r#"{"rules":[{"users":["mallory"],"score":100},{"glob":"m*","score":30}]}"#;
        let rules = Rules::parse(text).unwrap();
        let nowhere = Visitor::default();
        let scores = ["mallory", "mo", "alice"].map(|user| rules.score_of(user, &nowhere));
        assert_eq!(scores, [100, 30, 0]);
        let error = Rules::parse(r#"{"rules":[{"glob":"x","score":-1}]}"#).unwrap_err();
        assert!(error.to_string().contains("rules[0].score"), "{error}");
    }
}
