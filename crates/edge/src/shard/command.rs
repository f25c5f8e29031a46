//! Commands to the objects of an edge.
//!
//! An object accepts [`ObjectCommands`] as JSON. Engines, gateways and the origin send Redis commands instead, so the
//! edge and the shard proxy translate. [`ShardCommand::from_redis`] and [`LinkCommand::from_redis`] refuse commands
//! that Weir never sends, and keys of another object.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::str::FromStr;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use weir_base::id::UserId;
use weir_base::resp::decode;
use weir_sale::idempotency::AttemptTag;
use weir_sale::ledger::{
    Audit, Checks, ClaimTerms, Deduction, OrderEntry, ReleaseKind, StockChange, Transfer,
};
use weir_sale::redis::keys::ShardKeys;
use weir_sale::redis::record::read_orders;
use weir_sale::redis::{
    audit, cancel, charge, claim, correct, deposit, lend, overdue, probe, raise_mark, recount,
    release, restock, restore, settle, settle_transfer, stock_change, warm, wipe,
};
use weir_scripts::{Call, Script};

use crate::knowledge::words;
use crate::shard::link::{LinkCommand, is_link};

/// Number of KEYS per group of a claim. The keys of the sets to check follow after all groups.
pub const KEYS_PER_CLAIM_GROUP: usize = 7;

/// Number of KEYS per shard of a probe.
pub const KEYS_PER_PROBE: usize = 4;

/// Weir never sends this command, or not to this object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object does not have this command")]
pub struct UnexpectedCommand;

/// Commands to one object, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectCommands {
    /// Commands to a shard of a sale.
    Shard(Vec<ShardCommand>),
    /// Commands to a short link.
    Link(Vec<LinkCommand>),
}

impl ObjectCommands {
    /// Parses RESP commands about keys with the prefix `object`.
    ///
    /// # Errors
    /// If the object does not support a command.
    pub fn from_redis(mut commands: &[u8], object: &[u8]) -> Result<Self, UnexpectedCommand> {
        let mut all = match is_link(object) {
            true => Self::Link(Vec::new()),
            false => Self::Shard(Vec::new()),
        };
        while !commands.is_empty() {
            let (command, used) = decode(commands).map_err(|_| UnexpectedCommand)?;
            commands = commands.get(used..).ok_or(UnexpectedCommand)?;
            let words = words(&command).ok_or(UnexpectedCommand)?;
            match &mut all {
                Self::Shard(all) => all.push(ShardCommand::from_redis(&words, object)?),
                Self::Link(all) => all.push(LinkCommand::from_redis(&words, object)?),
            }
        }
        Ok(all)
    }

    /// The JSON for objects.
    pub fn to_json(&self) -> String {
        // Only maps with non-string keys fail, and there are none.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Parses the JSON.
    ///
    /// # Errors
    /// If it is malformed, or from a version with other commands.
    pub fn from_json(json: &[u8]) -> Result<Self, UnexpectedCommand> {
        serde_json::from_slice(json).map_err(|_| UnexpectedCommand)
    }
}

/// The requests of a claim with equal terms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The terms of each request.
    pub terms: ClaimTerms,
    /// The users, each with the attempt's tag, if it has one.
    pub users: Vec<(UserId, Option<AttemptTag>)>,
}

/// A command to one shard of a sale.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    missing_docs,
    reason = "fields are the arguments that the scripts document"
)]
pub enum ShardCommand {
    /// `claim.lua`
    Claim(Vec<Group>),
    /// `probe.lua`, with the keys of this shard repeated this many times.
    Probe(u16),
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
    /// `overdue.lua`. Below 0, every open claim counts.
    Overdue { grace_ms: i64, limit: u32 },
    /// `recount.lua`: the sums, and the version that they belong to.
    Recount(Audit),
    /// `raise_mark.lua`: the mark, and the epoch, sequence and version that the audit saw.
    RaiseMark { mark: u64, seen: Audit },
    /// `restock.lua`: the units, and the epoch, sequence and version that the audit saw.
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
    /// `SADD …:reserved:<bucket> <user>…`
    Reserve(Vec<UserId>),
    /// `SADD …:blocked:<bucket> <user>…`
    Block(Vec<UserId>),
    /// `SREM …:blocked:<bucket> <user>…`
    Unblock(Vec<UserId>),
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
    /// `UNLINK`: the number of keys, and whether the stock is among them. The origin deletes the stock only with the
    /// whole ledger.
    Unlink { keys: usize, has_stock: bool },
}

impl ShardCommand {
    /// The call of the script, for a Redis with this shard's keys; `None` for a plain command.
    pub fn to_redis(&self, keys: &ShardKeys) -> Option<Call> {
        Some(match self {
            Self::Claim(groups) => {
                let groups = groups.iter().map(|group| claim::Group {
                    keys: keys.clone(),
                    terms: group.terms,
                    users: group.users.iter().map(|(user, _)| user).collect(),
                    attempts: group.users.iter().map(|(_, tag)| *tag).collect(),
                });
                claim::call(&Vec::from_iter(groups))
            }
            Self::Probe(times) => probe::call(&vec![keys.clone(); usize::from(*times)]),
            Self::Release(claims) => {
                let claims = claims
                    .iter()
                    .map(|(user, generation, kind)| (user, *generation, *kind));
                release::call(keys, &Vec::from_iter(claims))
            }
            Self::Settle {
                user,
                generation,
                deduction,
            } => settle::call(keys, user, *generation, *deduction),
            Self::Charge { user, generation } => charge::call(keys, user, *generation),
            Self::Cancel { user, generation } => cancel::call(keys, user, *generation),
            Self::Lend {
                to_shard,
                wanted: requested,
            } => lend::call(keys, *to_shard, *requested),
            Self::Deposit {
                from_shard,
                transfer,
            } => deposit::call(keys, *from_shard, *transfer),
            Self::SettleTransfer { to_shard, id } => settle_transfer::call(keys, *to_shard, *id),
            Self::Audit => audit::call(keys),
            Self::Overdue { grace_ms, limit } => match u64::try_from(*grace_ms) {
                Ok(grace_ms) => overdue::call(keys, grace_ms, *limit),
                Err(_) => overdue::all(keys, *limit),
            },
            Self::Recount(sums) => recount::call(keys, sums),
            Self::RaiseMark {
                mark,
                seen: observed,
            } => raise_mark::call(keys, *mark, observed),
            Self::Restock {
                units,
                seen: observed,
            } => restock::call(keys, *units, observed),
            Self::StockChange(change) => stock_change::call(keys, *change),
            Self::Correct {
                user,
                seen: observed,
                known: existing,
            } => correct::call(keys, user, observed, existing),
            Self::Warm { units, token } => warm::call(keys, *units, token.as_deref()),
            Self::Wipe { token, lease_ms } => wipe::call(keys, token, *lease_ms),
            Self::Restore { token, users } => {
                let users = users.iter().map(|(user, orders)| (user, orders.as_slice()));
                restore::call(keys, token, &Vec::from_iter(users))
            }
            _ => return None,
        })
    }

    /// Parses a command to the shard with the key prefix `prefix`: see [`prefix_of`].
    ///
    /// # Errors
    /// If Weir never sends it, or a key belongs to another shard.
    pub fn from_redis(words: &[&[u8]], prefix: &[u8]) -> Result<Self, UnexpectedCommand> {
        let command = match script_call(words, prefix)? {
            Some((script, keys, args)) => Self::from_script(script.name, keys, args),
            None => Self::from_plain(words, prefix),
        };
        command.ok_or(UnexpectedCommand)
    }

    /// Parses a call of a script; `None` if Weir never calls it that way. The shard of the keys is not checked.
    pub fn from_script<W: AsRef<[u8]>>(name: &str, keys: &[W], args: &[W]) -> Option<Self> {
        let mut args = ArgumentReader(args.iter());
        Some(match name {
            "claim" => Self::Claim(args.groups(keys.len())?),
            "probe" => Self::Probe(u16::try_from(keys.len() / KEYS_PER_PROBE).ok()?),
            "release" => Self::Release(args.all(|args| {
                Some((
                    args.user_with_bucket()?,
                    args.number()?,
                    args.release_kind()?,
                ))
            })?),
            "settle" => Self::Settle {
                user: args.user_with_bucket()?,
                generation: args.number()?,
                deduction: match args.word()? {
                    b":" => Deduction::AtOrder,
                    _ => Deduction::AtPayment,
                },
            },
            "charge" => Self::Charge {
                user: args.user_with_bucket()?,
                generation: args.number()?,
            },
            "cancel" => Self::Cancel {
                user: args.user_with_bucket()?,
                generation: args.number()?,
            },
            "lend" => Self::Lend {
                to_shard: args.number()?,
                wanted: args.number()?,
            },
            "deposit" => Self::Deposit {
                from_shard: args.number()?,
                transfer: Transfer {
                    id: args.number()?,
                    units: args.number()?,
                },
            },
            "settle_transfer" => Self::SettleTransfer {
                to_shard: args.number()?,
                id: args.number()?,
            },
            _ => return Self::from_script_of_origin(name, args),
        })
    }

    /// Scripts that only the origin calls.
    fn from_script_of_origin<W: AsRef<[u8]>>(
        name: &str,
        mut args: ArgumentReader<'_, W>,
    ) -> Option<Self> {
        Some(match name {
            "audit" => Self::Audit,
            "overdue" => Self::Overdue {
                grace_ms: args.number()?,
                limit: args.number()?,
            },
            "recount" => Self::Recount(Audit {
                version: args.number()?,
                open: args.number()?,
                held: args.number()?,
                bought: args.number()?,
                deferred: args.number()?,
                checksum: args.number()?,
                ..Audit::default()
            }),
            "raise_mark" => Self::RaiseMark {
                mark: args.number()?,
                seen: Audit {
                    epoch: args.number()?,
                    sequence: args.number()?,
                    version: args.number()?,
                    ..Audit::default()
                },
            },
            "restock" => Self::Restock {
                units: args.number()?,
                seen: Audit {
                    epoch: args.number()?,
                    sequence: args.number()?,
                    version: args.number()?,
                    ..Audit::default()
                },
            },
            "stock_change" => Self::StockChange(StockChange {
                number: args.number()?,
                units: args.number()?,
            }),
            "correct" => Self::Correct {
                user: args.user_with_bucket()?,
                seen: args.orders()?,
                known: args.orders()?,
            },
            "warm" => Self::Warm {
                units: args.number()?,
                token: Some(args.text()?)
                    .filter(|token| *token != "-")
                    .map(String::from),
            },
            "wipe" => Self::Wipe {
                token: args.text()?.into(),
                lease_ms: args.number()?,
            },
            "restore" => Self::Restore {
                token: args.text()?.into(),
                users: args.all(|args| {
                    let user = args.user_with_bucket()?;
                    // The generation of the last order.
                    args.word()?;
                    Some((user, args.orders()?))
                })?,
            },
            _ => return None,
        })
    }

    fn from_plain(words: &[&[u8]], prefix: &[u8]) -> Option<Self> {
        let (command, rest) = words.split_first()?;
        let (key, more) = match (*command, rest.split_first()) {
            (b"TIME", _) => return Some(Self::Time),
            (b"UNLINK", _) => {
                let names = rest.iter().map(|key| name(key, prefix));
                let names = names.collect::<Option<Vec<_>>>()?;
                return Some(Self::Unlink {
                    keys: names.len(),
                    has_stock: names.contains(&"stock"),
                });
            }
            (_, first) => first?,
        };
        let (kind, of_kind) = match name(key, prefix)?.split_once(':') {
            Some((kind, of_kind)) => (kind, of_kind),
            None => (name(key, prefix)?, ""),
        };
        let mut args = ArgumentReader(more.iter());
        Some(match (*command, kind) {
            (b"GET", "epoch") => Self::Epoch,
            (b"EXISTS", "stock") => Self::IsWarm,
            (b"SADD", "reserved") => Self::Reserve(args.all(ArgumentReader::user)?),
            (b"SADD", "blocked") => Self::Block(args.all(ArgumentReader::user)?),
            (b"SREM", "blocked") => Self::Unblock(args.all(ArgumentReader::user)?),
            (b"SET", "attempt") => {
                let (user, tag) = of_kind.rsplit_once(':')?;
                Self::Attempt {
                    user: UserId::new(user).ok()?,
                    tag: AttemptTag::from_hex(tag)?,
                    generation: args.number()?,
                }
            }
            (b"HGET", "bought") => Self::OrdersOf(args.user()?),
            (b"HSCAN", "bought") => Self::Settled {
                bucket: of_kind.parse().ok()?,
            },
            (b"HSCAN", "claims") => Self::Claims,
            (b"ZADD", "pending") => {
                args.word()?;
                let deadline_ms = args.number()?;
                Self::Deadline {
                    user: args.user()?,
                    deadline_ms,
                }
            }
            (b"ZCOUNT", "pending") => {
                args.word()?;
                Self::DueCount {
                    due_ms: args.number()?,
                }
            }
            _ => return None,
        })
    }
}

// --- keys and scripts

/// The common prefix of an object's keys, given any of them: up to the closing brace of the hash tag.
pub fn prefix_of(key: &[u8]) -> Option<&[u8]> {
    let end = key.iter().position(|byte| *byte == b'}')?;
    key.get(..=end)
}

/// The suffix of a shard's key: `stock`, `bought:7`.
fn name<'k>(key: &'k [u8], prefix: &[u8]) -> Option<&'k str> {
    let rest = key.strip_prefix(prefix)?.strip_prefix(b":")?;
    core::str::from_utf8(rest).ok()
}

/// All scripts that an object supports.
fn scripts() -> impl Iterator<Item = &'static Script> {
    let sale = weir_sale::redis::SCRIPTS.iter();
    sale.chain(weir_link::redis::SCRIPTS).copied()
}

/// Scripts by the digest of their source. Computing a digest takes longer than most commands.
static BY_DIGEST: LazyLock<BTreeMap<String, &'static Script>> = LazyLock::new(|| {
    scripts()
        .map(|script| (script.sha1_hex(), script))
        .collect()
});

/// A script, its KEYS and its ARGV.
type ScriptCall<'w> = (&'static Script, &'w [&'w [u8]], &'w [&'w [u8]]);

/// Parses `EVAL <script> <number of keys> KEYS… ARGV…`, or the same by digest; `None` for a plain command. A digest
/// works without a preceding script, because both ends have all scripts.
///
/// # Errors
/// If the script is unknown, or a key belongs to another object.
pub(crate) fn script_call<'w>(
    words: &'w [&'w [u8]],
    prefix: &[u8],
) -> Result<Option<ScriptCall<'w>>, UnexpectedCommand> {
    let (script, count, rest) = match words {
        [b"EVAL", source, count, rest @ ..] => {
            let script = scripts().find(|script| script.source.as_bytes() == *source);
            (script, count, rest)
        }
        [b"EVALSHA", digest, count, rest @ ..] => {
            let digest = core::str::from_utf8(digest).map_err(|_| UnexpectedCommand)?;
            (BY_DIGEST.get(digest).copied(), count, rest)
        }
        _ => return Ok(None),
    };
    let count = number(count).ok_or(UnexpectedCommand)?;
    let (keys, args) = rest.split_at_checked(count).ok_or(UnexpectedCommand)?;
    let is_own = |key: &&[u8]| prefix_of(key) == Some(prefix);
    match !keys.is_empty() && keys.iter().all(is_own) {
        true => Ok(Some((script.ok_or(UnexpectedCommand)?, keys, args))),
        false => Err(UnexpectedCommand),
    }
}

// --- words

/// A decimal number.
pub(crate) fn number<T: FromStr>(word: &[u8]) -> Option<T> {
    core::str::from_utf8(word).ok()?.parse().ok()
}

/// Reads words in sequence.
struct ArgumentReader<'a, W>(core::slice::Iter<'a, W>);

impl<'a, W: AsRef<[u8]>> ArgumentReader<'a, W> {
    fn word(&mut self) -> Option<&'a [u8]> {
        self.0.next().map(AsRef::as_ref)
    }

    fn text(&mut self) -> Option<&'a str> {
        core::str::from_utf8(self.word()?).ok()
    }

    fn number<T: FromStr>(&mut self) -> Option<T> {
        number(self.word()?)
    }

    fn user(&mut self) -> Option<UserId> {
        UserId::new(self.word()?).ok()
    }

    fn user_with_bucket(&mut self) -> Option<UserId> {
        let user = self.user()?;
        self.word()?;
        Some(user)
    }

    fn orders(&mut self) -> Option<Vec<OrderEntry>> {
        match self.word()? {
            b"-" => Some(Vec::new()),
            orders => read_orders(orders),
        }
    }

    fn release_kind(&mut self) -> Option<ReleaseKind> {
        Some(match self.word()? {
            b"decided" => ReleaseKind::Decided,
            b"void" => ReleaseKind::Void,
            delivery => ReleaseKind::Delivery(number(delivery)?),
        })
    }

    /// Reads all remaining words.
    fn all<T>(&mut self, mut read: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut all = Vec::new();
        while self.0.len() > 0 {
            all.push(read(self)?);
        }
        Some(all)
    }

    /// See `claim.lua`.
    fn groups(&mut self, keys: usize) -> Option<Vec<Group>> {
        let count: usize = self.number()?;
        let has_keys = keys >= count.saturating_mul(KEYS_PER_CLAIM_GROUP);
        let groups = (0..count).map(|_| self.group());
        has_keys.then(|| groups.collect())?
    }

    fn group(&mut self) -> Option<Group> {
        let (ttl_ms, user_cap, quantity) = (self.number()?, self.number()?, self.number()?);
        let letters = self.word()?;
        let has = |letter: u8| letters.contains(&letter);
        let terms = ClaimTerms {
            ttl_ms,
            user_cap,
            quantity,
            checks: Checks {
                blocked: has(b'b'),
                reserved: has(b'r'),
                drain: has(b'd'),
            },
        };
        // Their buckets, one byte each.
        let count = self.word()?.len();
        let users = (0..count)
            .map(|_| self.user())
            .collect::<Option<Vec<_>>>()?;
        let with_tag = |user| match has(b'k') {
            true => Some((user, AttemptTag::from_hex(self.text()?))),
            false => Some((user, None)),
        };
        let users = users.into_iter().map(with_tag).collect::<Option<_>>()?;
        Some(Group { terms, users })
    }
}
