//! The invariants of links, and the bounds that follow from the documentation.
//!
//! - **An answer was true.** A redirect leads to a target of some version of the link, never to another link's. A link
//!   that was never disabled or limited never returns 410. A link that always existed never returns 404, from any
//!   worker. A link that never existed always does. The age of an answer is unbounded during faults ([ADR
//!   26](../../../../docs/adr/0026-keep-cached-links-until-the-origin-confirms-removal.md)); at the end it must be
//!   current.
//! - **A worker keeps its cached links.** After it has answered an unedited link from memory, it never returns 503 or
//!   404 for it.
//! - **A click limit holds** ([ADR 25](../../../../docs/adr/0025-identify-each-click-on-a-limited-link.md)): at most
//!   the link's clicks are redirected. When Redis loses data, the bound grows by the clicks in Redis that SQL had not
//!   counted, or by the difference to a restored state. At the end, if no worker died with unreturned clicks and
//!   nothing was lost, exactly this number was redirected.
//! - **A click is counted once**: SQL has at most the redirected clicks, including those of clients that disconnected.
//!   At the end, if no worker died and nothing was lost, it has exactly these.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{Kind, LIMITED, PLAIN, Plan};
use super::sql::{CodeState, Sql, target};
use crate::host::WorkerLife;

/// Checks a schedule.
#[derive(Debug)]
pub(super) struct Witness {
    clicks_max: u64,
    /// Redirected clicks by code.
    pub(super) led_on: BTreeMap<u32, u64>,
    /// Clicks whose clients disconnected before the answer.
    remaining: BTreeMap<u32, u64>,
    /// The number of clicks of a limited link that may be redirected twice.
    allowance: BTreeMap<u32, u64>,
    /// The number of used clicks in Redis after the last loss.
    known: BTreeMap<u32, u64>,
    /// Links that workers have answered from memory.
    held: BTreeSet<(usize, u64, usize, u32)>,
}

/// A client's answer for a code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClickAnswer {
    LedOn(String),
    Gone,
    Unknown,
    Unavailable,
    /// The gateway has not loaded its domains yet, and the origin would answer.
    Passed,
    Nothing,
    Left,
}

impl Witness {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            clicks_max: plan.clicks_max,
            led_on: BTreeMap::new(),
            remaining: BTreeMap::new(),
            allowance: BTreeMap::new(),
            known: BTreeMap::new(),
            held: BTreeSet::new(),
        }
    }

    /// A client got an answer. Returns the violation, if any.
    pub(super) fn hear(
        &mut self,
        code: u32,
        kind: Kind,
        answer: &ClickAnswer,
        sql: &Sql,
    ) -> Option<String> {
        let past = &sql.past[&code];
        let was = |one: fn(&CodeState) -> bool| past.iter().any(one);
        match answer {
            ClickAnswer::LedOn(to) => {
                let is_its = past.iter().any(
                    |was| matches!(was, CodeState::Leading(version) if target(code, *version) == *to),
                );
                if !is_its {
                    return Some(format!("code {code} led to {to}"));
                }
                if kind == Kind::Click {
                    *self.led_on.entry(code).or_default() += 1;
                    return self.too_many(code);
                }
                None
            }
            ClickAnswer::Gone
                if !LIMITED.contains(&code) && !was(|was| *was == CodeState::Disabled) =>
            {
                Some(format!("code {code} is gone, and never was"))
            }
            ClickAnswer::Unknown if !was(|was| *was == CodeState::Nothing) => {
                Some(format!("code {code} is unknown, and was always there"))
            }
            ClickAnswer::Left => {
                if kind == Kind::Click {
                    *self.remaining.entry(code).or_default() += 1;
                }
                None
            }
            _ => None,
        }
    }

    fn too_many(&self, code: u32) -> Option<String> {
        if !LIMITED.contains(&code) {
            return None;
        }
        let allowance = self.allowance.get(&code).copied().unwrap_or(0);
        let (led_on, most) = (self.led_on[&code], self.clicks_max + allowance);
        (led_on > most).then(|| format!("{led_on} clicks of code {code} led on, it has {most}"))
    }

    /// Redis has lost data. Before, it had counted `before` clicks of a limited link, if it had the link; now it has
    /// `has`, or will have when the link is requested.
    pub(super) fn lose_clicks(&mut self, code: u32, before: Option<u64>, has: u64) {
        let existing = self.known.entry(code).or_default();
        let before = before.unwrap_or(*existing);
        *existing = has;
        *self.allowance.entry(code).or_default() += before.saturating_sub(has);
    }

    // --- worker caches

    /// A worker has answered from memory.
    pub(super) fn hold(&mut self, place: WorkerLife, incarnation: u64, code: u32) {
        if PLAIN.contains(&code) {
            self.held
                .insert((place.gateway, incarnation, place.worker, code));
        }
    }

    pub(super) fn caches(&self, place: WorkerLife, incarnation: u64, code: u32) -> bool {
        self.held
            .contains(&(place.gateway, incarnation, place.worker, code))
    }

    // --- statistics

    /// Whether SQL's click count is valid; `is_whole`: nothing can have been lost.
    pub(super) fn counted(&self, code: u32, sql: &Sql, is_whole: bool) -> Option<String> {
        let led_on = self.led_on.get(&code).copied().unwrap_or(0);
        let remaining = self.remaining.get(&code).copied().unwrap_or(0);
        let counted = sql.clicks(code);
        let least = if is_whole { led_on } else { 0 };
        (counted < least || counted > led_on + remaining).then(|| {
            format!(
                "{counted} clicks of code {code} are counted, {led_on} were led on, {remaining} left"
            )
        })
    }
}
