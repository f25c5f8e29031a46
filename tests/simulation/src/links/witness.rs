//! What must hold of links, and the bounds that follow from what is documented.
//!
//! - **An answer was true.** A redirect leads to where the link has led, of some version, and never to another link's; what
//!   was never disabled or limited is never 410; what was always there is never 404, whoever is asked, and what was never
//!   there is nothing else. How old an answer may be has no bound while faults last
//!   ([ADR 26](../../../../docs/adr/0026-keep-cached-links-until-the-origin-confirms-removal.md));
//!   at the end it must be that of now.
//! - **What a worker holds is answered.** Once it has answered a link that nobody edits without asking anybody, it never says
//!   503 or 404 of it.
//! - **A maximum is a maximum**
//!   ([ADR 25](../../../../docs/adr/0025-identify-each-click-on-a-limited-link.md)):
//!   no more clicks are led on than the link has; and, when Redis loses data, so many more as SQL
//!   had not counted of those that Redis knew, or as a state that is restored knows fewer. At the
//!   end, if nobody has died with what there was to give back and nothing was lost, exactly so many
//!   were led on.
//! - **A click is counted once**: SQL has no more clicks than clients were led on, those included who have left meanwhile; and
//!   at the end, if nobody has died and nothing was lost, no fewer.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{Kind, LIMITED, PLAIN, Plan};
use super::sql::{CodeState, Sql, target};
use crate::host::WorkerLife;

/// Watches a schedule.
#[derive(Debug)]
pub(super) struct Witness {
    clicks_max: u64,
    /// Clicks that were led on, by code.
    pub(super) led_on: BTreeMap<u32, u64>,
    /// Clicks whose clients left before they had an answer.
    left: BTreeMap<u32, u64>,
    /// How many clicks of a limited link may be given twice.
    allowance: BTreeMap<u32, u64>,
    /// How many of its clicks were known to be used after the last loss.
    known: BTreeMap<u32, u64>,
    /// Links that workers have answered without asking anybody.
    held: BTreeSet<(usize, u64, usize, u32)>,
}

/// What a client has heard of a code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClickAnswer {
    LedOn(String),
    Gone,
    Unknown,
    Unavailable,
    /// The gateway does not know its domains yet, and the origin would answer.
    Passed,
    Nothing,
    Left,
}

impl Witness {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            clicks_max: plan.clicks_max,
            led_on: BTreeMap::new(),
            left: BTreeMap::new(),
            allowance: BTreeMap::new(),
            known: BTreeMap::new(),
            held: BTreeSet::new(),
        }
    }

    /// A client has heard something. What is wrong with that, if anything is.
    pub(super) fn hear(
        &mut self,
        code: u32,
        kind: Kind,
        heard: &ClickAnswer,
        sql: &Sql,
    ) -> Option<String> {
        let past = &sql.past[&code];
        let was = |one: fn(&CodeState) -> bool| past.iter().any(one);
        match heard {
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
                    *self.left.entry(code).or_default() += 1;
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

    /// Redis has lost data: it had counted so many clicks of a limited link, if it knew the link, and so many are known now,
    /// or will be when somebody asks.
    pub(super) fn lose_clicks(&mut self, code: u32, had: Option<u64>, has: u64) {
        let known = self.known.entry(code).or_default();
        let had = had.unwrap_or(*known);
        *known = has;
        *self.allowance.entry(code).or_default() += had.saturating_sub(has);
    }

    // --- what workers hold

    /// A worker has answered without asking anybody.
    pub(super) fn hold(&mut self, place: WorkerLife, incarnation: u64, code: u32) {
        if PLAIN.contains(&code) {
            self.held
                .insert((place.gateway, incarnation, place.worker, code));
        }
    }

    pub(super) fn holds(&self, place: WorkerLife, incarnation: u64, code: u32) -> bool {
        self.held
            .contains(&(place.gateway, incarnation, place.worker, code))
    }

    // --- statistics

    /// Whether SQL has counted what it should: `is_whole` if nothing can have been lost.
    pub(super) fn counted(&self, code: u32, sql: &Sql, is_whole: bool) -> Option<String> {
        let led_on = self.led_on.get(&code).copied().unwrap_or(0);
        let left = self.left.get(&code).copied().unwrap_or(0);
        let counted = sql.clicks(code);
        let least = if is_whole { led_on } else { 0 };
        (counted < least || counted > led_on + left).then(|| {
            format!(
                "{counted} clicks of code {code} are counted, {led_on} were led on, {left} left"
            )
        })
    }
}
