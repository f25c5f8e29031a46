//! One short link without Redis: its record, the number of clicks used, and the markers of clicks.
//!
//! It implements the scripts `link_read` and `link_back` like the Lua, and the plain commands with which the origin
//! writes a link. Like a [`Shard`](crate::shard::Shard) it has no clock: the same commands at the same times give the
//! same state.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use weir_base::resp::Value;
#[cfg(doc)]
use weir_link::redis::link_read;

use crate::shard::command::{UnexpectedCommand, number, script_call};
use crate::shard::reply;
use crate::shard::sale::CommandsOutcome;

/// Maximum integer in Lua, as in `link_read.lua`.
const WHOLE_MAX: u64 = 1 << 52;

/// The suffix of the key for the clicks, after the record's key.
const CLICKS: &[u8] = b":clicks";
const MARK: &[u8] = b":click:";

/// One short link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    now_ms: u64,
    record: Option<ExpiringValue<String>>,
    used: Option<ExpiringValue<u64>>,
    /// By click ID.
    marks: BTreeMap<String, ExpiringValue<ClickMark>>,
}

/// A value with its expiry, if it has one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ExpiringValue<T> {
    value: T,
    until_ms: Option<u64>,
}

/// The state of a click.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum ClickMark {
    /// It was used, with this number of clicks left before it.
    Used(u64),
    /// It was returned.
    Back,
}

/// The purpose of a read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// See [`link_read::Purpose::Look`].
    Look,
    /// See [`link_read::Purpose::Renew`].
    Renew,
    /// See [`link_read::Purpose::Click`].
    Click {
        /// The click ID.
        name: String,
        /// Lifetime of its marker, in milliseconds.
        mark_ms: u64,
    },
}

/// A value of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Name {
    /// The record.
    Record,
    /// The number of clicks used.
    Clicks,
}

/// A new value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewValue {
    /// The record.
    Record(String),
    /// The number of clicks used.
    Clicks(u64),
}

/// A command to one short link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    missing_docs,
    reason = "fields are the arguments that scripts and Redis document"
)]
pub enum LinkCommand {
    /// `link_read.lua`
    Read { permille: u64, purpose: Purpose },
    /// `link_back.lua`
    Back { name: String, mark_ms: u64 },
    /// `GET`
    Get(Name),
    /// `SET`: with `PX` and `NX`, or without.
    Set {
        value: NewValue,
        life_ms: Option<u64>,
        is_new: bool,
    },
    /// `UNLINK`
    Unlink(Vec<Name>),
    /// `PEXPIRE`; without a lifetime, `PERSIST`.
    Expire { name: Name, life_ms: Option<u64> },
}

/// Whether a key prefix belongs to a link: a shard's has no slash in its hash tag.
pub fn is_link(prefix: &[u8]) -> bool {
    let tag = prefix.iter().rposition(|byte| *byte == b'{');
    let tag = tag.and_then(|at| prefix.get(at..)).unwrap_or_default();
    tag.contains(&b'/')
}

impl<T> ExpiringValue<T> {
    fn is_over(&self, now_ms: u64) -> bool {
        self.until_ms.is_some_and(|until_ms| now_ms >= until_ms)
    }
}

impl Link {
    /// Runs commands at this time, in milliseconds since the Unix epoch. A time before that of the previous commands is
    /// replaced by it.
    pub fn run(&mut self, commands: &[LinkCommand], now_ms: u64) -> CommandsOutcome {
        self.pass(now_ms);
        let mut done = CommandsOutcome {
            replies: Vec::new(),
            is_change: false,
        };
        for command in commands {
            let (value, is_change) = self.answer(command);
            done.is_change |= is_change;
            reply::encode(&value, &mut done.replies);
        }
        done
    }

    /// The number of markers of clicks.
    pub fn marks(&self) -> usize {
        self.marks.len()
    }

    /// Removes expired values.
    fn pass(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        let now_ms = self.now_ms;
        self.record.take_if(|retained| retained.is_over(now_ms));
        self.used.take_if(|retained| retained.is_over(now_ms));
        self.marks.retain(|_, retained| !retained.is_over(now_ms));
    }

    /// Returns the reply, and whether the state changed.
    fn answer(&mut self, command: &LinkCommand) -> (Value, bool) {
        match command {
            LinkCommand::Read { permille, purpose } => self.read(*permille, purpose),
            LinkCommand::Back { name, mark_ms } => self.back(name, *mark_ms),
            LinkCommand::Get(Name::Record) => {
                let record = self.record.as_ref().map(|retained| retained.value.clone());
                (record.map_or(Value::Null, reply::text), false)
            }
            LinkCommand::Get(Name::Clicks) => {
                let used = self
                    .used
                    .as_ref()
                    .map(|retained| retained.value.to_string());
                (used.map_or(Value::Null, reply::text), false)
            }
            LinkCommand::Set {
                value,
                life_ms,
                is_new,
            } => self.set(value, *life_ms, *is_new),
            LinkCommand::Unlink(names) => self.unlink(names),
            LinkCommand::Expire { name, life_ms } => {
                let until_ms = life_ms.map(|life_ms| self.now_ms.saturating_add(life_ms));
                let is_there = self.expire(*name, until_ms);
                (reply::flag(is_there), is_there)
            }
        }
    }

    /// See `link_read.lua`.
    fn read(&mut self, permille: u64, purpose: &Purpose) -> (Value, bool) {
        let Some(record) = &self.record else {
            return (Value::Null, false);
        };
        let text = record.value.clone();
        let mut until_ms = record.until_ms;
        let Some((life_ms, max)) = numbers(&text) else {
            return (read_reply(text, self.left_ms(until_ms), None), false);
        };
        let used = self.used.as_ref().map_or(0, |retained| retained.value);
        let mut remaining = (max > 0).then(|| max.saturating_sub(used));
        let mut takes = None;
        if let (Some(now_left), Purpose::Click { name, mark_ms }) = (remaining, purpose) {
            match self.marks.get(name).map(|retained| retained.value) {
                None if now_left > 0 => takes = Some((now_left, name, *mark_ms)),
                Some(ClickMark::Used(before)) => remaining = Some(before),
                None | Some(ClickMark::Back) => {}
            }
        }
        let mut is_change = takes.is_some();
        let pttl = self.left_ms(until_ms).map_or(-1, i128::from);
        let removed = (i128::from(life_ms) - pttl) * 1_000;
        if *purpose != Purpose::Look
            && life_ms > 0
            && remaining != Some(0)
            && removed > i128::from(life_ms) * i128::from(permille)
        {
            until_ms = Some(self.now_ms.saturating_add(life_ms));
            self.expire(Name::Record, until_ms);
            // A used click sets its expiry below.
            self.expire(Name::Clicks, until_ms);
            is_change = true;
        }
        if let Some((before, name, mark_ms)) = takes {
            self.take(before, name, (until_ms, mark_ms));
        }
        (
            read_reply(text, self.left_ms(until_ms), remaining),
            is_change,
        )
    }

    /// Uses a click, with the number of clicks left before it and the link's lifetime.
    fn take(&mut self, before: u64, name: &str, (until_ms, mark_ms): (Option<u64>, u64)) {
        let used = self.used.get_or_insert(ExpiringValue {
            value: 0,
            until_ms: None,
        });
        used.value += 1;
        if until_ms.is_some() {
            used.until_ms = until_ms;
        }
        self.mark(name, ClickMark::Used(before), mark_ms);
    }

    fn mark(&mut self, name: &str, value: ClickMark, mark_ms: u64) {
        let until_ms = Some(self.now_ms.saturating_add(mark_ms));
        self.marks
            .insert(name.into(), ExpiringValue { value, until_ms });
    }

    /// See `link_back.lua`.
    fn back(&mut self, name: &str, mark_ms: u64) -> (Value, bool) {
        let before = self.marks.get(name).map(|retained| retained.value);
        self.mark(name, ClickMark::Back, mark_ms);
        let was_used = matches!(before, Some(ClickMark::Used(_)));
        if was_used {
            match &mut self.used {
                Some(used) if used.value > 1 => used.value -= 1,
                used => *used = None,
            }
        }
        (reply::flag(was_used), true)
    }

    fn set(&mut self, value: &NewValue, life_ms: Option<u64>, is_new: bool) -> (Value, bool) {
        let is_there = match value {
            NewValue::Record(_) => self.record.is_some(),
            NewValue::Clicks(_) => self.used.is_some(),
        };
        if is_new && is_there {
            return (Value::Null, false);
        }
        let until_ms = life_ms.map(|life_ms| self.now_ms.saturating_add(life_ms));
        match value {
            NewValue::Record(record) => {
                let value = record.clone();
                self.record = Some(ExpiringValue { value, until_ms });
            }
            NewValue::Clicks(used) => {
                let value = *used;
                self.used = Some(ExpiringValue { value, until_ms });
            }
        }
        (Value::Simple(b"OK".to_vec()), true)
    }

    fn unlink(&mut self, names: &[Name]) -> (Value, bool) {
        let mut count = 0;
        for name in names {
            count += match name {
                Name::Record => u64::from(self.record.take().is_some()),
                Name::Clicks => u64::from(self.used.take().is_some()),
            };
        }
        // Redis has the record of a link without a click limit: this copy is dropped.
        let has_max = |value: &mut ExpiringValue<String>| {
            numbers(&value.value).is_some_and(|(_, max)| max > 0)
        };
        let is_left = match names.contains(&Name::Clicks) {
            true => self.record.take_if(|value| !has_max(value)).is_some(),
            false => false,
        };
        (reply::integer(count), count > 0 || is_left)
    }

    /// Sets an expiry. Returns whether the value exists.
    fn expire(&mut self, name: Name, until_ms: Option<u64>) -> bool {
        let end = match name {
            Name::Record => self.record.as_mut().map(|retained| &mut retained.until_ms),
            Name::Clicks => self.used.as_mut().map(|retained| &mut retained.until_ms),
        };
        let is_there = end.is_some();
        if let Some(end) = end {
            *end = until_ms;
        }
        is_there
    }

    fn left_ms(&self, until_ms: Option<u64>) -> Option<u64> {
        until_ms.map(|until_ms| until_ms.saturating_sub(self.now_ms))
    }
}

/// `{record, pttl, left}`
fn read_reply(record: String, left_ms: Option<u64>, remaining: Option<u64>) -> Value {
    let bounded = |number: Option<u64>| {
        let number = number.map(|number| i64::try_from(number).unwrap_or(i64::MAX));
        Value::Integer(number.unwrap_or(-1))
    };
    Value::Array(vec![
        reply::text(record),
        bounded(left_ms),
        bounded(remaining),
    ])
}

/// The lifetime and the click limit at the beginning of a record; `None` if it has none.
fn numbers(record: &str) -> Option<(u64, u64)> {
    let mut parts = record.splitn(3, ' ');
    let mut next = || {
        let digits = parts.next()?;
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        // A number with too many digits is clamped.
        is_number.then(|| digits.parse().unwrap_or(u64::MAX).min(WHOLE_MAX))
    };
    let numbers = (next()?, next()?);
    parts.next().map(|_| numbers)
}

// --- commands

impl LinkCommand {
    /// Parses a command to the link with the record key `key`.
    ///
    /// # Errors
    /// If Weir never sends it, or a key belongs to another link.
    pub fn from_redis(words: &[&[u8]], key: &[u8]) -> Result<Self, UnexpectedCommand> {
        let command = match script_call(words, key)? {
            Some((script, keys, args)) => Self::from_script(script.name, key, keys, args),
            None => Self::from_plain(words, key),
        };
        command.ok_or(UnexpectedCommand)
    }

    fn from_script(name: &str, key: &[u8], keys: &[&[u8]], args: &[&[u8]]) -> Option<Self> {
        let first = named(keys.first()?, key)?;
        match (name, first, args) {
            ("link_read", Name::Record, [permille, purpose, more @ ..]) => Some(Self::Read {
                permille: number(permille)?,
                purpose: match *purpose {
                    b"look" => Purpose::Look,
                    b"renew" => Purpose::Renew,
                    b"click" => Purpose::Click {
                        name: click(keys.get(2)?, key)?,
                        mark_ms: number(more.first()?)?,
                    },
                    _ => return None,
                },
            }),
            ("link_back", Name::Clicks, [mark_ms, ..]) => Some(Self::Back {
                name: click(keys.get(1)?, key)?,
                mark_ms: number(mark_ms)?,
            }),
            _ => None,
        }
    }

    fn from_plain(words: &[&[u8]], key: &[u8]) -> Option<Self> {
        let (command, rest) = words.split_first()?;
        let (first, more) = rest.split_first()?;
        let name = named(first, key)?;
        Some(match (*command, more) {
            (b"GET", []) => Self::Get(name),
            (b"SET", [value, options @ ..]) => {
                let (life_ms, is_new) = options_of(options)?;
                Self::Set {
                    value: match name {
                        Name::Record => NewValue::Record(core::str::from_utf8(value).ok()?.into()),
                        Name::Clicks => NewValue::Clicks(number(value)?),
                    },
                    life_ms,
                    is_new,
                }
            }
            (b"UNLINK", _) => {
                let names = rest.iter().map(|word| named(word, key));
                Self::Unlink(names.collect::<Option<_>>()?)
            }
            (b"PEXPIRE", [life_ms]) => Self::Expire {
                name,
                life_ms: Some(number(life_ms)?),
            },
            (b"PERSIST", []) => Self::Expire {
                name,
                life_ms: None,
            },
            _ => return None,
        })
    }
}

/// `[PX <ms>] [NX]`
fn options_of(options: &[&[u8]]) -> Option<(Option<u64>, bool)> {
    let (mut life_ms, mut is_new, mut rest) = (None, false, options.iter());
    while let Some(option) = rest.next() {
        match *option {
            b"PX" => life_ms = Some(number(rest.next()?)?),
            b"NX" => is_new = true,
            _ => return None,
        }
    }
    Some((life_ms, is_new))
}

/// The value of the link that a key names.
fn named(word: &[u8], key: &[u8]) -> Option<Name> {
    match word.strip_prefix(key)? {
        b"" => Some(Name::Record),
        CLICKS => Some(Name::Clicks),
        _ => None,
    }
}

/// The click ID in the key of a marker.
fn click(word: &[u8], key: &[u8]) -> Option<String> {
    let name = word.strip_prefix(key)?.strip_prefix(MARK)?;
    Some(core::str::from_utf8(name).ok()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::command::ObjectCommands;
    use weir_base::resp::{decode, encode_command};
    use weir_link::click::ClickId;
    use weir_link::record::Link as Record;
    use weir_link::redis::keys::LinkKeys;
    use weir_link::redis::link_read::{self, MARK_MS, Purpose as Why};

    const NOW_MS: u64 = 1_700_000_000_000;

    fn keys() -> LinkKeys {
        LinkKeys::new("weir", &"d/abc".parse().unwrap())
    }

    fn command(words: &[&[u8]]) -> [LinkCommand; 1] {
        [LinkCommand::from_redis(words, &keys().record()).unwrap()]
    }

    /// A link with a click limit.
    fn link(max_clicks: u64) -> Link {
        let mut link = Link::default();
        let record = Record {
            max_clicks,
            ..Record::to("https://t.example/")
        };
        let set = command(&[b"SET", &keys().record(), &record.encode()]);
        assert!(link.run(&set, NOW_MS).is_change);
        link
    }

    fn read(link: &mut Link, sequence: u64, now_ms: u64) -> (Option<u64>, bool) {
        let click = ClickId {
            counter: 1,
            sequence,
        };
        let mut call = Vec::new();
        link_read::call(&keys(), 100, Why::Click(click)).encode_eval(&mut call);
        let object = keys().record();
        let Ok(ObjectCommands::Link(read)) = ObjectCommands::from_redis(&call, &object) else {
            panic!("it is a command of the link");
        };
        let done = link.run(&read, now_ms);
        let read = link_read::parse(&decode(&done.replies).unwrap().0).unwrap();
        (read.unwrap().clicks_left, done.is_change)
    }

    #[test]
    fn click_beyond_the_limit_changes_nothing_and_marks_expire() {
        let mut link = link(2);
        assert_eq!(read(&mut link, 1, NOW_MS), (Some(2), true));
        assert_eq!(read(&mut link, 1, NOW_MS), (Some(2), false));
        assert_eq!(read(&mut link, 2, NOW_MS), (Some(1), true));
        assert_eq!(read(&mut link, 3, NOW_MS), (Some(0), false));
        // An expired marker leaves nothing to return.
        assert_eq!(read(&mut link, 1, NOW_MS + MARK_MS), (Some(0), false));
        assert!(link.marks.is_empty());
    }

    #[test]
    fn unlimited_link_is_removed_and_disabled_link_is_kept() {
        let clicks = keys().clicks();
        let unlink = command(&[b"UNLINK", &clicks]);
        let mut held = link(0);
        held.run(&unlink, NOW_MS);
        assert_eq!(held.record, None);
        let mut held = link(2);
        read(&mut held, 1, NOW_MS);
        let disabled = Record {
            max_clicks: 2,
            is_disabled: true,
            ..Record::to("https://t.example/")
        };
        let set = command(&[b"SET", &keys().record(), &disabled.encode()]);
        held.run(&set, NOW_MS);
        held.run(&command(&[b"PERSIST", &clicks]), NOW_MS);
        assert_eq!(read(&mut held, 2, NOW_MS).0, None, "it counts none");
        assert_eq!(held.used.as_ref().map(|retained| retained.value), Some(1));
    }

    #[test]
    fn unexpected_commands_and_other_links_are_refused() {
        let other = LinkKeys::new("weir", &"d/abd".parse().unwrap());
        let record = keys().record();
        let bad: [&[&[u8]]; 6] = [
            &[b"GET", &other.record()],
            &[b"UNLINK", &record, &other.clicks()],
            &[b"SET", &record, b"1 1 {}", b"EX", b"1"],
            &[b"SET", &keys().clicks(), b"many"],
            &[b"FLUSHALL"],
            &[b"DEL", &record],
        ];
        for words in bad {
            let read = LinkCommand::from_redis(words, &record);
            assert_eq!(read, Err(UnexpectedCommand), "{words:?}");
            // A valid command before it is refused with it.
            let mut commands = Vec::new();
            encode_command(&mut commands, [b"UNLINK".as_slice(), &record]);
            encode_command(&mut commands, words.iter().copied());
            let read = ObjectCommands::from_redis(&commands, &record);
            assert_eq!(read, Err(UnexpectedCommand), "{words:?}");
        }
    }

    #[test]
    fn link_record_begins_with_expiry_and_click_limit() {
        assert_eq!(numbers("5 7 {}"), Some((5, 7)));
        let great = "99999999999999999999999 0 {}";
        assert_eq!(numbers(great), Some((WHOLE_MAX, 0)));
        for other in ["5 7", "", "object", "-1 2 {}", "1  {}"] {
            assert_eq!(numbers(other), None);
        }
    }
}
