//! The schedules of sales at two sites: those of one site, with partitions, losses of sites and operators' commands.

use std::fmt;
use std::ops::Range;

use crate::plan::{Cut, Fault, LAST_FAULT_AT_MS, Plan, SiteChange, SqlFate, TimedFault};
use crate::random::Rng;
use crate::schedule::{Schedule, Step};
use crate::{Options, Report};

/// A sale at two sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sites(pub(crate) Plan);

/// The maximum number of times that a site joins, so that a schedule needs few fences.
const JOINS_MAX: usize = 6;

impl Schedule for Sites {
    const SUBJECT: &'static str = "sites";

    fn new(seed: u64) -> Self {
        let mut plan = Plan::of_seed(seed);
        let mut rng = Rng::new(seed, 11);
        let setting = &mut plan.setting;
        setting.sites = 2;
        setting.gateways = rng.pick(&[2, 2, 3, 4]);
        setting.origins = rng.pick(&[2, 2, 4]);
        setting.shards = setting.shards.min(3);
        if rng.chance(30) {
            setting.redis_ahead_ms = rng.between(0, 4_000) as i64 - 2_000;
        }
        plan.keep_faults_in_bounds();
        // An SQL server that loses commits is another subject.
        let is_failover = |timed: &TimedFault| matches!(timed.fault, Fault::FailOverSql { .. });
        plan.faults.retain(|timed| !is_failover(timed));
        for _ in 0..rng.between(1, 4) {
            let faults = site_faults(&mut rng, &plan);
            plan.faults.extend(faults);
        }
        plan.faults.sort_by_key(|timed| timed.at_ms);
        let mut joins = 0;
        plan.faults.retain(|timed| {
            let is_join = matches!(
                timed.fault,
                Fault::ChangeSite {
                    step: SiteChange::Join,
                    ..
                }
            );
            joins += usize::from(is_join);
            !is_join || joins <= JOINS_MAX
        });
        Self(plan)
    }

    fn seed(&self) -> u64 {
        self.0.seed
    }

    fn run(&self, options: &Options) -> Report {
        self.0.run(options)
    }

    fn lists(&self) -> Vec<usize> {
        self.0.lists()
    }

    fn drop_entries(&mut self, list: usize, entries: Range<usize>) {
        self.0.drop_entries(list, entries);
    }

    fn steps(&self) -> Vec<Step<Self>> {
        // The numbers of gateways and origins stay: each site needs some.
        let steps = self.0.steps().into_iter().skip(3);
        let at_sites =
            |step: Step<Plan>| -> Step<Self> { Box::new(move |sites| step(&mut sites.0)) };
        steps.map(at_sites).collect()
    }

    fn size(&self) -> u64 {
        self.0.size()
    }
}

impl fmt::Display for Sites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn site_faults(rng: &mut Rng, plan: &Plan) -> Vec<TimedFault> {
    let at_ms = rng.between(300, LAST_FAULT_AT_MS);
    let site = rng.below(2) as u32;
    let change = |at_ms, step| TimedFault {
        at_ms,
        fault: Fault::ChangeSite { site, step },
    };
    let joined = |rng: &mut Rng, at_ms| {
        let again_at_ms = at_ms + rng.between(10, 2_000);
        rng.chance(60)
            .then(|| change(again_at_ms, SiteChange::Join))
    };
    match rng.below(10) {
        0..=3 => vec![cut_off(rng, plan, at_ms)],
        4..=6 => {
            let lost = Fault::LoseSite {
                site,
                keeps_data: rng.chance(60),
                for_ms: rng.between(100, 3_000),
            };
            let mut faults = vec![TimedFault { at_ms, fault: lost }];
            if rng.chance(75) {
                let failed_at_ms = at_ms + rng.between(0, 1_500);
                faults.push(change(failed_at_ms, SiteChange::Fail));
                faults.extend(joined(rng, failed_at_ms));
            }
            faults
        }
        7 | 8 => {
            // The site is well: its claims are open, and its transfers under way.
            let mut faults = slow_transactions(rng, at_ms);
            faults.push(change(at_ms, SiteChange::Fail));
            if rng.chance(50) {
                let drained_at_ms = at_ms.saturating_sub(rng.between(10, 400));
                faults.push(change(drained_at_ms, SiteChange::Drain));
            }
            faults.extend(joined(rng, at_ms));
            faults
        }
        _ => {
            let mut faults = vec![change(at_ms, SiteChange::Drain)];
            faults.extend(joined(rng, at_ms + 1_000));
            faults
        }
    }
}

/// Transactions that begin before an operator's command, and run after it.
fn slow_transactions(rng: &mut Rng, at_ms: u64) -> Vec<TimedFault> {
    let slow = |_| {
        let by_ms = rng.between(50, 1_500);
        TimedFault {
            at_ms: at_ms.saturating_sub(rng.between(0, 300)),
            fault: Fault::Sql {
                fate: SqlFate::Slow { by_ms },
            },
        }
    };
    (0..4).map(slow).collect()
}

fn cut_off(rng: &mut Rng, plan: &Plan, at_ms: u64) -> TimedFault {
    let gateway = rng.below(plan.setting.gateways.into()) as u32;
    let origin = rng.below(plan.setting.origins.into()) as u32;
    let between = rng.pick(&[
        Cut::GatewayAndRedis(gateway),
        Cut::GatewayAndOrigins(gateway),
        Cut::OriginAndRedis(origin),
        Cut::OriginAndSql(origin),
    ]);
    let fault = Fault::CutOff {
        between,
        is_one_way: rng.chance(40),
        for_ms: rng.between(50, 2_500),
    };
    TimedFault { at_ms, fault }
}
