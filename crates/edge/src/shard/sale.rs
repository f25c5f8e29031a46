//! A shard: commands in, replies out.

use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use weir_base::resp::Value;
use weir_sale::ledger::{Audit, ShardLedger};
use weir_sale::redis::record::write_orders;
use weir_sale::shard::bucket;

use crate::shard::command::ShardCommand;
use crate::shard::reply::{self, flag, integer, text};

/// One shard of a sale.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard(ShardLedger);

/// The outcome of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandsOutcome {
    /// Their replies in the Redis protocol.
    pub replies: Vec<u8>,
    /// Whether one may have changed the shard: reads need not be logged.
    pub is_change: bool,
}

impl Shard {
    /// The audit of its content.
    pub fn audit(&self) -> Audit {
        self.0.audit()
    }

    /// Runs commands at this time, in microseconds since the Unix epoch. A time before that of the previous commands is
    /// replaced by it, so that issued numbers never decrease.
    pub fn run(&mut self, commands: &[ShardCommand], now_us: u64) -> CommandsOutcome {
        self.0.set_clock_us(now_us);
        let mut done = CommandsOutcome {
            replies: Vec::new(),
            is_change: false,
        };
        for command in commands {
            let reply = command.read(&self.0, now_us);
            // The list of overdue claims only drops deadlines without a claim, and drops them again after a restart.
            done.is_change |= reply.is_none() && !matches!(command, ShardCommand::Overdue { .. });
            let reply = reply.unwrap_or_else(|| command.write(&mut self.0, now_us));
            reply::encode(&reply, &mut done.replies);
        }
        done
    }
}

impl ShardCommand {
    /// The reply of a read-only command; `None` for others. The shard's clock must be set to this time, in microseconds
    /// since the Unix epoch.
    pub fn read(&self, ledger: &ShardLedger, now_us: u64) -> Option<Value> {
        let page = |fields: Vec<Value>| Value::Array(vec![text("0"), Value::Array(fields)]);
        Some(match self {
            Self::Probe(times) => {
                Value::Array(vec![reply::probe(&ledger.probe()); usize::from(*times)])
            }
            Self::Audit => reply::audit(&ledger.audit()),
            // The ledger's epoch is 0 while the key does not exist.
            Self::Epoch => match ledger.probe().epoch {
                0 => Value::Null,
                epoch => text(epoch.to_string()),
            },
            Self::IsWarm => flag(ledger.probe().stock.is_some()),
            Self::Time => {
                let parts = [now_us / 1_000_000, now_us % 1_000_000];
                Value::Array(parts.map(|part| text(part.to_string())).to_vec())
            }
            Self::OrdersOf(user) => match ledger.orders_of(user) {
                Some(orders) if !orders.is_empty() => text(write_orders(&orders)),
                _ => Value::Null,
            },
            // The whole bucket in one page.
            Self::Settled { bucket: number } => {
                let users = ledger.settled().filter(|(user, _)| bucket(user) == *number);
                let fields = users
                    .flat_map(|(user, orders)| [text(user.as_str()), text(write_orders(orders))]);
                page(fields.collect())
            }
            Self::Claims => {
                let fields = ledger.claimed().flat_map(|(user, held, deadline_ms)| {
                    let record = format!("0 {held} {deadline_ms} ");
                    [text(user.as_str()), text(record)]
                });
                page(fields.collect())
            }
            Self::DueCount { due_ms } => {
                let due = ledger
                    .claimed()
                    .filter(|(_, _, deadline_ms)| deadline_ms <= due_ms);
                integer(due.count())
            }
            _ => return None,
        })
    }

    /// Runs a command that may change the shard, and returns the reply. As for [`ShardCommand::read`], the clock must
    /// be set.
    pub fn write(&self, ledger: &mut ShardLedger, now_us: u64) -> Value {
        match self {
            Self::Claim(groups) => {
                let asks = groups.iter().flat_map(|group| {
                    let terms = group.terms;
                    group
                        .users
                        .iter()
                        .map(move |(user, tag)| (user, *tag, terms))
                });
                let replies = asks.map(|(user, tag, terms)| ledger.claim_for(user, tag, terms));
                reply::claims(&Vec::from_iter(replies))
            }
            Self::Release(claims) => {
                let replies = claims.iter().map(|(user, generation, kind)| {
                    integer(ledger.release(user, *generation, *kind).code())
                });
                Value::Array(replies.collect())
            }
            Self::Settle {
                user,
                generation,
                deduction,
            } => integer(ledger.settle(user, *generation, *deduction).code()),
            Self::Charge { user, generation } => integer(ledger.charge(user, *generation).code()),
            Self::Cancel { user, generation } => integer(ledger.cancel(user, *generation).code()),
            Self::Lend {
                to_shard,
                wanted: requested,
            } => reply::lend(ledger.lend(*to_shard, *requested)),
            Self::Deposit {
                from_shard,
                transfer,
            } => integer(ledger.deposit(*from_shard, *transfer).code()),
            Self::SettleTransfer { to_shard, id } => flag(ledger.settle_transfer(*to_shard, *id)),
            Self::Attempt {
                user,
                tag,
                generation,
            } => {
                ledger.note_attempt(user, *tag, *generation);
                Value::Simple(b"OK".to_vec())
            }
            Self::Overdue { grace_ms, limit } => {
                let limit = *limit as usize;
                let mut claims = match u64::try_from(*grace_ms) {
                    Ok(grace_ms) => ledger.overdue(grace_ms, limit),
                    Err(_) => ledger.open(),
                };
                claims.truncate(limit);
                reply::overdue(&claims)
            }
            other => other.repair(ledger, now_us),
        }
    }

    /// Runs the origin's writes that rebuild and repair.
    fn repair(&self, ledger: &mut ShardLedger, now_us: u64) -> Value {
        match self {
            Self::Recount(sums) => flag(ledger.recount(sums)),
            Self::RaiseMark {
                mark,
                seen: observed,
            } => flag(ledger.raise_mark(*mark, observed)),
            Self::Restock {
                units,
                seen: observed,
            } => flag(ledger.restock(*units, observed)),
            Self::StockChange(change) => reply::changed(ledger.change(*change)),
            Self::Correct {
                user,
                seen: observed,
                known: existing,
            } => flag(ledger.correct(user, observed, existing)),
            Self::Warm { units, token } => flag(ledger.warm(*units, token.as_deref())),
            Self::Wipe { token, lease_ms } => integer(ledger.wipe(token, *lease_ms).code()),
            Self::Restore { token, users } => {
                let is_on = ledger.renew(token);
                for (user, orders) in users.iter().filter(|_| is_on) {
                    ledger.restore(token, user, orders);
                }
                flag(is_on)
            }
            Self::Reserve(users) => {
                users.iter().for_each(|user| ledger.reserve(user));
                integer(users.len())
            }
            Self::Block(users) => {
                users.iter().for_each(|user| ledger.block(user, true));
                integer(users.len())
            }
            Self::Unblock(users) => {
                users.iter().for_each(|user| ledger.block(user, false));
                integer(users.len())
            }
            Self::Deadline { user, deadline_ms } => {
                ledger.restore_deadline(user, *deadline_ms);
                integer(1)
            }
            Self::Unlink { keys, has_stock } => {
                // The stock is only deleted with the whole ledger.
                if *has_stock {
                    *ledger = ShardLedger::default();
                    ledger.set_clock_us(now_us);
                }
                integer(*keys)
            }
            _ => Value::Error(b"ERR unknown shard command".to_vec()),
        }
    }
}
