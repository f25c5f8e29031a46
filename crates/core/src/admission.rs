//! The admission chain, from cheap to dear.

use crate::id::UserId;
use crate::ledger::{ClaimReply, Held};
use crate::sale::{Phase, Sale, SaleState};
use crate::shard::home_shard;
use crate::sold_out::SoldOutMemory;
use crate::verdict::Verdict;

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Answer at once, without Redis.
    Reject(Rejection),
    /// Ask the user's home shard for a claim.
    Claim {
        /// The home shard.
        shard: u32,
    },
}

/// The gateway's own answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The answer's verdict: one that has a status.
    pub verdict: Verdict,
    /// After how many milliseconds it makes sense to try again, if it does.
    pub retry_after_ms: Option<u64>,
}

impl From<Verdict> for Rejection {
    fn from(verdict: Verdict) -> Self {
        Self {
            verdict,
            retry_after_ms: None,
        }
    }
}

/// Decides on one request to buy from `sale`: switch, window, sold-out memory, then the claim.
pub fn admit(sale: &Sale, user: &UserId, memory: &SoldOutMemory, now_ms: u64) -> Admission {
    if sale.state == SaleState::Closed {
        return Admission::Reject(Verdict::Closed.into());
    }
    match sale.phase(now_ms) {
        Phase::NotStarted { wait_ms } => Admission::Reject(Rejection {
            verdict: Verdict::NotStarted,
            retry_after_ms: Some(wait_ms),
        }),
        Phase::Ended => Admission::Reject(Verdict::Ended.into()),
        Phase::Running => admit_running(sale, user, memory),
    }
}

fn admit_running(sale: &Sale, user: &UserId, memory: &SoldOutMemory) -> Admission {
    let shard = home_shard(user, sale.shards);
    if memory.is_sold_out(&sale.id, shard) {
        return Admission::Reject(Verdict::SoldOut.into());
    }
    Admission::Claim { shard }
}

/// What a shard's reply means for the request that asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// Pass the request on to the origin with a ticket for this claim.
    Pass {
        /// Whether the claim is new.
        verdict: Verdict,
        /// The claim.
        held: Held,
    },
    /// Answer at once.
    Reject {
        /// The answer's verdict: one that has a status.
        verdict: Verdict,
        /// The generation of the claim that became the user's last order, if the answer can tell.
        ordered: Option<u64>,
    },
}

/// Concludes from a shard's reply what becomes of the request; what it says of the shard is for
/// [`SoldOutMemory::learn`].
pub fn conclude(reply: ClaimReply) -> Conclusion {
    let reject = |verdict| Conclusion::Reject {
        verdict,
        ordered: None,
    };
    match reply {
        ClaimReply::Granted(held) => Conclusion::Pass {
            verdict: Verdict::Granted,
            held,
        },
        ClaimReply::GrantedAgain(held) => Conclusion::Pass {
            verdict: Verdict::GrantedAgain,
            held,
        },
        ClaimReply::CapReached { generation } => Conclusion::Reject {
            verdict: Verdict::CapReached,
            ordered: (generation > 0).then_some(generation),
        },
        ClaimReply::Empty { .. } => reject(Verdict::SoldOut),
        // Not warmed yet, or lost: it is not known that nothing is left.
        ClaimReply::Cold => reject(Verdict::Unavailable),
        ClaimReply::Blocked | ClaimReply::NotReserved | ClaimReply::Draining => {
            reject(Verdict::Closed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sale::tests::sale;

    fn rejected(admission: Admission) -> Verdict {
        match admission {
            Admission::Reject(rejection) => rejection.verdict,
            Admission::Claim { .. } => Verdict::Granted,
        }
    }

    #[test]
    fn each_step_of_the_chain_rejects_with_its_own_word() {
        let (mut sale, user) = (sale("s"), UserId::new("u").unwrap());
        let mut memory = SoldOutMemory::default();
        let at = |sale: &Sale, memory: &SoldOutMemory, now_ms| admit(sale, &user, memory, now_ms);

        assert_eq!(
            at(&sale, &memory, 400),
            Admission::Reject(Rejection {
                verdict: Verdict::NotStarted,
                retry_after_ms: Some(600)
            })
        );
        assert_eq!(rejected(at(&sale, &memory, 2_000)), Verdict::Ended);
        let Admission::Claim { shard } = at(&sale, &memory, 1_500) else {
            panic!("an open sale with stock must lead to a claim");
        };
        assert_eq!(shard, home_shard(&user, 4));
        memory.remember(&sale.id, shard, 1);
        assert_eq!(rejected(at(&sale, &memory, 1_500)), Verdict::SoldOut);
        sale.state = SaleState::Closed;
        assert_eq!(rejected(at(&sale, &memory, 1_500)), Verdict::Closed);
    }

    #[test]
    fn a_cold_shard_is_unknown_and_never_sold_out() {
        let verdict = |reply| match conclude(reply) {
            Conclusion::Pass { verdict, .. } | Conclusion::Reject { verdict, .. } => verdict,
        };
        assert_eq!(verdict(ClaimReply::Cold), Verdict::Unavailable);
        let empty = ClaimReply::Empty {
            epoch: 1,
            open_claims: 0,
        };
        assert_eq!(verdict(empty), Verdict::SoldOut);
    }

    #[test]
    fn a_full_cap_tells_the_order_only_if_there_is_one() {
        let ordered = |generation| match conclude(ClaimReply::CapReached { generation }) {
            Conclusion::Reject { ordered, .. } => ordered,
            Conclusion::Pass { .. } => panic!("a full cap passes"),
        };
        assert_eq!((ordered(0), ordered(7)), (None, Some(7)));
    }

    #[test]
    fn another_shard_being_empty_rejects_nobody() {
        let (sale, user) = (sale("s"), UserId::new("u").unwrap());
        let home = home_shard(&user, 4);
        let mut memory = SoldOutMemory::default();
        (0..4)
            .filter(|&shard| shard != home)
            .for_each(|shard| memory.remember(&sale.id, shard, 1));
        assert_eq!(
            admit(&sale, &user, &memory, 1_500),
            Admission::Claim { shard: home }
        );
    }
}
