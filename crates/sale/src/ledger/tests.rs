use super::*;
use alloc::format;
use proptest::prelude::*;
use std::vec;

const TERMS: ClaimTerms = ClaimTerms {
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
    assert!(shard.warm(units, None));
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
    shard.warm(2, None);
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
        (Some(1), 0, 0, 3)
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
    assert_eq!(shard.cancel(&user(1), generation), Followed::Done);
    assert_eq!(shard.cancel(&user(1), generation), Followed::Nothing);
    assert_eq!(shard.audit().stock, Some(1));
    assert_eq!(shard.audit().epoch, epoch + 1);
    assert!(granted(shard.claim(&user(1), TERMS)) > generation);
}

#[test]
fn an_order_that_was_cancelled_before_it_was_settled_stays_cancelled() {
    let mut shard = warmed(1);
    let generation = granted(shard.claim(&user(1), TERMS));
    assert_eq!(shard.cancel(&user(1), generation), Followed::Done);
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
    assert_eq!(shard.charge(&user(1), first), Followed::Done);
    assert_eq!(shard.charge(&user(1), first), Followed::Nothing);
    let audit = shard.audit();
    assert_eq!((audit.stock, audit.bought, audit.deferred), (Some(0), 1, 1));
    let cancelled = shard.cancel(&user(2), second);
    assert_eq!(cancelled, Followed::Done, "it never had a unit");
    assert_eq!(shard.audit().stock, Some(0));
}

#[test]
fn a_payment_that_overtakes_the_settlement_takes_what_the_claim_holds() {
    let mut shard = warmed(1);
    let generation = granted(shard.claim(&user(1), TERMS));
    assert_eq!(shard.charge(&user(1), generation), Followed::Done);
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
    let LendReply::Lent(transfer) = from.lend(1, 1) else {
        panic!("nothing lent")
    };
    assert_eq!(transfer.units, 3, "half, rounded up");
    assert_eq!(from.lend(1, 5), LendReply::Lent(transfer), "still open");
    assert_eq!(to.deposit(0, transfer), DepositReply::Deposited);
    assert_eq!(to.deposit(0, transfer), DepositReply::Already);
    let audits = [from.audit(), to.audit()];
    assert_eq!(audits[0].units_moving(0, &audits), 0, "arrived already");
    assert!(from.settle_transfer(1, transfer.id));
    assert!(!from.settle_transfer(1, transfer.id));
    let LendReply::Lent(next) = from.lend(1, 9) else {
        panic!("nothing lent")
    };
    assert!(next.id > transfer.id && next.units == 2);
    assert_eq!(from.lend(2, 1), LendReply::Nothing);
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
    assert!(!shard.restock(1, &seen));
    let seen = shard.audit();
    assert!(!shard.restock(-2, &seen), "more than is there");
    assert!(shard.restock(-1, &seen));
    assert!(!shard.restock(-1, &seen), "once");
    assert_eq!(shard.audit().stock, Some(0));
}

/// A charge moves neither the epoch nor the sequence, and must not be missed.
#[test]
fn a_repair_that_a_charge_has_overtaken_does_nothing() {
    let mut shard = warmed(3);
    let generation = granted(shard.claim(&user(1), TERMS));
    shard.settle(&user(1), generation, Deduction::AtPayment);
    let seen = shard.audit();
    shard.charge(&user(1), generation);
    let now = shard.audit();
    assert_eq!((now.epoch, now.sequence), (seen.epoch, seen.sequence));
    assert!(!shard.restock(1, &seen));
}

#[test]
fn a_lost_shard_is_rebuilt_with_its_users_caps() {
    let mut shard = ShardLedger::default();
    assert_eq!(
        shard.deposit(3, Transfer { id: 1, units: 1 }),
        DepositReply::Cold
    );
    assert_eq!(shard.cancel(&user(1), 7), Followed::Cold);
    assert_eq!(shard.charge(&user(1), 7), Followed::Cold);
    assert_eq!(shard.wipe("a", 100), WipeReply::Begun);
    let order = OrderEntry {
        generation: 77,
        units: 1,
        deduction: Deduction::AtOrder,
    };
    assert!(shard.restore("a", &user(1), &[order]));
    assert!(!shard.warm(4, None), "its rebuild is under way");
    assert!(shard.warm(4, Some("a")));
    assert_eq!(shard.wipe("a", 100), WipeReply::Warm);
    assert!(!shard.restore("a", &user(2), &[order]));
    let reply = shard.claim(&user(1), TERMS);
    assert_eq!(reply, ClaimReply::CapReached { generation: 77 });
    assert_eq!(shard.audit().bought, 1);
    assert!(granted(shard.claim(&user(2), TERMS)) > 77);
}

#[test]
fn of_two_who_rebuild_a_shard_one_is_refused_and_takes_over_when_the_other_is_silent() {
    let mut shard = ShardLedger::default();
    let order = OrderEntry {
        generation: 77,
        units: 1,
        deduction: Deduction::AtOrder,
    };
    assert_eq!(shard.wipe("a", 100), WipeReply::Begun);
    assert_eq!(shard.wipe("b", 100), WipeReply::Other);
    shard.set_clock_us(90_000);
    assert!(shard.restore("a", &user(1), &[order]));
    shard.set_clock_us(110_000);
    assert_eq!(shard.wipe("b", 100), WipeReply::Other, "it goes on");
    shard.set_clock_us(190_000);
    assert_eq!(shard.wipe("b", 100), WipeReply::Begun);
    assert!(!shard.restore("a", &user(1), &[order]));
    assert!(!shard.warm(0, Some("a")), "what it restored is gone");
    assert!(shard.restore("b", &user(1), &[order]));
    assert!(shard.warm(0, Some("b")));
    assert_eq!(shard.audit().bought, 1);
}

#[test]
fn the_epoch_is_another_when_units_come_and_when_the_last_one_goes() {
    let mut shard = ShardLedger::default();
    shard.set_clock_us(1_000);
    shard.warm(2, None);
    let mut epochs = vec![shard.audit().epoch];
    let mut claim_at = |shard: &mut ShardLedger, n, now_us| {
        shard.set_clock_us(now_us);
        let generation = granted(shard.claim(&user(n), TERMS));
        epochs.push(shard.audit().epoch);
        generation
    };
    let first = claim_at(&mut shard, 1, 2_000);
    claim_at(&mut shard, 2, 3_000);
    assert_eq!(epochs, [1_000, 1_000, 3_000], "not by every claim");
    shard.set_clock_us(2_500);
    shard.release(&user(1), first, ReleaseKind::Decided);
    assert_eq!(shard.audit().epoch, 3_001, "a clock that went back");
    shard.set_clock_us(9_000);
    shard.lend(1, 1);
    assert_eq!(shard.audit().epoch, 9_000);
}

/// Redis loses all since the second claim; then another is granted, and the epoch is not the one that was seen.
#[test]
fn what_is_lost_never_comes_again() {
    let mut shard = warmed(2);
    shard.set_clock_us(1_000);
    granted(shard.claim(&user(1), TERMS));
    let kept = shard.clone();
    let lost = granted(shard.claim(&user(2), TERMS));
    let epoch = shard.audit().epoch;
    shard = kept;
    shard.set_clock_us(2_000);
    assert_ne!(shard.audit().epoch, epoch);
    assert!(granted(shard.claim(&user(3), TERMS)) > lost);
    assert_ne!(shard.audit().epoch, epoch);
}

#[test]
fn a_user_whose_orders_redis_knows_otherwise_is_corrected_unless_a_claim_is_open() {
    let mut shard = warmed(3);
    let generation = granted(shard.claim(&user(1), TERMS));
    assert_eq!(shard.orders_of(&user(1)), None);
    assert!(!shard.correct(&user(1), &[], &[]), "a claim is open");
    shard.settle(&user(1), generation, Deduction::AtOrder);
    let orders = shard.orders_of(&user(1)).unwrap();
    assert!(!shard.correct(&user(1), &[], &[]), "it has orders");
    assert!(shard.correct(&user(1), &orders, &[]));
    let audit = shard.audit();
    assert_eq!((audit.stock, audit.bought), (Some(2), 0), "no unit comes");
    assert!(shard.correct(&user(1), &[], &orders));
    assert_eq!(
        shard.claim(&user(1), TERMS),
        ClaimReply::CapReached { generation }
    );
}

#[test]
fn a_checksum_does_not_depend_on_the_order_and_loses_what_is_taken_out() {
    let generations = [1_700_000_000_000_001, 7, 2_147_483_647];
    let of = |generations: &[u64]| {
        generations
            .iter()
            .fold(0, |sum, &g| checksum_of(sum, g, true))
    };
    let all = of(&generations);
    let [first, second, third] = generations;
    assert_eq!(of(&[third, first, second]), all);
    assert_eq!(checksum_of(all, second, false), of(&[first, third]));
    assert_ne!(of(&[first, third]), of(&[second, third]));
}

#[test]
fn overdue_claims_come_earliest_first_and_no_more_than_asked_for() {
    let mut shard = warmed(9);
    for (n, now_ms) in [(1, 300), (2, 100), (3, 200), (4, 900)] {
        shard.set_clock_us(now_ms * 1_000);
        shard.claim(&user(n), TERMS);
    }
    shard.set_clock_us(1_000_000);
    let users = |limit| -> Vec<UserId> {
        let due = shard.overdue(200, limit);
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
        .map(|(now_us, n)| {
            shard.set_clock_us(now_us);
            granted(shard.claim(&user(n), TERMS))
        })
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
        let terms = ClaimTerms { ttl_ms: 9, user_cap: 4, quantity, ..TERMS };
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
