//! What parties ask of a shard: the words of a command, read.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::str::FromStr;
use std::sync::LazyLock;

use weir_base::id::UserId;
use weir_base::resp::Value;
use weir_sale::idempotency::AttemptTag;
use weir_sale::ledger::{
    Audit, Checks, ClaimTerms, Deduction, OrderEntry, ReleaseKind, StockChange, Transfer,
};
use weir_scripts::{Script, tally};

/// KEYS of one group of a claim, before those of the sets that are looked at.
const KEYS_A_GROUP: usize = 7;

/// A command that no party sends to a shard, or not so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no command of a shard")]
pub struct Refused;

/// Every script that may reach an object.
fn scripts() -> impl Iterator<Item = &'static Script> {
    let sale = weir_sale::redis::SCRIPTS.iter();
    let link = weir_link::redis::SCRIPTS.iter();
    sale.chain(link).copied().chain([&tally::SCRIPT])
}

/// Scripts by the digests of their sources, and digests by the names of scripts. Digests take longer than most commands: they are
/// made once.
static BY_DIGEST: LazyLock<BTreeMap<String, &'static Script>> = LazyLock::new(|| {
    scripts()
        .map(|script| (script.sha1_hex(), script))
        .collect()
});

static DIGESTS: LazyLock<BTreeMap<&'static str, &'static str>> = LazyLock::new(|| {
    let known = BY_DIGEST.iter();
    known
        .map(|(digest, script)| (script.name, digest.as_str()))
        .collect()
});

/// The digest by which a script is called.
pub(crate) fn digest(script: &Script) -> &'static str {
    DIGESTS.get(script.name).copied().unwrap_or_default()
}

/// The words of a command.
///
/// # Errors
/// When it is no array of byte strings, or an empty one.
pub fn words(command: Value) -> Result<Vec<Vec<u8>>, Refused> {
    let Value::Array(values) = command else {
        return Err(Refused);
    };
    let word = |value| match value {
        Value::Bulk(word) => Ok(word),
        _ => Err(Refused),
    };
    values.into_iter().map(word).collect()
}

/// How a script is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// By its source: it is known from then on.
    BySource(&'static Script),
    /// By its digest: it must be known.
    ByDigest(&'static Script),
}

/// The script that a command calls; `None` if it calls none.
///
/// # Errors
/// When it is none of Weir's.
pub fn script(words: &[Vec<u8>]) -> Result<Option<Calls>, Refused> {
    match (words.first().map(Vec::as_slice), words.get(1)) {
        (Some(b"EVAL"), Some(source)) => {
            let script = scripts().find(|script| script.source.as_bytes() == source);
            Ok(Some(Calls::BySource(script.ok_or(Refused)?)))
        }
        (Some(b"EVALSHA"), Some(digest)) => {
            let digest = core::str::from_utf8(digest).map_err(|_| Refused)?;
            let script = BY_DIGEST.get(digest).copied();
            Ok(Some(Calls::ByDigest(script.ok_or(Refused)?)))
        }
        _ => Ok(None),
    }
}

/// One group of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What each asks for.
    pub terms: ClaimTerms,
    /// Who asks, each with the attempt's tag, if it has one.
    pub users: Vec<(UserId, Option<AttemptTag>)>,
}

/// A list of users that SQL knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Those with a reservation.
    Reserved,
    /// Those who are blocked.
    Blocked,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "fields are the arguments that the scripts document"
)]
pub enum Call {
    /// `claim.lua`
    Claim(Vec<Group>),
    /// `probe.lua`: of this shard, so often.
    Probe(usize),
    /// `release.lua`
    Release(Vec<(UserId, u64, ReleaseKind)>),
    /// `settle.lua`
    Settle {
        user: UserId,
        generation: u64,
        deduction: Deduction,
    },
    /// `charge.lua`
    Charge { user: UserId, generation: u64 },
    /// `cancel.lua`
    Cancel { user: UserId, generation: u64 },
    /// `lend.lua`
    Lend { to_shard: u32, wanted: u64 },
    /// `deposit.lua`
    Deposit { from_shard: u32, transfer: Transfer },
    /// `settle_transfer.lua`
    SettleTransfer { to_shard: u32, id: u64 },
    /// `audit.lua`
    Audit,
    /// `overdue.lua`
    Overdue { grace_ms: i64, limit: usize },
    /// `recount.lua`: the sums, and the version that they are of.
    Recount(Audit),
    /// `restock.lua`: the units, and what the audit saw.
    Restock { units: i64, seen: Audit },
    /// `stock_change.lua`
    StockChange(StockChange),
    /// `correct.lua`
    Correct {
        user: UserId,
        seen: Vec<OrderEntry>,
        known: Vec<OrderEntry>,
    },
    /// `warm.lua`
    Warm { units: u64, token: Option<String> },
    /// `wipe.lua`
    Wipe { token: String, lease_ms: u64 },
    /// `restore.lua`
    Restore {
        token: String,
        users: Vec<(UserId, Vec<OrderEntry>)>,
    },
    /// `GET …:epoch`
    Epoch,
    /// `EXISTS …:stock`
    IsWarm,
    /// `TIME`
    Time,
    /// `SADD`
    AddUsers(List, Vec<UserId>),
    /// `SREM`
    RemoveUsers(List, Vec<UserId>),
    /// `SET …:attempt:<user>:<tag> <generation> PX <ms>`
    Attempt {
        user: UserId,
        tag: AttemptTag,
        generation: u64,
    },
    /// `HGET …:bought:<bucket> <user>`
    OrdersOf(UserId),
    /// `HSCAN …:bought:<bucket>`
    Settled { bucket: u32 },
    /// `HSCAN …:claims`
    Claims,
    /// `ZADD …:pending NX <deadline_ms> <user>`
    Deadline { user: UserId, deadline_ms: u64 },
    /// `ZCOUNT …:pending -inf <due_ms>`
    DueCount { due_ms: u64 },
    /// `UNLINK`: so many keys, the stock among them or not. The origin sends the stock's with the ledger's.
    Unlink { keys: usize, has_stock: bool },
}

impl Call {
    /// Whether it changes nothing, whatever the shard holds.
    pub fn is_read(&self) -> bool {
        matches!(
            self,
            Self::Probe(_)
                | Self::Audit
                | Self::Overdue { .. }
                | Self::Epoch
                | Self::IsWarm
                | Self::Time
                | Self::OrdersOf(_)
                | Self::Settled { .. }
                | Self::Claims
                | Self::DueCount { .. }
        )
    }

    /// Reads a command to the shard whose keys begin with `prefix`, as [`prefix_of`] gives it.
    ///
    /// # Errors
    /// When no party sends it, or a key is of another shard.
    pub fn read(words: &[Vec<u8>], prefix: &[u8]) -> Result<Self, Refused> {
        match script(words)? {
            Some(Calls::BySource(script) | Calls::ByDigest(script)) => {
                let arguments = Arguments::of(words, prefix)?;
                arguments.read(script.name)
            }
            None => plain(words, prefix),
        }
    }
}

/// What all keys of one shard begin with, given any of them: up to the brace that closes their hash tag.
pub fn prefix_of(key: &[u8]) -> Option<&[u8]> {
    let end = key.iter().position(|byte| *byte == b'}')?;
    key.get(..=end)
}

/// What a key says behind its shard: `stock`, `bought:7`.
fn name<'k>(key: &'k [u8], prefix: &[u8]) -> Result<&'k str, Refused> {
    let rest = key
        .strip_prefix(prefix)
        .and_then(|rest| rest.strip_prefix(b":"));
    core::str::from_utf8(rest.ok_or(Refused)?).map_err(|_| Refused)
}

// --- scripts

/// The words behind the number of keys.
struct Arguments<'a> {
    keys: &'a [Vec<u8>],
    args: &'a [Vec<u8>],
}

impl<'a> Arguments<'a> {
    /// `EVAL <script> <number of keys> KEYS… ARGV…`
    fn of(words: &'a [Vec<u8>], prefix: &[u8]) -> Result<Self, Refused> {
        let count: usize = number(words.get(2))?;
        let rest = words.get(3..).ok_or(Refused)?;
        let (keys, args) = rest.split_at_checked(count).ok_or(Refused)?;
        match !keys.is_empty() && keys.iter().all(|key| prefix_of(key) == Some(prefix)) {
            true => Ok(Self { keys, args }),
            false => Err(Refused),
        }
    }

    fn number<T: FromStr>(&self, at: usize) -> Result<T, Refused> {
        number(self.args.get(at))
    }

    fn user(&self, at: usize) -> Result<UserId, Refused> {
        user(self.args.get(at))
    }

    fn text(&self, at: usize) -> Result<String, Refused> {
        text(self.args.get(at)).map(String::from)
    }

    fn read(&self, name: &str) -> Result<Call, Refused> {
        Ok(match name {
            "claim" => Call::Claim(self.groups()?),
            "probe" => Call::Probe(self.keys.len() / 4),
            "release" => Call::Release(self.releases()?),
            "settle" => Call::Settle {
                user: self.user(0)?,
                generation: self.number(2)?,
                deduction: deduction(self.args.get(3).ok_or(Refused)?),
            },
            "charge" => Call::Charge {
                user: self.user(0)?,
                generation: self.number(2)?,
            },
            "cancel" => Call::Cancel {
                user: self.user(0)?,
                generation: self.number(2)?,
            },
            "lend" => Call::Lend {
                to_shard: self.number(0)?,
                wanted: self.number(1)?,
            },
            "deposit" => Call::Deposit {
                from_shard: self.number(0)?,
                transfer: Transfer {
                    id: self.number(1)?,
                    units: self.number(2)?,
                },
            },
            "settle_transfer" => Call::SettleTransfer {
                to_shard: self.number(0)?,
                id: self.number(1)?,
            },
            _ => return self.read_of_origin(name),
        })
    }

    /// What only the origin calls.
    fn read_of_origin(&self, name: &str) -> Result<Call, Refused> {
        Ok(match name {
            "audit" => Call::Audit,
            "overdue" => Call::Overdue {
                grace_ms: self.number(0)?,
                limit: self.number(1)?,
            },
            "recount" => Call::Recount(Audit {
                version: self.number(0)?,
                open: self.number(1)?,
                held: self.number(2)?,
                bought: self.number(3)?,
                deferred: self.number(4)?,
                checksum: self.number(5)?,
                ..Audit::default()
            }),
            "restock" => Call::Restock {
                units: self.number(0)?,
                seen: Audit {
                    epoch: self.number(1)?,
                    sequence: self.number(2)?,
                    version: self.number(3)?,
                    ..Audit::default()
                },
            },
            "stock_change" => Call::StockChange(StockChange {
                number: self.number(0)?,
                units: self.number(1)?,
            }),
            "correct" => Call::Correct {
                user: self.user(0)?,
                seen: orders(self.args.get(2))?,
                known: orders(self.args.get(3))?,
            },
            "warm" => Call::Warm {
                units: self.number(0)?,
                token: Some(self.text(1)?).filter(|token| token != "-"),
            },
            "wipe" => Call::Wipe {
                token: self.text(0)?,
                lease_ms: self.number(1)?,
            },
            "restore" => Call::Restore {
                token: self.text(0)?,
                users: self.restored()?,
            },
            _ => return Err(Refused),
        })
    }

    fn restored(&self) -> Result<Vec<(UserId, Vec<OrderEntry>)>, Refused> {
        let entries = self.args.get(1..).ok_or(Refused)?.chunks(4);
        let entry = |entry: &[Vec<u8>]| Ok((user(entry.first())?, orders(entry.get(3))?));
        entries.map(entry).collect()
    }

    fn releases(&self) -> Result<Vec<(UserId, u64, ReleaseKind)>, Refused> {
        let one = |claim: &[Vec<u8>]| {
            let kind = match claim.get(3).map(Vec::as_slice) {
                Some(b"decided") => ReleaseKind::Decided,
                Some(b"void") => ReleaseKind::Void,
                _ => ReleaseKind::Delivery(number(claim.get(3))?),
            };
            Ok((user(claim.first())?, number(claim.get(2))?, kind))
        };
        self.args.chunks(4).map(one).collect()
    }

    /// See `claim.lua`: groups of one shard may follow each other.
    fn groups(&self) -> Result<Vec<Group>, Refused> {
        let count: usize = self.number(0)?;
        if self.keys.len() < count.saturating_mul(KEYS_A_GROUP) {
            return Err(Refused);
        }
        let mut at = 1;
        let mut groups = Vec::new();
        for _ in 0..count {
            let letters = self.args.get(at + 3).ok_or(Refused)?;
            // A byte a user.
            let users = self.args.get(at + 4).ok_or(Refused)?.len();
            let has = |letter: u8| letters.contains(&letter);
            let terms = ClaimTerms {
                ttl_ms: self.number(at)?,
                user_cap: self.number(at + 1)?,
                quantity: self.number(at + 2)?,
                checks: Checks {
                    blocked: has(b'b'),
                    reserved: has(b'r'),
                    drain: has(b'd'),
                },
            };
            let first = at + 5;
            let claimant = |index: usize| {
                let tag = match has(b'k') {
                    true => tag(self.args.get(first + users + index)),
                    false => None,
                };
                Ok((self.user(first + index)?, tag))
            };
            let users_of_group = (0..users).map(claimant).collect::<Result<_, _>>()?;
            groups.push(Group {
                terms,
                users: users_of_group,
            });
            at = first + users + if has(b'k') { users } else { 0 };
        }
        Ok(groups)
    }
}

// --- plain commands

fn plain(words: &[Vec<u8>], prefix: &[u8]) -> Result<Call, Refused> {
    let (command, rest) = words.split_first().ok_or(Refused)?;
    if command == b"TIME" {
        return Ok(Call::Time);
    }
    if command == b"UNLINK" {
        return unlink(rest, prefix);
    }
    let (key, rest) = rest.split_first().ok_or(Refused)?;
    let (kind, of_kind) = match name(key, prefix)?.split_once(':') {
        Some((kind, rest)) => (kind, Some(rest)),
        None => (name(key, prefix)?, None),
    };
    let list = match kind {
        "reserved" => Ok(List::Reserved),
        "blocked" => Ok(List::Blocked),
        _ => Err(Refused),
    };
    let users = || {
        rest.iter()
            .map(|word| user(Some(word)))
            .collect::<Result<_, _>>()
    };
    Ok(match (command.as_slice(), kind) {
        (b"GET", "epoch") => Call::Epoch,
        (b"EXISTS", "stock") => Call::IsWarm,
        (b"SADD", _) => Call::AddUsers(list?, users()?),
        (b"SREM", _) => Call::RemoveUsers(list?, users()?),
        (b"SET", "attempt") => {
            let (user_name, tag_hex) = of_kind
                .and_then(|rest| rest.rsplit_once(':'))
                .ok_or(Refused)?;
            Call::Attempt {
                user: UserId::new(user_name).map_err(|_| Refused)?,
                tag: AttemptTag::from_hex(tag_hex).ok_or(Refused)?,
                generation: number(rest.first())?,
            }
        }
        (b"HGET", "bought") => Call::OrdersOf(user(rest.first())?),
        (b"HSCAN", "bought") => Call::Settled {
            bucket: of_kind
                .and_then(|bucket| bucket.parse().ok())
                .ok_or(Refused)?,
        },
        (b"HSCAN", "claims") => Call::Claims,
        (b"ZADD", "pending") => Call::Deadline {
            deadline_ms: number(rest.get(1))?,
            user: user(rest.get(2))?,
        },
        (b"ZCOUNT", "pending") => Call::DueCount {
            due_ms: number(rest.get(1))?,
        },
        _ => return Err(Refused),
    })
}

fn unlink(keys: &[Vec<u8>], prefix: &[u8]) -> Result<Call, Refused> {
    let names = keys.iter().map(|key| name(key, prefix));
    let names: Vec<&str> = names.collect::<Result<_, _>>()?;
    Ok(Call::Unlink {
        keys: names.len(),
        has_stock: names.contains(&"stock"),
    })
}

// --- words

fn text(word: Option<&Vec<u8>>) -> Result<&str, Refused> {
    core::str::from_utf8(word.ok_or(Refused)?).map_err(|_| Refused)
}

fn number<T: FromStr>(word: Option<&Vec<u8>>) -> Result<T, Refused> {
    text(word)?.parse().map_err(|_| Refused)
}

fn user(word: Option<&Vec<u8>>) -> Result<UserId, Refused> {
    UserId::new(word.ok_or(Refused)?.as_slice()).map_err(|_| Refused)
}

/// Nothing for an attempt without a key.
fn tag(word: Option<&Vec<u8>>) -> Option<AttemptTag> {
    AttemptTag::from_hex(text(word).ok()?)
}

fn deduction(mark: &[u8]) -> Deduction {
    match mark {
        b":" => Deduction::AtOrder,
        _ => Deduction::AtPayment,
    }
}

/// A record's orders: `<generation>:<units>` or `<generation>~<units>`, commas between; `-` if there are none.
fn orders(word: Option<&Vec<u8>>) -> Result<Vec<OrderEntry>, Refused> {
    let record = text(word)?;
    if record == "-" {
        return Ok(Vec::new());
    }
    let entry = |text: &str| {
        let at = text.find([':', '~']).ok_or(Refused)?;
        let (generation, rest) = text.split_at(at);
        let mark = rest.as_bytes().get(..1).ok_or(Refused)?;
        Ok(OrderEntry {
            generation: generation.parse().map_err(|_| Refused)?,
            units: rest
                .get(1..)
                .and_then(|units| units.parse().ok())
                .ok_or(Refused)?,
            deduction: deduction(mark),
        })
    };
    record.split(',').map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn scripts_are_found_by_digests_that_are_made_once() {
        for known in scripts() {
            assert_eq!(digest(known), known.sha1_hex());
            let again = digest(known);
            assert!(core::ptr::eq(digest(known), again), "the same bytes");
            let call = |name: &[u8], by: &str| script(&[name.to_vec(), by.into()]);
            assert_eq!(
                call(b"EVALSHA", &known.sha1_hex()),
                Ok(Some(Calls::ByDigest(known)))
            );
            assert_eq!(
                call(b"EVAL", known.source),
                Ok(Some(Calls::BySource(known)))
            );
        }
        let unknown = vec![b"EVALSHA".to_vec(), b"da39".to_vec()];
        assert_eq!(script(&unknown), Err(Refused));
    }
}
