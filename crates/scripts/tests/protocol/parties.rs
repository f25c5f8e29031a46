//! The parties, each a process of single steps.

use weir_base::id::UserId;
use weir_sale::ledger::{Held, ReleaseKind, Transfer};
use weir_sale::refill::{Ask, Heard, Next, Refill};

use crate::shards::{Reply, Write};
use crate::sql::{ClaimName, Decision, OrderState, Sql};

/// A process, by what it does next.
#[derive(Clone, Debug)]
pub enum Party {
    /// A gateway asks for a claim.
    Claim { user: UserId, shard: u32 },
    /// The origin has a claim, and asks SQL.
    Order {
        user: UserId,
        shard: u32,
        held: Held,
    },
    /// The reconciler has found a claim past its deadline.
    Overdue {
        user: UserId,
        shard: u32,
        held: Held,
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
        handout: u32,
    },
    /// Somebody moves units.
    Refill { refill: Refill, ask: Ask },
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
    pub fn write(
        &self,
        claim: impl FnOnce(&UserId) -> Write,
        sql: &Sql,
        now_ms: u64,
    ) -> Option<(u32, Write)> {
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
                handout,
            } => {
                let kind = ReleaseKind::Handout(*handout);
                (*shard, Write::Release(user.clone(), *generation, kind))
            }
            Self::Refill { refill, ask } => {
                let to_shard = refill.to_shard();
                match *ask {
                    Ask::Survey => return None,
                    Ask::Lend { from_shard } => (
                        from_shard,
                        Write::Lend {
                            to_shard,
                            wanted: 1,
                            now_ms,
                        },
                    ),
                    Ask::Deposit {
                        from_shard,
                        transfer,
                    } => (to_shard, Write::Deposit(from_shard, transfer)),
                    Ask::SettleTransfer { from_shard, id } => {
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
            (Self::Refill { mut refill, ask }, reply) => {
                let heard = match (ask, reply) {
                    (Ask::Lend { from_shard }, Reply::Lend(lent)) => Heard::Lend(from_shard, *lent),
                    (
                        Ask::Deposit {
                            from_shard,
                            transfer,
                        },
                        Reply::Deposit(reply),
                    ) => Heard::Deposit(from_shard, transfer, *reply),
                    _ => return None,
                };
                next(&mut refill, &heard)
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

/// How a refill goes on.
pub fn next(refill: &mut Refill, heard: &Heard) -> Option<Party> {
    let ask = match refill.hear(heard) {
        Next::Ask(ask) => ask,
        Next::Done(_, last) => last?,
    };
    Some(Party::Refill {
        refill: refill.clone(),
        ask,
    })
}
