//! The end of a schedule: all faults end, all work finishes, and then exactly the remaining units must be sold.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use weir_base::id::UserId;

use crate::USERS_AT_THE_END;
use crate::attempt::{Attempt, AttemptOutcome};
use crate::client::{ClientAnswer, user as user_of};
use crate::plan::{Client, FollowUp, LAST_CLIENT_AT_MS, SALE_LASTS_MS};
use crate::queue::START_MS;
use crate::witness::unrest;
use crate::world::{RequestKind, World};

/// The time after the last fault and client until no fault waits for a call.
const MARGIN_MS: u64 = 1_500;

/// The maximum time of work in progress: a late message, and the claim that results from it.
const LATE_MS: u64 = 5_000;

/// How long a gateway may answer `sold_out` from memory after units returned: two polls.
const MEMORY_MS: u64 = 700;

/// The maximum number of tries of one buyer at the end: they take 6 s. A gateway that caches "sold out" for longer is
/// wrong, although it queries Redis again later.
const TRIES_MAX: u32 = 9;

/// As `TRIES_MAX`, with units that may be at another site than the buyer.
const TRIES_AT_SITES_MAX: u32 = 30;

/// The maximum time until a site has paid for orders of the other one.
const DEBTS_MS: u64 = 15_000;

/// The maximum time for one request with all its parts.
const REQUEST_MS_MAX: u64 = 15_000;

/// Runs a schedule to its end.
pub(crate) fn run(world: &mut World) {
    let last_ms = world.plan.faults_end_ms().max(LAST_CLIENT_AT_MS);
    world.run_ms(last_ms + MARGIN_MS);
    world.end_faults();
    world.run_ms(LATE_MS);
    if let Some(restores) = world.plan.restores_lost_orders() {
        decide_lost_orders(world, restores);
    }
    // An operator reopens the sale if it has ended.
    world.sql.move_end(START_MS + SALE_LASTS_MS);
    settle(world);
    world.avoids_closed_sites = true;
    if world.witness.violation.is_none() {
        ask_again(world);
    }
    if world.witness.violation.is_none() {
        sell_out(world);
    }
    world.stats.schedules = 1;
    let done = [
        ("orders", world.sql.orders.len() as u64),
        ("orders refunded", world.sql.refunded.len() as u64),
        ("units added", world.sql.units_added()),
        ("units withdrawn", world.sql.units_withdrawn()),
        ("units repaired", world.bus.borrow().units_repaired),
        ("units transferred", world.sql.units_transferred),
        ("units inherited", world.sql.units_inherited),
    ];
    world.stats.done.extend(done);
}

/// Checks that lost orders were detected, and makes an operator decide.
fn decide_lost_orders(world: &mut World, restores: bool) {
    let unnoticed = world.witness.failover.check_noticed(&world.sql);
    if world.sql.is_paused {
        *world.stats.done.entry("pauses").or_default() += 1;
    }
    world.decide_lost_orders(restores);
    let undone = world.witness.failover.check_decided(restores, &world.sql);
    if let Some(subject) = unnoticed.or(undone) {
        world.witness.violate(world.now_us(), subject);
    }
}

/// Runs the reconcilers until Redis and SQL are idle and consistent.
fn settle(world: &mut World) {
    // Every changed clock is corrected once more.
    let steps_ms = 2 * world.plan.clock_steps_ms();
    let usual_ms = world.witness.settle_ms() + steps_ms;
    if let Some(unrest) = rest_within(world, usual_ms) {
        return world
            .witness
            .violate(world.now_us(), format!("not at rest: {unrest}"));
    }
    let repaired = world.bus.borrow().units_repaired;
    if repaired > 0 && !world.witness.has_lost && !world.sql.has_kept_units {
        let message = format!("{repaired} units repaired though nothing was lost");
        world.witness.violate(world.now_us(), message);
    }
    // Gateways read the current catalogue and epochs.
    world.run_ms(MEMORY_MS);
}

/// The reason why the world is not idle after `ms`, if any.
fn rest_within(world: &mut World, ms: u64) -> Option<String> {
    const ROUND_MS: u64 = 500;
    for _ in 0..ms / ROUND_MS {
        if world.open_requests() == 0 && unrest(&world.redis, &world.sql).is_none() {
            return None;
        }
        world.run_ms(ROUND_MS);
        if world.witness.violation.is_some() {
            return None;
        }
    }
    let open = world.open_requests();
    let is_open = (open > 0).then(|| format!("{open} requests are open"));
    is_open.or_else(|| unrest(&world.redis, &world.sql))
}

/// Clients that were told of an order with a key repeat the request, and then send it with another body.
fn ask_again(world: &mut World) {
    let reply: Vec<_> = (0..world.plan.setting.users)
        .flat_map(|number| {
            let reply = world.witness.attempts.acknowledged();
            let reply = reply.filter(move |(user, ..)| **user == user_of(number));
            reply.map(move |(_, key, reply)| (number, key, reply))
        })
        .collect();
    for (number, key, reply) in reply {
        for body in [reply.body, reply.body + 1] {
            let attempt = Attempt { key, body };
            let client = world.add_client(one_try(world, number, Some(attempt)));
            let Some(received) = final_answer(world, client) else {
                return;
            };
            check_again(world, number, attempt, reply, &received);
        }
    }
}

/// The same body gets the same order, another body none. Redis finds the attempt unless it lost it, the order was
/// cancelled, or another claim made the order, which is possible if the cap allows only that order. Then the refusal
/// must have a valid reason.
fn check_again(
    world: &mut World,
    number: u32,
    attempt: Attempt,
    reply: AttemptOutcome,
    answer: &ClientAnswer,
) {
    let sql = &world.sql;
    let order = &sql.orders[&reply.order];
    let is_right = match attempt.body == reply.body {
        true => answer.is_order() && answer.order == Some(reply.order),
        false => answer.word == "key_reused",
    };
    // Another site's Redis does not have the attempt.
    let may_be_forgotten = !order.is_active() || world.witness.has_lost || world.sites() > 1;
    let has_all = sql.standing_units_of(&order.user) >= sql.sale.user_cap;
    let is_all = order.units >= sql.sale.user_cap;
    let is_excused = match answer.word.as_str() {
        "sold_out" => may_be_forgotten && sql.remaining == 0,
        "cap_reached" | "user_cap" => (may_be_forgotten || is_all) && has_all,
        _ => false,
    };
    if !is_right && !is_excused {
        let message =
            format!("user {number}, told {reply:?}, asks by {attempt:?} and hears {answer:?}");
        world.witness.violate(world.now_us(), message);
    }
}

/// All earlier clients retry once, and then new ones buy, until all is sold.
fn sell_out(world: &mut World) {
    for number in (0..world.plan.setting.users).chain(USERS_AT_THE_END) {
        buy_one(world, number);
        if world.witness.violation.is_some() {
            return;
        }
    }
    check_all_sold(world);
    world.run_ms(1_000);
    // Units may still be on their way to a site whose orders were paid with units of the other one.
    let unrest = match world.sites() {
        1 => unrest(&world.redis, &world.sql),
        _ => rest_within(world, DEBTS_MS),
    };
    if let Some(unrest) = unrest {
        world
            .witness
            .violate(world.now_us(), format!("at the end: {unrest}"));
    }
    let streams = world.remembered_streams();
    if streams > 0 {
        let message = format!("{streams} streams that have ended are remembered");
        world.witness.violate(world.now_us(), message);
    }
}

fn check_all_sold(world: &mut World) {
    let (remaining, at_us) = (world.sql.remaining, world.now_us());
    if remaining == 0 {
        return;
    }
    let message = format!("{remaining} units are left");
    world.witness.violate(at_us, message);
}

/// One buyer retries until the answer is final, which must be the right one.
fn buy_one(world: &mut World, number: u32) {
    let client = world.add_client(one_try(world, number, None));
    let Some(received) = final_answer(world, client) else {
        return;
    };
    if received.is_order() {
        return pay(world, client, &received);
    }
    let user = world.client(client).user.clone();
    check_refusal(world, &user, &received);
}

/// A client that comes now, and retries only when told to.
fn one_try(world: &World, user: u32, attempt: Option<Attempt>) -> Client {
    Client {
        at_ms: world.now_us() / 1_000,
        user,
        leaves_after_us: None,
        retries: 0,
        attempt,
        quantity: 1,
        then: FollowUp::Nothing,
    }
}

/// Runs a client until its answer is final; `None` after a violation.
fn final_answer(world: &mut World, client: usize) -> Option<ClientAnswer> {
    let tries = match world.sites() {
        1 => TRIES_MAX,
        _ => TRIES_AT_SITES_MAX,
    };
    for _ in 0..tries {
        let received = wait_for(world, client);
        if world.witness.violation.is_some() {
            return None;
        }
        let is_final = received.is_order() || !received.may_be_retried();
        if is_final {
            return Some(received);
        }
        world.run_ms(MEMORY_MS);
        world.ask(client, RequestKind::Buy);
    }
    let last = wait_for(world, client);
    let user = &world.client(client).user;
    let message = format!("{user} could not buy in {tries} tries: {last:?}");
    world.witness.violate(world.now_us(), message);
    None
}

/// A client's next answer.
fn wait_for(world: &mut World, client: usize) -> ClientAnswer {
    let end_us = world.now_us() + REQUEST_MS_MAX * 1_000;
    world.run_until(end_us, |world| world.client(client).last.is_some());
    match &world.client(client).last {
        Some(received) => received.clone(),
        None => {
            world
                .witness
                .violate(world.now_us(), "a client at the end hears nothing");
            ClientAnswer::nothing(0, "")
        }
    }
}

fn pay(world: &mut World, client: usize, answer: &ClientAnswer) {
    let order = answer.order.expect("an order has a name");
    for _ in 0..TRIES_MAX {
        world.ask(client, RequestKind::Pay(order));
        let answer = wait_for(world, client);
        match answer.word.as_str() {
            _ if world.witness.violation.is_some() => return,
            "paid" => return,
            _ if answer.may_be_retried() => world.run_ms(MEMORY_MS),
            // An old order with deduction at payment may find no units left.
            "not_payable" if world.sql.remaining == 0 => return,
            _ => {
                let message = format!("order {order:?} cannot be paid: {answer:?}");
                return world.witness.violate(world.now_us(), message);
            }
        }
    }
}

/// Checks a final refusal against SQL.
fn check_refusal(world: &mut World, user: &UserId, answer: &ClientAnswer) {
    let sql = &world.sql;
    let has_all = sql.standing_units_of(user) >= sql.sale.user_cap;
    let is_right = match answer.word.as_str() {
        "sold_out" => sql.remaining == 0,
        // From Redis; or from SQL, if Redis lost the user's orders.
        "cap_reached" | "user_cap" => has_all,
        "blocked" => sql.blocked.contains(user),
        "not_reserved" => sql.sale.reservation && !sql.reserved.contains(user),
        _ => false,
    };
    if is_right {
        return;
    }
    let message = format!(
        "{user}, with {} of {} units, heard {} while {} units are left",
        sql.standing_units_of(user),
        sql.sale.user_cap,
        answer.word,
        sql.remaining
    );
    world.witness.violate(world.now_us(), message);
}
