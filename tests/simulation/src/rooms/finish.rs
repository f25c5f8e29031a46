//! The end of a schedule of a waiting room: all faults end, the room opens, and visitors who keep polling are admitted
//! up to the capacity.

use weir_room::Mode;

use super::world::{CLAIM_MS, World};
use crate::stage::Simulation;
use crate::stage::fault::LAST_CLIENT_AT_MS;
use crate::stage::requests::Requests;

/// The time after the last fault and visitor until no fault waits for a call.
const MARGIN_MS: u64 = 1_000;

/// The maximum time of work in progress.
const LATE_MS: u64 = 6_500;

/// The maximum time until unused admitted positions expire, one after the other.
const PASS_ON_MS: u64 = 4 * CLAIM_MS;

/// Runs a schedule to its end.
pub(super) fn run(world: &mut World) {
    let last_ms = world.plan.faults_end_ms().max(LAST_CLIENT_AT_MS);
    world.run_ms(last_ms + MARGIN_MS);
    world.stage().end_faults();
    if world.is_narrow {
        // Admitted visitors may wait for capacity longer than the claim time.
        world.run_ms(2 * CLAIM_MS);
    }
    world.set_mode(Mode::Open);
    world.run_ms(LATE_MS);
    let visitors = world.plan.visitors.len() as u64;
    let pace_ms = (visitors * 60_000).checked_div(world.plan.room.per_minute);
    let end_us = world.now_us() + (pace_ms.unwrap_or(0) + PASS_ON_MS) * 1_000;
    world.run_until(end_us, |world| missing(world) == 0);
    let missing = missing(world);
    if world.stage().violation.is_none() && missing > 0 {
        let entered = world.witness.entered.len();
        let message = format!("{entered} have entered, and {missing} more should");
        world.stage().violate(message);
    }
    // Visitors admitted just now are informed.
    world.run_ms(MARGIN_MS);
    let strangers = strangers_inside(world);
    if world.stage().violation.is_none() && strangers > 0 {
        let message = format!("{strangers} are inside whom nobody has let in");
        world.stage().violate(message);
    }
    let ask_ms = world
        .plan
        .visitors
        .iter()
        .map(|visitor| visitor.asks_after_ms);
    let ask_ms = ask_ms.max().unwrap_or(0);
    stop(world);
    world.run_ms(LATE_MS + ask_ms);
    let (open, remembered) = (world.open_requests(), world.stage().remembered_streams());
    if world.stage().violation.is_none() && open + remembered > 0 {
        let message = format!("{open} requests are open, {remembered} streams are remembered");
        world.stage().violate(message);
    }
}

/// The number of polling visitors who are not inside although there is capacity.
fn missing(world: &World) -> usize {
    let stays = |visitor: &usize| !world.is_gone(*visitor);
    let requesting = (0..world.plan.visitors.len()).filter(stays);
    let entered = &world.witness.entered;
    let outside = requesting
        .filter(|visitor| !entered.contains(visitor))
        .count();
    let inside = world.redis.last.observed.inside;
    match world.plan.room.active_max {
        0 => outside,
        most => outside.min(most.saturating_sub(inside) as usize),
    }
}

/// The number of sessions of visitors who were not admitted. A visitor who left may have a session if the answer was
/// lost.
fn strangers_inside(world: &World) -> u64 {
    let is_gone =
        |visitor: &usize| world.is_gone(*visitor) && !world.witness.entered.contains(visitor);
    let removed = (0..world.plan.visitors.len()).filter(is_gone).count();
    let existing = world.witness.entered.len() + removed;
    match world.plan.loses_data() {
        // Visitors inside may count until Redis would have received their reports.
        true => 0,
        false => world
            .redis
            .last
            .observed
            .inside
            .saturating_sub(existing as u64),
    }
}

/// Stops all visitors.
fn stop(world: &mut World) {
    for visitor in &mut world.plan.visitors {
        visitor.gives_up_after = Some(0);
    }
}
