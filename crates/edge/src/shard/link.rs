//! What Redis would hold of one short link: its record, how many of its clicks are used, and the marks of clicks.
//!
//! It answers the scripts `link_read` and `link_back` as the Lua does, and the few plain commands with which the origin writes a
//! link. As a [`Shard`](crate::shard::Shard) it has no clock: the same commands at the same times leave the same link. Both scripts are
//! always known.

use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::str::FromStr;

use serde::{Deserialize, Serialize};
use weir_base::resp::Value;
use weir_link::redis::{link_back, link_read};

use crate::shard::call::{Calls, Refused, script, words};
use crate::shard::reply;
use crate::shard::sale::Done;

/// Whole in Lua, as `link_read.lua` has it.
const WHOLE_MAX: u64 = 1 << 52;

/// What a link's keys end with, behind its record's.
const CLICKS: &[u8] = b":clicks";
const MARK: &[u8] = b":click:";

/// One short link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The key of its record, with which the others begin.
    key: Vec<u8>,
    now_ms: u64,
    record: Option<Kept<Vec<u8>>>,
    used: Option<Kept<u64>>,
    /// By the name of the click.
    marks: BTreeMap<Vec<u8>, Kept<Mark>>,
}

/// A value with the time of its end, if it has one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept<T> {
    value: T,
    until_ms: Option<u64>,
}

/// What is known of a click.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Mark {
    /// It was used; so many were left before it.
    Used(u64),
    /// It was given back.
    Back,
}

/// Why a link is read.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Purpose {
    Look,
    Renew,
    Click { name: Vec<u8>, mark_ms: u64 },
}

/// Which of a link's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Record,
    Clicks,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    /// `link_read.lua`
    Read { permille: u64, purpose: Purpose },
    /// `link_back.lua`
    Back { name: Vec<u8>, mark_ms: u64 },
    /// `GET`
    Get(Name),
    /// `SET`: with `PX` and `NX`, or without.
    Set {
        name: Name,
        value: Vec<u8>,
        life_ms: Option<u64>,
        is_new: bool,
    },
    /// `UNLINK`
    Unlink(Vec<Name>),
    /// `PEXPIRE`; `PERSIST` has none.
    Expire { name: Name, life_ms: Option<u64> },
}

/// Whether keys that begin so are a link's: a sale's shard has no slash there.
pub fn is_link(prefix: &[u8]) -> bool {
    let tag = prefix.iter().rposition(|byte| *byte == b'{');
    let tag = tag.and_then(|at| prefix.get(at..)).unwrap_or_default();
    tag.contains(&b'/')
}

impl<T> Kept<T> {
    fn is_over(&self, now_ms: u64) -> bool {
        self.until_ms.is_some_and(|until_ms| now_ms >= until_ms)
    }
}

impl Link {
    /// One of which nothing is known, with this [prefix](crate::shard::call::prefix_of): the key of its record.
    ///
    /// # Errors
    /// When it is none of a link.
    pub fn new(prefix: &[u8]) -> Result<Self, Refused> {
        if !is_link(prefix) {
            return Err(Refused);
        }
        Ok(Self {
            key: prefix.to_vec(),
            now_ms: 0,
            record: None,
            used: None,
            marks: BTreeMap::new(),
        })
    }

    /// Runs commands at this time, in milliseconds since the Unix epoch; their replies. A time before that of the last commands is
    /// that of the last ones.
    ///
    /// # Errors
    /// When one is no command of this link: then none has run.
    pub fn run(&mut self, commands: &[u8], now_ms: u64) -> Result<Done, Refused> {
        let mut rest = commands;
        let mut asked = Vec::new();
        while !rest.is_empty() {
            let (command, used) = weir_base::resp::decode(rest).map_err(|_| Refused)?;
            rest = rest.get(used..).ok_or(Refused)?;
            asked.push(Call::read(&words(command)?, &self.key)?);
        }
        self.pass(now_ms);
        let mut done = Done {
            replies: Vec::new(),
            is_change: false,
        };
        for call in asked {
            let (value, is_change) = self.answer(call);
            done.is_change |= is_change;
            reply::encode(&value, &mut done.replies);
        }
        Ok(done)
    }

    /// How many marks of clicks it holds.
    pub fn marks(&self) -> usize {
        self.marks.len()
    }

    /// What has come to its end is gone.
    fn pass(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        let now_ms = self.now_ms;
        self.record.take_if(|kept| kept.is_over(now_ms));
        self.used.take_if(|kept| kept.is_over(now_ms));
        self.marks.retain(|_, kept| !kept.is_over(now_ms));
    }

    /// The reply, and whether anything is different now.
    fn answer(&mut self, call: Call) -> (Value, bool) {
        match call {
            Call::Read { permille, purpose } => self.read(permille, &purpose),
            Call::Back { name, mark_ms } => self.back(name, mark_ms),
            Call::Get(Name::Record) => {
                let record = self.record.as_ref();
                let value = record.map_or(Value::Null, |kept| Value::Bulk(kept.value.clone()));
                (value, false)
            }
            Call::Get(Name::Clicks) => {
                let used = self.used.as_ref();
                let value = used.map_or(Value::Null, |kept| reply::text(kept.value.to_string()));
                (value, false)
            }
            Call::Set {
                name,
                value,
                life_ms,
                is_new,
            } => self.set(name, value, life_ms, is_new),
            Call::Unlink(names) => self.unlink(&names),
            Call::Expire { name, life_ms } => {
                let until_ms = life_ms.map(|life_ms| self.now_ms.saturating_add(life_ms));
                let is_there = self.expire(name, until_ms);
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
        let used = self.used.as_ref().map_or(0, |kept| kept.value);
        let mut left = (max > 0).then(|| max.saturating_sub(used));
        let mut takes = None;
        if let (Some(now_left), Purpose::Click { name, mark_ms }) = (left, purpose) {
            match self.marks.get(name).map(|kept| kept.value) {
                None if now_left > 0 => takes = Some((now_left, name.clone(), *mark_ms)),
                Some(Mark::Used(before)) => left = Some(before),
                None | Some(Mark::Back) => {}
            }
        }
        let mut is_change = takes.is_some();
        let pttl = self.left_ms(until_ms).map_or(-1, i128::from);
        let gone = (i128::from(life_ms) - pttl) * 1_000;
        if *purpose != Purpose::Look
            && life_ms > 0
            && left != Some(0)
            && gone > i128::from(life_ms) * i128::from(permille)
        {
            until_ms = Some(self.now_ms.saturating_add(life_ms));
            self.expire(Name::Record, until_ms);
            // Who uses one sets its end below.
            self.expire(Name::Clicks, until_ms);
            is_change = true;
        }
        if let Some((before, name, mark_ms)) = takes {
            self.take(before, name, (until_ms, mark_ms));
        }
        (read_reply(text, self.left_ms(until_ms), left), is_change)
    }

    /// Uses a click of which so many were left before, of a link that lives so long.
    fn take(&mut self, before: u64, name: Vec<u8>, (until_ms, mark_ms): (Option<u64>, u64)) {
        let used = self.used.get_or_insert(Kept {
            value: 0,
            until_ms: None,
        });
        used.value += 1;
        if until_ms.is_some() {
            used.until_ms = until_ms;
        }
        self.mark(name, Mark::Used(before), mark_ms);
    }

    fn mark(&mut self, name: Vec<u8>, value: Mark, mark_ms: u64) {
        let until_ms = Some(self.now_ms.saturating_add(mark_ms));
        self.marks.insert(name, Kept { value, until_ms });
    }

    /// See `link_back.lua`.
    fn back(&mut self, name: Vec<u8>, mark_ms: u64) -> (Value, bool) {
        let before = self.marks.get(&name).map(|kept| kept.value);
        self.mark(name, Mark::Back, mark_ms);
        let was_used = matches!(before, Some(Mark::Used(_)));
        if was_used {
            match &mut self.used {
                Some(used) if used.value > 1 => used.value -= 1,
                used => *used = None,
            }
        }
        (reply::flag(was_used), true)
    }

    fn set(
        &mut self,
        name: Name,
        value: Vec<u8>,
        life_ms: Option<u64>,
        is_new: bool,
    ) -> (Value, bool) {
        let is_there = match name {
            Name::Record => self.record.is_some(),
            Name::Clicks => self.used.is_some(),
        };
        if is_new && is_there {
            return (Value::Null, false);
        }
        let until_ms = life_ms.map(|life_ms| self.now_ms.saturating_add(life_ms));
        match name {
            Name::Record => self.record = Some(Kept { value, until_ms }),
            Name::Clicks => {
                // It was read as a number.
                let value = number(Some(&value)).unwrap_or(0);
                self.used = Some(Kept { value, until_ms });
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
        // A link that has lost its maximum is nothing that is kept here: its record stands in Redis.
        let has_max =
            |kept: &mut Kept<Vec<u8>>| numbers(&kept.value).is_some_and(|(_, max)| max > 0);
        let is_left = match names.contains(&Name::Clicks) {
            true => self.record.take_if(|kept| !has_max(kept)).is_some(),
            false => false,
        };
        (reply::integer(count), count > 0 || is_left)
    }

    /// Whether it is there.
    fn expire(&mut self, name: Name, until_ms: Option<u64>) -> bool {
        let end = match name {
            Name::Record => self.record.as_mut().map(|kept| &mut kept.until_ms),
            Name::Clicks => self.used.as_mut().map(|kept| &mut kept.until_ms),
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
fn read_reply(record: Vec<u8>, left_ms: Option<u64>, left: Option<u64>) -> Value {
    let bounded = |number: Option<u64>| {
        let number = number.map(|number| i64::try_from(number).unwrap_or(i64::MAX));
        Value::Integer(number.unwrap_or(-1))
    };
    Value::Array(vec![Value::Bulk(record), bounded(left_ms), bounded(left)])
}

/// The life and the maximum with which a record begins; `None` if it is none.
pub fn numbers(record: &[u8]) -> Option<(u64, u64)> {
    let mut parts = record.splitn(3, |byte| *byte == b' ');
    let mut next = || {
        let digits = parts.next()?;
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        let text = core::str::from_utf8(digits).ok().filter(|_| is_number)?;
        // What is too long for a number is a very great one.
        Some(text.parse().unwrap_or(u64::MAX).min(WHOLE_MAX))
    };
    let numbers = (next()?, next()?);
    parts.next().map(|_| numbers)
}

// --- commands

impl Call {
    fn read(words: &[Vec<u8>], key: &[u8]) -> Result<Self, Refused> {
        match script(words)? {
            Some(Calls::BySource(script) | Calls::ByDigest(script)) => {
                Self::read_script(script.name, words, key)
            }
            None => Self::read_plain(words, key),
        }
    }

    /// `EVAL <script> <number of keys> KEYS… ARGV…`
    fn read_script(name: &str, words: &[Vec<u8>], key: &[u8]) -> Result<Self, Refused> {
        let count: usize = number(words.get(2))?;
        let rest = words.get(3..).ok_or(Refused)?;
        let (keys, args) = rest.split_at_checked(count).ok_or(Refused)?;
        let first = keys.first().ok_or(Refused)?;
        if name == link_read::SCRIPT.name && named(first, key)? == Name::Record {
            let purpose = match args.get(1).map(Vec::as_slice) {
                Some(b"look") => Purpose::Look,
                Some(b"renew") => Purpose::Renew,
                Some(b"click") => Purpose::Click {
                    name: click(keys.get(2), key)?,
                    mark_ms: number(args.get(2))?,
                },
                _ => return Err(Refused),
            };
            let permille = number(args.first())?;
            return Ok(Self::Read { permille, purpose });
        }
        if name == link_back::SCRIPT.name && named(first, key)? == Name::Clicks {
            return Ok(Self::Back {
                name: click(keys.get(1), key)?,
                mark_ms: number(args.first())?,
            });
        }
        Err(Refused)
    }

    fn read_plain(words: &[Vec<u8>], key: &[u8]) -> Result<Self, Refused> {
        let (command, rest) = words.split_first().ok_or(Refused)?;
        let (first, more) = rest.split_first().ok_or(Refused)?;
        let name = named(first, key)?;
        match (command.as_slice(), more) {
            (b"GET", []) => Ok(Self::Get(name)),
            (b"SET", [value, options @ ..]) => {
                if name == Name::Clicks {
                    number::<u64>(Some(value))?;
                }
                let (life_ms, is_new) = options_of(options)?;
                Ok(Self::Set {
                    name,
                    value: value.clone(),
                    life_ms,
                    is_new,
                })
            }
            (b"UNLINK", _) => {
                let names = rest.iter().map(|word| named(word, key));
                Ok(Self::Unlink(names.collect::<Result<_, _>>()?))
            }
            (b"PEXPIRE", [life_ms]) => Ok(Self::Expire {
                name,
                life_ms: Some(number(Some(life_ms))?),
            }),
            (b"PERSIST", []) => Ok(Self::Expire {
                name,
                life_ms: None,
            }),
            _ => Err(Refused),
        }
    }
}

/// `[PX <ms>] [NX]`
fn options_of(options: &[Vec<u8>]) -> Result<(Option<u64>, bool), Refused> {
    let (mut life_ms, mut is_new, mut rest) = (None, false, options.iter());
    while let Some(option) = rest.next() {
        match option.as_slice() {
            b"PX" => life_ms = Some(number(rest.next())?),
            b"NX" => is_new = true,
            _ => return Err(Refused),
        }
    }
    Ok((life_ms, is_new))
}

/// Which value of the link a key is.
fn named(word: &[u8], key: &[u8]) -> Result<Name, Refused> {
    match word.strip_prefix(key) {
        Some(b"") => Ok(Name::Record),
        Some(CLICKS) => Ok(Name::Clicks),
        _ => Err(Refused),
    }
}

/// The name of the click whose mark a key is.
fn click(word: Option<&Vec<u8>>, key: &[u8]) -> Result<Vec<u8>, Refused> {
    let behind = word.and_then(|word| word.strip_prefix(key));
    let name = behind.and_then(|behind| behind.strip_prefix(MARK));
    name.map(<[u8]>::to_vec).ok_or(Refused)
}

fn number<T: FromStr>(word: Option<&Vec<u8>>) -> Result<T, Refused> {
    let text = word.and_then(|word| core::str::from_utf8(word).ok());
    text.ok_or(Refused)?.parse().map_err(|_| Refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::resp::{decode, encode_command};
    use weir_link::click::ClickId;
    use weir_link::record::Link as Record;
    use weir_link::redis::keys::LinkKeys;
    use weir_link::redis::link_read::{MARK_MS, Purpose as Why};

    const NOW_MS: u64 = 1_700_000_000_000;

    fn keys() -> LinkKeys {
        LinkKeys::new("weir", &"d/abc".parse().unwrap())
    }

    fn command(words: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_command(&mut bytes, words.iter().copied());
        bytes
    }

    /// A link with a maximum.
    fn link(max_clicks: u64) -> Link {
        let mut link = Link::new(&keys().record()).unwrap();
        let record = Record {
            max_clicks,
            ..Record::to("https://t.example/")
        };
        let set = command(&[b"SET", &keys().record(), &record.encode()]);
        assert!(link.run(&set, NOW_MS).unwrap().is_change);
        link
    }

    fn read(link: &mut Link, sequence: u64, now_ms: u64) -> (Option<u64>, bool) {
        let click = ClickId {
            counter: 1,
            sequence,
        };
        let mut call = Vec::new();
        link_read::call(&keys(), 100, Why::Click(click)).encode_eval(&mut call);
        let done = link.run(&call, now_ms).unwrap();
        let read = link_read::parse(&decode(&done.replies).unwrap().0).unwrap();
        (read.unwrap().clicks_left, done.is_change)
    }

    #[test]
    fn who_finds_nothing_left_changes_nothing_and_a_mark_ends() {
        let mut link = link(2);
        assert_eq!(read(&mut link, 1, NOW_MS), (Some(2), true));
        assert_eq!(read(&mut link, 1, NOW_MS), (Some(2), false));
        assert_eq!(read(&mut link, 2, NOW_MS), (Some(1), true));
        assert_eq!(read(&mut link, 3, NOW_MS), (Some(0), false));
        // Of a name that nobody knows any more, there is nothing left either.
        assert_eq!(read(&mut link, 1, NOW_MS + MARK_MS), (Some(0), false));
        assert!(link.marks.is_empty());
    }

    #[test]
    fn a_link_without_a_maximum_leaves_when_its_clicks_do_and_a_disabled_one_stays() {
        let clicks = keys().clicks();
        let unlink = command(&[b"UNLINK", &clicks]);
        let mut held = link(0);
        held.run(&unlink, NOW_MS).unwrap();
        assert_eq!(held.record, None);
        let mut held = link(2);
        read(&mut held, 1, NOW_MS);
        let disabled = Record {
            max_clicks: 2,
            is_disabled: true,
            ..Record::to("https://t.example/")
        };
        let set = command(&[b"SET", &keys().record(), &disabled.encode()]);
        held.run(&set, NOW_MS).unwrap();
        held.run(&command(&[b"PERSIST", &clicks]), NOW_MS).unwrap();
        assert_eq!(read(&mut held, 2, NOW_MS).0, None, "it counts none");
        assert_eq!(held.used.as_ref().map(|kept| kept.value), Some(1));
    }

    #[test]
    fn commands_of_others_are_refused_and_none_has_run() {
        let mut link = link(2);
        let before = link.clone();
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
            let mut commands = command(&[b"UNLINK", &record]);
            commands.extend(command(words));
            assert_eq!(link.run(&commands, NOW_MS), Err(Refused), "{words:?}");
        }
        assert_eq!(link, before);
        assert!(Link::new(b"weir:{s:0}").is_err());
    }

    #[test]
    fn a_record_begins_with_two_numbers() {
        assert_eq!(numbers(b"5 7 {}"), Some((5, 7)));
        let great = b"99999999999999999999999 0 {}";
        assert_eq!(numbers(great), Some((WHOLE_MAX, 0)));
        for other in [&b"5 7"[..], b"", b"object", b"-1 2 {}", b"1  {}"] {
            assert_eq!(numbers(other), None);
        }
    }
}
