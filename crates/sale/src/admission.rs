//! The admission chain, from cheap to expensive checks.

use crate::ledger::{Checks, ClaimReply, DELIVERIES_MAX, OpenClaim};
use crate::sale::{Band, Phase, Sale, SaleState};
use crate::sold_out::SoldOutMemory;
use crate::verdict::Verdict;
use weir_base::id::UserId;

/// The next step for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Reject it, without Redis.
    Reject(Rejection),
    /// Redis has no units: see [`without_units`].
    Empty,
    /// Request a claim on the user's home shard.
    Claim {
        /// The home shard.
        shard: u32,
        /// Additional checks in the shard.
        checks: Checks,
    },
}

/// The gateway's own answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The verdict: one with a status.
    pub verdict: Verdict,
    /// Milliseconds until a retry can succeed, if it can.
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

/// Decides on one order request for `sale`, under the effective switch (see [`crate::sale::Catalogue::switch_of`]):
/// switches, window, sold-out memory, then the claim.
///
/// [`SaleState::Shadow`] is decided like [`SaleState::Open`]; the caller handles the difference.
pub fn admit(
    switch: SaleState,
    sale: &Sale,
    user: &UserId,
    memory: &SoldOutMemory,
    now_ms: u64,
) -> Admission {
    if let Err(rejection) = check_open(switch, sale, now_ms) {
        return Admission::Reject(rejection);
    }
    let shard = sale.home_shard(user);
    if memory.is_empty_for(&sale.id, shard) {
        return Admission::Empty;
    }
    let checks = checks(switch, sale);
    Admission::Claim { shard, checks }
}

/// Like [`admit`], for a request with an idempotency key.
///
/// It may be a retry whose first answer was lost, and only Redis knows that attempt. So neither the sold-out memory nor
/// the sale's end rejects it; after the end the shard grants no new claim.
pub fn admit_attempt(switch: SaleState, sale: &Sale, user: &UserId, now_ms: u64) -> Admission {
    let checks = match check_open(switch, sale, now_ms) {
        Ok(()) => checks(switch, sale),
        Err(rejection) if rejection.verdict == Verdict::Ended => Checks {
            drain: true,
            ..checks(switch, sale)
        },
        Err(rejection) => return Admission::Reject(rejection),
    };
    let shard = sale.home_shard(user);
    Admission::Claim { shard, checks }
}

/// Decides on one request for an order token of `sale`, like [`admit`]. A draining sale issues no tokens, and nothing
/// is claimed. `if_empty` is the verdict without units: see [`without_units`].
///
/// # Errors
/// The rejection.
pub fn admit_to_checkout(
    switch: SaleState,
    sale: &Sale,
    user: &UserId,
    memory: &SoldOutMemory,
    if_empty: Verdict,
    now_ms: u64,
) -> Result<(), Rejection> {
    match admit(switch, sale, user, memory, now_ms) {
        Admission::Reject(rejection) => Err(rejection),
        Admission::Empty => Err(if_empty.into()),
        Admission::Claim { .. } if switch == SaleState::Drain => Err(Verdict::Draining.into()),
        Admission::Claim { .. } => Ok(()),
    }
}

/// Checks switches, window, and whether the stock is loaded.
pub(crate) fn check_open(switch: SaleState, sale: &Sale, now_ms: u64) -> Result<(), Rejection> {
    if switch == SaleState::Closed {
        return Err(Verdict::Closed.into());
    }
    if sale.degrade.static_page {
        return Err(Verdict::StaticPage.into());
    }
    if sale.paused {
        return Err(Verdict::Paused.into());
    }
    match sale.phase(now_ms) {
        Phase::NotStarted { wait_ms } => Err(Rejection {
            verdict: Verdict::NotStarted,
            retry_after_ms: Some(wait_ms),
        }),
        Phase::Ended => Err(Verdict::Ended.into()),
        Phase::Running if sale.cold => Err(Verdict::Unavailable.into()),
        Phase::Running => Ok(()),
    }
}

/// The verdict when Redis has no units. It is final only if SQL has none either: otherwise claims may expire, or data
/// that Redis lost may be under repair.
pub fn without_units(sale: &Sale) -> Verdict {
    match sale.band {
        Band::None => Verdict::SoldOut,
        _ => Verdict::AllReserved,
    }
}

fn checks(switch: SaleState, sale: &Sale) -> Checks {
    Checks {
        blocked: !sale.degrade.skip_risk,
        reserved: sale.reservation && !sale.degrade.skip_reservation,
        drain: switch == SaleState::Drain,
    }
}

/// The decision that follows from a shard's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// Forward the request to the origin with a ticket for this claim.
    Pass {
        /// Whether the claim is new.
        verdict: Verdict,
        /// The claim.
        held: OpenClaim,
    },
    /// Wait for a rebalance from other shards, then claim again.
    Rebalance,
    /// Reject the request.
    Reject {
        /// The verdict: one with a status.
        verdict: Verdict,
        /// The generation of the claim that became the user's last order, if known.
        ordered: Option<u64>,
    },
}

/// How often one request waits for a rebalance. After that the client must retry.
pub const REBALANCES_MAX: u8 = 2;

/// Decides from a shard's reply to a request that has waited for `rebalances`. `if_empty` is the verdict if a probe has
/// found no units on any shard: see [`without_units`]. Pass the reply to [`SoldOutMemory::learn`] first.
pub fn conclude(reply: ClaimReply, if_empty: Option<Verdict>, rebalances: u8) -> Conclusion {
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
        // The origin finds the order by its claim, and returns it again.
        ClaimReply::Ordered {
            generation,
            quantity,
        } => Conclusion::Pass {
            verdict: Verdict::GrantedAgain,
            held: OpenClaim {
                generation,
                quantity,
                deadline_ms: 0,
                delivery: DELIVERIES_MAX,
            },
        },
        ClaimReply::InProgress => reject(Verdict::InProgress),
        ClaimReply::CapReached { generation } => Conclusion::Reject {
            verdict: Verdict::CapReached,
            ordered: (generation > 0).then_some(generation),
        },
        ClaimReply::Empty { .. } => match if_empty {
            Some(verdict) => reject(verdict),
            None if rebalances < REBALANCES_MAX => Conclusion::Rebalance,
            None => reject(Verdict::AllReserved),
        },
        // Not loaded yet, or lost: units may remain.
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
    use crate::shard::home_shard;
    use crate::sold_out::tests::EMPTY;

    fn rejected(admission: Admission) -> Verdict {
        match admission {
            Admission::Reject(rejection) => rejection.verdict,
            Admission::Empty => Verdict::AllReserved,
            Admission::Claim { .. } => Verdict::Granted,
        }
    }

    #[test]
    fn each_admission_step_rejects_with_its_own_verdict() {
        let (mut sale, user) = (sale("s"), UserId::new("u").unwrap());
        let mut memory = SoldOutMemory::default();
        let at = |sale: &Sale, memory: &SoldOutMemory, now_ms| {
            admit(sale.state, sale, &user, memory, now_ms)
        };

        assert_eq!(
            at(&sale, &memory, 400),
            Admission::Reject(Rejection {
                verdict: Verdict::NotStarted,
                retry_after_ms: Some(600)
            })
        );
        assert_eq!(rejected(at(&sale, &memory, 2_000)), Verdict::Ended);
        let Admission::Claim { shard, .. } = at(&sale, &memory, 1_500) else {
            panic!("an open sale with stock must lead to a claim");
        };
        assert_eq!(shard, home_shard(&user, 4));
        memory.learn_probe(&sale.id, 0, &[EMPTY; 4]);
        assert_eq!(at(&sale, &memory, 1_500), Admission::Empty);
        for band in [Band::High, Band::Reserved] {
            sale.band = band;
            assert_eq!(without_units(&sale), Verdict::AllReserved);
        }
        sale.band = Band::None;
        assert_eq!(without_units(&sale), Verdict::SoldOut);
        sale.cold = true;
        assert_eq!(rejected(at(&sale, &memory, 1_500)), Verdict::Unavailable);
        assert_eq!(rejected(at(&sale, &memory, 400)), Verdict::NotStarted);
        sale.paused = true;
        assert_eq!(rejected(at(&sale, &memory, 1_500)), Verdict::Paused);
        sale.degrade.static_page = true;
        assert_eq!(rejected(at(&sale, &memory, 1_500)), Verdict::StaticPage);
        sale.state = SaleState::Closed;
        assert_eq!(rejected(at(&sale, &memory, 1_500)), Verdict::Closed);
    }

    #[test]
    fn only_an_empty_probe_marks_a_shard_sold_out() {
        let verdict = |reply, if_empty, rebalances| match conclude(reply, if_empty, rebalances) {
            Conclusion::Pass { verdict, .. } | Conclusion::Reject { verdict, .. } => Some(verdict),
            Conclusion::Rebalance => None,
        };
        let empty = ClaimReply::Empty {
            epoch: 1,
            open_claims: 0,
        };
        for response in [Verdict::SoldOut, Verdict::AllReserved] {
            assert_eq!(verdict(empty, Some(response), 0), Some(response));
        }
        assert_eq!(verdict(empty, None, 0), None);
        assert_eq!(
            verdict(empty, None, REBALANCES_MAX),
            Some(Verdict::AllReserved)
        );
        let cold = verdict(ClaimReply::Cold, Some(Verdict::SoldOut), 0);
        assert_eq!(cold, Some(Verdict::Unavailable), "nothing is known of it");
    }

    #[test]
    fn cap_rejection_includes_the_order_only_if_one_exists() {
        let ordered = |generation| match conclude(ClaimReply::CapReached { generation }, None, 0) {
            Conclusion::Reject { ordered, .. } => ordered,
            Conclusion::Pass { .. } | Conclusion::Rebalance => panic!("a full cap passes"),
        };
        assert_eq!((ordered(0), ordered(7)), (None, Some(7)));
    }

    #[test]
    fn keyed_attempt_reaches_shard_when_sold_out_or_ended() {
        let (mut sale, user) = (sale("s"), UserId::new("u").unwrap());
        let at = |sale: &Sale, now_ms| admit_attempt(sale.state, sale, &user, now_ms);
        let requested = |admission| match admission {
            Admission::Claim { shard, checks } => Ok((shard, checks.drain)),
            Admission::Reject(rejection) => Err(rejection.verdict),
            Admission::Empty => panic!("memory was asked"),
        };
        let home = home_shard(&user, 4);
        assert_eq!(requested(at(&sale, 1_500)), Ok((home, false)));
        assert_eq!(requested(at(&sale, 2_000)), Ok((home, true)));
        assert_eq!(requested(at(&sale, 400)), Err(Verdict::NotStarted));
        sale.paused = true;
        assert_eq!(requested(at(&sale, 1_500)), Err(Verdict::Paused));
        sale.state = SaleState::Closed;
        assert_eq!(requested(at(&sale, 1_500)), Err(Verdict::Closed));
    }

    #[test]
    fn ordered_attempt_is_forwarded_to_the_origin_again() {
        let ordered = ClaimReply::Ordered {
            generation: 7,
            quantity: 2,
        };
        let Conclusion::Pass { verdict, held } = conclude(ordered, Some(Verdict::SoldOut), 0)
        else {
            panic!("it was refused");
        };
        assert_eq!(verdict, Verdict::GrantedAgain);
        assert_eq!((held.generation, held.quantity), (7, 2));
    }

    #[test]
    fn possible_claim_holder_is_not_rejected_as_sold_out() {
        let (sale, user) = (sale("s"), UserId::new("u").unwrap());
        let home = home_shard(&user, 4);
        let mut shards = [EMPTY; 4];
        shards[home as usize].open_claims = 1;
        let mut memory = SoldOutMemory::default();
        memory.learn_probe(&sale.id, 0, &shards);
        let admission = admit(SaleState::Open, &sale, &user, &memory, 1_500);
        assert!(matches!(admission, Admission::Claim { shard, .. } if shard == home));
    }

    #[test]
    fn shard_checks_follow_from_switch_and_degradations() {
        let (mut sale, user) = (sale("s"), UserId::new("u").unwrap());
        let requested = |switch, sale: &Sale| match admit(
            switch,
            sale,
            &user,
            &SoldOutMemory::default(),
            1_500,
        ) {
            Admission::Claim { checks, .. } => (checks.blocked, checks.reserved, checks.drain),
            other => panic!("{other:?}"),
        };
        assert_eq!(requested(SaleState::Open, &sale), (true, false, false));
        assert_eq!(requested(SaleState::Shadow, &sale), (true, false, false));
        sale.reservation = true;
        assert_eq!(requested(SaleState::Drain, &sale), (true, true, true));
        sale.degrade.skip_reservation = true;
        assert_eq!(requested(SaleState::Open, &sale), (true, false, false));
        sale.degrade.skip_risk = true;
        assert_eq!(requested(SaleState::Open, &sale), (false, false, false));
    }

    #[test]
    fn checkout_claims_nothing_and_draining_sale_stops_newcomers() {
        let (mut sale, user) = (sale("s"), UserId::new("u").unwrap());
        sale.band = Band::None;
        let mut memory = SoldOutMemory::default();
        let at = |switch, memory: &SoldOutMemory, now_ms| {
            admit_to_checkout(switch, &sale, &user, memory, without_units(&sale), now_ms)
                .map_err(|no| no.verdict)
        };
        assert_eq!(at(SaleState::Open, &memory, 1_500), Ok(()));
        assert_eq!(at(SaleState::Drain, &memory, 1_500), Err(Verdict::Draining));
        assert_eq!(at(SaleState::Open, &memory, 400), Err(Verdict::NotStarted));
        memory.learn_probe(&sale.id, 0, &[EMPTY; 4]);
        assert_eq!(at(SaleState::Open, &memory, 1_500), Err(Verdict::SoldOut));
    }

    #[test]
    fn each_refusal_of_a_shard_has_its_own_verdict() {
        let verdict = |reply| match conclude(reply, None, 0) {
            Conclusion::Pass { verdict, .. } | Conclusion::Reject { verdict, .. } => verdict,
            Conclusion::Rebalance => panic!("no unit was missing"),
        };
        assert_eq!(verdict(ClaimReply::Blocked), Verdict::Blocked);
        assert_eq!(verdict(ClaimReply::NotReserved), Verdict::NotReserved);
        assert_eq!(verdict(ClaimReply::Draining), Verdict::Draining);
    }
}
