//! The texts for visitors. `weir-text` has the defaults.

use alloc::format;
use alloc::string::String;

use serde::Deserialize;
use weir_base::language::Language;
use weir_text::Text;

use crate::engine::metrics::Outcome;

/// Texts of pages. Default: Weir's own, in English, Chinese or German. `{n}` is replaced by a number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Texts {
    /// Title for waiting visitors.
    pub waiting_title: Option<String>,
    /// Message for waiting visitors.
    pub waiting_message: Option<String>,
    /// Title in the pre-queue.
    pub lobby_title: Option<String>,
    /// Message in the pre-queue.
    pub lobby_message: Option<String>,
    /// Title for called visitors.
    pub called_title: Option<String>,
    /// Message for called visitors.
    pub called_message: Option<String>,
    /// Title before a position is assigned.
    pub unplaced_title: Option<String>,
    /// Message before a position is assigned.
    pub unplaced_message: Option<String>,
    /// Title when the queue is full.
    pub full_title: Option<String>,
    /// Message when the queue is full.
    pub full_message: Option<String>,
    /// Title at the address limit.
    pub address_title: Option<String>,
    /// Message at the address limit.
    pub address_message: Option<String>,
    /// Title when the room is closed.
    pub closed_title: Option<String>,
    /// Message when the room is closed.
    pub closed_message: Option<String>,
    /// Title for waiting visitors while the queue does not move.
    pub paused_title: Option<String>,
    /// Message for waiting visitors while the queue does not move.
    pub paused_message: Option<String>,
    /// Label of the position.
    pub position_label: Option<String>,
    /// Label of the expected wait.
    pub wait_label: Option<String>,
    /// Wait of less than a minute.
    pub wait_short: Option<String>,
    /// Wait of `{n}` minutes.
    pub wait_minutes: Option<String>,
    /// Wait of `{n}` hours.
    pub wait_hours: Option<String>,
    /// Wait while the queue does not move.
    pub wait_paused: Option<String>,
    /// Unknown wait.
    pub wait_unknown: Option<String>,
    /// Note on automatic refresh and cookies.
    pub footer: Option<String>,
}

/// The configured text, or the default in this language.
pub(crate) fn or_default(own: &Option<String>, default: Text, language: Language) -> &str {
    own.as_deref().unwrap_or_else(|| default.get(language))
}

impl Texts {
    /// Whether no text is configured.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The title and the message for an outcome. `is_paused`: the visitor waits in a queue that does not move.
    pub(crate) fn for_outcome(
        &self,
        outcome: Outcome,
        is_paused: bool,
        language: Language,
    ) -> (&str, &str) {
        let [(title, default_title), (message, default_message)] = match outcome {
            _ if is_paused => [
                (&self.paused_title, weir_text::ROOM_PAUSED_TITLE),
                (&self.paused_message, weir_text::ROOM_PAUSED_MESSAGE),
            ],
            Outcome::Waiting => [
                (&self.waiting_title, weir_text::ROOM_WAITING_TITLE),
                (&self.waiting_message, weir_text::ROOM_WAITING_MESSAGE),
            ],
            Outcome::Lobby => [
                (&self.lobby_title, weir_text::ROOM_LOBBY_TITLE),
                (&self.lobby_message, weir_text::ROOM_LOBBY_MESSAGE),
            ],
            Outcome::Unplaced => [
                (&self.unplaced_title, weir_text::ROOM_UNPLACED_TITLE),
                (&self.unplaced_message, weir_text::ROOM_UNPLACED_MESSAGE),
            ],
            Outcome::Full => [
                (&self.full_title, weir_text::ROOM_FULL_TITLE),
                (&self.full_message, weir_text::ROOM_FULL_MESSAGE),
            ],
            Outcome::Address => [
                (&self.address_title, weir_text::ROOM_ADDRESS_TITLE),
                (&self.address_message, weir_text::ROOM_ADDRESS_MESSAGE),
            ],
            Outcome::Closed => [
                (&self.closed_title, weir_text::ROOM_CLOSED_TITLE),
                (&self.closed_message, weir_text::ROOM_CLOSED_MESSAGE),
            ],
            Outcome::Hold
            | Outcome::Inside
            | Outcome::Entered
            | Outcome::Local
            | Outcome::Bypassed
            | Outcome::Status => [
                (&self.called_title, weir_text::ROOM_CALLED_TITLE),
                (&self.called_message, weir_text::ROOM_CALLED_MESSAGE),
            ],
        };
        (
            or_default(title, default_title, language),
            or_default(message, default_message, language),
        )
    }

    /// The label of the position, the label of the expected wait, and the footer.
    pub(crate) fn labels(&self, language: Language) -> [&str; 3] {
        [
            (&self.position_label, weir_text::ROOM_POSITION_LABEL),
            (&self.wait_label, weir_text::ROOM_WAIT_LABEL),
            (&self.footer, weir_text::ROOM_FOOTER),
        ]
        .map(|(own, default)| or_default(own, default, language))
    }

    /// The wait in a queue that does not move.
    pub(crate) fn paused(&self, language: Language) -> String {
        or_default(&self.wait_paused, weir_text::ROOM_WAIT_PAUSED, language).into()
    }

    /// An expected wait, rounded up so that it promises no earlier entry.
    pub(crate) fn wait(&self, wait_ms: Option<u64>, language: Language) -> String {
        const MINUTE_MS: u64 = 60_000;
        let (own, default, number) = match wait_ms {
            None => (&self.wait_unknown, weir_text::ROOM_WAIT_UNKNOWN, 0),
            Some(wait_ms) if wait_ms < MINUTE_MS => {
                (&self.wait_short, weir_text::ROOM_WAIT_SHORT, 0)
            }
            Some(wait_ms) if wait_ms <= 100 * MINUTE_MS => (
                &self.wait_minutes,
                weir_text::ROOM_WAIT_MINUTES,
                wait_ms.div_ceil(MINUTE_MS).max(2),
            ),
            Some(wait_ms) => (
                &self.wait_hours,
                weir_text::ROOM_WAIT_HOURS,
                wait_ms.div_ceil(60 * MINUTE_MS),
            ),
        };
        let text = or_default(own, default, language);
        match number {
            0 => text.into(),
            number => text.replace("{n}", &format!("{number}")),
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
            let wait = texts.wait(wait_ms, Language::English);
            assert_eq!(wait, expected, "{wait_ms:?}");
        }
        let german = texts.wait(Some(240_001), Language::German);
        assert_eq!(german, "etwa 5 Minuten");
    }

    #[test]
    fn configured_text_replaces_the_default_in_all_languages() {
        let texts = Texts {
            waiting_title: Some("Shoes soon".into()),
            wait_minutes: Some("{n} min".into()),
            ..Texts::default()
        };
        assert!(!texts.is_default() && Texts::default().is_default());
        for language in Language::ALL {
            let (title, message) = texts.for_outcome(Outcome::Waiting, false, language);
            assert_eq!(title, "Shoes soon");
            assert_eq!(message, weir_text::ROOM_WAITING_MESSAGE.get(language));
            assert_eq!(texts.wait(Some(240_001), language), "5 min");
        }
    }
}
