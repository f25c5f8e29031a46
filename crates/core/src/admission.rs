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
    /// Wait until it is known whether other shards have units to move here, then ask again.
    Refill,
    /// Answer at once.
    Reject {
        /// The answer's verdict: one that has a status.
        verdict: Verdict,
        /// The generation of the claim that became the user's last order, if the answer can tell.
        ordered: Option<u64>,
    },
}

/// How often one request waits for a refill. After the second it is told to come back.
pub const REFILLS_MAX: u8 = 2;

/// Concludes from a shard's reply what becomes of a request that has waited for `refills`, given
/// whether a survey has found the sale without a unit anywhere. What the reply says of the shard is
/// for [`SoldOutMemory::learn`] first.
pub fn conclude(reply: ClaimReply, is_sale_empty: bool, refills: u8) -> Conclusion {
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
        ClaimReply::Empty { .. } if is_sale_empty => reject(Verdict::SoldOut),
        ClaimReply::Empty { .. } if refills < REFILLS_MAX => Conclusion::Refill,
        ClaimReply::Empty { .. } => reject(Verdict::Restocking),
        // Not warmed yet, or lost: it is not known that nothing is left.
        ClaimReply::Cold => reject(Verdict::Unavailable),
        ClaimReply::Blocked => reject(Verdict::Blocked),
        ClaimReply::NotReserved => reject(Verdict::NotReserved),
        ClaimReply::Draining => reject(Verdict::Draining),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sale::tests::sale;
    use crate::sold_out::tests::EMPTY;

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
        memory.learn_survey(&sale.id, &[EMPTY; 4]);
        assert_eq!(rejected(at(&sale, &memory, 1_500)), Verdict::SoldOut);
        sale.state = SaleState::Closed;
        assert_eq!(rejected(at(&sale, &memory, 1_500)), Verdict::Closed);
    }

    #[test]
    fn only_a_survey_that_found_nothing_makes_an_empty_shard_sold_out() {
        let verdict = |reply, is_sale_empty, refills| match conclude(reply, is_sale_empty, refills)
        {
            Conclusion::Pass { verdict, .. } | Conclusion::Reject { verdict, .. } => Some(verdict),
            Conclusion::Refill => None,
        };
        let empty = ClaimReply::Empty {
            epoch: 1,
            open_claims: 0,
        };
        assert_eq!(verdict(empty, true, 0), Some(Verdict::SoldOut));
        assert_eq!(verdict(empty, false, 0), None);
        assert_eq!(
            verdict(empty, false, REFILLS_MAX),
            Some(Verdict::Restocking)
        );
        let cold = verdict(ClaimReply::Cold, true, 0);
        assert_eq!(cold, Some(Verdict::Unavailable), "nothing is known of it");
    }

    #[test]
    fn a_full_cap_tells_the_order_only_if_there_is_one() {
        let ordered = |generation| match conclude(ClaimReply::CapReached { generation }, false, 0) {
            Conclusion::Reject { ordered, .. } => ordered,
            Conclusion::Pass { .. } | Conclusion::Refill => panic!("a full cap passes"),
        };
        assert_eq!((ordered(0), ordered(7)), (None, Some(7)));
    }

    #[test]
    fn who_may_hold_a_claim_is_not_told_that_all_is_gone() {
        let (sale, user) = (sale("s"), UserId::new("u").unwrap());
        let home = home_shard(&user, 4);
        let mut shards = [EMPTY; 4];
        shards[home as usize].open_claims = 1;
        let mut memory = SoldOutMemory::default();
        memory.learn_survey(&sale.id, &shards);
        assert_eq!(
            admit(&sale, &user, &memory, 1_500),
            Admission::Claim { shard: home }
        );
    }
}
