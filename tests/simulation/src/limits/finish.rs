//! The end of a schedule of limits: all faults end, all work finishes, and then limits must allow exactly their quota.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use weir_limit::Algorithm;

use super::plan::{Client, DOCUMENTS, Rule, Second};
use super::world::{LimitsAnswer, World};
use crate::host::WorkerLife;
use crate::stage::Simulation;
use crate::stage::fault::LAST_CLIENT_AT_MS;
use crate::stage::requests::Requests;

/// The time after the last fault and client until no fault waits for a call.
const MARGIN_MS: u64 = 1_000;

/// The maximum time of work in progress: a late call, and the longest request behind a gateway.
const LATE_MS: u64 = 6_500;

/// The maximum delay for new rules: a poll interval, a tick, and the duration of the poll.
const RULES_WITHIN_MS: u64 = 800;

/// Enough requests to close each breaker.
const PROBES: u32 = 4;

/// Runs a schedule to its end.
pub(super) fn run(world: &mut World) {
    let last_ms = world.plan.faults_end_ms().max(LAST_CLIENT_AT_MS);
    world.run_ms(last_ms + MARGIN_MS);
    world.stage().end_faults();
    world.run_ms(LATE_MS);
    let document = if world.plan.reloads {
        world.set_rules(DOCUMENTS);
        DOCUMENTS
    } else {
        0
    };
    close_breakers(world);
    world.run_ms(RULES_WITHIN_MS);
    let fallbacks = world.witness.fallbacks;
    let rule = world.plan.rule.of(document);
    for place in world.stage().places() {
        if world.stage().violation.is_none() {
            whole_quota(world, rule, place);
        }
    }
    if world.stage().violation.is_none() && world.witness.fallbacks > fallbacks {
        let subject = "a request was decided without Redis, which was there";
        world.stage().violate(subject.into());
    }
    world.run_ms(LATE_MS);
    if world.stage().violation.is_none() {
        nothing_remembered(world);
    }
}

fn asks(user: u32, for_ms: u64) -> Client {
    Client {
        at_ms: 0,
        user,
        cost: 1,
        for_ms,
        leaves_after_us: None,
    }
}

/// Sends a client's request, and waits for the answer.
fn hear(world: &mut World, place: WorkerLife, client: Client) -> LimitsAnswer {
    let id = world.ask(place, client);
    let end_us = world.now_us() + 2 * world.decided_within_us();
    world.run_until(end_us, |world| world.received.contains_key(&id));
    let received = world.received.get(&id).cloned();
    received.unwrap_or(LimitsAnswer::Nothing)
}

/// Each worker queries Redis until its breaker is closed, with a separate user, whose limit is not reached.
fn close_breakers(world: &mut World) {
    for (n, place) in world.stage().places().into_iter().enumerate() {
        for probe in 0..PROBES {
            let user = 1_000 + n as u32 * PROBES + probe;
            hear(world, place, asks(user, 5));
            world.run_ms(150);
        }
    }
}

/// After a rest, a user has exactly the whole quota. A client that waits as long as it was told passes at any worker.
fn whole_quota(world: &mut World, rule: Rule, place: WorkerLife) {
    world.run_ms(rest_ms(rule));
    let before_us = world.now_us();
    let mut passed = Vec::new();
    let refused = loop {
        match hear(world, place, asks(0, 0)) {
            LimitsAnswer::Passed {
                request,
                place,
                stream,
            } => passed.push((request, place, stream)),
            other => break other,
        }
        if passed.len() > 100 {
            break LimitsAnswer::Nothing;
        }
    };
    let took_ms = (world.now_us() - before_us).div_ceil(1_000);
    let count = passed.len() as u64;
    for (request, place, stream) in passed {
        world.end(request, place, stream);
    }
    if world.stage().violation.is_some() {
        return;
    }
    let LimitsAnswer::Refused { retry_after_s } = refused else {
        let message = format!("after {count} requests in {took_ms} ms: {refused:?}");
        return world.stage().violate(message);
    };
    let (least, most) = quota(rule, took_ms);
    if count > most || (count < least && world.plan.second == Second::None) {
        let message = format!(
            "{count} requests passed at {place:?} in {took_ms} ms: {least} to {most} were allowed"
        );
        return world.stage().violate(message);
    }
    let again = wait_and_ask(world, place, retry_after_s);
    // The other rule's refusals were in a slice of this rule, which has expired, so this rule now determines the wait.
    let may_be_refused = rule.lease.is_some() && world.plan.second != Second::None;
    let last = match again {
        LimitsAnswer::Refused { retry_after_s } if may_be_refused => {
            wait_and_ask(world, place, retry_after_s)
        }
        again => again,
    };
    if !matches!(last, LimitsAnswer::Passed { .. }) && world.stage().violation.is_none() {
        let message = format!("told to wait {retry_after_s} s, and then: {last:?}");
        world.stage().violate(message);
    }
}

/// Waits, and retries at another worker.
fn wait_and_ask(world: &mut World, place: WorkerLife, retry_after_s: u64) -> LimitsAnswer {
    world.run_ms(retry_after_s * 1_000);
    let places = world.stage().places();
    let other = places[(retry_after_s as usize + place.worker) % places.len()];
    hear(world, other, asks(0, 5))
}

/// The time without requests after which a limit is fully reset: the burst has recovered, slots of dead gateways have
/// expired, which takes two periods, and the second rule has its whole quota, too.
fn rest_ms(rule: Rule) -> u64 {
    let burst_ms = u64::from(rule.burst) * rule.per_ms / u64::from(rule.rate);
    burst_ms.max(2 * rule.per_ms).max(2_000) + 100
}

/// The minimum and maximum number of consecutive requests that a full quota allows in `took_ms`.
fn quota(rule: Rule, took_ms: u64) -> (u64, u64) {
    let (rate, burst) = (u64::from(rule.rate), u64::from(rule.burst));
    let more = match rule.algorithm {
        Algorithm::Gcra => (rate * took_ms).div_ceil(rule.per_ms),
        Algorithm::SlidingWindow | Algorithm::FixedWindow => rate * took_ms.div_ceil(rule.per_ms),
        Algorithm::Concurrency => 0,
    };
    (burst, burst + more)
}

fn nothing_remembered(world: &mut World) {
    let open = world.open_requests();
    let remembered = world.stage().remembered_streams();
    if open > 0 || remembered > 0 {
        let message = format!("{open} requests are open, {remembered} streams are remembered");
        world.stage().violate(message);
    }
}
