//! What waits in the pump, and how it is grouped into script calls.

use weir_base::breaker::Pass;
use weir_filter_kit::pump::{Plan, Planned, Ticket};
use weir_filter_kit::redis_config::Topology;
use weir_scripts::limit_back::Charge;
use weir_scripts::{limit, limit_back};

use crate::case::Case;

/// What is asked of Redis.
#[derive(Debug)]
pub(crate) enum Job {
    /// Limits, for a request that waits.
    Check(Box<CheckJob>),
    /// A charge goes back: the request has ended.
    Back(Charge),
}

/// Limits that one request asks for.
#[derive(Debug)]
pub(crate) struct CheckJob {
    /// First what is enforced, together, if there is anything; then what is only looked at, each by itself.
    pub(crate) asks: Vec<Vec<limit::Ask>>,
    /// For the outcome at Redis.
    pub(crate) pass: Pass,
    /// When it began to wait.
    pub(crate) since_ms: u64,
    /// The request.
    pub(crate) case: Case,
}

/// Groups jobs into calls as the topology allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitPlan {
    pub(crate) topology: Topology,
}

impl Plan for LimitPlan {
    type Job = Job;

    fn plan(&self, tickets: Vec<Ticket<Job>>, _now_ms: u64) -> Vec<Planned<Job>> {
        let is_check = |ticket: &Ticket<Job>| matches!(ticket.job, Job::Check(_));
        let (checks, backs): (Vec<_>, Vec<_>) = tickets.into_iter().partition(is_check);
        // What has ended first makes room for what begins.
        let mut calls = self.group(backs, back_call);
        calls.extend(self.group(checks, check_call));
        calls
    }
}

impl LimitPlan {
    fn group(
        &self,
        tickets: Vec<Ticket<Job>>,
        plan: fn(Vec<Ticket<Job>>) -> Planned<Job>,
    ) -> Vec<Planned<Job>> {
        match self.topology {
            _ if tickets.is_empty() => vec![],
            Topology::Single => vec![plan(tickets)],
            // A request has one key in Redis at most, or the rules would have been refused.
            Topology::Cluster => tickets
                .into_iter()
                .map(|ticket| plan(vec![ticket]))
                .collect(),
        }
    }
}

fn check_call(tickets: Vec<Ticket<Job>>) -> Planned<Job> {
    let requests: Vec<&Vec<limit::Ask>> = tickets
        .iter()
        .filter_map(|ticket| match &ticket.job {
            Job::Check(job) => Some(&job.asks),
            Job::Back(_) => None,
        })
        .flatten()
        .collect();
    let call = limit::call(&requests);
    Planned { call, tickets }
}

fn back_call(tickets: Vec<Ticket<Job>>) -> Planned<Job> {
    let charges: Vec<Charge> = tickets
        .iter()
        .filter_map(|ticket| match &ticket.job {
            Job::Back(charge) => Some(charge.clone()),
            Job::Check(_) => None,
        })
        .collect();
    let call = limit_back::call(&charges);
    Planned { call, tickets }
}
