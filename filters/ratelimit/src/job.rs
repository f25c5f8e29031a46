//! What waits in the pump, and how it is grouped into script calls.

use weir_base::breaker::Pass;
use weir_filter_kit::pump::{PendingRequest, Plan, Planned};
use weir_filter_kit::redis_config::Topology;
use weir_scripts::limit_back::Charge;
use weir_scripts::{limit, limit_back};

use crate::evaluation::Evaluation;

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
    pub(crate) asks: Vec<Vec<limit::LimitRequest>>,
    /// For the outcome at Redis.
    pub(crate) pass: Pass,
    /// When it began to wait.
    pub(crate) since_ms: u64,
    /// The request.
    pub(crate) evaluation: Evaluation,
}

/// Groups jobs into calls as the topology allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitPlan {
    pub(crate) topology: Topology,
}

impl Plan for LimitPlan {
    type Job = Job;

    fn plan(&self, requests: Vec<PendingRequest<Job>>, _now_ms: u64) -> Vec<Planned<Job>> {
        let is_check = |request: &PendingRequest<Job>| matches!(request.job, Job::Check(_));
        let (checks, backs): (Vec<_>, Vec<_>) = requests.into_iter().partition(is_check);
        // What has ended first makes room for what begins.
        let mut calls = self.group(backs, back_call);
        calls.extend(self.group(checks, check_call));
        calls
    }
}

impl LimitPlan {
    fn group(
        &self,
        requests: Vec<PendingRequest<Job>>,
        plan: fn(Vec<PendingRequest<Job>>) -> Planned<Job>,
    ) -> Vec<Planned<Job>> {
        match self.topology {
            _ if requests.is_empty() => vec![],
            Topology::Single => vec![plan(requests)],
            // A request has one key in Redis at most, or the rules would have been refused.
            Topology::Cluster => requests
                .into_iter()
                .map(|request| plan(vec![request]))
                .collect(),
        }
    }
}

fn check_call(requests: Vec<PendingRequest<Job>>) -> Planned<Job> {
    let checks: Vec<&Vec<limit::LimitRequest>> = requests
        .iter()
        .filter_map(|request| match &request.job {
            Job::Check(job) => Some(&job.asks),
            Job::Back(_) => None,
        })
        .flatten()
        .collect();
    let call = limit::call(&checks);
    Planned { call, requests }
}

fn back_call(requests: Vec<PendingRequest<Job>>) -> Planned<Job> {
    let charges: Vec<Charge> = requests
        .iter()
        .filter_map(|request| match &request.job {
            Job::Back(charge) => Some(charge.clone()),
            Job::Check(_) => None,
        })
        .collect();
    let call = limit_back::call(&charges);
    Planned { call, requests }
}
