//! The pump's jobs, and their grouping into script calls.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::marker::PhantomData;

use crate::engine::request::Client;
use crate::redis::limit::LimitRequest;
use crate::redis::limit_back::Charge;
use crate::redis::{limit, limit_back};
use weir_base::breaker::Pass;
use weir_engine::config::Topology;
use weir_engine::pump::{Pending, Plan, PlannedBatch};

use crate::engine::evaluation::Evaluation;

/// A job for Redis.
#[derive(Debug)]
pub enum Job<D> {
    /// Charges a waiting request.
    Check(Box<CheckJob<D>>),
    /// Undoes a charge after its request has ended.
    Back(Charge),
}

/// The Redis limits of one request.
#[derive(Debug)]
pub struct CheckJob<D> {
    /// First the enforced limits together, if any; then each dry-run limit separately.
    pub limits: Vec<Vec<LimitRequest>>,
    /// The breaker's pass, for the outcome.
    pub pass: Pass,
    /// When it began to wait.
    pub since_ms: u64,
    /// The form of refusal for the client: the request's headers are not readable after the wait.
    pub client: Client,
    /// The request's evaluation.
    pub evaluation: Evaluation<D>,
}

/// Jobs that wait together.
type Jobs<D> = Vec<Pending<Job<D>>>;

/// Groups jobs into calls that the topology allows.
#[derive(Debug)]
pub struct LimitPlan<D> {
    topology: Topology,
    of: PhantomData<fn() -> D>,
}

impl<D> LimitPlan<D> {
    pub fn new(topology: Topology) -> Self {
        let of = PhantomData;
        Self { topology, of }
    }

    fn group(
        &self,
        requests: Jobs<D>,
        plan: fn(Jobs<D>) -> PlannedBatch<Job<D>>,
    ) -> Vec<PlannedBatch<Job<D>>> {
        match self.topology {
            _ if requests.is_empty() => vec![],
            Topology::Single => vec![plan(requests)],
            // With a cluster, a request has at most one key in Redis: the configuration check ensures it.
            Topology::Cluster => requests
                .into_iter()
                .map(|request| plan(vec![request]))
                .collect(),
        }
    }
}

impl<D> Plan for LimitPlan<D> {
    type Job = Job<D>;

    fn plan(&self, requests: Jobs<D>, _now_ms: u64) -> Vec<PlannedBatch<Job<D>>> {
        let is_check = |request: &Pending<Job<D>>| matches!(request.job, Job::Check(_));
        let (checks, backs): (Vec<_>, Vec<_>) = requests.into_iter().partition(is_check);
        // Ended requests free capacity for new ones.
        let mut calls = self.group(backs, back_call);
        calls.extend(self.group(checks, check_call));
        calls
    }
}

fn check_call<D>(requests: Jobs<D>) -> PlannedBatch<Job<D>> {
    let limits: Vec<&Vec<LimitRequest>> = requests
        .iter()
        .filter_map(|request| match &request.job {
            Job::Check(job) => Some(&job.limits),
            Job::Back(_) => None,
        })
        .flatten()
        .collect();
    let call = limit::call(&limits);
    PlannedBatch { call, requests }
}

fn back_call<D>(requests: Jobs<D>) -> PlannedBatch<Job<D>> {
    let charges: Vec<Charge> = requests
        .iter()
        .filter_map(|request| match &request.job {
            Job::Back(charge) => Some(charge.clone()),
            Job::Check(_) => None,
        })
        .collect();
    let call = limit_back::call(&charges);
    PlannedBatch { call, requests }
}
