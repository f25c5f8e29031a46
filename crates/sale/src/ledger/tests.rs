use super::*;
use crate::idempotency::{AttemptTag, IdempotencyKey};
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
fn retry_returns_the_same_claim_and_takes_no_second_unit() {
    let mut shard = ShardLedger::default();
    assert_eq!(shard.claim(&user(1), TERMS), ClaimReply::Cold);
    shard.warm(2, None);
    let first = granted(shard.claim(&user(1), TERMS));
    assert_eq!(granted(shard.claim(&user(1), TERMS)), first);
    assert_eq!(shard.audit().stock, Some(1));
}

#[test]
fn claim_ends_only_when_every_delivery_is_released() {
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
fn claim_delivered_too_often_waits_for_its_deadline() {
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
fn ordered_claim_is_never_released_and_counts_against_the_cap() {
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
fn cancelled_order_reopens_shard_once_and_frees_its_user() {
    let mut shard = warmed(1);
    let generation = granted(shard.claim(&user(1), TERMS));
    shard.settle(&user(1), generation, Deduction::AtOrder);
    let epoch = shard.audit().epoch;
    assert_eq!(shard.cancel(&user(1), generation), FollowUpReply::Done);
    assert_eq!(shard.cancel(&user(1), generation), FollowUpReply::Nothing);
    assert_eq!(shard.audit().stock, Some(1));
    assert_eq!(shard.audit().epoch, epoch + 1);
    assert!(granted(shard.claim(&user(1), TERMS)) > generation);
}

#[test]
fn order_cancelled_before_settlement_stays_cancelled() {
    let mut shard = warmed(1);
    let generation = granted(shard.claim(&user(1), TERMS));
    assert_eq!(shard.cancel(&user(1), generation), FollowUpReply::Done);
    let late = shard.settle(&user(1), generation, Deduction::AtOrder);
    assert_eq!(late, SettleReply::Nothing);
    assert_eq!(shard.audit().stock, Some(1));
}

#[test]
fn units_deducted_at_payment_stay_available_until_then() {
    let mut shard = warmed(1);
    let first = granted(shard.claim(&user(1), TERMS));
    shard.settle(&user(1), first, Deduction::AtPayment);
    let second = granted(shard.claim(&user(2), TERMS));
    shard.settle(&user(2), second, Deduction::AtPayment);
    assert_eq!((shard.audit().stock, shard.audit().deferred), (Some(1), 2));
    assert_eq!(shard.charge(&user(1), first), FollowUpReply::Done);
    assert_eq!(shard.charge(&user(1), first), FollowUpReply::Nothing);
    let audit = shard.audit();
    assert_eq!((audit.stock, audit.bought, audit.deferred), (Some(0), 1, 1));
    let cancelled = shard.cancel(&user(2), second);
    assert_eq!(cancelled, FollowUpReply::Done, "it never had a unit");
    assert_eq!(shard.audit().stock, Some(0));
}

#[test]
fn payment_before_settlement_takes_the_units_of_the_claim() {
    let mut shard = warmed(1);
    let generation = granted(shard.claim(&user(1), TERMS));
    assert_eq!(shard.charge(&user(1), generation), FollowUpReply::Done);
    let late = shard.settle(&user(1), generation, Deduction::AtPayment);
    assert_eq!(late, SettleReply::Nothing);
    let audit = shard.audit();
    assert_eq!((audit.stock, audit.bought), (Some(0), 1));
}

#[test]
fn claim_checks_run_in_the_order_of_the_chain() {
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
fn transferred_units_arrive_once_when_steps_repeat() {
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
fn repair_applies_only_to_the_audited_shard_generation() {
    let mut shard = warmed(2);
    let audit = shard.audit();
    shard.claim(&user(1), TERMS);
    assert!(!shard.restock(1, &audit));
    let audit = shard.audit();
    assert!(!shard.restock(-2, &audit), "more than is there");
    assert!(shard.restock(-1, &audit));
    assert!(!shard.restock(-1, &audit), "once");
    assert_eq!(shard.audit().stock, Some(0));
}

/// A charge changes neither the epoch nor the sequence, but must be detected.
#[test]
fn repair_overtaken_by_a_charge_has_no_effect() {
    let mut shard = warmed(3);
    let generation = granted(shard.claim(&user(1), TERMS));
    shard.settle(&user(1), generation, Deduction::AtPayment);
    let audit = shard.audit();
    shard.charge(&user(1), generation);
    let now = shard.audit();
    assert_eq!((now.epoch, now.sequence), (audit.epoch, audit.sequence));
    assert!(!shard.restock(1, &audit));
}

#[test]
fn lost_shard_is_rebuilt_with_the_caps_of_its_users() {
    let mut shard = ShardLedger::default();
    assert_eq!(
        shard.deposit(3, Transfer { id: 1, units: 1 }),
        DepositReply::Cold
    );
    assert_eq!(shard.cancel(&user(1), 7), FollowUpReply::Cold);
    assert_eq!(shard.charge(&user(1), 7), FollowUpReply::Cold);
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
fn concurrent_rebuild_is_refused_until_the_other_times_out() {
    let mut shard = ShardLedger::default();
    let order = OrderEntry {
        generation: 77,
        units: 1,
        deduction: Deduction::AtOrder,
    };
    assert_eq!(shard.wipe("a", 100), WipeReply::Begun);
    assert_eq!(shard.wipe("b", 100), WipeReply::Other);
    shard.set_clock_us(90_000);
    assert_eq!(shard.wipe("b", 100), WipeReply::Other);
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
fn epoch_changes_when_units_arrive_or_the_last_is_taken() {
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

/// Redis loses all data since the second claim; then another claim is granted, with a different epoch.
#[test]
fn lost_epoch_and_generation_are_never_reused() {
    let mut shard = warmed(2);
    shard.set_clock_us(1_000);
    granted(shard.claim(&user(1), TERMS));
    let retained = shard.clone();
    let lost = granted(shard.claim(&user(2), TERMS));
    let epoch = shard.audit().epoch;
    shard = retained;
    shard.set_clock_us(2_000);
    assert_ne!(shard.audit().epoch, epoch);
    assert!(granted(shard.claim(&user(3), TERMS)) > lost);
    assert_ne!(shard.audit().epoch, epoch);
}

#[test]
fn stale_user_orders_are_corrected_unless_a_claim_is_open() {
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
fn checksum_ignores_order_and_subtracts_removed_items() {
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
fn checksum_wraps_by_modulus_for_any_numbers() {
    const CHECKSUMS: u64 = 2_147_483_647;
    let numbers = [
        0,
        7,
        CHECKSUMS,
        CHECKSUMS + 1,
        1_700_000_000_000_001,
        u64::MAX,
    ];
    for checksum in numbers {
        for generation in numbers {
            let sum = checksum_of(checksum, generation, true);
            let both = u128::from(checksum) + u128::from(generation);
            assert_eq!(u128::from(sum), both % u128::from(CHECKSUMS));
            let without = checksum_of(sum, generation, false);
            assert_eq!(without, checksum % CHECKSUMS);
        }
    }
}

#[test]
fn audit_is_sound_if_each_open_claim_has_record_and_deadline() {
    let mut shard = warmed(3);
    assert!(shard.audit().is_sound());
    shard.claim(&user(1), TERMS);
    let sound = shard.audit();
    assert!(sound.is_sound());
    for (records, deadlines) in [(0, 1), (1, 0), (0, 0), (2, 1), (1, 2)] {
        let audit = Audit {
            records,
            deadlines,
            ..sound.clone()
        };
        assert!(!audit.is_sound(), "{records} and {deadlines} of 1");
    }
}

#[test]
fn overdue_claims_are_listed_earliest_first_up_to_the_limit() {
    let mut shard = warmed(9);
    for (n, now_ms) in [(1, 300), (2, 100), (3, 200), (4, 900)] {
        shard.set_clock_us(now_ms * 1_000);
        shard.claim(&user(n), TERMS);
    }
    shard.set_clock_us(1_000_000);
    let mut users = |limit| -> Vec<UserId> {
        let due = shard.overdue(200, limit);
        due.into_iter().map(|claim| claim.user).collect()
    };
    assert_eq!(users(9), vec![user(2), user(3), user(1)]);
    assert_eq!(users(2), vec![user(2), user(3)]);
}

#[test]
fn generations_never_repeat_when_clock_stops_or_runs_back() {
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

/// The delivery number of a claim.
fn delivered(reply: ClaimReply) -> u32 {
    match reply {
        ClaimReply::Granted(held) | ClaimReply::GrantedAgain(held) => held.delivery,
        other => panic!("not granted: {other:?}"),
    }
}

fn tag(n: u8) -> AttemptTag {
    let key = IdempotencyKey::read(format!("attempt-{n}").as_bytes());
    key.unwrap().tag()
}

#[test]
fn claim_reserves_the_requested_units_until_its_deadline() {
    let mut shard = warmed(5);
    shard.set_clock_us(7_000_999);
    let terms = ClaimTerms {
        user_cap: 2,
        quantity: 2,
        ..TERMS
    };
    let held = OpenClaim {
        generation: 7_000_999,
        quantity: 2,
        deadline_ms: 7_500,
        delivery: 0,
    };
    assert_eq!(shard.claim(&user(1), terms), ClaimReply::Granted(held));
    let again = OpenClaim {
        delivery: 1,
        ..held
    };
    assert_eq!(
        shard.claim(&user(1), terms),
        ClaimReply::GrantedAgain(again)
    );
    let open = vec![Overdue {
        user: user(1),
        held,
    }];
    assert_eq!(shard.open(), open, "told as its first delivery");
}

#[test]
fn deliveries_are_numbered_up_to_a_shared_last_number() {
    let mut shard = warmed(1);
    for n in 0..40 {
        let delivery = delivered(shard.claim(&user(1), TERMS));
        assert_eq!(delivery, n.min(DELIVERIES_MAX));
    }
}

#[test]
fn refused_buyer_gets_the_number_of_open_claims() {
    let mut shard = warmed(3);
    let of = |quantity| ClaimTerms {
        user_cap: 3,
        quantity,
        ..TERMS
    };
    granted(shard.claim(&user(1), of(1)));
    let empty = |shard: &ShardLedger| ClaimReply::Empty {
        epoch: shard.audit().epoch,
        open_claims: 1,
    };
    assert_eq!(shard.claim(&user(2), of(3)), empty(&shard), "two are left");
    let generation = granted(shard.claim(&user(2), of(2)));
    shard.settle(&user(2), generation, Deduction::AtOrder);
    assert_eq!(shard.claim(&user(3), of(1)), empty(&shard));
    let probe = ShardProbe {
        stock: Some(0),
        epoch: shard.audit().epoch,
        open_claims: 1,
        moving: 0,
    };
    assert_eq!(shard.probe(), probe);
}

#[test]
fn cap_covers_all_orders_and_the_open_claim_together() {
    let mut shard = warmed(9);
    let of = |quantity| ClaimTerms {
        user_cap: 3,
        quantity,
        ..TERMS
    };
    let reached = |generation| ClaimReply::CapReached { generation };
    assert_eq!(shard.claim(&user(1), of(4)), reached(0));
    let mut order = |quantity| {
        let reply = shard.claim(&user(1), of(quantity));
        if let ClaimReply::Granted(held) = reply {
            shard.settle(&user(1), held.generation, Deduction::AtOrder);
            return Ok(held.generation);
        }
        Err(reply)
    };
    order(1).unwrap();
    assert!(order(3).is_err());
    let last = order(2).unwrap();
    assert_eq!(order(1), Err(reached(last)));
}

#[test]
fn new_attempt_gets_a_claim_only_within_the_cap() {
    for (held, is_all) in [(1, false), (2, false), (3, true)] {
        for expected in 1..=3 {
            let mut shard = warmed(9);
            let of = |quantity| ClaimTerms {
                user_cap: 3,
                quantity,
                ..TERMS
            };
            let first = granted(shard.claim_for(&user(1), Some(tag(1)), of(held)));
            let other = shard.claim_for(&user(1), Some(tag(2)), of(expected));
            match is_all {
                true => assert_eq!(granted(other), first),
                false => assert_eq!(other, ClaimReply::InProgress, "{held} {expected}"),
            }
        }
    }
}

#[test]
fn repeated_attempt_gets_its_claim_and_then_its_order() {
    let mut shard = warmed(9);
    let terms = |user_cap| ClaimTerms { user_cap, ..TERMS };
    let claim = |shard: &mut ShardLedger, attempt, user_cap| {
        shard.claim_for(&user(1), attempt, terms(user_cap))
    };
    let first = granted(claim(&mut shard, Some(tag(1)), 3));
    assert_eq!(granted(claim(&mut shard, Some(tag(1)), 3)), first);
    let other = claim(&mut shard, Some(tag(2)), 3);
    assert_eq!(other, ClaimReply::InProgress);
    assert_eq!(
        granted(claim(&mut shard, Some(tag(2)), 1)),
        first,
        "it could have no other"
    );
    assert_eq!(granted(claim(&mut shard, None, 3)), first);
    shard.settle(&user(1), first, Deduction::AtOrder);
    let second = granted(claim(&mut shard, Some(tag(2)), 3));
    shard.settle(&user(1), second, Deduction::AtPayment);
    shard.block(&user(1), true);
    for (n, generation) in [(1, first), (2, second)] {
        let ordered = ClaimReply::Ordered {
            generation,
            quantity: 1,
        };
        assert_eq!(claim(&mut shard, Some(tag(n)), 3), ordered);
    }
    assert_eq!(claim(&mut shard, Some(tag(3)), 3), ClaimReply::Blocked);
    shard.note_attempt(&user(1), tag(3), first);
    shard.note_attempt(&user(2), tag(1), first);
    assert!(matches!(
        claim(&mut shard, Some(tag(3)), 3),
        ClaimReply::Ordered { generation, .. } if generation == first
    ));
    let stranger = shard.claim_for(&user(2), Some(tag(1)), TERMS);
    assert!(granted(stranger) > second, "it is an order of another");
}

/// Each step, and the increase of the version.
#[test]
fn version_increases_by_one_with_each_change_of_terms_only() {
    type Step = fn(&mut ShardLedger);
    let steps: [(&str, u64, Step); 21] = [
        ("warm", 1, |s| assert!(s.warm(9, None))),
        ("warm again", 0, |s| assert!(!s.warm(9, None))),
        ("claim", 1, |s| {
            granted(s.claim(&user(1), TERMS));
        }),
        ("claim again", 0, |s| {
            granted(s.claim(&user(1), TERMS));
        }),
        ("delivery", 0, |s| {
            let kind = ReleaseKind::Delivery(0);
            let reply = s.release(&user(1), 1, kind);
            assert_eq!(reply, ReleaseReply::StillOut);
        }),
        ("settle", 1, |s| {
            let reply = s.settle(&user(1), 1, Deduction::AtPayment);
            assert_eq!(reply, SettleReply::Settled);
        }),
        ("charge", 1, |s| {
            assert_eq!(s.charge(&user(1), 1), FollowUpReply::Done);
        }),
        ("charge again", 0, |s| {
            assert_eq!(s.charge(&user(1), 1), FollowUpReply::Nothing);
        }),
        ("cancel", 1, |s| {
            assert_eq!(s.cancel(&user(1), 1), FollowUpReply::Done)
        }),
        ("cancel again", 0, |s| {
            assert_eq!(s.cancel(&user(1), 1), FollowUpReply::Nothing);
        }),
        ("another claim", 1, |s| {
            granted(s.claim(&user(2), TERMS));
        }),
        ("release", 1, |s| {
            let reply = s.release(&user(2), 2, ReleaseKind::Decided);
            assert_eq!(reply, ReleaseReply::Ended);
        }),
        ("lend", 1, |s| {
            assert!(matches!(s.lend(1, 1), LendReply::Lent(_)))
        }),
        ("lend again", 0, |s| {
            assert!(matches!(s.lend(1, 1), LendReply::Lent(_)))
        }),
        ("transfer", 0, |s| assert!(s.settle_transfer(1, 3))),
        ("deposit", 1, |s| {
            let reply = s.deposit(1, Transfer { id: 9, units: 1 });
            assert_eq!(reply, DepositReply::Deposited);
        }),
        ("restock", 1, |s| {
            let audit = s.audit();
            assert!(s.restock(1, &audit));
        }),
        ("correct", 1, |s| assert!(s.correct(&user(3), &[], &[]))),
        ("recount", 1, |s| {
            let sums = s.audit();
            assert!(s.recount(&sums));
        }),
        ("recount late", 0, |s| {
            let mut sums = s.audit();
            sums.version -= 1;
            assert!(!s.recount(&sums));
        }),
        ("reserve", 0, |s| s.reserve(&user(1))),
    ];
    let (mut shard, mut version) = (ShardLedger::default(), 0);
    for (name, more, step) in steps {
        step(&mut shard);
        version += more;
        assert_eq!(shard.audit().version, version, "{name}");
    }
    let sums = shard.audit();
    shard.lose_stock();
    assert!(!shard.recount(&sums), "it is cold");
}

#[test]
fn audit_with_replaced_orders_counts_only_the_replacements() {
    let mut shard = warmed(10);
    let ours = granted(shard.claim(&user(1), TERMS));
    shard.settle(&user(1), ours, Deduction::AtOrder);
    let audit = shard.audit();
    let order = |generation, deduction| OrderEntry {
        generation,
        units: 3,
        deduction,
    };
    let orders = [order(5, Deduction::AtOrder), order(7, Deduction::AtPayment)];
    let sums = audit.with_orders(&orders);
    assert_eq!((sums.bought, sums.deferred, sums.checksum), (3, 3, 12));
    assert_eq!((sums.stock, sums.version), (audit.stock, audit.version));
    let existing = shard.orders_of(&user(1)).unwrap();
    assert_eq!(audit.with_orders(&existing), audit);
}

#[test]
fn audit_reports_terms_and_only_durable_ones_of_unloaded_shard() {
    let mut shard = warmed(10);
    let of = |quantity| ClaimTerms {
        user_cap: 3,
        quantity,
        ..TERMS
    };
    let [bought, deferred, held] = [1, 2, 3].map(|n| {
        let reply = shard.claim(&user(n), of(n.into()));
        granted(reply)
    });
    shard.settle(&user(1), bought, Deduction::AtOrder);
    shard.settle(&user(2), deferred, Deduction::AtPayment);
    shard.set_clock_us(5_000_000);
    shard.lend(4, 2);
    shard.deposit(6, Transfer { id: 8, units: 1 });
    let moving = OpenTransfer {
        to_shard: 4,
        transfer: Transfer {
            id: 5_000_000,
            units: 3,
        },
        at_ms: 5_000,
    };
    let warm = Audit {
        stock: Some(4),
        version: 8,
        open: 1,
        held: 3,
        bought: 1,
        deferred: 2,
        checksum: bought + deferred,
        mark: 2,
        epoch: 5_000_000,
        sequence: 5_000_000,
        records: 1,
        deadlines: 1,
        transfers: vec![moving],
        deposits: vec![(6, 8)],
        change: StockChange::default(),
    };
    assert_eq!(shard.audit(), warm);
    assert!(held > deferred);
    shard.lose_stock();
    let cold = Audit {
        stock: None,
        version: 0,
        open: 0,
        held: 0,
        bought: 0,
        deferred: 0,
        checksum: 0,
        mark: 0,
        ..warm
    };
    assert_eq!(shard.audit(), cold);
}

#[test]
fn transfer_has_arrived_if_target_has_it_or_a_later_one() {
    let audit = |to_shard, deposits: &[(u32, u64)]| Audit {
        transfers: vec![OpenTransfer {
            to_shard,
            transfer: Transfer { id: 5, units: 2 },
            at_ms: 0,
        }],
        deposits: deposits.to_vec(),
        ..Audit::default()
    };
    for (deposits, moving) in [
        (&[][..], 2),
        (&[(0, 4)], 2),
        (&[(0, 5)], 0),
        (&[(0, 6)], 0),
        (&[(2, 5)], 2),
        (&[(2, 5), (0, 5)], 0),
    ] {
        let shards = [audit(1, &[]), audit(0, deposits)];
        assert_eq!(shards[0].units_moving(0, &shards), moving, "{deposits:?}");
    }
    let lost = audit(9, &[]);
    assert_eq!(lost.units_moving(0, &[]), 2, "to no shard that is known");
}

#[test]
fn older_transfer_of_the_same_lender_is_already_applied() {
    let mut shard = warmed(0);
    let mut deposit = |from, id| shard.deposit(from, Transfer { id, units: 1 });
    assert_eq!(deposit(1, 5), DepositReply::Deposited);
    for id in [4, 5] {
        assert_eq!(deposit(1, id), DepositReply::Already);
    }
    assert_eq!(deposit(2, 4), DepositReply::Deposited);
    assert_eq!(deposit(1, 6), DepositReply::Deposited);
    assert_eq!(shard.audit().stock, Some(3));
}

#[test]
fn transfer_is_limited_to_request_half_and_available_units() {
    let transferred = |there: u64, expected| match warmed(there).lend(1, expected) {
        LendReply::Lent(transfer) => transfer.units,
        _ => 0,
    };
    for (there, expected, units) in [(0, 1, 0), (1, 1, 1), (4, 1, 2), (5, 4, 4), (3, 9, 3)] {
        assert_eq!(transferred(there, expected), units, "{expected} of {there}");
    }
    let cold = ShardLedger::default().lend(1, 1);
    assert_eq!(cold, LendReply::Cold);
}

/// A repair needs an unchanged version, epoch and sequence.
#[test]
fn repair_of_a_changed_shard_has_no_effect() {
    let shard = warmed(2);
    let audit = shard.audit();
    let changes: [fn(&mut Audit); 3] = [
        |audit| audit.version += 1,
        |audit| audit.epoch += 1,
        |audit| audit.sequence += 1,
    ];
    for change in changes {
        let mut other = audit.clone();
        change(&mut other);
        assert!(!shard.clone().restock(1, &other), "{other:?}");
    }
    for (units, may) in [(1, true), (-2, true), (-3, false)] {
        assert_eq!(shard.clone().restock(units, &audit), may, "{units}");
    }
    let mut cold = shard;
    cold.lose_stock();
    let audit = cold.audit();
    assert!(!cold.restock(1, &audit));
}

/// Orders deducted at payment may make the stock negative; later units bring it back to 0.
#[test]
fn epoch_is_unchanged_while_the_stock_stays_empty() {
    let mut shard = warmed(1);
    let generations = [1, 2, 3].map(|n| {
        let generation = granted(shard.claim(&user(n), TERMS));
        shard.settle(&user(n), generation, Deduction::AtPayment);
        generation
    });
    let mut charge = |n: u8| {
        shard.charge(&user(n), generations[usize::from(n) - 1]);
        let audit = shard.audit();
        (audit.stock, audit.epoch)
    };
    let (none, epoch) = charge(1);
    assert_eq!(none, Some(0));
    assert_eq!(charge(2), (Some(-1), epoch));
    assert_eq!(charge(3), (Some(-2), epoch));
    let observed = shard.audit();
    assert!(
        !shard.restock(0, &observed),
        "it would still be below nothing"
    );
    let mut repaired = warmed(1);
    let before = repaired.audit();
    assert!(repaired.restock(0, &before));
    assert_eq!(repaired.audit().epoch, before.epoch, "nothing has come");
    assert!(shard.restock(1, &observed));
    assert!(shard.audit().epoch > epoch, "something has");
}

#[test]
fn voided_claim_ends_and_returns_no_unit() {
    let mut shard = warmed(1);
    let generation = granted(shard.claim(&user(1), TERMS));
    let reply = shard.release(&user(1), generation, ReleaseKind::Void);
    assert_eq!(reply, ReleaseReply::Ended);
    let audit = shard.audit();
    assert_eq!((audit.stock, audit.held, audit.version), (Some(0), 0, 3));
}

#[test]
fn user_without_claim_or_order_leaves_no_record() {
    let mut shard = warmed(3);
    let names = |shard: &ShardLedger| -> Vec<UserId> {
        shard.settled().map(|(user, _)| user.clone()).collect()
    };
    let [first, second] = [1, 2].map(|n| granted(shard.claim(&user(n), TERMS)));
    assert!(names(&shard).is_empty(), "they hold claims");
    shard.release(&user(1), first, ReleaseKind::Decided);
    shard.settle(&user(2), second, Deduction::AtOrder);
    assert_eq!(names(&shard), [user(2)]);
    assert!(shard.open().is_empty(), "it is an order");
    let orders = shard.orders_of(&user(2)).unwrap();
    let order = OrderEntry {
        generation: second,
        units: 1,
        deduction: Deduction::AtOrder,
    };
    assert_eq!(orders, [order]);
    assert_eq!(shard.orders_of(&user(1)), Some(vec![]));
    shard.cancel(&user(2), second);
    assert!(shard.correct(&user(3), &[], &[]));
    assert!(names(&shard).is_empty());
}

#[test]
fn rebuild_belongs_to_its_starter_until_the_shard_is_warm() {
    let mut shard = ShardLedger::default();
    assert!(!shard.renew("a"), "nobody has begun");
    assert_eq!(shard.wipe("a", 100), WipeReply::Begun);
    assert!(shard.renew("a") && !shard.renew("b"));
    assert_eq!(shard.wipe("a", 100), WipeReply::Begun, "its own again");
    assert!(shard.warm(1, Some("a")));
    assert!(!shard.renew("a"));
}

#[test]
fn restored_shard_keeps_orders_and_never_reuses_generations() {
    let mut shard = ShardLedger::default();
    shard.wipe("a", 100);
    let orders = [70, 77].map(|generation| OrderEntry {
        generation,
        units: 2,
        deduction: Deduction::AtPayment,
    });
    assert!(shard.restore("a", &user(1), &orders));
    assert!(shard.restore("a", &user(2), &orders[..1]));
    assert_eq!(shard.audit().sequence, 77, "it never falls");
    shard.warm(4, Some("a"));
    assert_eq!(shard.audit().deferred, 6);
    assert_eq!(shard.orders_of(&user(1)).unwrap(), orders);
}

#[derive(Clone, Debug)]
enum LedgerOperation {
    Claim(u8),
    Settle(u8, u64, Deduction),
    Charge(u8, u64),
    Cancel(u8, u64),
    Release(u8, u64, ReleaseKind),
}

fn any_op() -> impl Strategy<Value = LedgerOperation> {
    let kind = prop_oneof![
        (0..3_u32).prop_map(ReleaseKind::Delivery),
        Just(ReleaseKind::Decided)
    ];
    let deduction = prop_oneof![Just(Deduction::AtOrder), Just(Deduction::AtPayment)];
    let claim = || (0..6_u8, 1..20_u64);
    prop_oneof![
        3 => (0..6_u8).prop_map(LedgerOperation::Claim),
        2 => (claim(), deduction).prop_map(|((u, g), d)| LedgerOperation::Settle(u, g, d)),
        1 => claim().prop_map(|(u, g)| LedgerOperation::Charge(u, g)),
        1 => claim().prop_map(|(u, g)| LedgerOperation::Cancel(u, g)),
        2 => (claim(), kind).prop_map(|((u, g), k)| LedgerOperation::Release(u, g, k)),
    ]
}

proptest! {
    /// Σ stock + claims + orders = total, after any sequence of operations, with valid and invalid generations.
    #[test]
    fn no_operation_creates_or_loses_a_unit(
        total in 0..8_u64, quantity in 1..3_u32, ops in prop::collection::vec(any_op(), 0..80),
    ) {
        let mut shard = warmed(total);
        let terms = ClaimTerms { ttl_ms: 9, user_cap: 4, quantity, ..TERMS };
        for op in ops {
            match op {
                LedgerOperation::Claim(u) => { shard.claim(&user(u), terms); }
                LedgerOperation::Settle(u, g, deduction) => { shard.settle(&user(u), g, deduction); }
                LedgerOperation::Charge(u, g) => { shard.charge(&user(u), g); }
                LedgerOperation::Cancel(u, g) => { shard.cancel(&user(u), g); }
                LedgerOperation::Release(u, g, kind) => { shard.release(&user(u), g, kind); }
            }
            let audit = shard.audit();
            let sum = audit.stock.unwrap() + (audit.held + audit.bought) as i64;
            prop_assert_eq!(sum, total as i64);
        }
    }
}
