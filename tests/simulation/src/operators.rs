//! Operators' actions during a sale: they add units, withdraw some, move its end, and refund orders.

use crate::plan::{
    Client, Fault, FollowUp, LAST_FAULT_AT_MS, SALE_STARTS_AT_MS, Setting, TimedFault,
};
use crate::random::Rng;

/// The maximum number of added units in one schedule: all must find a buyer.
const ADDED_MAX: i64 = 6;

/// In some schedules, a few changes, each of which may be requested repeatedly.
pub(crate) fn faults(rng: &mut Rng, setting: Setting) -> Vec<TimedFault> {
    if !rng.chance(40) {
        return vec![];
    }
    let mut faults = Vec::new();
    let mut added = 0;
    for key in 0..rng.between(1, 4) as u32 {
        let units = match rng.chance(55) {
            true => rng.between(1, 3) as i64,
            false => -(rng.between(1, 8) as i64),
        };
        added += units.max(0);
        if added > ADDED_MAX {
            break;
        }
        let at_ms = rng.between(SALE_STARTS_AT_MS, LAST_FAULT_AT_MS);
        faults.push(change(rng, setting, at_ms, key, units));
        if rng.chance(40) {
            let again_at_ms = at_ms + rng.between(0, 1_000);
            faults.push(change(rng, setting, again_at_ms, key, units));
        }
    }
    if rng.chance(40) {
        faults.extend(other_end(rng, setting));
    }
    faults
}

fn change(rng: &mut Rng, setting: Setting, at_ms: u64, key: u32, units: i64) -> TimedFault {
    let origin = rng.below(setting.origins.into()) as u32;
    let fault = Fault::ChangeStock { origin, key, units };
    TimedFault { at_ms, fault }
}

/// The sale ends early, and continues later.
fn other_end(rng: &mut Rng, setting: Setting) -> [TimedFault; 2] {
    let ends_at_ms = rng.between(SALE_STARTS_AT_MS, LAST_FAULT_AT_MS);
    let extended_at_ms = ends_at_ms + rng.between(0, 1_500);
    let origin = rng.below(setting.origins.into()) as u32;
    [(ends_at_ms, 0), (extended_at_ms, 60_000)].map(|(at_ms, after_ms)| TimedFault {
        at_ms,
        fault: Fault::MoveEnd { origin, after_ms },
    })
}

/// In some schedules, refunds for some paid orders, soon or long after; some are requested twice.
pub(crate) fn refunds(rng: &mut Rng, clients: &[Client], setting: Setting) -> Vec<TimedFault> {
    if !rng.chance(40) {
        return vec![];
    }
    let mut faults = Vec::new();
    for client in clients {
        let FollowUp::Pay { after_ms } = client.then else {
            continue;
        };
        if !rng.chance(60) {
            continue;
        }
        let at_ms = client.at_ms + after_ms + rng.pick(&[0, 5, 50, 1_000]) + rng.below(50);
        faults.push(refund(rng, setting, at_ms, client.user));
        if rng.chance(40) {
            let again_at_ms = at_ms + rng.between(0, 300);
            faults.push(refund(rng, setting, again_at_ms, client.user));
        }
    }
    faults
}

fn refund(rng: &mut Rng, setting: Setting, at_ms: u64, user: u32) -> TimedFault {
    let origin = rng.below(setting.origins.into()) as u32;
    let fault = Fault::Refund { origin, user };
    TimedFault { at_ms, fault }
}
