//! Schedules made by hand: for defects that chance meets too rarely.

use crate::defect::{Defect, KNOWN_DEFECTS};
use crate::plan::{Client, Fault, PayMode, Plan, Setting, Then, TimedFault};
use crate::{Options, run_plan};

const SETTING: Setting = Setting {
    shards: 1,
    total: 2,
    user_cap: 1,
    payment: PayMode::AtOrder,
    gateways: 2,
    workers: 1,
    origins: 1,
    users: 8,
    is_first_user_blocked: false,
    is_reserved: false,
};

fn buyer(at_ms: u64, user: u32, then: Then) -> Client {
    Client {
        at_ms,
        user,
        leaves_after_us: None,
        retries: 4,
        then,
    }
}

fn at(at_ms: u64, fault: Fault) -> TimedFault {
    TimedFault { at_ms, fault }
}

/// The first violation that one of a few seeds finds in the same schedule: they differ in delays, and in who comes to
/// which gateway.
fn violation(setting: Setting, clients: &[Client], faults: &[TimedFault], of: Defect) -> String {
    let known = KNOWN_DEFECTS.iter().copied();
    let options = Options {
        excused: known.filter(|&known| known != of).collect(),
        ..Options::default()
    };
    let run = |seed| {
        let plan = Plan {
            seed,
            setting,
            clients: clients.to_vec(),
            faults: faults.to_vec(),
        };
        run_plan(&plan, &options).violation
    };
    let violation = (0..200).find_map(run).expect("one of the seeds fails");
    violation.what
}

/// User 0 cancels, which raises the epoch; user 2 buys the unit, and a gateway sees that all is sold. Then Redis forgets
/// all since the cancellation, and user 1 cancels: the same epoch again, with a unit. The gateway stood still meanwhile.
#[test]
fn c3_an_epoch_that_comes_twice_hides_a_unit() {
    let clients = [
        buyer(500, 0, Then::Cancel { after_ms: 300 }),
        buyer(500, 1, Then::Cancel { after_ms: 1_450 }),
        buyer(1_400, 2, Then::Nothing),
        buyer(1_600, 3, Then::Nothing),
        buyer(1_610, 4, Then::Nothing),
        buyer(1_620, 5, Then::Nothing),
    ];
    let lost = Fault::RestartRedis {
        back_ms: Some(1_200),
        for_ms: 1,
    };
    let paused = Fault::PauseGateway {
        gateway: 0,
        for_ms: 1_500,
    };
    let faults = [at(1_880, paused), at(1_900, lost)];
    let what = violation(SETTING, &clients, &faults, Defect::C3);
    assert!(
        what.starts_with("C3: ") && what.contains("sold_out"),
        "{what}"
    );
}

/// A claim is granted while the origin is away, and its user comes again and again, until the breaker opens: by a clock that
/// is a minute ahead. Then the clock is set right.
#[test]
fn c7_a_breaker_stays_open_for_as_long_as_the_clock_was_set_back() {
    let setting = Setting {
        total: 1,
        gateways: 1,
        ..SETTING
    };
    let clients: Vec<Client> = (0..30)
        .map(|n| buyer(2_050 + 40 * n, 0, Then::Nothing))
        .collect();
    let away = Fault::KillOrigin {
        origin: 0,
        for_ms: 3_000,
    };
    let set = |by_ms| Fault::SetGatewayClock { gateway: 0, by_ms };
    let faults = [
        at(2_000, away),
        at(2_070, set(60_000)),
        at(3_100, set(-60_000)),
    ];
    let what = violation(setting, &clients, &faults, Defect::C7);
    assert!(what.contains("could not buy"), "{what}");
}

/// The claim that took the last unit is lost, and the epoch is as it was.
#[test]
fn s3_a_claim_that_is_lost_brings_a_unit_back_at_the_same_epoch() {
    let setting = Setting {
        total: 1,
        gateways: 1,
        ..SETTING
    };
    let clients = [
        buyer(698, 3, Then::Cancel { after_ms: 1_090 }),
        buyer(867, 4, Then::Nothing),
    ];
    let lost = Fault::RestartRedis {
        back_ms: Some(639),
        for_ms: 1,
    };
    let what = violation(setting, &clients, &[at(1_082, lost)], Defect::S3);
    assert!(
        what.starts_with("S3: ") && what.contains("sold_out"),
        "{what}"
    );
}

/// Redis loses a shard, and two origins rebuild it at once.
#[test]
fn s2_of_two_rebuilds_at_once_one_wipes_what_the_other_has_restored() {
    let setting = Setting {
        origins: 2,
        ..SETTING
    };
    let lost = Fault::LoseShard {
        shard: 0,
        back_ms: None,
    };
    let clients = [buyer(407, 0, Then::Nothing)];
    let what = violation(setting, &clients, &[at(585, lost)], Defect::S2);
    assert!(
        what.starts_with("S2: ") && what.contains("user_cap"),
        "{what}"
    );
}
