//! A shard: commands in, replies out.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use weir_base::resp::{Value, decode};
use weir_sale::ledger::{Audit, ReleaseKind, ShardLedger};
use weir_sale::shard::bucket;

use crate::shard::call::{Call, Calls, List, Refused, digest, prefix_of, script, words};
use crate::shard::reply;

/// One shard of a sale.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// What its keys begin with.
    prefix: Vec<u8>,
    ledger: ShardLedger,
    /// The digests of scripts that it knows.
    scripts: BTreeSet<String>,
}

/// What has come of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Their replies.
    pub replies: Vec<u8>,
    /// Whether one may have changed the shard: those that only read need not be done again.
    pub is_change: bool,
}

impl Shard {
    /// One that has never been used, with the [prefix](prefix_of) of this key.
    ///
    /// # Errors
    /// When the key has no hash tag.
    pub fn new(key: &[u8]) -> Result<Self, Refused> {
        Ok(Self {
            prefix: prefix_of(key).ok_or(Refused)?.to_vec(),
            ledger: ShardLedger::default(),
            scripts: BTreeSet::new(),
        })
    }

    /// What it holds.
    pub fn audit(&self) -> Audit {
        self.ledger.audit()
    }

    /// Runs commands at this time, in microseconds since the Unix epoch; their replies. A time before that of the last commands
    /// is that of the last ones: numbers that are given out never go back.
    ///
    /// # Errors
    /// When one is no command of this shard: then none has run.
    pub fn run(&mut self, commands: &[u8], now_us: u64) -> Result<Done, Refused> {
        let mut rest = commands;
        let mut asked = Vec::new();
        while !rest.is_empty() {
            let (command, used) = decode(rest).map_err(|_| Refused)?;
            rest = rest.get(used..).ok_or(Refused)?;
            let words = words(command)?;
            asked.push((script(&words)?, Call::read(&words, &self.prefix)?));
        }
        self.ledger.set_clock_us(now_us);
        let mut replies = Vec::new();
        let is_change = asked.iter().any(|(_, call)| !call.is_read());
        for (calls, call) in asked {
            let value = match self.knows(calls) {
                true => self.answer(call, now_us),
                false => Value::Error(b"NOSCRIPT No matching script. Please use EVAL.".to_vec()),
            };
            reply::encode(&value, &mut replies);
        }
        Ok(Done { replies, is_change })
    }

    /// Whether it can run what is called.
    fn knows(&mut self, calls: Option<Calls>) -> bool {
        match calls {
            Some(Calls::BySource(script)) => {
                let digest = digest(script);
                if !self.scripts.contains(digest) {
                    self.scripts.insert(digest.into());
                }
                true
            }
            Some(Calls::ByDigest(script)) => self.scripts.contains(digest(script)),
            None => true,
        }
    }

    fn answer(&mut self, call: Call, now_us: u64) -> Value {
        let ledger = &mut self.ledger;
        match call {
            Call::Claim(groups) => {
                let mut replies = Vec::new();
                for group in &groups {
                    for (user, attempt) in &group.users {
                        replies.push(ledger.claim_for(user, *attempt, group.terms));
                    }
                }
                reply::claims(&replies)
            }
            Call::Probe(times) => Value::Array(vec![reply::probe(&ledger.probe()); times]),
            Call::Release(claims) => {
                let one = |(user, generation, kind): &(_, u64, ReleaseKind)| {
                    ledger.release(user, *generation, *kind)
                };
                let replies: Vec<_> = claims.iter().map(one).collect();
                reply::releases(&replies)
            }
            Call::Settle {
                user,
                generation,
                deduction,
            } => reply::settle(ledger.settle(&user, generation, deduction)),
            Call::Charge { user, generation } => reply::followed(ledger.charge(&user, generation)),
            Call::Cancel { user, generation } => reply::followed(ledger.cancel(&user, generation)),
            Call::Lend { to_shard, wanted } => reply::lend(ledger.lend(to_shard, wanted)),
            Call::Deposit {
                from_shard,
                transfer,
            } => reply::deposit(ledger.deposit(from_shard, transfer)),
            Call::SettleTransfer { to_shard, id } => {
                reply::flag(ledger.settle_transfer(to_shard, id))
            }
            other => self.answer_origin(other, now_us),
        }
    }

    /// What only the origin asks.
    fn answer_origin(&mut self, call: Call, now_us: u64) -> Value {
        let ledger = &mut self.ledger;
        match call {
            Call::Audit => reply::audit(&ledger.audit()),
            Call::Overdue { grace_ms, limit } => {
                let mut claims = match u64::try_from(grace_ms) {
                    Ok(grace_ms) => ledger.overdue(grace_ms, limit),
                    Err(_) => ledger.open(),
                };
                claims.truncate(limit);
                reply::overdue(&claims)
            }
            Call::Recount(sums) => reply::flag(ledger.recount(&sums)),
            Call::Restock { units, seen } => reply::flag(ledger.restock(units, &seen)),
            Call::StockChange(change) => reply::changed(ledger.change(change)),
            Call::Correct { user, seen, known } => {
                reply::flag(ledger.correct(&user, &seen, &known))
            }
            Call::Warm { units, token } => reply::flag(ledger.warm(units, token.as_deref())),
            Call::Wipe { token, lease_ms } => reply::wiped(ledger.wipe(&token, lease_ms)),
            Call::Restore { token, users } => {
                let is_on = ledger.renew(&token);
                for (user, orders) in users.iter().filter(|_| is_on) {
                    ledger.restore(&token, user, orders);
                }
                reply::flag(is_on)
            }
            other => self.answer_plain(other, now_us),
        }
    }

    fn answer_plain(&mut self, call: Call, now_us: u64) -> Value {
        let ledger = &mut self.ledger;
        let page = |fields: Vec<Value>| Value::Array(vec![reply::text("0"), Value::Array(fields)]);
        match call {
            // The ledger's epoch is 0 as long as the key is not there.
            Call::Epoch => match ledger.probe().epoch {
                0 => Value::Null,
                epoch => reply::text(epoch.to_string()),
            },
            Call::IsWarm => reply::flag(ledger.probe().stock.is_some()),
            Call::Time => {
                let parts = [now_us / 1_000_000, now_us % 1_000_000];
                Value::Array(parts.map(|part| reply::text(part.to_string())).to_vec())
            }
            Call::AddUsers(List::Reserved, users) => {
                users.iter().for_each(|user| ledger.reserve(user));
                reply::integer(users.len() as u64)
            }
            Call::AddUsers(List::Blocked, users) => {
                users.iter().for_each(|user| ledger.block(user, true));
                reply::integer(users.len() as u64)
            }
            Call::RemoveUsers(List::Blocked, users) => {
                users.iter().for_each(|user| ledger.block(user, false));
                reply::integer(users.len() as u64)
            }
            Call::Attempt {
                user,
                tag,
                generation,
            } => {
                ledger.note_attempt(&user, tag, generation);
                Value::Simple(b"OK".to_vec())
            }
            Call::OrdersOf(user) => match ledger.orders_of(&user) {
                Some(orders) if !orders.is_empty() => reply::orders(&orders),
                _ => Value::Null,
            },
            // All of a bucket in one page.
            Call::Settled { bucket: number } => {
                let users = ledger.settled();
                let users = users.filter(|(user, _)| bucket(user) == number);
                page(
                    users
                        .flat_map(|(user, orders)| {
                            [reply::text(user.as_str()), reply::orders(orders)]
                        })
                        .collect(),
                )
            }
            Call::Claims => page(
                ledger
                    .claimed()
                    .flat_map(|(user, held, deadline_ms)| {
                        let record = format!("0 {held} {deadline_ms} ");
                        [reply::text(user.as_str()), reply::text(record)]
                    })
                    .collect(),
            ),
            Call::Deadline { user, deadline_ms } => {
                ledger.restore_deadline(&user, deadline_ms);
                reply::integer(1)
            }
            Call::DueCount { due_ms } => {
                let due = ledger
                    .claimed()
                    .filter(|(_, _, deadline_ms)| *deadline_ms <= due_ms);
                reply::integer(due.count() as u64)
            }
            Call::Unlink { keys, has_stock } => {
                // All of a ledger goes with its stock: nothing else of it is ever deleted alone.
                if has_stock {
                    *ledger = ShardLedger::default();
                    ledger.set_clock_us(now_us);
                }
                reply::integer(keys as u64)
            }
            _ => Value::Error(b"ERR no command of a shard".to_vec()),
        }
    }
}
