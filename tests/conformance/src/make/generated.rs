//! Vectors from property tests: random states and requests, each from the seed in its name. A model of a few lines,
//! independent of the engines, defines the expected results.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::json;
use weir_link::record::{Platform, RedirectStatus, Rule};

use super::links::{AGENTS, PATH, PLATFORMS, TARGET, link, to, visit};
use super::sale::{buy, config, gate};
use super::{Ask, Draft, NOW_MS, limits};
use crate::vector::Vector;

const EACH: u8 = 20;
const PER_MS: u64 = 1_000;

pub(super) fn vectors() -> Vec<Vector> {
    let drafts = (0..EACH).flat_map(|seed| [a_limit(seed), a_sale(seed), a_link(seed)]);
    drafts.map(Draft::done).collect()
}

/// The value that a strategy generates for a seed, the same on every machine.
fn drawn<S: Strategy>(strategy: S, seed: u8) -> S::Value {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    strategy
        .new_tree(&mut runner)
        .expect("strategies here refuse nothing")
        .current()
}

/// Requests of two users at random intervals, with one of two algorithms and one of two stores.
fn a_limit(seed: u8) -> Draft {
    let gaps = prop::sample::select(vec![
        0_u64, 0, 1, 100, 250, 333, 499, 500, 501, 999, 1_000, 1_001,
    ]);
    let request = (gaps, prop::sample::select(vec!["gen-a", "gen-b"]));
    let all = (
        any::<bool>(),
        any::<bool>(),
        1_u64..4,
        0_u64..3,
        prop::collection::vec(request, 6..14),
    );
    let (is_gcra, in_redis, rate, more, requests) = drawn(all, seed);
    let burst = rate + more;
    let mut rule = json!({
        "key": ["user"],
        "limit": { "rate": rate, "per": "1s" },
        "algorithm": if is_gcra { "gcra" } else { "fixed_window" },
        "store": if in_redis { "redis" } else { "local" },
    });
    if is_gcra {
        rule["limit"]["burst"] = json!(burst);
    }
    let name = format!("generated/seed-{seed}");
    let mut draft = limits::limiter(&name, "ratelimit", json!([rule]), &json!({}));
    let mut now_ms = NOW_MS;
    let (mut buckets, mut windows) = (BTreeMap::new(), BTreeMap::new());
    for (gap_ms, user) in requests {
        now_ms += gap_ms;
        let passes = match is_gcra {
            true => leaks(
                buckets.entry(user).or_insert((now_ms, 0)),
                now_ms,
                rate,
                burst,
            ),
            false => counts(windows.entry((user, now_ms / PER_MS)).or_insert(0), rate),
        };
        let expected = if passes {
            "goes on"
        } else {
            "429 rate_limited"
        };
        draft = draft
            .after(gap_ms)
            .ask(Ask::get("/").header("x-user-id", user), expected);
    }
    draft
}

/// A leaky bucket: the time of the last update, and the level, which drains at `rate`. Returns whether a request fits.
fn leaks(bucket: &mut (u64, u64), now_ms: u64, rate: u64, burst: u64) -> bool {
    let (at_ms, level) = *bucket;
    let level = level.saturating_sub((now_ms - at_ms) * rate);
    let passes = level + PER_MS <= burst * PER_MS;
    *bucket = (now_ms, if passes { level + PER_MS } else { level });
    passes
}

fn counts(window: &mut u64, rate: u64) -> bool {
    let passes = *window < rate;
    *window += u64::from(passes);
    passes
}

/// A few users, and fewer units.
fn a_sale(seed: u8) -> Draft {
    let user = prop::sample::select(vec!["ann", "ben", "cem", "dee", "eve"]);
    let request = (0_u64..30, user);
    let (units, requests) = drawn((0_i64..4, prop::collection::vec(request, 4..12)), seed);
    let name = format!("sale/generated/seed-{seed}");
    let mut draft = gate(name, config(), json!({ "band": "none" }), units);
    let mut holders = BTreeSet::new();
    for (gap_ms, user) in requests {
        let has_units = i64::try_from(holders.len()).is_ok_and(|accepted| accepted < units);
        let expected = match (holders.contains(user), has_units) {
            (true, _) => "goes on: granted_again",
            (false, true) => "goes on: granted",
            (false, false) => "409 sold_out",
        };
        if has_units {
            holders.insert(user);
        }
        draft = draft.after(gap_ms).ask(buy(user), expected);
    }
    draft
}

/// Rules for platforms, the first that matches, and all redirect options.
fn a_link(seed: u8) -> Draft {
    let platforms = prop::collection::btree_set(0..PLATFORMS.len(), 0..3);
    let rules = prop::collection::vec(platforms, 0..5);
    let all = (
        rules,
        0..RedirectStatus::ALL.len(),
        any::<bool>(),
        prop::collection::vec(0..AGENTS.len(), 2..5),
        "[a-z]{1,8}=[a-zA-Z0-9%._~!$'()*+,;:@/?-]{0,12}",
    );
    let (rules, status, passes, agents, query) = drawn(all, seed);
    let status = RedirectStatus::ALL[status];
    let platforms_of =
        |rule: &BTreeSet<usize>| rule.iter().map(|&at| PLATFORMS[at].1).collect::<Vec<_>>();
    let target_of = |at: usize| format!("https://rule-{at}.example/");
    let written = rules.iter().enumerate().map(|(at, rule)| Rule {
        platforms: platforms_of(rule),
        languages: vec![],
        target: target_of(at),
        ..Rule::default()
    });
    let the_link = to(|link| {
        link.rules = written.collect();
        link.status = status;
        link.pass_query = passes;
    });
    let mut draft = link(&format!("generated/seed-{seed}"), &the_link);
    for agent in agents {
        let (_, text, of) = AGENTS[agent];
        let is_of = |platform: &Platform| *platform == Platform::Any || of.contains(platform);
        let fits = |rule: &BTreeSet<usize>| rule.is_empty() || platforms_of(rule).iter().any(is_of);
        let target = rules
            .iter()
            .position(fits)
            .map_or_else(|| TARGET.to_owned(), target_of);
        let query_too = if passes {
            format!("?{query}")
        } else {
            String::new()
        };
        let ask = visit("GET", &format!("{PATH}?{query}")).header("user-agent", text);
        draft = draft.ask(ask, format!("{} {target}{query_too}", status.code()));
    }
    draft
}
