//! The waiting room before the checkout: visitors who come before the sale's start are drawn, and all enter at a fixed
//! pace.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON and YAML that this module has made"
)]

use super::acts::{self, Paths};
use super::cast::{Bot, Person};
use super::client::{DemoRequest, Line};
use super::crowd::CrowdAction;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use weir_stack::Stack;
use weir_stack::http::{Method, Response};

/// All visitors pass until an operator opens the room. All people of the demo share one address.
pub(super) const CONFIG: &str = r#"{
    "redis": { "key_prefix": "weir" },
    "keys": [{ "secret": { "env": "WEIR_CLAIM_SECRET" } }],
    "user_header": "x-user-id",
    "rooms": [{
        "name": "checkout", "mode": "bypass", "poll": { "min_ms": 1000, "max_ms": 5000 }, "per_address": { "places": 0 },
        "match": { "methods": ["POST"], "path": { "template": "/sales/{sale}/checkout" } } }] }"#;

/// The room's route at the origin.
const ADMIN: &str = "/rooms/checkout";

/// The approximate time until all are inside, in seconds.
const ENTRIES_S: u64 = 10;

/// A distant start: no visitor enters before the operator opens the room.
const FAR_AHEAD_MS: u64 = 3_600_000;

/// The number of positions that each bot requests before the start.
const PLACES_TRIED: u32 = 50;

/// The prefix of the code of each waiting room answer.
const WORD: &str = "room_";

/// Whether an answer with this code is from a waiting room.
pub(super) fn is_word(word: &str) -> bool {
    word.starts_with(WORD)
}

/// The admissions per minute for this number of people.
pub(super) fn per_minute(people: u32) -> u64 {
    u64::from(people.max(60)) * 60 / ENTRIES_S
}

/// Opens the room at `at_ms`; `None` keeps it closed.
pub(super) async fn open(
    stack: &Stack,
    per_minute: u64,
    opens_at_ms: Option<u64>,
    now_ms: u64,
) -> Result<()> {
    let opens_at_ms = opens_at_ms.unwrap_or(now_ms + FAR_AHEAD_MS);
    let setting = json!({ "mode": "open", "per_minute": per_minute, "opens_at_ms": opens_at_ms });
    let setting = setting.to_string();
    stack.admin(Method::PUT, ADMIN, &setting, 200).await?;
    Ok(())
}

/// Lets all visitors pass again.
pub(super) async fn bypass(stack: &Stack) -> Result<()> {
    let setting = r#"{ "mode": "bypass" }"#;
    stack.admin(Method::PUT, ADMIN, setting, 200).await?;
    Ok(())
}

/// The operator's view of the queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Queue {
    /// Positions issued.
    pub(super) joined: u64,
    /// Visitors who entered.
    pub(super) entered: u64,
}

impl Queue {
    /// The current state. `None`: no gateway has read the room yet.
    pub(super) async fn find(stack: &Stack) -> Result<Option<Self>> {
        let response = stack.admin(Method::GET, ADMIN, "", 200).await?;
        let queue = &response["queue"];
        if queue.is_null() {
            return Ok(None);
        }
        let of = |name: &str| {
            let number = queue[name].as_u64();
            number.with_context(|| format!("no {name}: {response}"))
        };
        Ok(Some(Self {
            joined: of("joined")?,
            entered: of("entered")?,
        }))
    }

    /// The changes since `before`.
    pub(super) async fn since(stack: &Stack, before: Self) -> Result<Self> {
        let now = Self::find(stack).await?;
        let now = now.context("no gateway has the waiting room")?;
        Ok(Self {
            joined: now.joined.saturating_sub(before.joined),
            entered: now.entered.saturating_sub(before.entered),
        })
    }
}

/// The results of the waiting room.
#[derive(Debug, Clone)]
pub(super) struct RoomResult {
    pub(super) people: u64,
    pub(super) bots: u64,
    /// The counts before it opened.
    pub(super) before: Queue,
    /// The counts when all people had been inside.
    pub(super) after: Queue,
    /// The time from the opening until the last person entered.
    pub(super) elapsed: Duration,
}

impl RoomResult {
    /// The required results.
    pub(super) fn checks(&self) -> [(bool, String); 3] {
        let Self {
            people,
            bots,
            before,
            after,
            ..
        } = self;
        [
            (
                before.joined == people + bots && after.joined == before.joined,
                format!(
                    "waiting room: {} positions for {people} people and {bots} bots",
                    after.joined
                ),
            ),
            (
                before.entered == 0,
                format!("{} entered before it opened", before.entered),
            ),
            (
                after.entered == *people,
                format!("{} of {people} people entered", after.entered),
            ),
        ]
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "people": self.people, "bots": self.bots, "joined": self.after.joined, "entered": self.after.entered,
            "entered_before_opening": self.before.entered, "duration_s": self.elapsed.as_secs_f64(),
        })
    }
}

/// A bot that requests many positions and discards each.
pub(super) struct RoomBots(pub(super) Arc<Paths>);

impl CrowdAction for RoomBots {
    type Who = Bot;
    type Outcome = Bot;

    async fn play(&self, line: &mut Line, bot: Bot) -> Bot {
        for _ in 0..PLACES_TRIED {
            line.ask_once(&acts::check_out(&self.0, &bot.name)).await;
        }
        bot
    }
}

/// The result of polling the queue.
#[derive(Debug)]
pub(super) enum QueuePoll {
    /// The person still waits.
    Waits(Person),
    /// The person is at the checkout; with a token, the time from which it is valid.
    Inside(Person, Option<Instant>),
}

impl QueuePoll {
    /// The person who polled.
    pub(super) fn person(self) -> Person {
        match self {
            Self::Waits(visitor) | Self::Inside(visitor, _) => visitor,
        }
    }
}

/// One attempt to reach the checkout, with the pass of the previous one.
pub(super) struct Enter(pub(super) Arc<Paths>);

impl CrowdAction for Enter {
    type Who = Person;
    type Outcome = QueuePoll;

    async fn play(&self, line: &mut Line, mut person: Person) -> QueuePoll {
        let ask = DemoRequest {
            pass: person.pass.as_deref(),
            ..acts::check_out(&self.0, &person.name)
        };
        let Some(answer) = line.ask_once(&ask).await else {
            return QueuePoll::Waits(person);
        };
        if let Some(pass) = answer.header(weir_base::headers::ROOM) {
            person.pass = Some(pass.to_owned());
        }
        if is_to_come_again(&answer) {
            return QueuePoll::Waits(person);
        }
        let (token, usable) = acts::minted(&answer).unzip();
        person.token = token;
        QueuePoll::Inside(person, usable)
    }
}

fn is_to_come_again(answer: &Response) -> bool {
    matches!(answer.status, 429 | 503)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_position_early_entry_and_lost_visitor_are_detected() {
        let queue = |joined, entered| Queue { joined, entered };
        let waited = |before, after| RoomResult {
            people: 10,
            bots: 2,
            before,
            after,
            elapsed: Duration::ZERO,
        };
        let holds = |waited: RoomResult| waited.checks().map(|(holds, _)| holds);
        let good = waited(queue(12, 0), queue(12, 10));
        assert_eq!(holds(good), [true; 3]);
        let second_place = waited(queue(13, 0), queue(13, 10));
        assert_eq!(holds(second_place), [false, true, true]);
        let early = waited(queue(12, 1), queue(12, 10));
        assert_eq!(holds(early), [true, false, true]);
        let outside = waited(queue(12, 0), queue(12, 9));
        assert_eq!(holds(outside), [true, true, false]);
    }
}
