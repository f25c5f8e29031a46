//! Jobs for Redis, and how they are grouped into script calls.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::cache::LinkName;
use crate::click::BatchId;
use crate::code::LinkId;
use crate::redis::keys::LinkKeys;
use crate::redis::link_read::Purpose;
use crate::redis::{link_back, link_clicks, link_read};
use weir_base::breaker::Pass;
use weir_engine::pump::{Pending, Plan, PlannedBatch};
use weir_scripts::Call;

use crate::engine::unused::UnusedClick;

/// A job for Redis.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    /// Reads a link, for a waiting request or to refresh the cache.
    Read(ReadJob),
    /// Appends a batch of clicks.
    Clicks { id: BatchId, payload: Vec<u8> },
    /// Returns an unused click.
    Back(UnusedClick),
}

/// The read of a link.
#[derive(Clone, Debug)]
pub(crate) struct ReadJob {
    pub(crate) name: LinkName,
    pub(crate) link: LinkId,
    /// The purpose of the read.
    pub(crate) purpose: Purpose,
    /// The permit of the circuit breaker.
    pub(crate) pass: Pass,
    /// The change counter when the read began: see `Links::changes`.
    pub(crate) changes: u32,
}

/// How jobs become calls.
#[derive(Clone, Debug)]
pub(crate) struct LinkPlan {
    pub(crate) key_prefix: String,
    pub(crate) renew_permille: u32,
}

impl Plan for LinkPlan {
    type Job = Job;

    /// Makes each read a call of its own: its keys share a slot, and each click counts. All calls go in one batch.
    fn plan(&self, requests: Vec<Pending<Job>>, _now_ms: u64) -> Vec<PlannedBatch<Job>> {
        let plan = |request: Pending<Job>| PlannedBatch {
            call: self.call(&request.job),
            requests: vec![request],
        };
        requests.into_iter().map(plan).collect()
    }
}

impl LinkPlan {
    fn call(&self, job: &Job) -> Call {
        match job {
            Job::Read(job) => {
                let keys = LinkKeys::new(&self.key_prefix, &job.link);
                link_read::call(&keys, self.renew_permille, job.purpose)
            }
            Job::Clicks { id, payload } => {
                link_clicks::call(&self.key_prefix, *id, payload.clone())
            }
            Job::Back(unused) => {
                let keys = LinkKeys::new(&self.key_prefix, &unused.link);
                link_back::call(&keys, unused.click)
            }
        }
    }
}
