//! The texts for visitors.

use alloc::format;
use alloc::string::{String, ToString};

use serde::Deserialize;

use crate::engine::metrics::Outcome;

/// Texts of pages, in English by default. `{n}` is replaced by a number.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Texts {
    /// Title for waiting visitors.
    pub waiting_title: String,
    /// Message for waiting visitors.
    pub waiting_message: String,
    /// Title in the pre-queue.
    pub lobby_title: String,
    /// Message in the pre-queue.
    pub lobby_message: String,
    /// Title for called visitors.
    pub called_title: String,
    /// Message for called visitors.
    pub called_message: String,
    /// Title before a position is assigned.
    pub unplaced_title: String,
    /// Message before a position is assigned.
    pub unplaced_message: String,
    /// Title when the queue is full.
    pub full_title: String,
    /// Message when the queue is full.
    pub full_message: String,
    /// Title at the address limit.
    pub address_title: String,
    /// Message at the address limit.
    pub address_message: String,
    /// Title when the room is closed.
    pub closed_title: String,
    /// Message when the room is closed.
    pub closed_message: String,
    /// Label of the position.
    pub position_label: String,
    /// Label of the expected wait.
    pub wait_label: String,
    /// Wait of less than a minute.
    pub wait_short: String,
    /// Wait of `{n}` minutes.
    pub wait_minutes: String,
    /// Wait of `{n}` hours.
    pub wait_hours: String,
    /// Unknown wait.
    pub wait_unknown: String,
    /// Note on automatic refresh and cookies.
    pub footer: String,
}

impl Default for Texts {
    fn default() -> Self {
        let text = ToString::to_string;
        Self {
            waiting_title: text("You are in line"),
            waiting_message: text(
                "Visitors enter in order of arrival. Your position is saved, even if you reload or close this page.",
            ),
            lobby_title: text("The doors open soon"),
            lobby_message: text(
                "When they open, everyone here gets a random position in line. You gain nothing by arriving early; late arrivals join at the end.",
            ),
            called_title: text("It is your turn"),
            called_message: text("You can enter in a few seconds."),
            unplaced_title: text("One moment"),
            unplaced_message: text("We are finding your position in line."),
            full_title: text("The line is full"),
            full_message: text("Too many people are waiting. Please try again later."),
            address_title: text("Too many positions in line"),
            address_message: text(
                "Your network already has the maximum number of positions in line. Please use the page that you opened first, or try again later.",
            ),
            closed_title: text("The line is closed"),
            closed_message: text("You cannot join the line right now. Please try again later."),
            position_label: text("Your position"),
            wait_label: text("Expected wait"),
            wait_short: text("less than a minute"),
            wait_minutes: text("about {n} minutes"),
            wait_hours: text("about {n} hours"),
            wait_unknown: text("not known yet"),
            footer: text(
                "This page refreshes automatically. It needs cookies to remember your position.",
            ),
        }
    }
}

impl Texts {
    /// The title and the message for an outcome.
    pub(crate) fn for_outcome(&self, outcome: Outcome) -> (&str, &str) {
        match outcome {
            Outcome::Waiting => (&self.waiting_title, &self.waiting_message),
            Outcome::Lobby => (&self.lobby_title, &self.lobby_message),
            Outcome::Unplaced => (&self.unplaced_title, &self.unplaced_message),
            Outcome::Full => (&self.full_title, &self.full_message),
            Outcome::Address => (&self.address_title, &self.address_message),
            Outcome::Closed => (&self.closed_title, &self.closed_message),
            Outcome::Hold
            | Outcome::Inside
            | Outcome::Entered
            | Outcome::Local
            | Outcome::Bypassed
            | Outcome::Status => (&self.called_title, &self.called_message),
        }
    }

    /// An expected wait, rounded up so that it promises no earlier entry.
    pub(crate) fn wait(&self, wait_ms: Option<u64>) -> String {
        const MINUTE_MS: u64 = 60_000;
        let number = |text: &str, number: u64| text.replace("{n}", &format!("{number}"));
        match wait_ms {
            None => self.wait_unknown.clone(),
            Some(wait_ms) if wait_ms < MINUTE_MS => self.wait_short.clone(),
            Some(wait_ms) if wait_ms <= 100 * MINUTE_MS => {
                number(&self.wait_minutes, wait_ms.div_ceil(MINUTE_MS).max(2))
            }
            Some(wait_ms) => number(&self.wait_hours, wait_ms.div_ceil(60 * MINUTE_MS)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_is_shown_in_words_and_rounded_up() {
        let texts = Texts::default();
        for (wait_ms, expected) in [
            (None, "not known yet"),
            (Some(0), "less than a minute"),
            (Some(59_999), "less than a minute"),
            (Some(60_000), "about 2 minutes"),
            (Some(240_001), "about 5 minutes"),
            (Some(6_000_000), "about 100 minutes"),
            (Some(6_000_001), "about 2 hours"),
            (Some(36_000_001), "about 11 hours"),
        ] {
            assert_eq!(texts.wait(wait_ms), expected, "{wait_ms:?}");
        }
    }
}
