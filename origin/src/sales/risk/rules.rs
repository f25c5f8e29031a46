//! The embedded risk check: a file of rules.

use std::path::Path;

use serde::Deserialize;
use weir_base::id::{SaleId, UserId};

use super::{RiskScorer, ScoreFuture};

/// Rules about users' names, as JSON:
/// `{"rules": [{"users": ["mallory"], "score": 100}, {"glob": "bot-*", "score": 90}]}`.
///
/// The highest score of the rules that match counts; 0 if none does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    /// These very names.
    #[serde(default)]
    users: Vec<String>,
    /// Names of this form: `*` stands for any text.
    glob: Option<String>,
    score: u32,
}

/// Why there are no rules.
#[derive(Debug, thiserror::Error)]
pub enum RulesFileError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    File(#[from] std::io::Error),
    /// It is not of the form of [`Rules`].
    #[error("{0}")]
    Form(#[from] serde_path_to_error::Error<serde_json::Error>),
}

impl Rules {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or is not of that form.
    pub fn read(path: &Path) -> Result<Self, RulesFileError> {
        Self::parse(&std::fs::read_to_string(path)?)
    }

    /// Reads JSON.
    ///
    /// # Errors
    /// When it is not of that form.
    pub fn parse(text: &str) -> Result<Self, RulesFileError> {
        let mut json = serde_json::Deserializer::from_str(text);
        Ok(serde_path_to_error::deserialize(&mut json)?)
    }

    /// The user's score.
    pub fn score_of(&self, user: &str) -> u32 {
        let matching = self.rules.iter().filter(|rule| rule.matches(user));
        matching.map(|rule| rule.score).max().unwrap_or(0)
    }
}

impl Rule {
    fn matches(&self, user: &str) -> bool {
        let glob = self.glob.as_deref();
        self.users.iter().any(|name| name == user) || glob.is_some_and(|glob| fits(glob, user))
    }
}

/// Whether `text` is of the form of `glob`. Takes each part between stars at its first place: no
/// going back, so no name makes it slow.
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
    fn score<'a>(&'a self, _: &'a SaleId, user: &'a UserId) -> ScoreFuture<'a> {
        Box::pin(async move { Ok(self.score_of(user.as_str())) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_fit_what_they_say() {
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
    fn the_highest_score_counts_and_bad_files_name_the_field() {
        let text = r#"{"rules":[{"users":["mallory"],"score":100},{"glob":"m*","score":30}]}"#;
        let rules = Rules::parse(text).unwrap();
        let scores = ["mallory", "mo", "alice"].map(|user| rules.score_of(user));
        assert_eq!(scores, [100, 30, 0]);
        let error = Rules::parse(r#"{"rules":[{"glob":"x","score":-1}]}"#).unwrap_err();
        assert!(error.to_string().contains("rules[0].score"), "{error}");
    }
}
