//! What a request may cost. A number here is raised only with a reason; one that has become much too large is lowered.

#![allow(clippy::unwrap_used)]

use weir_costs::{Cost, all};

/// The most of fuel, host calls, bytes copied and Redis commands, by scenario.
const BUDGETS: [(&str, f64, f64, f64, f64); 16] = [
    // All request headers in one call, clock, answer. One call copies more than one a header did, and
    // saves as many calls. Bytes raised from 430, 420 and 360: refusals are problem details, with type and status, and the
    // fuel lowered to what has long been enough. Bytes of answers raised by 20: details for access logs.
    // Fuel raised from 7,200 and 6,600: the pass over the headers looks for the buyer's language, too.
    // Fuel raised by 160 at most: whether the request must wait for the catalogue, how many units it wants, and whether operators
    // are told of it (which also raised the admissions below, by 250 at most).
    ("rejected locally: no token", 7_460.0, 3.0, 490.0, 0.0),
    ("rejected locally: not started", 6_760.0, 3.0, 475.0, 0.0),
    ("rejected locally: sold out", 6_960.0, 3.0, 415.0, 0.0),
    // One HMAC-SHA256 of a short text.
    ("order token minted", 34_000.0, 3.0, 540.0, 0.0),
    // The same, and for each that goes on: effective context, three headers, resume. Raised from 30,500: a batch is sorted by how many
    // units are wanted; so are the limits' below.
    (
        "admission in Redis, 64 in a batch",
        30_800.0,
        7.3,
        610.0,
        1.0 / 64.0,
    ),
    // Raised from 53,000 with ADR 21: a generation has the 16 digits of a time, with which the ticket of this scenario
    // takes one block of SHA-256 more.
    (
        "order token checked, and admission, 64 in a batch",
        55_750.0,
        7.3,
        750.0,
        1.0 / 64.0,
    ),
    // A batch of its own, through the bridge, without a turn. Bytes raised from 1,600 with ADR 21, for the same digits.
    (
        "admission in Redis, 1 in a batch",
        64_000.0,
        16.0,
        1_620.0,
        1.0,
    ),
    // The address, and a bucket read and written for each of the two. Raised from 40,000: both are charged, or neither.
    (
        "admission with limits on user and address, 64 in a batch",
        41_300.0,
        12.3,
        1_500.0,
        1.0 / 64.0,
    ),
    ("local limit per user", 7_500.0, 4.0, 370.0, 0.0),
    // Raised from 10,500: a visitor has a country and a share, links lead on after their end, access logs are told why, and
    // scans of QR codes are told from clicks; and from 10,850: clicks may have names, and links passwords.
    ("redirect from memory", 11_050.0, 3.0, 480.0, 0.0),
    // What tells of a visitor is kept; the user agent was read before.
    (
        "redirect from memory, first click",
        19_000.0,
        3.0,
        490.0,
        0.0,
    ),
    // One script a link, in one batch: links are in slots of their own. The bridge takes the commands out of their
    // chunk, and writes them back.
    // Raised from 40,300: a request first looks whether it is the worker's first, which waits for domains; and from 40,400:
    // records have countries, queries, shares and previews; and from 41,300: clicks' names, and passwords.
    (
        "redirect from Redis, 64 in a batch",
        41_800.0,
        5.3,
        1_450.0,
        1.0,
    ),
    // Twelve header calls: what clients sent is removed, five stamps are added, the path loses its key. Two limits, each a
    // bucket read and written; and the response is seen, for the page's sake.
    (
        "events of a page, with two limits",
        40_500.0,
        17.0,
        1_560.0,
        0.0,
    ),
    ("events without a known key", 20_000.0, 5.0, 900.0, 0.0),
    // One event as JSON in the batch.
    ("a page that is observed", 21_500.0, 5.0, 420.0, 0.0),
    ("a request that is neither", 3_000.0, 2.0, 100.0, 0.0),
];

#[test]
fn every_scenario_stays_within_its_budget() {
    let costs = all().unwrap();
    assert_eq!(costs.len(), BUDGETS.len());
    let over: Vec<&Cost> = costs.iter().filter(|cost| !is_within(cost)).collect();
    assert!(over.is_empty(), "over their budgets: {over:#?}");
}

fn is_within(cost: &Cost) -> bool {
    let budget = BUDGETS.iter().find(|budget| budget.0 == cost.scenario);
    let &(_, fuel, host_calls, bytes_copied, redis_commands) = budget.unwrap();
    cost.fuel <= fuel
        && cost.host_calls <= host_calls
        && cost.bytes_copied <= bytes_copied
        && cost.redis_commands <= redis_commands
}

/// Counted, not measured: a second run gives the same.
#[test]
fn costs_are_equal_in_every_run() {
    assert_eq!(all().unwrap(), all().unwrap());
}
