use super::*;
use alloc::format;
use proptest::prelude::*;
use std::vec;

const TERMS: ClaimTerms = ClaimTerms {
    now_ms: 1_000,
    ttl_ms: 500,
    user_cap: 1,
    quantity: 1,
    checks: Checks {
        blocked: true,
        reserved: false,
        drain: false,
    },
};

fn user(n: u8) -> UserId {
    UserId::new(format!("u{n}")).unwrap()
}

fn warmed(units: u64) -> ShardLedger {
    let mut shard = ShardLedger::default();
    assert!(shard.warm(units, 0));
    shard
}

fn granted(reply: ClaimReply) -> u64 {
    match reply {
        ClaimReply::Granted(held) | ClaimReply::GrantedAgain(held) => held.generation,
        other => panic!("not granted: {other:?}"),
    }
}

#[test]
fn a_retry_is_the_same_claim_and_takes_no_second_unit() {
    let mut shard = ShardLedger::default();
    assert_eq!(shard.claim(&user(1), TERMS), ClaimReply::Cold);
    shard.warm(2, 0);
    let first = granted(shard.claim(&user(1), TERMS));
    assert_eq!(granted(shard.claim(&user(1), TERMS)), first);
    assert_eq!(shard.audit().stock, Some(1));
}

#[test]
fn a_claim_ends_only_when_every_delivery_has_come_back() {
    let mut shard = warmed(1);
    let generation = granted(shard.claim(&user(1), TERMS));
    shard.claim(&user(1), TERMS);
    let mut back = |delivery| {
        let kind = ReleaseKind::Delivery(delivery);
        shard.release(&user(1), generation, kind)
    };
    assert_eq!(back(1), ReleaseReply::StillOut);
    assert_eq!(back(1), ReleaseReply::StillOut, "the same one again");
    assert_eq!(back(0), ReleaseReply::Ended);
    assert_eq!(back(0), ReleaseReply::Nothing);
    let audit = shard.audit();
    assert_eq!(
        (audit.stock, audit.held, audit.bought, audit.epoch),
        (Some(1), 0, 0, 1)
    );
}

#[test]
fn a_claim_that_was_handed_out_too_often_to_tell_waits_for_its_deadline() {
    let mut shard = warmed(1);
    let generation = granted(shard.claim(&user(1), TERMS));
    for _ in 0..40 {
        shard.claim(&user(1), TERMS);
    }
    for delivery in 0..40 {
        let kind = ReleaseKind::Delivery(delivery);
        let reply = shard.release(&user(1), generation, kind);
        assert_eq!(reply, ReleaseReply::StillOut);
    }
    let decided = shard.release(&user(1), generation, ReleaseKind::Decided);
    assert_eq!(decided, ReleaseReply::Ended);
}

#[test]
fn an_ordered_claim_is_never_given_back_and_fills_the_cap() {
    let mut shard = warmed(3);
    let generation = granted(shard.claim(&user(1), TERMS));
    let settle = |shard: &mut ShardLedger| shard.settle(&user(1), generation, Deduction::AtOrder);
    assert_eq!(settle(&mut shard), SettleReply::Settled);
    assert_eq!(settle(&mut shard), SettleReply::Nothing);
    let late = shard.release(&user(1), generation, ReleaseKind::Decided);
    assert_eq!(late, ReleaseReply::Nothing);
    assert_eq!(
        shard.claim(&user(1), TERMS),
        ClaimReply::CapReached { generation }
    );
}

#[test]
fn a_cancelled_order_reopens_the_shard_once_and_frees_its_user() {
    let mut shard = warmed(1);
    let generation = granted(shard.claim(&user(1), TERMS));
    shard.settle(&user(1), generation, Deduction::AtOrder);
    let epoch = shard.audit().epoch;
    assert!(shard.cancel(&user(1), generation));
    assert!(!shard.cancel(&user(1), generation));
    assert_eq!(shard.audit().stock, Some(1));
    assert_eq!(shard.audit().epoch, epoch + 1);
    assert!(granted(shard.claim(&user(1), TERMS)) > generation);
}

#[test]
fn an_order_that_was_cancelled_before_it_was_settled_stays_cancelled() {
    let mut shard = warmed(1);
    let generation = granted(shard.claim(&user(1), TERMS));
    assert!(shard.cancel(&user(1), generation));
    let late = shard.settle(&user(1), generation, Deduction::AtOrder);
    assert_eq!(late, SettleReply::Nothing);
    assert_eq!(shard.audit().stock, Some(1));
}

#[test]
fn what_is_deducted_at_payment_stays_for_others_until_then() {
    let mut shard = warmed(1);
    let first = granted(shard.claim(&user(1), TERMS));
    shard.settle(&user(1), first, Deduction::AtPayment);
    let second = granted(shard.claim(&user(2), TERMS));
    shard.settle(&user(2), second, Deduction::AtPayment);
    assert_eq!((shard.audit().stock, shard.audit().deferred), (Some(1), 2));
    assert!(shard.charge(&user(1), first));
    assert!(!shard.charge(&user(1), first));
    let audit = shard.audit();
    assert_eq!((audit.stock, audit.bought, audit.deferred), (Some(0), 1, 1));
    assert!(shard.cancel(&user(2), second), "it never had a unit");
    assert_eq!(shard.audit().stock, Some(0));
}

#[test]
fn a_payment_that_overtakes_the_settlement_takes_what_the_claim_holds() {
    let mut shard = warmed(1);
    let generation = granted(shard.claim(&user(1), TERMS));
    assert!(shard.charge(&user(1), generation));
    let late = shard.settle(&user(1), generation, Deduction::AtPayment);
    assert_eq!(late, SettleReply::Nothing);
    let audit = shard.audit();
    assert_eq!((audit.stock, audit.bought), (Some(0), 1));
}

#[test]
fn the_checks_come_in_the_order_of_the_chain() {
    let mut shard = warmed(9);
    let terms = |reserved, drain| ClaimTerms {
        checks: Checks {
            blocked: true,
            reserved,
            drain,
        },
        ..TERMS
    };
    shard.block(&user(1), true);
    shard.reserve(&user(2));
    let claim = |shard: &mut ShardLedger, n, terms| shard.claim(&user(n), terms);
    assert_eq!(
        claim(&mut shard, 1, terms(true, false)),
        ClaimReply::Blocked
    );
    assert_eq!(
        claim(&mut shard, 3, terms(true, false)),
        ClaimReply::NotReserved
    );
    assert_eq!(
        claim(&mut shard, 2, terms(true, true)),
        ClaimReply::Draining
    );
    let held = granted(claim(&mut shard, 2, terms(true, false)));
    assert_eq!(granted(claim(&mut shard, 2, terms(true, true))), held);
    shard.block(&user(1), false);
    granted(claim(&mut shard, 1, terms(false, false)));
}

#[test]
fn lent_units_arrive_once_however_often_each_step_is_done() {
    let (mut from, mut to) = (warmed(5), warmed(0));
    let LendReply::Lent(transfer) = from.lend(1, 1, 10) else {
        panic!("nothing lent")
    };
    assert_eq!(transfer.units, 3, "half, rounded up");
    assert_eq!(from.lend(1, 5, 20), LendReply::Lent(transfer), "still open");
    assert_eq!(to.deposit(0, transfer), DepositReply::Deposited);
    assert_eq!(to.deposit(0, transfer), DepositReply::Already);
    let audits = [from.audit(), to.audit()];
    assert_eq!(audits[0].units_moving(0, &audits), 0, "arrived already");
    assert!(from.settle_transfer(1, transfer.id));
    assert!(!from.settle_transfer(1, transfer.id));
    let LendReply::Lent(next) = from.lend(1, 9, 0) else {
        panic!("nothing lent")
    };
    assert!(next.id > transfer.id && next.units == 2);
    assert_eq!(from.lend(2, 1, 0), LendReply::Nothing);
    assert!(!from.settle_transfer(1, transfer.id), "another transfer");
    assert_eq!(from.probe().moving, 1);
    assert_eq!(to.deposit(0, transfer), DepositReply::Already);
    assert_eq!(to.audit().stock, Some(3));
}

#[test]
fn a_repair_is_for_the_shard_that_was_audited_and_for_no_later_one() {
    let mut shard = warmed(2);
    let seen = shard.audit();
    shard.claim(&user(1), TERMS);
    assert!(!shard.restock(1, seen.epoch, seen.sequence));
    let seen = shard.audit();
    assert!(
        !shard.restock(-2, seen.epoch, seen.sequence),
        "more than is there"
    );
    assert!(shard.restock(-1, seen.epoch, seen.sequence));
    assert!(!shard.restock(-1, seen.epoch, seen.sequence), "once");
    assert_eq!(shard.audit().stock, Some(0));
}

#[test]
fn a_lost_shard_is_rebuilt_with_its_users_caps() {
    let mut shard = ShardLedger::default();
    assert_eq!(
        shard.deposit(3, Transfer { id: 1, units: 1 }),
        DepositReply::Cold
    );
    assert!(shard.wipe());
    let order = OrderEntry {
        generation: 77,
        units: 1,
        deduction: Deduction::AtOrder,
    };
    assert!(shard.restore(&user(1), &[order]));
    shard.warm(4, 0);
    assert!(!shard.wipe());
    assert!(!shard.restore(&user(2), &[order]));
    let reply = shard.claim(&user(1), TERMS);
    assert_eq!(reply, ClaimReply::CapReached { generation: 77 });
    assert_eq!(shard.audit().bought, 1);
    assert!(granted(shard.claim(&user(2), TERMS)) > 77);
}

#[test]
fn overdue_claims_come_earliest_first_and_no_more_than_asked_for() {
    let mut shard = warmed(9);
    for (n, now_ms) in [(1, 300), (2, 100), (3, 200), (4, 900)] {
        shard.claim(&user(n), ClaimTerms { now_ms, ..TERMS });
    }
    let users = |limit| -> Vec<UserId> {
        let due = shard.overdue(800, limit);
        due.into_iter().map(|claim| claim.user).collect()
    };
    assert_eq!(users(9), vec![user(2), user(3), user(1)]);
    assert_eq!(users(2), vec![user(2), user(3)]);
}

#[test]
fn generations_never_repeat_even_when_the_clock_stands_still_or_jumps_back() {
    let mut shard = warmed(10);
    let clocks = [1_000, 1_000, 5, 2_000, 1_999];
    let generations: Vec<u64> = clocks
        .into_iter()
        .zip(0..)
        .map(|(now_ms, n)| granted(shard.claim(&user(n), ClaimTerms { now_ms, ..TERMS })))
        .collect();
    assert!(
        generations.windows(2).all(|pair| pair[0] < pair[1]),
        "{generations:?}"
    );
}

#[derive(Clone, Debug)]
enum Op {
    Claim(u8),
    Settle(u8, u64, Deduction),
    Charge(u8, u64),
    Cancel(u8, u64),
    Release(u8, u64, ReleaseKind),
}

fn any_op() -> impl Strategy<Value = Op> {
    let kind = prop_oneof![
        (0..3_u32).prop_map(ReleaseKind::Delivery),
        Just(ReleaseKind::Decided)
    ];
    let deduction = prop_oneof![Just(Deduction::AtOrder), Just(Deduction::AtPayment)];
    let claim = || (0..6_u8, 1..20_u64);
    prop_oneof![
        3 => (0..6_u8).prop_map(Op::Claim),
        2 => (claim(), deduction).prop_map(|((u, g), d)| Op::Settle(u, g, d)),
        1 => claim().prop_map(|(u, g)| Op::Charge(u, g)),
        1 => claim().prop_map(|(u, g)| Op::Cancel(u, g)),
        2 => (claim(), kind).prop_map(|((u, g), k)| Op::Release(u, g, k)),
    ]
}

proptest! {
    /// Σ stock + claims + orders = total, after every operation in any order, with right and
    /// wrong generations alike.
    #[test]
    fn no_operation_makes_or_loses_a_unit(
        total in 0..8_u64, quantity in 1..3_u32, ops in prop::collection::vec(any_op(), 0..80),
    ) {
        let mut shard = warmed(total);
        let terms = ClaimTerms { now_ms: 0, ttl_ms: 9, user_cap: 4, quantity, ..TERMS };
        for op in ops {
            match op {
                Op::Claim(u) => { shard.claim(&user(u), terms); }
                Op::Settle(u, g, deduction) => { shard.settle(&user(u), g, deduction); }
                Op::Charge(u, g) => { shard.charge(&user(u), g); }
                Op::Cancel(u, g) => { shard.cancel(&user(u), g); }
                Op::Release(u, g, kind) => { shard.release(&user(u), g, kind); }
            }
            let audit = shard.audit();
            let sum = audit.stock.unwrap() + (audit.held + audit.bought) as i64;
            prop_assert_eq!(sum, total as i64);
        }
    }
}
