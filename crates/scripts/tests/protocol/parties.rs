//! The parties, each a process of single steps.

use weir_base::id::UserId;
use weir_base::resp::Value;
use weir_edge::shard::ShardCommand;
use weir_sale::ledger::{OpenClaim, ReleaseKind, Transfer};
use weir_sale::rebalance::{Rebalance, RebalanceCall, RebalanceEvent, RebalanceStep};
use weir_sale::redis::{claim, deposit, lend};

use super::sql::{ClaimName, Decision, OrderState, Sql};

/// A process, by its next step.
#[derive(Clone, Debug)]
pub enum Party {
    /// A gateway requests a claim.
    Claim { user: UserId, shard: u32 },
    /// The origin has a claim, and writes to SQL.
    Order {
        user: UserId,
        shard: u32,
        held: OpenClaim,
    },
    /// The reconciler has found a claim past its deadline.
    Overdue {
        user: UserId,
        shard: u32,
        held: OpenClaim,
    },
    /// Applies SQL's decision about a claim to Redis.
    Follow {
        user: UserId,
        name: ClaimName,
        decision: Decision,
    },
    /// Applies an order's new status to Redis.
    FollowOrder { name: ClaimName },
    /// A gateway returns a claim that it did not pass on.
    HandBack {
        user: UserId,
        shard: u32,
        generation: u64,
        delivery: u32,
    },
    /// Rebalances units.
    Rebalance {
        rebalance: Rebalance,
        ask: RebalanceCall,
    },
    /// The reconciler finishes a transfer.
    Deposit {
        from_shard: u32,
        to_shard: u32,
        transfer: Transfer,
    },
    /// The lender may delete the transfer.
    SettleTransfer {
        from_shard: u32,
        to_shard: u32,
        id: u64,
    },
}

impl Party {
    /// The next step's write, if it is a write to Redis.
    pub fn write(
        &self,
        claim: impl FnOnce(&UserId) -> ShardCommand,
        sql: &Sql,
    ) -> Option<(u32, ShardCommand)> {
        Some(match self {
            Self::Claim { user, shard } => (*shard, claim(user)),
            Self::Follow {
                user,
                name: (shard, generation),
                decision,
            } => (
                *shard,
                match *decision {
                    Decision::Settle(deduction) => ShardCommand::Settle {
                        user: user.clone(),
                        generation: *generation,
                        deduction,
                    },
                    Decision::Cancel => ShardCommand::Cancel {
                        user: user.clone(),
                        generation: *generation,
                    },
                    Decision::Release(kind) => {
                        ShardCommand::Release(vec![(user.clone(), *generation, kind)])
                    }
                },
            ),
            Self::FollowOrder { name } => {
                let order = sql.orders.get(name)?;
                let (user, generation) = (order.user.clone(), name.1);
                let write = match order.state {
                    OrderState::Cancelled => ShardCommand::Cancel { user, generation },
                    OrderState::Paid => ShardCommand::Charge { user, generation },
                    OrderState::Unpaid => return None,
                };
                (name.0, write)
            }
            Self::HandBack {
                user,
                shard,
                generation,
                delivery,
            } => {
                let kind = ReleaseKind::Delivery(*delivery);
                (
                    *shard,
                    ShardCommand::Release(vec![(user.clone(), *generation, kind)]),
                )
            }
            Self::Rebalance { rebalance, ask } => {
                let to_shard = rebalance.to_shard();
                match *ask {
                    RebalanceCall::Probe => return None,
                    RebalanceCall::Lend { from_shard, units } => (
                        from_shard,
                        ShardCommand::Lend {
                            to_shard,
                            wanted: units,
                        },
                    ),
                    RebalanceCall::Deposit {
                        from_shard,
                        transfer,
                    } => (
                        to_shard,
                        ShardCommand::Deposit {
                            from_shard,
                            transfer,
                        },
                    ),
                    RebalanceCall::SettleTransfer { from_shard, id } => {
                        (from_shard, ShardCommand::SettleTransfer { to_shard, id })
                    }
                }
            }
            &Self::Deposit {
                from_shard,
                to_shard,
                transfer,
            } => (
                to_shard,
                ShardCommand::Deposit {
                    from_shard,
                    transfer,
                },
            ),
            &Self::SettleTransfer {
                from_shard,
                to_shard,
                id,
            } => (from_shard, ShardCommand::SettleTransfer { to_shard, id }),
            Self::Order { .. } | Self::Overdue { .. } => return None,
        })
    }

    /// Continues after Redis' reply.
    pub fn after(self, reply: &Value, sql: &mut Sql) -> Option<Self> {
        match self {
            Self::Claim { user, shard } => {
                use weir_sale::ledger::ClaimReply::{Granted, GrantedAgain};
                match claim::parse(reply, 1).unwrap()[0] {
                    Granted(held) | GrantedAgain(held) => Some(Self::Order { user, shard, held }),
                    _ => None,
                }
            }
            Self::Rebalance { mut rebalance, ask } => {
                let event = match ask {
                    RebalanceCall::Lend { from_shard, .. } => {
                        RebalanceEvent::Lend(from_shard, lend::parse(reply).unwrap())
                    }
                    RebalanceCall::Deposit {
                        from_shard,
                        transfer,
                    } => {
                        let reply = deposit::parse(reply).unwrap();
                        RebalanceEvent::Deposit(from_shard, transfer, reply)
                    }
                    _ => return None,
                };
                next(&mut rebalance, &event)
            }
            Self::Deposit {
                from_shard,
                to_shard,
                transfer,
            } => Some(Self::SettleTransfer {
                from_shard,
                to_shard,
                id: transfer.id,
            }),
            Self::FollowOrder { name } => {
                if let Some(order) = sql.orders.get_mut(&name) {
                    order.is_unfollowed = false;
                }
                None
            }
            _ => None,
        }
    }
}

/// The next step of a rebalance.
pub fn next(rebalance: &mut Rebalance, event: &RebalanceEvent) -> Option<Party> {
    let ask = match rebalance.on_event(event) {
        RebalanceStep::Call(ask) => ask,
        RebalanceStep::Done(_, last) => last?,
    };
    Some(Party::Rebalance {
        rebalance: rebalance.clone(),
        ask,
    })
}
