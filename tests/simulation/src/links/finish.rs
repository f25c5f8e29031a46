//! The end of a schedule of links: all faults end, all work finishes, and then each worker must answer with the current
//! state. Links with a click limit must have redirected exactly that many clicks.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use super::plan::{CODES, Client, Kind, LIMITED};
use super::sql::{CodeState, target};
use super::witness::ClickAnswer;
use super::world::World;
use crate::host::WorkerLife;
use crate::stage::Simulation;
use crate::stage::fault::LAST_CLIENT_AT_MS;
use crate::stage::requests::Requests;

/// The time after the last fault and client until no fault waits for a call.
const MARGIN_MS: u64 = 1_000;

/// The maximum time of work in progress: a late call, the follow-up of an edit, a corrected clock, breakers.
const LATE_MS: u64 = 9_000;

/// How long a worker caches that all clicks of a link are used, and that a code is unknown.
const MEMORY_MS: u64 = 1_300;

/// Runs a schedule to its end.
pub(super) fn run(world: &mut World) {
    let last_ms = world.plan.faults_end_ms().max(LAST_CLIENT_AT_MS);
    world.run_ms(last_ms + MARGIN_MS);
    world.stage().end_faults();
    world.end_own_faults();
    world.run_ms(LATE_MS);
    // Twice: a worker with an old cache entry refreshes it in the background.
    for _ in 0..2 {
        ask_all(world, |_, _| {});
        world.run_ms(MEMORY_MS);
    }
    ask_all(world, says_what_is);
    for code in LIMITED {
        give_away(world, code);
    }
    world.run_ms(LATE_MS);
    if world.stage().violation.is_none() {
        books_are_right(world);
    }
    let led_on: u64 = world.witness.led_on.values().sum();
    let counted = (0..CODES).map(|code| world.sql.clicks(code)).sum();
    let limited = LIMITED.iter();
    let limited = limited
        .filter_map(|code| world.witness.led_on.get(code))
        .sum();
    world.stage().stats.done = [
        ("clicks led on", led_on),
        ("clicks counted", counted),
        ("clicks of limited links", limited),
    ]
    .into();
}

/// Sends a client's request, and waits for the answer.
fn hear(world: &mut World, place: WorkerLife, code: u32, kind: Kind) -> ClickAnswer {
    let client = Client {
        at_ms: 0,
        code,
        kind,
        leaves_after_us: None,
    };
    let id = world.ask(place, client);
    let end_us = world.now_us() + 2 * world.decided_within_us();
    world.run_until(end_us, |world| world.received.contains_key(&id));
    let received = world.received.get(&id).cloned();
    received.unwrap_or(ClickAnswer::Nothing)
}

/// Requests every link from every worker, without a click.
fn ask_all(world: &mut World, mut look: impl FnMut(&mut World, (WorkerLife, u32, ClickAnswer))) {
    for place in world.stage().places() {
        for code in 0..CODES {
            if world.stage().violation.is_some() {
                return;
            }
            let received = hear(world, place, code, Kind::Head);
            look(world, (place, code, received));
            // The configuration limits the rate of lookups.
            world.run_ms(60);
        }
    }
}

fn says_what_is(world: &mut World, (place, code, received): (WorkerLife, u32, ClickAnswer)) {
    let now = world.sql.now(code);
    let is_right = match (now, &received) {
        (CodeState::Nothing, ClickAnswer::Unknown) | (CodeState::Disabled, ClickAnswer::Gone) => {
            true
        }
        (CodeState::Leading(_), ClickAnswer::Gone) => LIMITED.contains(&code),
        (CodeState::Leading(version), ClickAnswer::LedOn(to)) => target(code, version) == *to,
        _ => false,
    };
    if !is_right && world.stage().violation.is_none() {
        let message = format!("code {code} is {now:?}, {place:?} says {received:?}");
        world.stage().violate(message);
    }
}

/// Clicks a link with a click limit until no clicks are left.
fn give_away(world: &mut World, code: u32) {
    let places = world.stage().places();
    let most = 2 * world.plan.clicks_max + 2;
    for n in 0..most {
        let place = places[n as usize % places.len()];
        match hear(world, place, code, Kind::Click) {
            ClickAnswer::LedOn(_) => {}
            ClickAnswer::Gone => break,
            other if world.stage().violation.is_none() => {
                let message = format!("code {code} at {place:?}: {other:?}");
                return world.stage().violate(message);
            }
            _ => return,
        }
    }
    if world.stage().violation.is_some() || is_lossy(world) {
        return;
    }
    let led_on = world.witness.led_on.get(&code).copied().unwrap_or(0);
    let all = world.plan.clicks_max;
    if led_on != all {
        let message = format!("{led_on} clicks of code {code} led on, it had {all}");
        world.stage().violate(message);
    }
}

/// Whether something may be lost that no party can restore. A call that the network duplicates may use a click after
/// its first copy has reported that the link is unknown. Then no party knows that a click must be returned.
fn is_lossy(world: &World) -> bool {
    let plan = &world.plan;
    plan.loses_data() || plan.kills_workers() || plan.doubles_calls()
}

fn books_are_right(world: &mut World) {
    let is_whole = !is_lossy(world);
    let wrong = (0..CODES).find_map(|code| world.witness.counted(code, &world.sql, is_whole));
    if let Some(subject) = wrong {
        return world.stage().violate(subject);
    }
    let open = world.open_requests();
    let remembered = world.stage().remembered_streams();
    if open > 0 || remembered > 0 {
        let subject = format!("{open} requests are open, {remembered} streams are remembered");
        world.stage().violate(subject);
    }
}
