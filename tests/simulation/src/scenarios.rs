//! Handwritten schedules for defects that random schedules rarely find.

use weir_sale::ledger::EvictedKey;

use crate::Options;
use crate::mutation::Mutation;
use crate::plan::{Client, Fault, FollowUp, OriginFate, PayMode, Plan, Setting, TimedFault};
use crate::schedule::Schedule;

const SETTING: Setting = Setting {
    sites: 1,
    redis_ahead_ms: 0,
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
    is_other_sale_stuck: false,
};

fn buyer(at_ms: u64, user: u32, then: FollowUp) -> Client {
    Client {
        at_ms,
        user,
        leaves_after_us: None,
        retries: 4,
        attempt: None,
        quantity: 1,
        then,
    }
}

fn at(at_ms: u64, fault: Fault) -> TimedFault {
    TimedFault { at_ms, fault }
}

/// The number of seeds per schedule: they vary delays and the gateways of clients.
const SEEDS: u64 = 200;

/// The parts of a handwritten schedule.
struct Scenario {
    setting: Setting,
    clients: Vec<Client>,
    faults: Vec<TimedFault>,
}

impl Scenario {
    /// The first violation over all seeds.
    fn violation(&self, mutation: Option<Mutation>) -> Option<String> {
        let options = Options {
            mutation,
            ..Options::default()
        };
        let run = |seed| {
            let plan = Plan {
                seed,
                setting: self.setting,
                clients: self.clients.clone(),
                faults: self.faults.clone(),
            };
            plan.run(&options).violation
        };
        let violation = (0..SEEDS).find_map(run);
        violation.map(|violation| violation.what)
    }

    /// Passes without `mutation` and fails with it.
    fn needs(&self, mutation: Mutation) -> String {
        assert_eq!(self.violation(None), None);
        let subject = self.violation(Some(mutation));
        subject.unwrap_or_else(|| panic!("{mutation} is not caught"))
    }
}

/// The origin's server cannot read the request of user 0, who holds the only unit and does not return. User 1 gets it a
/// moment later.
#[test]
fn c1_claim_refused_unread_by_origin_is_free_for_the_next_user() {
    let fate = OriginFate::RefuseUnread;
    let once = |at_ms, user| Client {
        retries: 0,
        ..buyer(at_ms, user, FollowUp::Nothing)
    };
    let plan = Plan {
        seed: 1,
        setting: Setting {
            total: 1,
            gateways: 1,
            ..SETTING
        },
        clients: vec![once(600, 0), once(800, 1)],
        faults: vec![at(500, Fault::Origin { fate })],
    };
    let options = Options {
        keeps_lines: true,
        ..Options::default()
    };
    let report = plan.run(&options);
    assert!(report.violation.is_none(), "{:?}", report.violation);
    let hears = |client: usize, word: &str| {
        let hears = format!("client {client} hears");
        let mut lines = report.lines.iter();
        lines.any(|line| line.contains(&hears) && line.contains(word))
    };
    assert!(hears(0, "\"unread\""));
    assert!(hears(1, "\"ordered\""));
}

/// User 0 cancels, which raises the epoch. User 2 buys the unit, which raises it again, and a gateway observes "sold
/// out". Then Redis loses everything since the cancellation, and users 1 and 6 cancel: the epoch would be the same
/// again, with units. The gateway was paused meanwhile.
#[test]
fn c3_epochs_do_not_repeat_so_none_hides_a_unit() {
    let clients = [
        buyer(500, 0, FollowUp::Cancel { after_ms: 300 }),
        buyer(500, 1, FollowUp::Cancel { after_ms: 1_450 }),
        buyer(510, 6, FollowUp::Cancel { after_ms: 1_460 }),
        buyer(1_400, 2, FollowUp::Nothing),
        buyer(1_600, 3, FollowUp::Nothing),
        buyer(1_610, 4, FollowUp::Nothing),
        buyer(1_620, 5, FollowUp::Nothing),
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
    let scenario = Scenario {
        setting: Setting {
            total: 3,
            ..SETTING
        },
        clients: clients.to_vec(),
        faults: faults.to_vec(),
    };
    let subject = scenario.needs(Mutation::EpochsWithoutTime);
    assert!(
        subject.contains("at an epoch at which it had none"),
        "{subject}"
    );
}

/// Redis has lost everything, and rebuilt shards begin without units: buyers must not get "sold out" meanwhile.
#[test]
fn c4_redis_rebuild_returns_no_sold_out() {
    let lost = Fault::RestartRedis {
        back_ms: None,
        for_ms: 1,
    };
    let buyers = (0..40).map(|n| buyer(1_000 + 60 * n, (n % 8) as u32, FollowUp::Nothing));
    let scenario = Scenario {
        setting: Setting {
            shards: 2,
            total: 10,
            ..SETTING
        },
        clients: buyers.collect(),
        faults: vec![at(900, lost)],
    };
    let subject = scenario.needs(Mutation::SoldOutToldEarly);
    assert!(subject.contains("sold_out, and SQL has"), "{subject}");
}

/// An order is cancelled, and Redis loses that: only SQL has changed.
fn cancelled_in_sql_alone() -> Scenario {
    let lost = Fault::RestartRedis {
        back_ms: Some(100),
        for_ms: 1,
    };
    Scenario {
        setting: Setting {
            total: 1,
            gateways: 1,
            ..SETTING
        },
        clients: vec![buyer(900, 0, FollowUp::Cancel { after_ms: 1_600 })],
        faults: vec![at(2_560, lost)],
    }
}

#[test]
fn c5_unit_released_only_in_sql_is_sold() {
    let subject = cancelled_in_sql_alone().needs(Mutation::SqlChangeIgnored);
    assert!(subject.contains("units are missing in Redis"), "{subject}");
}

#[test]
fn c6_user_can_buy_again_after_redis_loses_the_cancellation() {
    let subject = cancelled_in_sql_alone().needs(Mutation::OrdersNotVerified);
    assert!(subject.contains("heard cap_reached"), "{subject}");
}

/// Redis has lost everything, and users come continuously during the rebuild.
fn lists_lost(setting: Setting, clients: impl Iterator<Item = Client>) -> Scenario {
    let lost = Fault::RestartRedis {
        back_ms: None,
        for_ms: 1,
    };
    Scenario {
        setting,
        clients: clients.collect(),
        faults: vec![at(500, lost)],
    }
}

#[test]
fn c6_blocked_user_gets_no_unit_after_redis_loses_the_list() {
    let setting = Setting {
        is_first_user_blocked: true,
        ..SETTING
    };
    let tries = (0..20).map(|n| buyer(1_000 + 200 * n, 0, FollowUp::Nothing));
    let subject = lists_lost(setting, tries).needs(Mutation::RebuiltWithoutLists);
    assert!(subject.contains("may not buy, and holds"), "{subject}");
}

#[test]
fn c6_reserved_user_gets_no_other_answer_after_redis_loses_list() {
    let setting = Setting {
        is_reserved: true,
        ..SETTING
    };
    // One per millisecond, around the round in which the shard is rebuilt.
    let tries = (0..60).map(|n| buyer(1_000 + n, 0, FollowUp::Nothing));
    let subject = lists_lost(setting, tries).needs(Mutation::ListsAfterStock);
    assert!(subject.contains("has reserved, and heard"), "{subject}");
}

/// An order of another sale waits permanently for Redis, but this sale is still repaired.
#[test]
fn c8_order_that_redis_cannot_apply_delays_no_other_sale() {
    let lost = Fault::RestartRedis {
        back_ms: Some(300),
        for_ms: 1,
    };
    let scenario = Scenario {
        setting: Setting {
            is_other_sale_stuck: true,
            ..SETTING
        },
        clients: vec![buyer(900, 0, FollowUp::Nothing)],
        faults: vec![at(1_000, lost)],
    };
    let subject = scenario.needs(Mutation::OtherSaleWaitedFor);
    assert!(subject.contains("units are missing in Redis"), "{subject}");
}

/// Redis evicts the claims of a shard or their deadlines while a claim is open: its unit returns.
#[test]
fn c11_evicted_key_locks_no_unit() {
    let away = Fault::KillOrigin {
        origin: 0,
        for_ms: 1_500,
    };
    for key in [EvictedKey::Claims, EvictedKey::Pending] {
        let scenario = Scenario {
            setting: Setting {
                total: 1,
                gateways: 1,
                ..SETTING
            },
            clients: vec![buyer(900, 0, FollowUp::Nothing)],
            faults: vec![at(850, away), at(1_000, Fault::Evict { shard: 0, key })],
        };
        let subject = scenario.needs(Mutation::EvictionNotHealed);
        assert!(subject.contains("units are held"), "{subject}");
    }
}

/// A claim is granted while the origin is down, and its user retries until the breaker opens, by a clock that is a
/// minute ahead. Then the clock is corrected.
#[test]
fn c7_clock_set_back_does_not_keep_a_breaker_open() {
    let setting = Setting {
        total: 1,
        gateways: 1,
        ..SETTING
    };
    let clients: Vec<Client> = (0..30)
        .map(|n| buyer(2_050 + 40 * n, 0, FollowUp::Nothing))
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
    let scenario = Scenario {
        setting,
        clients,
        faults: faults.to_vec(),
    };
    assert_eq!(scenario.violation(None), None);
}

/// The claim of the last unit is lost, and the epoch is unchanged.
#[test]
fn s3_lost_claim_returns_its_unit_at_a_new_epoch() {
    let setting = Setting {
        total: 1,
        gateways: 1,
        ..SETTING
    };
    let clients = [
        buyer(698, 3, FollowUp::Cancel { after_ms: 1_090 }),
        buyer(867, 4, FollowUp::Nothing),
    ];
    let lost = Fault::RestartRedis {
        back_ms: Some(639),
        for_ms: 1,
    };
    let scenario = Scenario {
        setting,
        clients: clients.to_vec(),
        faults: vec![at(1_082, lost)],
    };
    let subject = scenario.needs(Mutation::EpochNotRaisedWhenEmpty);
    assert!(
        subject.contains("at an epoch at which it had none"),
        "{subject}"
    );
}

/// Redis loses a shard, and two origins rebuild it concurrently.
#[test]
fn s2_concurrent_rebuilds_do_not_erase_each_other() {
    let setting = Setting {
        origins: 2,
        ..SETTING
    };
    let lost = Fault::LoseShard {
        shard: 0,
        back_ms: None,
    };
    let clients = [buyer(407, 0, FollowUp::Nothing)];
    let scenario = Scenario {
        setting,
        clients: clients.to_vec(),
        faults: vec![at(585, lost)],
    };
    let subject = scenario.needs(Mutation::RebuildNotFenced);
    assert!(subject.contains("is rebuilt without order"), "{subject}");
}

/// SQL loses the order of user 0, and user 5 pays before the check: the number of changes is the same as before.
#[test]
fn lost_order_is_detected_despite_a_replacing_payment() {
    let failover = Fault::FailOverSql {
        behind_ms: 596,
        restores: true,
    };
    let once = |at_ms, user, then| Client {
        retries: 0,
        ..buyer(at_ms, user, then)
    };
    let scenario = Scenario {
        setting: Setting {
            total: 3,
            gateways: 1,
            ..SETTING
        },
        clients: vec![
            once(735, 5, FollowUp::Pay { after_ms: 1_385 }),
            once(1_688, 0, FollowUp::Nothing),
        ],
        faults: vec![at(2_057, failover)],
    };
    let subject = scenario.needs(Mutation::LossNotNoticed);
    assert!(subject.contains("nobody has noticed"), "{subject}");
}
