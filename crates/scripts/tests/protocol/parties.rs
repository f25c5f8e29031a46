//! The parties, each a process of single steps.

use weir_base::id::UserId;
use weir_sale::ledger::{OpenClaim, ReleaseKind, Transfer};
use weir_sale::rebalance::{Next, Rebalance, RebalanceCall, RebalanceEvent};

use super::shards::{Reply, Write};
use super::sql::{ClaimName, Decision, OrderState, Sql};

/// A process, by what it does next.
#[derive(Clone, Debug)]
pub enum Party {
    /// A gateway asks for a claim.
    Claim { user: UserId, shard: u32 },
    /// The origin has a claim, and asks SQL.
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
    /// Redis is to follow what SQL has decided about a claim.
    Follow {
        user: UserId,
        name: ClaimName,
        decision: Decision,
    },
    /// Redis is to follow what has become of an order.
    FollowOrder { name: ClaimName },
    /// A gateway gives back what it did not pass on.
    HandBack {
        user: UserId,
        shard: u32,
        generation: u64,
        delivery: u32,
    },
    /// Somebody moves units.
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
    /// The lender may forget it.
    SettleTransfer {
        from_shard: u32,
        to_shard: u32,
        id: u64,
    },
}

impl Party {
    /// The write that is its next step, if it is one of Redis.
    pub fn write(&self, claim: impl FnOnce(&UserId) -> Write, sql: &Sql) -> Option<(u32, Write)> {
        Some(match self {
            Self::Claim { user, shard } => (*shard, claim(user)),
            Self::Follow {
                user,
                name: (shard, generation),
                decision,
            } => (
                *shard,
                match *decision {
                    Decision::Settle(deduction) => {
                        Write::Settle(user.clone(), *generation, deduction)
                    }
                    Decision::Cancel => Write::Cancel(user.clone(), *generation),
                    Decision::Release(kind) => Write::Release(user.clone(), *generation, kind),
                },
            ),
            Self::FollowOrder { name } => {
                let order = sql.orders.get(name)?;
                let write = match order.state {
                    OrderState::Cancelled => Write::Cancel(order.user.clone(), name.1),
                    OrderState::Paid => Write::Charge(order.user.clone(), name.1),
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
                (*shard, Write::Release(user.clone(), *generation, kind))
            }
            Self::Rebalance { rebalance, ask } => {
                let to_shard = rebalance.to_shard();
                match *ask {
                    RebalanceCall::Probe => return None,
                    RebalanceCall::Lend { from_shard, units } => (
                        from_shard,
                        Write::Lend {
                            to_shard,
                            wanted: units,
                        },
                    ),
                    RebalanceCall::Deposit {
                        from_shard,
                        transfer,
                    } => (to_shard, Write::Deposit(from_shard, transfer)),
                    RebalanceCall::SettleTransfer { from_shard, id } => {
                        (from_shard, Write::SettleTransfer(to_shard, id))
                    }
                }
            }
            Self::Deposit {
                from_shard,
                to_shard,
                transfer,
            } => (*to_shard, Write::Deposit(*from_shard, *transfer)),
            Self::SettleTransfer {
                from_shard,
                to_shard,
                id,
            } => (*from_shard, Write::SettleTransfer(*to_shard, *id)),
            Self::Order { .. } | Self::Overdue { .. } => return None,
        })
    }

    /// What it does after Redis has answered.
    pub fn after(self, reply: &Reply, sql: &mut Sql) -> Option<Self> {
        match (self, reply) {
            (Self::Claim { user, shard }, Reply::Claim(reply)) => {
                use weir_sale::ledger::ClaimReply::{Granted, GrantedAgain};
                match *reply {
                    Granted(held) | GrantedAgain(held) => Some(Self::Order { user, shard, held }),
                    _ => None,
                }
            }
            (Self::Rebalance { mut rebalance, ask }, reply) => {
                let event = match (ask, reply) {
                    (RebalanceCall::Lend { from_shard, .. }, Reply::Lend(lent)) => {
                        RebalanceEvent::Lend(from_shard, *lent)
                    }
                    (
                        RebalanceCall::Deposit {
                            from_shard,
                            transfer,
                        },
                        Reply::Deposit(reply),
                    ) => RebalanceEvent::Deposit(from_shard, transfer, *reply),
                    _ => return None,
                };
                next(&mut rebalance, &event)
            }
            (
                Self::Deposit {
                    from_shard,
                    to_shard,
                    transfer,
                },
                Reply::Deposit(_),
            ) => Some(Self::SettleTransfer {
                from_shard,
                to_shard,
                id: transfer.id,
            }),
            (Self::FollowOrder { name }, _) => {
                if let Some(order) = sql.orders.get_mut(&name) {
                    order.is_unfollowed = false;
                }
                None
            }
            _ => None,
        }
    }
}

/// How a rebalance goes on.
pub fn next(rebalance: &mut Rebalance, event: &RebalanceEvent) -> Option<Party> {
    let ask = match rebalance.on_event(event) {
        Next::Call(ask) => ask,
        Next::Done(_, last) => last?,
    };
    Some(Party::Rebalance {
        rebalance: rebalance.clone(),
        ask,
    })
}
