//! Pages, JSON and cookies.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::RoomName;
use serde::Serialize;
use weir_base::language::Language;
use weir_base::problem;
use weir_engine::Answer;
use weir_engine::answer::retry_after_seconds;

use crate::engine::config::CheckedRoom;
use crate::engine::metrics::Outcome;
use crate::engine::page;

/// The header in which programs send and receive their queue token.
pub(crate) const PASS_HEADER: &str = weir_base::headers::ROOM;

/// The answer to a visitor who is not admitted.
#[derive(Clone, Debug)]
pub(crate) struct QueueAnswer {
    pub(crate) outcome: Outcome,
    /// The language of its texts.
    pub(crate) language: Language,
    /// The position in the queue; 1 is next.
    pub(crate) position: Option<u64>,
    pub(crate) wait_ms: Option<u64>,
    /// Whether the visitor waits in a queue that does not move.
    pub(crate) is_paused: bool,
    /// Time until the next position request, in milliseconds.
    pub(crate) poll_ms: u64,
    /// When the room opens, in milliseconds since the Unix epoch; 0: no opening.
    pub(crate) opens_at_ms: u64,
    /// The visitor's signed queue token, if the client should store it.
    pub(crate) pass: Option<String>,
}

/// [`QueueAnswer`] as JSON for programs.
#[derive(Serialize)]
struct Json<'a> {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    room: &'a str,
    state: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    opens_at_ms: Option<u64>,
    poll_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pass: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Text>,
}

/// The texts of a page.
#[derive(Serialize)]
struct Text {
    title: String,
    message: String,
    position: String,
    wait: String,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A page, in response to a request for another resource.
    Page,
    /// JSON, in response to a request for another resource.
    Json,
    /// JSON, in response to a page's position request.
    Status,
}

/// The answer to a waiting visitor.
pub(crate) fn queue_reply(
    room: &CheckedRoom,
    queue: &QueueAnswer,
    form: Form,
    is_secure: bool,
) -> Answer {
    let retry_after = retry_after_seconds(queue.poll_ms).to_string();
    let cookie = queue
        .pass
        .as_ref()
        .map(|pass| cookie(room, pass, is_secure));
    let mut headers: Vec<(&str, &str)> = Vec::from([
        ("cache-control", "no-store"),
        ("retry-after", &retry_after),
        ("vary", "accept, cookie"),
        ("x-robots-tag", "noindex"),
        ("x-content-type-options", "nosniff"),
    ]);
    if let Some(cookie) = &cookie {
        headers.push(("set-cookie", cookie));
    }
    let details = format!("weir_room_{}", queue.outcome.state());
    let status = match (form, queue.outcome) {
        (Form::Status, _) => 200,
        (_, Outcome::Address) => 429,
        (_, Outcome::Closed | Outcome::Full) => 503,
        _ => room.status,
    };
    if form == Form::Page {
        headers.extend([
            ("content-type", "text/html; charset=utf-8"),
            ("content-security-policy", &room.page.policy),
            ("referrer-policy", "same-origin"),
        ]);
        let page = html(room, queue, &retry_after);
        return Answer::new(status, &headers, page).because(details);
    }
    headers.push((
        "content-type",
        match form {
            Form::Json => problem::MEDIA_TYPE,
            Form::Status | Form::Page => "application/json",
        },
    ));
    if let (Form::Json, Some(pass)) = (form, &queue.pass) {
        headers.push((PASS_HEADER, pass));
    }
    let body = serde_json::to_vec(&json(room, queue, form, status)).unwrap_or_default();
    Answer::new(status, &headers, body).because(details)
}

fn text(room: &CheckedRoom, queue: &QueueAnswer) -> Text {
    let language = queue.language;
    let (title, message) = room
        .texts
        .for_outcome(queue.outcome, queue.is_paused, language);
    let position = queue.position.map(|position| grouped(position, language));
    Text {
        title: title.into(),
        message: message.into(),
        position: position.unwrap_or_default(),
        wait: match queue.is_paused {
            true => room.texts.paused(language),
            false => room.texts.wait(queue.wait_ms, language),
        },
    }
}

fn html(room: &CheckedRoom, queue: &QueueAnswer, refresh_s: &str) -> String {
    let text = text(room, queue);
    let opens_at_ms = match queue.opens_at_ms {
        0 => String::new(),
        opens_at_ms => opens_at_ms.to_string(),
    };
    room.page.render(&page::PageText {
        language: queue.language,
        labels: room.texts.labels(queue.language),
        state: queue.outcome.state(),
        title: &text.title,
        message: &text.message,
        position: &text.position,
        wait: &text.wait,
        opens_at_ms: &opens_at_ms,
        refresh_s,
    })
}

fn json<'a>(room: &'a CheckedRoom, queue: &'a QueueAnswer, form: Form, status: u16) -> Json<'a> {
    let (_, message) = room
        .texts
        .for_outcome(queue.outcome, queue.is_paused, queue.language);
    let is_problem = form == Form::Json;
    let error = is_problem.then(|| format!("room_{}", queue.outcome.state()));
    Json {
        kind: error
            .as_ref()
            .map(|error| format!("{}{error}", problem::TYPE_PREFIX)),
        status: is_problem.then_some(status),
        error,
        message: is_problem.then_some(message),
        room: room.name.as_str(),
        state: queue.outcome.state(),
        position: queue.position,
        wait_ms: queue.wait_ms,
        opens_at_ms: (queue.opens_at_ms > 0).then_some(queue.opens_at_ms),
        poll_ms: queue.poll_ms,
        pass: queue.pass.as_deref().filter(|_| is_problem),
        text: (!is_problem).then(|| text(room, queue)),
    }
}

/// A number with separators: `12,345`, or `12.345` in German.
fn grouped(number: u64, language: Language) -> String {
    let separator = match language {
        Language::English | Language::Chinese => ',',
        Language::German => '.',
    };
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(separator);
        }
        text.push(digit);
    }
    text
}

/// The cookie name of a room.
pub(crate) fn cookie_name(room: &RoomName) -> String {
    format!("weir-room-{room}")
}

/// The cookie with the queue token: `HttpOnly`, and sent when a link from another site leads here.
pub(crate) fn cookie(room: &CheckedRoom, pass: &str, is_secure: bool) -> String {
    let max_age = room.terms.life_ms / 1_000;
    let secure = if is_secure { "; Secure" } else { "" };
    let name = cookie_name(&room.name);
    format!("{name}={pass}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Lax{secure}")
}

/// The answer with the pages' script.
pub(crate) fn script() -> Answer {
    let headers = [
        ("content-type", "text/javascript; charset=utf-8"),
        ("cache-control", "public, max-age=300"),
        ("x-content-type-options", "nosniff"),
    ];
    Answer::new(200, &headers, page::SCRIPT).because("weir_room_script")
}

/// The answer to a position request without a token, or from an active session: the page should reload.
pub(crate) fn no_place(state: &str) -> Answer {
    let headers = [
        ("content-type", "application/json"),
        ("cache-control", "no-store"),
    ];
    let body = format!(r#"{{"state":"{state}"}}"#);
    Answer::new(200, &headers, body).because("weir_room_no_place")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_digit_group_separators() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number, Language::English), text);
        }
        assert_eq!(grouped(1_234_567, Language::German), "1.234.567");
    }
}
